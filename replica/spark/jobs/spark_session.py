"""What every job stands on: a SparkSession, folders for its state, a query that runs until it is told to end.

Of Spark and of the source ``mysql-binlog`` only; what is done with the changes is the jobs' own.
"""

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import replica.spark
from protocol.errors import ConfigurationError, MissingExtraError, ReplicaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_STATE_FOLDER: Final = "_state"
_POLL_SECONDS: Final = 1
_ENDING: Final = (signal.SIGINT, signal.SIGTERM)
# Nobody from outside, no web server, and days that begin when they begin in UTC.
_LOCAL_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
)
_LOCALES: Final = ("LC_ALL", "LC_CTYPE", "LANG")
_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
    }
)
# How an error of ours stands in the text of a Python process of Spark.
_OUR_ERROR: Final = re.compile(r"^(?:protocol\.errors\.)(\w+): (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class State:
    """Where a streaming job keeps what it must find again: Spark's checkpoint, and the spool of the source."""

    checkpoint: str
    spool: str


@dataclass(frozen=True, slots=True)
class Pace:
    """When micro-batches run: ``once`` for all that is there and no more, else every ``interval`` ("10 seconds").

    Without an interval the next one begins when the last one has ended.
    """

    once: bool = False
    interval: str | None = None


def state_of(target: str, folder: str | None = None, spool: str | None = None) -> State:
    """The state of a job that writes to ``target``: within it, so that whoever deletes the one begins anew.

    Readers of Parquet and of Delta pass over folders that begin with ``_``. The spool is on a disk of the driver:
    raises ``ConfigurationError`` when the state is to be elsewhere and no ``spool`` is given.
    """
    base = absolute(folder or f"{target.rstrip('/')}/{_STATE_FOLDER}")
    if spool is None and local_path(base) is None:
        raise ConfigurationError(
            f"spool: {base} is no folder of this machine -- say where the spool is to be"
        )
    return State(f"{base}/checkpoint", absolute(spool or f"{base}/spool"))


def local_path(path: str) -> str | None:
    """The path without ``file:``; None for one that is not of this machine."""
    path = re.sub(r"^file:(//(?=/))?", "", path)
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path) else path


def absolute(path: str) -> str:
    """The same place for every process: a path of this machine without ``file:``, from the root."""
    local = local_path(path)
    return path if local is None else os.path.abspath(local)


def require_spark() -> None:
    """Raises ``MissingExtraError`` unless PySpark and pyarrow can be imported."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError:
        raise MissingExtraError("Jobs on Spark", "spark") from None


def require_delta() -> None:
    """Raises ``MissingExtraError`` unless deltalake can be imported."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise MissingExtraError("Writing Delta tables", "delta") from None


def open_session(
    session: "SparkSession | None" = None, *, name: str = "mysql-replica", master: str | None = None
) -> "SparkSession":
    """The session given, else the active one, else a new one, which knows the source ``mysql-binlog``.

    A new one is what ``spark-submit`` says; without it, ``master`` or ``local[*]``, which only this machine reaches.
    Raises ``MissingExtraError`` without PySpark.
    """
    require_spark()
    from pyspark.sql import SparkSession

    found = session or SparkSession.getActiveSession()
    if found is None:
        builder = SparkSession.builder.appName(name)
        settings = dict(_SETTINGS)
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
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
    """For the JVM that is about to start here."""
    # Workers are to run what runs here.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not any(os.environ.get(name) for name in _LOCALES):
        # Else Java writes no folder whose name is not ASCII: a table's.
        os.environ["LC_ALL"] = "C.UTF-8"


@contextlib.contextmanager
def session_for(name: str, master: str | None = None) -> Iterator["SparkSession"]:
    """``open_session`` for as long as a command runs: one that was there before is left as it was."""
    require_spark()
    from pyspark.sql import SparkSession

    before = SparkSession.getActiveSession()
    session = open_session(before, name=name, master=master)
    try:
        yield session
    finally:
        if before is None:
            session.stop()


def read_stream(spark: "SparkSession", source: Mapping[str, str], state: State) -> "DataFrame":
    """The changes of a live source; ``source`` are options of ``mysql-binlog``."""
    return spark.readStream.format("mysql-binlog").options(**{"spoolDir": state.spool} | dict(source)).load()


def read_batch(spark: "SparkSession", source: Mapping[str, str]) -> "DataFrame":
    """The changes of files (option ``path``), or of what a live source holds now."""
    return spark.read.format("mysql-binlog").options(**source).load()


def start_query(
    writer: "DataStreamWriter", state: State, pace: Pace | None = None, *, path: str | None = None
) -> "StreamingQuery":
    """Start a streaming query that keeps its checkpoint in ``state``; without a pace, one batch after another."""
    pace = pace or Pace()
    writer = writer.option("checkpointLocation", state.checkpoint)
    if pace.once:
        writer = writer.trigger(availableNow=True)
    elif pace.interval is not None:
        writer = writer.trigger(processingTime=pace.interval)
    return writer.start(path)


def await_queries(*queries: "StreamingQuery") -> None:
    """Wait until all have ended. If one fails, or Ctrl-C or SIGTERM comes, the others are stopped in order.

    Raises the ``ReplicaError`` that has ended one, and what Spark raises for anything else.
    """
    is_stopped = threading.Event()
    with our_errors(), _signals(is_stopped):
        try:
            while not is_stopped.is_set() and (running := [query for query in queries if query.isActive]):
                # In turns: signals, and what the others do, are seen between them.
                running[0].awaitTermination(_POLL_SECONDS)
                _raise_failure(queries)
            _raise_failure(queries)
        finally:
            for query in queries:
                query.stop()


def _raise_failure(queries: "Sequence[StreamingQuery]") -> None:
    for query in queries:
        failure = None if query.isActive else query.exception()
        if failure is not None:
            raise failure


@contextlib.contextmanager
def _signals(event: threading.Event) -> Iterator[None]:
    """Signals that end a program set the event, instead of breaking off a conversation with the JVM."""
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
    """Raise what Spark tells of an error of ours, in another process and many lines, as ``ReplicaError`` in one."""
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
