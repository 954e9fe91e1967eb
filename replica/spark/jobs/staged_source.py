"""The data source of jobs with kept tables: the task that reads a piece of the log also writes its rows to files.

    mysql-binlog            a piece -> packed rows    through Spark
    mysql-replica-staged    a piece -> packed rows -> files of the target; a description of the rows, through Spark

So rows do not pass through Spark, and a micro-batch is one job of Spark. With packed rows, which another Python
process staged at the end of a write, a batch of 16 MB took 0.2 s of processor more. A task that fails, or that is run
again, leaves files that no state names; ``keeper`` deletes them like files that were merged.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

import replica.spark
from protocol.records import record

from ..data_source import BinlogDataSource, BinlogReader
from ..packed import PACKED_SCHEMA
from ..packed_items import PackedItem
from ..source_options import parse_options
from ..stream_reader import BinlogStreamReader
from ..table_mode import spark_ddl
from ..table_reader import TableReader
from .staging import Staged, StagingFile, staged_from_json, staged_to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "mysql-replica-staged"
_TARGET, _CHANGELOG = "stagingTarget", "stagingChangelog"
_SCHEMA: Final = pa.schema([pa.field("staged", pa.string(), nullable=False), ("row_count", pa.int64())])


def register(spark: "SparkSession") -> None:
    """Register the source in a session, which may be one of Spark Connect."""
    spark.dataSource.register(LocalStagedSource if replica.spark.is_local(spark) else StagedSource)


def staging_options(target: str, *, is_changelog: bool) -> dict[str, str]:
    """The options of the source that ``mysql-binlog`` does not have."""
    return {_TARGET: target, _CHANGELOG: str(is_changelog)}


def staged_items(frame: "DataFrame") -> list[Staged]:
    """The items of a frame of this source, in the order of the log; their rows are in files."""
    return [staged_from_json(json.loads(row["staged"])) for row in frame.collect()]


@record(frozen=True, slots=True)
class _Staging:
    """Stages the packed rows of a task. The repr shows no secret."""

    target: str
    storage: Mapping[str, str]
    is_changelog: bool

    def __repr__(self) -> str:
        return f"staging in {self.target}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        file = StagingFile(self.target, self.storage, is_changelog=self.is_changelog)
        for batch in batches:
            items = [PackedItem(**row) for row in batch.to_pylist()]
            texts = [json.dumps(staged_to_json(file.stage(item))) for item in items]
            counts = [item.row_count for item in items]
            yield pa.RecordBatch.from_arrays([pa.array(texts), pa.array(counts, pa.int64())], schema=_SCHEMA)
        file.close()


class StagedSource(BinlogDataSource):
    """``mysql-binlog`` in packed mode, whose rows are in files of the target."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._target, self._is_changelog = options.pop(_TARGET), options.pop(_CHANGELOG) == "True"

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> str:
        """The description of an item (``Staged``) as JSON, and the number of its row changes."""
        return spark_ddl(_SCHEMA)

    def reader(self, schema: StructType) -> BinlogReader | TableReader:
        """The reader of a batch query."""
        return super().reader(_packed_schema())

    def streamReader(self, schema: StructType) -> BinlogStreamReader:
        """The reader of a streaming query."""
        return super().streamReader(_packed_schema())

    def sink(self) -> _Staging:
        """The function that writes a task's rows to files."""
        return _Staging(self._target, parse_options(self.options).settings.storage, self._is_changelog)


class LocalStagedSource(StagedSource):
    """The same where executors run in the driver's process."""

    shares_folders = True


def _packed_schema() -> StructType:
    found = from_arrow_schema(PACKED_SCHEMA)
    assert isinstance(found, StructType)
    return found
