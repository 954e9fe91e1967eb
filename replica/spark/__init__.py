"""Binary logs as tables of Apache Spark, in batches and as streams (extra ``[spark]``: PySpark 4.2 or later).

    import replica.spark

    replica.spark.register(spark)
    changes = spark.read.format("mysql-binlog").load("/logs/binlog.*")
    orders = spark.read.format("mysql-binlog").options(schemaMode="table", table="shop.orders").load("/logs/binlog.*")

Options are described at ``replica.spark.source_options.SourceOptions``, envelope columns at
``replica.spark.envelope``, table columns at ``replica.spark.table_mode``. ``seq`` (``_seq``) puts all changes in the
order of the log, however they were read. The workers import this package, so it must be installed where they run.

    options    what the user wants
    planner    files -> pieces, cut between transactions          offsets, spool, live    the same of a live source
    pieces     a piece -> events with undecoded rows               stream                  Spark's micro-batches
    changes    -> changes with what their transaction's end says
    gather     -> RecordBatches of one table each
    envelope   -> any table's rows in one schema: json_text, variant
    tables     -> one table's typed columns
    packed     -> many tables' typed columns, in the order of the log, for ``jobs``
    source     all of that behind PySpark's Data Source API
    jobs       whole pipelines to Parquet and Delta: ``mysql-replica spark``
"""

from typing import TYPE_CHECKING

from protocol.errors import MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .data_source import BinlogDataSource

__all__ = ["BinlogDataSource", "register"]


def register(spark: "SparkSession") -> None:
    """Make the format ``mysql-binlog`` known to a session. Raises ``MissingExtraError`` without PySpark."""
    spark.dataSource.register(_data_source())


def _data_source() -> "type[BinlogDataSource]":
    try:
        from .data_source import BinlogDataSource
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "py4j", "pyarrow", "numpy"):
            raise
        raise MissingExtraError("Reading binary logs with Spark", "spark") from None
    return BinlogDataSource


def __getattr__(name: str) -> object:
    """``BinlogDataSource`` when it is asked for: most of this package needs no PySpark."""
    if name == "BinlogDataSource":
        return _data_source()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
