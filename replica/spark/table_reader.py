"""``snapshot=only``: the rows of one table of a live source as they are now, read by executors, without the log.

    driver      the table's key -> ranges, for at most ``snapshotParallelism`` tasks
    executors   their ranges, chunk by chunk, straight to RecordBatches; each over one connection of its own

All tasks read one server, also where several are behind its address. Columns: the table's as in table mode, and
``_file`` and ``_pos``: no change after this place of the log is in the row. Chunks are read at different moments. To
get the table, follow the log from a place before all of them, and let changes replace rows by key
(``replica.spark.read_table`` gives that place). Executors log in themselves, so the password is in an environment
variable or a file of each machine, not in the plan.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from protocol.errors import ConfigurationError, SchemaMismatchError
from protocol.records import record, replace
from protocol.rows.table import Table

from ..arrow import batch_schema
from ..config.table_names import split_text
from ..snapshot.chunk_reader import prepare_session
from ..snapshot.key_splits import split_by_key
from ..snapshot.range_reader import RangeChunk, open_behind, read_ranges
from ..snapshot.row_keys import KeyRange
from ..snapshot.table_list import list_named, read_plans
from ..spool.live_log import LiveLog
from ..spool.offsets import Offset, parse_offset
from .json_text import decimal_texts
from .source_options import SourceOptions, parse_options
from .stream_connection import connection_options, named_for_spark
from .table_mode import schema_difference, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The columns of a chunk's high mark: the place of the log after which no change is in its rows.
PLACE: Final = (pa.field("_file", pa.string(), nullable=False), pa.field("_pos", pa.int64(), nullable=False))

_T = TypeVar("_T")


class TableRanges(InputPartition):
    """The ranges that one task reads, and the server."""

    def __init__(self, ranges: Sequence[KeyRange], server: Offset) -> None:
        self.value = tuple(ranges)
        self.server = server


class TableReader(DataSourceReader):
    """Plans on the driver, reads on executors. It keeps the options as given, which have no password."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(given)
        self._schema = to_arrow_schema(schema, timezone="UTC")

    @named_for_spark()
    def partitions(self) -> Sequence[InputPartition]:
        """The ranges of each task."""
        ranges, server = _run(_plan(parse_options(self._given), self._schema))
        return [TableRanges(some, server) for some in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some ranges."""
        if not isinstance(partition, TableRanges):
            # The table is empty, so Spark has made a partition of its own.
            return
        options = parse_options(self._given)
        with asyncio.Runner() as runner:
            table = _identity(options)
            chunks = read_ranges(connection_options(options), table, partition.value, partition.server)
            try:
                checked: Table | None = None
                while (chunk := runner.run(_next(chunks))) is not None:
                    if chunk.table is not checked:
                        _check(chunk.table, self._schema)
                        checked = chunk.table
                    yield _batch(chunk, self._schema)
            finally:
                runner.run(chunks.aclose())  # type: ignore[attr-defined]


@record(frozen=True, slots=True)
class TableRows:
    """The rows of a table, and the place of the log to go on from: ``startingOffsets`` of a query.

    Each row has all changes before the place, and may have later ones.
    """

    rows: "DataFrame"
    offset: str


def read_table(spark: "SparkSession", source: Mapping[str, str]) -> TableRows:
    """The rows that ``snapshot=only`` reads, and the place from which to follow the log."""
    options = parse_options(source)
    if options.starting:
        raise ConfigurationError(
            "startingOffsets: read_table finds the place of the log itself: leave it out"
        )
    with closing(LiveLog(connection_options(options), "")) as live:
        offset = live.find("snapshot")
    text = json.dumps(offset.to_dict())
    rows = spark.read.format("mysql-binlog").options(**source, startingOffsets=text).load()
    return TableRows(rows, text)


def schema_of_rows(options: SourceOptions) -> pa.Schema:
    """The schema of the rows: the table as it is now. ``ConfigurationError`` if the source does not show it."""
    return _run(_read_schema(options))


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)


async def _next(chunks: AsyncIterator[RangeChunk]) -> RangeChunk | None:
    return await anext(chunks, None)


def _identity(options: SourceOptions) -> tuple[str, str]:
    assert options.table is not None
    return split_text(options.table)


def _server(options: SourceOptions) -> Offset | None:
    """The server to read from, if an offset names one. It has no GTIDs, so that no other server will do."""
    offset = parse_offset("startingOffsets", options.starting.get("startingOffsets", "latest"))
    return None if offset is None else replace(offset, gtid_set=None)


async def _read_schema(options: SourceOptions) -> pa.Schema:
    session, source = await open_behind(connection_options(options), _server(options))
    try:
        table = _identity(options)
        plan = (await read_plans(session, source, [table], session.options)).get(table)
    finally:
        await session.aclose()
    if plan is None:
        raise ConfigurationError(
            f"table: the source has no table {options.table}, or the user may not SELECT from it"
        )
    return _schema(plan.table)


async def _plan(options: SourceOptions, expected: pa.Schema) -> tuple[list[list[KeyRange]], Offset]:
    session, source = await open_behind(connection_options(options), _server(options))
    try:
        await prepare_session(session)
        table = _identity(options)
        listed = await list_named(session, [table])
        plan = (await read_plans(session, source, [table], session.options)).get(table)
        if plan is None or not listed:
            raise ConfigurationError(f"table: the source has no table {options.table}")
        listed[0].check()
        _check(plan.table, expected)
        ranges = await split_by_key(session, plan, options.snapshot_parallelism, listed[0].estimate)
        return ranges, Offset.at(source, "", 0, None)
    finally:
        await session.aclose()


def _schema(table: Table) -> pa.Schema:
    columns = [pa.field(field.name, spark_type(field.type)) for field in batch_schema(table, metadata=())]
    taken = {field.name for field in PLACE} & {field.name for field in columns}
    if taken:
        raise ConfigurationError(f"snapshot: {table} has a column called {', '.join(sorted(taken))}")
    return pa.schema([*columns, *PLACE])


def _check(table: Table, expected: pa.Schema) -> None:
    wanted, found = ({field.name: field.type for field in schema} for schema in (expected, _schema(table)))
    if wanted != found:
        raise SchemaMismatchError(
            f"the columns of {table} are not those of this query: {schema_difference(wanted, found)}"
        )


def _batch(chunk: RangeChunk, schema: pa.Schema) -> pa.RecordBatch:
    batch = chunk.rows
    columns = [converted(batch.column(field.name)) for field in list(schema)[: -len(PLACE)]]
    columns += [
        pa.repeat(pa.scalar(value, field.type), batch.num_rows)
        for value, field in zip((chunk.high.file, chunk.high.position), PLACE, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def converted(array: pa.Array) -> pa.Array:
    """A column of a table in the type in which Spark receives it."""
    kind = spark_type(array.type)
    if array.type == kind:
        return array
    return decimal_texts(array) if array.type.id == pa.decimal256(1, 0).id else array.cast(kind)
