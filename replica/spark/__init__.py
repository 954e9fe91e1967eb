"""Binary logs as tables of Apache Spark, in batches and as streams (extra ``[spark]``: PySpark 4.2 or later).

    import replica.spark

    replica.spark.register(spark)
    changes = spark.read.format("mysql-binlog").load("/logs/binlog.*")
    orders = spark.read.format("mysql-binlog").options(schemaMode="table", table="shop.orders").load("/logs/binlog.*")

Options (``replica.spark.source_options.SourceOptions`` describes each; case does not matter in their names):

    path                            binlog files: a path, a pattern, a folder or an ``.index`` file
    host, port, user, unixSocket    a live source instead; also serverId, heartbeat, connectTimeout
    password                        or passwordEnv (an environment variable), or passwordFile
    tls, tlsCa, tlsCert, tlsKey     also serverPublicKeyPath, getServerPublicKey, enableCleartextPlugin
    includeTables, excludeTables    patterns such as ``shop.*``, separated by commas
    schemaMode                      envelope (default), table; packed, packed_envelope (for ``jobs``)
    rowFormat, includeDdl           envelope: rows as variant (default) or json; statements as rows, too
    table, images                   table mode: ``shop.orders``; after (default) or both images
    onSchemaChange                  table mode, when the columns change: fail (default), ignore, null
    onSchemaMismatch                when column names are lost: error (default), or positional: @1, @2...
    onStatement                     statements that changed rows unseen: fail (default), ignore
    startingOffsets                 earliest, latest (default) or an offset's JSON; a live source only
    startingTimestamp               or startingGtidSet: other ways to say where a live source's log is read from
    endingOffsets                   where a batch of a live source ends: latest (default) or an offset's JSON
    spoolDir                        where a stream keeps what Spark has not committed yet; spoolCache if it is a URI
    maxSpoolBytes                   a stream stops receiving at this size of the spool: 1g (default)
    sharedFolders                   whether executors see the driver's files; default: with a local master only
    storageOptions                  JSON with keys and endpoint of an object store
    sourceName                      a name for the source, in a column of its own
    maxRowsPerTrigger               or maxBytesPerTrigger: the approximate size of a micro-batch
    maxPartitionBytes               the approximate size of a partition: 128m (default)
    snapshot                        only: the rows of ``table`` as they are now, read by executors, without the log;
                                    initial: a new stream begins with the rows of its tables, with the op r
    snapshotParallelism             how many connections read tables at most: 4 (default)
    failOnDataLoss                  false: read on after events that the source has purged
    verifyChecksum                  true (default) or false
    maxEventBytes                   the largest event: a larger one is an error before it takes memory
    keyring                         for encrypted files; MariaDB: keyFile, keyFileSecretEnv, keyFileIterations

Columns of the envelope (described at ``replica.spark.envelope``): op, schema, table, before, after, key, ts, gtid,
source, seq, sql, source_name. Columns of table mode (``replica.spark.table_mode``): the table's own and _op, _seq,
_ts, _gtid, _file, _pos, _source_name; with ``images=both`` also _outcome, _xa, _absent, _before, _before_absent.
``seq`` and ``_seq`` sort all changes in the order of the log. The package must be installed on each machine.

What runs where: the driver connects to the source and plans; it keeps received events in ``spoolDir`` until Spark has
committed them. Executors decode. With a local master they read the driver's files. On a cluster the driver sends them
up to 16 MB of the log with the tasks of a batch, and writes more to ``spoolDir`` if that is a URI of a folder that
all machines see (``file:///mnt/shared/spool``, ``s3://bucket/spool``). Files in an object store are read by
executors, one task each. A large transaction is cut and read by many tasks. With such a URI a query may go on with
its driver on another machine: it fetches the log from the source again, and column names of the past from the URI.

A table as it is now, and the place in the log after which every change comes that its rows may lack:

    found = replica.spark.read_table(spark, {"host": ..., "user": ..., "passwordEnv": "PW", "table": "shop.orders"})
    found.rows, found.offset        # a DataFrame, and startingOffsets of a query

The first micro-batch of a new query only notes where it begins. So ``Trigger.Once``, which Spark has deprecated,
reads nothing at first: use ``Trigger.AvailableNow``.

What the progress of a streaming query shows: ``numInputRows`` counts rows; jobs that write Delta tables, or Parquet
on S3, count them in ``observedMetrics["changes"]["rows"]`` (not under Spark Connect): they pack many rows into one.
``sources[0]["latestOffset"]`` has the last offset received, and ``lag_bytes``, ``lag_seconds``, ``received_bytes``,
``spool_bytes`` (the spool on the driver's disk) and ``stored_bytes`` (objects in ``spoolDir``). A stream whose spool
is full stops receiving and stays connected; if the connection is cut all the same, the log says why, and the stream
reconnects.

``replica.spark.read_current(spark, target, "shop.orders")`` reads a table of ``mirror`` with the changes that wait.

The modules, in the order in which a change passes through them (``replica.spool`` has what comes before):

    source_options   the options of a query, read and checked
    changes          the events of a piece of the log -> row changes with the facts of their transaction
    cut_inside       a large transaction -> parts, which tasks can read one by one
    piece_sender     pieces and parts -> executors
    gather           -> RecordBatches of one table each
    envelope         -> the rows of any table in one schema, by json_text or variant
    table_mode       -> the typed columns of one table
    packed           -> the typed columns of many tables, in the order of the log, for ``jobs``
    packed_items     such rows as tasks of ``jobs`` take them
    unlogged         generated columns that a log leaves out, for packed mode
    read_task        all of these steps for one piece: what a Spark task runs
    stream_reader    the micro-batches of a live source
    table_reader     the rows of a table as they are now, in place of the log
    initial_copy     the rows of tables before the changes of a stream
    worker_heap      less garbage collection between the tasks of a process
    data_source      PySpark's Data Source API, by which Spark uses the modules above
    jobs             whole pipelines to Parquet and Delta: ``mysql-replica spark``
"""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from protocol.errors import MissingExtraError

from .worker_heap import keep_heap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .data_source import BinlogDataSource
    from .table_reader import TableRows

__all__ = ["BinlogDataSource", "read_current", "read_table", "register"]

_NO_STORAGE: Final[Mapping[str, str]] = MappingProxyType({})

keep_heap()


def register(spark: "SparkSession") -> None:
    """Register the format ``mysql-binlog`` in a Spark session, which may be one of Spark Connect.

    Raises ``MissingExtraError`` without PySpark.
    """
    source = _data_source()
    if is_local(spark):
        from .data_source import LocalBinlogDataSource as source
    spark.dataSource.register(source)


def read_table(spark: "SparkSession", source: "Mapping[str, str]") -> "TableRows":
    """The rows of the option ``table`` as they are now: ``rows``, a DataFrame, and ``offset``, where the log goes on.

    ``source`` has options of ``mysql-binlog`` for a live source; give the password by passwordEnv or passwordFile. A
    query with ``startingOffsets=offset`` has every change that the rows may lack, and some that they have: let
    changes replace rows by key. Raises ``MissingExtraError`` without PySpark.
    """
    register(spark)
    from .table_reader import read_table

    return read_table(spark, {**source, "snapshot": "only"})


def read_current(
    spark: "SparkSession", target: str, table: str, storage: Mapping[str, str] = _NO_STORAGE
) -> "DataFrame":
    """A table of ``mirror`` or ``history`` with the changes that still wait for a merge: as of the last micro-batch.

    Readers of Delta see a table as of its last merge. ``storage`` has the storage options of the target. Evaluate the
    DataFrame within two minutes: files of changes that have been merged are deleted. Columns that ALTER TABLE adds
    come with the next merge. Raises ``ConfigurationError`` if the target has no such table.
    """
    # The jobs stand above this package.
    jobs = importlib.import_module("replica.spark.jobs.current_rows")
    frame: DataFrame = jobs.read_current(spark, target, table, storage)
    return frame


def is_local(spark: "SparkSession") -> bool:
    """Whether Spark's tasks run in the driver's process, and see its files."""
    return (spark.conf.get("spark.master", "") or "").startswith("local")


def _data_source() -> "type[BinlogDataSource]":
    try:
        from .data_source import BinlogDataSource
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "py4j", "pyarrow", "numpy"):
            raise
        raise MissingExtraError("Reading binary logs with Spark", "spark") from None
    return BinlogDataSource


def __getattr__(name: str) -> object:
    """Import ``BinlogDataSource`` on first use: most of this package works without PySpark."""
    if name == "BinlogDataSource":
        return _data_source()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
