"""Reads ranges of a table chunk by chunk, each in a read view of its own: RecordBatches, and the view's high mark.

No chunk is corrected by the log: whoever reads also follows the log from a low mark that was read before. Behind one
address there may be several servers, and some that lag: the low mark says which ones may be read. The next chunk is
asked for before the one at hand is made into columns, so that the server reads meanwhile. A transaction ends with its
chunk, before rows are handed on. A chunk whose connection is lost is read again. A table without a key is one read
view, and several chunks: a temporary file holds what is more than some megabytes.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from protocol.errors import ConnectionLostError, SchemaMismatchError
from protocol.records import record, replace
from protocol.rows.table import Table
from protocol.rows.undecoded_rows import UndecodedRows

from ..config.options import Options
from ..source.hosts import first_host
from ..source.resolve_start import is_same_server
from ..source.server_facts import Source, ask, executed_gtids
from ..source.session import TRIES, Session
from ..spool.offsets import Offset
from .chunk_reader import Chunk, ChunkReader, prepare_session
from .chunk_sizes import ChunkSizes, LargeRowsError
from .marks import Place
from .read_plan import ReadPlan
from .row_keys import KeyBytes, KeyRange
from .source_marks import high_mark
from .table_list import read_plan
from .transaction_touches import TableId
from .whole_tables import undecoded_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ..arrow.result_rows import ResultBatches

_LOGGER: Final = logging.getLogger(__name__)
# A chunk is held in memory until it has been read. The first one has the rows of the option, and the others may have
# more: five queries go with each, and with 10,000 rows of 150 bytes a reader took 9 % of processor more.
_TARGET_BYTES: Final = 8 << 20
_MOST_ROWS: Final = 1 << 16
_ATTEMPTS: Final = 5
_RETRY_PAUSE: Final = 1.0
_NONE: Final[Iterable[UndecodedRows]] = ()


@record(slots=True, frozen=True)
class RangeChunk:
    """The rows of one chunk of a table. Nothing behind ``high`` is in them."""

    table: Table
    rows: "pa.RecordBatch"
    high: Place


async def open_behind(options: Options, low: Offset | None) -> tuple[Session, Source]:
    """A connection to a server whose tables have all changes before the low mark: the mark's own, or one that has its
    GTIDs. Raises ``ConnectionLostError`` if others answer some times in a row.
    """
    for turn in range(TRIES):
        session = await first_host(options, partial(Session.open, turn=turn))
        try:
            source = await ask(session)
            if low is None or await _has_all_before(low, session, source):
                return session, source
        except BaseException:
            session.abort()
            raise
        await session.aclose()
    raise ConnectionLostError(
        f"server {source.name} answers at {options.address}, and does not have all changes before {low}: it is not "
        "the one whose log is followed"
    )


async def _has_all_before(low: Offset, session: Session, source: Source) -> bool:
    if is_same_server(low.identity, source):
        return True
    if low.gtid_set is None or not source.has_gtids:
        return False
    return replace(low, gtid_set=str(await executed_gtids(session, source))).has_all_of(low)


async def read_ranges(
    options: Options, table: TableId, ranges: Sequence[KeyRange], low: Offset | None = None
) -> AsyncIterator[RangeChunk]:
    """The chunks of some ranges, one after another, over one connection as ``open_behind`` opens it.

    Raises ``SchemaMismatchError`` if the table is gone or changed, and what ``ChunkReader`` raises.
    """
    connection = _Connection(options, table, low)
    left = iter(ranges)
    try:
        keys = next(left, None)
        raw = None if keys is None else await connection.read(keys, None)
        while raw is not None and keys is not None:
            keys = next(left, None) if raw.after is None else KeyRange(raw.after, keys.upto)
            started = None if keys is None else await connection.start(keys)
            # No more than two chunks are held: the undecoded rows of this one are freed here.
            chunk, others, raw = raw.in_columns(), raw.others_in_columns(), None
            if keys is not None:
                raw = await connection.read(keys, started)
            if chunk.rows.num_rows:
                yield chunk
            for chunk in others:
                yield chunk
    finally:
        await connection.aclose()


class _Connection:
    """Reads chunks, and connects again when the connection is lost."""

    def __init__(self, options: Options, table: TableId, low: Offset | None) -> None:
        self._options, self._table, self._low = options, table, low
        self._reading: _Reading | None = None
        first = options.snapshot_chunk_rows
        self._sizes = ChunkSizes(first, max(first, _MOST_ROWS), _TARGET_BYTES)

    async def start(self, keys: KeyRange) -> "_Started | None":
        """Ask for the first chunk of a range; None if the connection is lost: ``read`` tries again."""
        try:
            if self._reading is None:
                self._reading = await self._open()
            return await self._reading.start(keys)
        except ConnectionLostError:
            await self.aclose()
            return None

    async def read(self, keys: KeyRange, started: "_Started | None") -> "_RawChunk":
        """The first chunk of a range, for which ``start`` may have asked."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if self._reading is None:
                    self._reading, started = await self._open(), None
                return await self._reading.read(started or await self._reading.start(keys))
            except ConnectionLostError as error:
                await self.aclose()
                if attempt == _ATTEMPTS:
                    raise
                _LOGGER.info("reading %s.%s: %s -- trying again", *self._table, error)
                await asyncio.sleep(_RETRY_PAUSE)
            except LargeRowsError:
                self.abort()
                return await self.read(keys, None)
        raise AssertionError

    async def _open(self) -> "_Reading":
        return await _Reading.open(self._options, self._table, self._low, self._sizes)

    def abort(self) -> None:
        """Close the connection at once: rows are still to come."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.session.abort()

    async def aclose(self) -> None:
        """Close the connection."""
        reading, self._reading = self._reading, None
        if reading is not None:
            await reading.session.aclose()


@record(slots=True, frozen=True)
class _Started:
    """A chunk whose rows are on their way."""

    chunk: Chunk
    high: Place


@record(slots=True, frozen=True)
class _RawChunk:
    """The undecoded rows of a chunk. ``after`` is the bound behind it; None if nothing is left of its range.

    ``others``: more of them, if it is a whole table without a key.
    """

    table: Table
    batches: "ResultBatches"
    rows: UndecodedRows
    others: Iterable[UndecodedRows]
    high: Place
    after: KeyBytes | None

    def in_columns(self) -> RangeChunk:
        """The chunk with its rows as a batch."""
        return _in_columns(self.table, self.batches, self.high, self.rows)

    def others_in_columns(self) -> Iterator[RangeChunk]:
        """Chunks with the other rows, made one by one; ``rows`` are not kept for it."""
        return map(partial(_in_columns, self.table, self.batches, self.high), self.others)


def _in_columns(table: Table, batches: "ResultBatches", high: Place, rows: UndecodedRows) -> RangeChunk:
    return RangeChunk(table, batches.batch(rows), high)


class _Reading:
    """One connection, and the plan of the table."""

    def __init__(
        self, session: Session, source: Source, table: TableId, plan: ReadPlan, sizes: ChunkSizes
    ) -> None:
        self.session = session
        self._source = source
        self._table = table
        self._plan = plan
        self._batches = plan.select.batches()
        self._sizes = sizes

    @classmethod
    async def open(
        cls, options: Options, table: TableId, low: Offset | None, sizes: ChunkSizes
    ) -> "_Reading":
        session, source = await open_behind(options, low)
        try:
            await prepare_session(session)
            plan = await read_plan(session, source, table, options)
            if plan is None:
                raise SchemaMismatchError(
                    f"{'.'.join(table)} is not there any more, or the user may not see it"
                )
            return cls(session, source, table, plan, sizes)
        except BaseException:
            session.abort()
            raise

    async def start(self, keys: KeyRange) -> _Started:
        """Open a read view, and ask for the first chunk of a range."""
        plan = self._plan
        reader = ChunkReader(self.session, plan)
        await self.session.query("START TRANSACTION READ ONLY")
        await reader.touch(keys)
        high = await high_mark(self.session, self._source)
        chunk = await reader.start(keys, self._sizes.limit(self._table) if plan.key_names else None)
        return _Started(chunk, high)

    async def read(self, started: _Started) -> _RawChunk:
        """Read the rows to their end, and close the read view. ``LargeRowsError`` if there are to be fewer."""
        chunk, others = started.chunk, _NONE
        if self._plan.key_names:
            rows = UndecodedRows()
            while await chunk.read_undecoded(rows):
                self._sizes.check(self._table, chunk)
        else:
            rows, others = await undecoded_of(chunk, self._plan.table)
        await self.session.query("COMMIT")
        self._sizes.fit(self._table, chunk)
        return _RawChunk(self._plan.table, self._batches, rows, others, started.high, chunk.end)
