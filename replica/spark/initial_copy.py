"""``snapshot=initial``: the first micro-batch of a stream has the rows of its tables, and the log follows.

    driver      a place before all reads, and the ranges of all tables, for at most ``snapshotParallelism`` tasks
    executors   their ranges, chunk by chunk, in the form of the query's rows, with the op ``r``

Chunks are read at different moments, each after the place from which the log follows. So the log repeats some changes
that rows of the copy have already: apply ``r`` as an upsert, then the changes by key, and the tables are right. Rows
of the copy have the file, the position and the least sequence numbers of that place, and the time at which they were
read. A date that no calendar has is null in them. If the first micro-batch is run again, the tables are read again.

Where images lack columns (binlog_row_image MINIMAL or NOBLOB), an update that changes the key of a row during the
copy may find no row: the copy read that row under its new key, or not at all. Then the stream lacks the row's other
columns. The job ``mirror`` reads such rows again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from itertools import zip_longest
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from protocol.binlog.events import EventHeader, QueryEvent
from protocol.position import file_number
from protocol.records import record

from ..arrow import batch_schema
from ..config.table_filter import table_filter
from ..snapshot.chunk_reader import prepare_session
from ..snapshot.key_splits import split_by_key
from ..snapshot.range_reader import RangeChunk, open_behind, read_ranges
from ..snapshot.row_keys import KeyRange
from ..snapshot.table_list import check_found, check_tables, list_tables, read_plans
from ..snapshot.transaction_touches import TableId
from ..spool.offsets import Offset
from ..spool.pieces import LogPiece, RowLayouts
from ..spool.transaction_part import TransactionFacts
from .changes import PlacedChange
from .gather import METADATA, GatheredRows
from .read_task import ReadPlan, formed, writer_of
from .source_options import SourceOptions, parse_options
from .stream_connection import connection_options

_OP: Final = "r"
#: The number of sequence numbers reserved for the rows of one task.
_ROWS_OF_A_TASK: Final = 10**8


@record(frozen=True, slots=True)
class CopyTask:
    """The ranges of tables that one task reads. The log follows from ``place``."""

    number: int
    ranges: tuple[tuple[TableId, tuple[KeyRange, ...]], ...]
    place: Offset


class CopyPartition(InputPartition):
    """One task of the copy."""

    def __init__(self, task: CopyTask) -> None:
        self.value: CopyTask = task


def copy_partitions(options: SourceOptions, place: Offset) -> list[InputPartition]:
    """The tasks that read all tables of a query."""
    found = asyncio.run(_plan(options, place))
    return [CopyPartition(CopyTask(number, ranges, place)) for number, ranges in enumerate(found)]


async def _plan(
    options: SourceOptions, place: Offset
) -> list[tuple[tuple[TableId, tuple[KeyRange, ...]], ...]]:
    connection = connection_options(options)
    session, source = await open_behind(connection, place)
    try:
        await prepare_session(session)
        wants = table_filter(options.settings.tables, options.settings.exclude_tables)
        listed = await list_tables(session, wants)
        check_tables(listed)
        await check_found(session, options.settings.tables, [one.identity for one in listed])
        plans = await read_plans(session, source, [one.identity for one in listed], connection)
        readers: list[list[tuple[TableId, tuple[KeyRange, ...]]]] = [
            [] for _ in range(options.snapshot_parallelism)
        ]
        for one in listed:
            split = await split_by_key(session, plans[one.identity], len(readers), one.estimate)
            # The reader with the fewest ranges gets the first part, as a small table has only one.
            readers.sort(key=lambda ranges: sum(len(keys) for _, keys in ranges))
            for ranges, keys in zip_longest(readers, split):
                if keys:
                    ranges.append((one.identity, tuple(keys)))
    finally:
        await session.aclose()
    return [tuple(ranges) for ranges in readers if ranges]


def read_copy(task: CopyTask, given: Mapping[str, str], plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """The rows of one task. ``given`` has the options of the query, with which the task logs in."""
    return formed(plan, partial(_read, task, parse_options(given)))


def _read(task: CopyTask, options: SourceOptions, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    place = task.place
    piece = LogPiece(
        "",
        place.file,
        file_number(place.file),
        position=place.position,
        epoch=place.epoch,
        server_uuid=place.server_uuid,
    )
    writer = writer_of(piece, plan)
    count = 0
    with asyncio.Runner() as runner:
        for table, ranges in task.ranges:
            chunks = read_ranges(connection_options(options), table, ranges, place)
            try:
                while (chunk := runner.run(_next(chunks))) is not None:
                    first = task.number * _ROWS_OF_A_TASK + count
                    count += chunk.rows.num_rows
                    yield writer.rows(_gathered(chunk, place, first))
            finally:
                runner.run(chunks.aclose())  # type: ignore[attr-defined]


async def _next(chunks: AsyncIterator[RangeChunk]) -> RangeChunk | None:
    return await anext(chunks, None)


def _gathered(chunk: RangeChunk, place: Offset, first: int) -> GatheredRows:
    """The rows of a chunk as if one event had them."""
    size, rows = chunk.rows.num_rows, chunk.rows
    known = {field.name: column for field, column in zip(rows.schema, rows.columns, strict=True)}
    schema = batch_schema(chunk.table, images="both", metadata=METADATA)
    numbers = np.arange(size)
    known |= {"_op": pa.repeat(_OP, size), "_row": pa.array(numbers)}
    columns = [
        known[field.name].cast(field.type) if field.name in known else pa.nulls(size, field.type)
        for field in schema
    ]
    header = EventHeader(int(time.time()), 0, place.server_id or 0, 0, 0, 0)
    event = QueryEvent(header, place.file, place.position, 0, 0, 0, "", "", b"")
    change = PlacedChange(event, first, TransactionFacts(None, time.time_ns() // 1000, outcome="commit"))
    return GatheredRows(
        chunk.table,
        pa.RecordBatch.from_arrays(columns, schema=schema),
        [change],
        np.zeros(size, np.int64),
        numbers,
        RowLayouts(),
        lost_dates=False,
    )
