"""The common base of all jobs: a SparkSession, the folders of a job's state, running and ending streaming queries.

It knows Spark and the source ``mysql-binlog`` only; the jobs themselves process the changes.
"""

import contextlib
import logging
import os
import re
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import replica.spark
from protocol.errors import ConfigurationError, MissingExtraError, ReplicaError
from protocol.records import record

from .spark_errors import plain_errors, require_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

_STATE_FOLDER: Final = "_state"
_NO_SOURCE: Final[Mapping[str, str]] = MappingProxyType({})
_NO_SETTINGS: Final[Mapping[str, str]] = _NO_SOURCE
_SPOOL: Final = "spool"
# The sessions of Spark Connect, which has no SparkContext.
_CONNECT: Final = "pyspark.sql.connect."
#: The name of the source.
FORMAT: Final = "mysql-binlog"
# The local property that names the query of a micro-batch.
_POLL_SECONDS: Final = 1
_LOGGER: Final = logging.getLogger(__name__)
# Queries that ended by ``end_with``.
_ended: dict[str, Exception] = {}
_ENDING: Final = (signal.SIGINT, signal.SIGTERM)
# Spark on this machine only: no access from outside, no web server.
_LOCAL_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
)
_LOCALES: Final = ("LC_ALL", "LC_CTYPE", "LANG")
# Days begin in UTC, on every machine.
_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
    }
)
# Spark writes a file of a metadata log under such a name first; Hadoop puts its checksum beside it.
_UNFINISHED: Final = re.compile(r"\.{1,2}\d+\..+\.tmp(\.crc)?")
# An error of this project in the traceback of one of Spark's Python processes.
_OUR_ERROR: Final = re.compile(r"^(?:protocol\.errors\.)(\w+): (.+)$", re.MULTILINE)


@record(frozen=True, slots=True)
class State:
    """The folders of a streaming job's state: Spark's checkpoint, and the spool of the source.

    ``spool`` is what ``spoolDir`` is. None: with a local master beside the checkpoint; else in the target, which all
    machines see.
    """

    checkpoint: str
    spool: str | None = None


@record(frozen=True, slots=True)
class Pace:
    """When micro-batches run: ``once`` up to the log's present end, else every ``interval`` ("10 seconds").

    Without an interval, a micro-batch begins when the last one has ended.
    """

    once: bool = False
    interval: str | None = None


def state_of(
    target: str,
    folder: str | None = None,
    spool: str | None = None,
    *,
    source: Mapping[str, str] = _NO_SOURCE,
) -> State:
    """The state of a job that writes to ``target``. It is within the target: to begin anew, delete the target.

    Readers of Parquet and of Delta skip folders that begin with ``_``. ``folder`` is another place for it, ``spool``
    another place for the spool alone. ``source`` has the options of the source: with ``sourceName``, each source has
    a state of its own in the target.
    """
    names = [quote(value, safe="") for option, value in source.items() if option.lower() == "sourcename"]
    base = absolute(folder or "/".join([target.rstrip("/"), _STATE_FOLDER, *names]))
    return State(f"{base}/checkpoint", None if spool is None else absolute(spool))


def spool_of(target: str, state: State | None, *, is_local: bool) -> str:
    """``spoolDir`` of a job that writes to ``target``; without a ``state`` for a batch.

    With a local master the spool must be on a disk of this machine: raises ``ConfigurationError`` if the checkpoint
    is elsewhere and the state names no spool.
    """
    if state is not None and state.spool is not None:
        return state.spool
    base = f"{target.rstrip('/')}/{_STATE_FOLDER}" if state is None else os.path.dirname(state.checkpoint)
    if is_local:
        if local_path(base) is None:
            raise ConfigurationError(
                f"spool: {base} is not a folder of this machine -- give one for the spool (spool=)"
            )
        return f"{base}/{_SPOOL}"
    folder = f"{target.rstrip('/')}/{_STATE_FOLDER}"
    # Queries that share a target have a state each, so let them have a spool each, too.
    name = _SPOOL if base == folder else f"{_SPOOL}-{uuid.uuid5(uuid.NAMESPACE_URL, base).hex}"
    return f"{folder}/{name}" if local_path(folder) is None else f"file://{folder}/{name}"


def storage_of(source: Mapping[str, str]) -> dict[str, str]:
    """The storage options among options of ``mysql-binlog``."""
    from ..source_options import parse_storage

    found = [value for name, value in source.items() if name.lower() == "storageoptions"]
    return parse_storage(found[0]) if found else {}


def is_connect(session: "SparkSession") -> bool:
    """Whether this is a session of Spark Connect."""
    return type(session).__module__.startswith(_CONNECT)


def local_path(path: str) -> str | None:
    """The path without ``file:``; None for a path on another machine, such as ``hdfs://``."""
    path = re.sub(r"^file:(//(?=/))?", "", path)
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path) else path


def absolute(path: str) -> str:
    """The absolute path, which means the same in every process; paths on other machines stay as they are."""
    local = local_path(path)
    return path if local is None else os.path.abspath(local)


def require_spark() -> None:
    """Raises ``MissingExtraError`` unless PySpark and pyarrow can be imported."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError:
        raise MissingExtraError("A job on Spark", "spark") from None


def require_delta() -> None:
    """Raises ``MissingExtraError`` unless deltalake can be imported."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise MissingExtraError("Writing Delta tables", "delta") from None


def open_session(
    session: "SparkSession | None" = None,
    *,
    name: str = "mysql-replica",
    master: str | None = None,
    settings: Mapping[str, str] = _NO_SETTINGS,
) -> "SparkSession":
    """The given session, else the active one, else a new one; each gets the source ``mysql-binlog``.

    ``spark-submit`` configures a new session. Without it the master is ``master`` or ``local[*]``, which only this
    machine can reach. A new session has these ``settings``, too. Raises ``MissingExtraError`` without PySpark, and
    ``ConfigurationError`` without Java.
    """
    require_spark()
    from pyspark.sql import SparkSession

    found = session or SparkSession.getActiveSession()
    if found is None:
        builder = SparkSession.builder.appName(name)
        settings = {**_SETTINGS, **settings}
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            require_java()
            _prepare_environment()
            master = master or "local[*]"
        if master is not None:
            settings |= _LOCAL_SETTINGS if master.startswith("local") else {}
            settings["spark.master"] = master
        for key, value in settings.items():
            builder = builder.config(key, value)
        found = builder.getOrCreate()
        found.sparkContext.setLogLevel("ERROR")
    replica.spark.register(found)
    return found


def _prepare_environment() -> None:
    """Set environment variables for the JVM that is about to start."""
    # Spark's workers use this Python interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Arrow's allocator gives free memory back after 10 ms, and a worker that writes Parquet takes it again at once:
    # 0.06 to 0.18 s of the 0.45 that a leaf of 85 MB takes were page faults, 0.03 s with this.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "1000")
    if not any(os.environ.get(name) for name in _LOCALES):
        # Otherwise Java cannot write folders with names that are not ASCII, such as tables have.
        os.environ["LC_ALL"] = "C.UTF-8"


def save(frame: "DataFrame", source: "type[DataSource]", options: Mapping[str, str]) -> None:
    """Write rows by a data source of this project, from any thread.

    Spark looks a writer up in the session that is active in the calling thread (DataSource.lookupDataSource), and a
    new thread has none.
    """
    spark = frame.sparkSession
    spark.dataSource.register(source)
    if not is_connect(spark):
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]
    frame.write.format(source.name()).mode("append").options(**options).save()


@contextlib.contextmanager
def session_for(
    name: str, master: str | None = None, settings: Mapping[str, str] = _NO_SETTINGS
) -> Iterator["SparkSession"]:
    """``open_session`` for the time of a command. A session that was active before stays open.

    Raises errors of Spark, or of its machines, as a ``ReplicaError`` of one line.
    """
    require_spark()
    from pyspark.sql import SparkSession

    from ..stream_connection import named_for_spark

    before = SparkSession.getActiveSession()
    with plain_errors(), named_for_spark():
        session = open_session(before, name=name, master=master, settings=settings)
        try:
            yield session
        finally:
            if before is None:
                session.stop()


def read_stream(
    spark: "SparkSession", source: Mapping[str, str], target: str, state: State, *, name: str = FORMAT
) -> "DataFrame":
    """The changes of a live source as a stream; ``source`` has options of ``mysql-binlog``, or of ``name``."""
    is_local = replica.spark.is_local(spark)
    return _load(spark.readStream, name, source, lambda: spool_of(target, state, is_local=is_local))


@contextlib.contextmanager
def batch_of(
    spark: "SparkSession", source: Mapping[str, str], target: str, *, name: str = FORMAT
) -> Iterator["DataFrame"]:
    """The changes of files (option ``path``), or of a live source's log as it is now; as for ``read_stream``.

    If executors need much of the driver's files, it goes through a folder in the target, which is deleted at the end.
    """
    if replica.spark.is_local(spark):
        yield spark.read.format(name).options(**source).load()
        return
    spool = f"{spool_of(target, None, is_local=False)}/{uuid.uuid4().hex}"
    try:
        yield _load(spark.read, name, source, lambda: spool)
    finally:
        delete_folder(spool, storage_of(source))


def delete_folder(uri: str, storage: Mapping[str, str]) -> None:
    """Delete a folder of ours, as far as possible."""
    from ...spool.storage import system_of

    system, path = system_of(uri, storage)
    # The folder may not exist; files that cannot be deleted are no reason to fail.
    with contextlib.suppress(OSError):
        system.delete_dir(path)


def _load(
    reader: "DataFrameReader | DataStreamReader",
    name: str,
    source: Mapping[str, str],
    spool: Callable[[], str],
) -> "DataFrame":
    options = dict(source)
    if "spooldir" not in {name.lower() for name in options}:
        options["spoolDir"] = spool()
    return reader.format(name).options(**options).load()


def counted(frame: "DataFrame") -> "DataFrame":
    """The frame of a stream, whose progress then counts row changes: Spark itself counts items."""
    from pyspark.sql import functions

    rows = functions.coalesce(functions.sum("row_count"), functions.lit(0))
    return frame.observe("changes", rows.alias("rows"))


def check_pace(spark: "SparkSession", pace: Pace | None) -> None:
    """Raises ``ConfigurationError`` for an interval that Spark cannot read; Spark says so after the copy."""
    if pace is None or pace.interval is None:
        return
    try:
        spark.readStream.format("rate").load().writeStream.trigger(processingTime=pace.interval)
    except Exception as error:
        raise ConfigurationError(f"interval: must be as '10 seconds', not {pace.interval!r}") from error


def start_query(
    writer: "DataStreamWriter",
    state: State,
    pace: Pace | None,
    storage: Mapping[str, str],
    *,
    path: str | None = None,
) -> "StreamingQuery":
    """Start a streaming query with its checkpoint in ``state``; without ``pace``, one micro-batch after another.

    ``storage`` has the storage options of the checkpoint.
    """
    _delete_unfinished(state.checkpoint, storage)
    pace = pace or Pace()
    writer = writer.option("checkpointLocation", state.checkpoint)
    if pace.once:
        writer = writer.trigger(availableNow=True)
    elif pace.interval is not None:
        writer = writer.trigger(processingTime=pace.interval)
    return writer.start(path)


def _delete_unfinished(checkpoint: str, storage: Mapping[str, str]) -> None:
    """Delete the first micro-batch's offsets if a driver was killed while it wrote them.

    Spark 4.1 and later begin no query while the folder of offsets has any file, also this one (SPARK-53103).
    """
    from pyarrow.fs import FileSelector

    from ...spool.storage import system_of

    # If this process cannot read or write the checkpoint, Spark tells what is wrong.
    with contextlib.suppress(ConfigurationError, OSError):
        system, root = system_of(local_path(checkpoint) or checkpoint, storage)
        found = system.get_file_info(FileSelector(f"{root}/offsets", allow_not_found=True))
        if all(_UNFINISHED.fullmatch(info.base_name) for info in found):
            for info in found:
                system.delete_file(info.path)


def end_with(query: "StreamingQuery", error: Exception) -> None:
    """End a query with an error that did not happen in one of its micro-batches; ``await_queries`` raises it."""
    _LOGGER.error("%s: %s", query.id, error)
    _ended[str(query.runId)] = error
    query.stop()


def await_queries(*queries: "StreamingQuery") -> None:
    """Wait until all queries have ended. If one fails, or on Ctrl-C or SIGTERM, the others are stopped in order.

    Raises the ``ReplicaError`` that ended a query; for other failures, Spark's exception.
    """
    is_stopped = threading.Event()
    with our_errors(), _signals(is_stopped):
        try:
            while not is_stopped.is_set() and (running := [query for query in queries if query.isActive]):
                # Wait in short turns, to see signals and failures of the other queries.
                running[0].awaitTermination(_POLL_SECONDS)
                _raise_failure(queries)
            _raise_failure(queries)
        finally:
            for query in queries:
                query.stop()


def _raise_failure(queries: "Sequence[StreamingQuery]") -> None:
    for query in queries:
        failure = None if query.isActive else _ended.get(str(query.runId)) or query.exception()
        if failure is not None:
            raise failure


@contextlib.contextmanager
def _signals(event: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM set the event, instead of interrupting a call to the JVM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: event.set()) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def our_errors() -> Iterator[None]:
    """Raise an error of this project, which Spark reports with a long traceback, as a one-line ``ReplicaError``."""
    try:
        yield
    except ReplicaError:
        raise
    except Exception as error:
        found = _OUR_ERROR.findall(str(error))
        if not found:
            raise
        name, text = found[-1]
        raise ReplicaError(f"{text.strip()} ({name})") from error
