"""Reads ranges of a table chunk by chunk, each in a read view of its own: RecordBatches, and the view's high mark.

No chunk is corrected by the log: whoever reads also follows the log from a low mark that was read before. A
transaction ends with its chunk, before the rows are handed on. A chunk whose connection is lost is read again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

from protocol.errors import ConnectionLostError, SchemaMismatchError
from protocol.records import record
from protocol.rows.table import Table
from protocol.rows.undecoded_rows import UndecodedRows

from ..config.options import Options
from ..source.hosts import first_host
from ..source.server_facts import Source, ask
from ..source.session import Session
from .chunk_reader import ChunkReader, prepare_session
from .marks import Place
from .read_plan import ReadPlan
from .row_keys import KeyBytes, KeyRange
from .source_marks import high_mark
from .table_list import read_plan
from .transaction_touches import TableId

if TYPE_CHECKING:
    import pyarrow as pa

_LOGGER: Final = logging.getLogger(__name__)
# A chunk is held in memory until it has been read. The first one has the rows of the option, and the others may have
# more: four queries go with each, and with 10,000 rows of 150 bytes a reader took 9 % of processor more.
_TARGET_BYTES: Final = 8 << 20
_MOST_ROWS: Final = 1 << 16
_ATTEMPTS: Final = 5
_RETRY_PAUSE: Final = 1.0


@record(slots=True, frozen=True)
class RangeChunk:
    """The rows of one chunk of a table. Nothing behind ``high`` is in them."""

    table: Table
    rows: "pa.RecordBatch"
    high: Place


async def read_ranges(
    options: Options, table: TableId, ranges: Sequence[KeyRange]
) -> AsyncIterator[RangeChunk]:
    """The chunks of some ranges, one after another, over one connection.

    Raises ``SchemaMismatchError`` if the table is gone or changed, and what ``ChunkReader`` raises.
    """
    connection = _Connection(options, table)
    try:
        for keys in ranges:
            after, is_read = keys.after, False
            while not is_read:
                chunk, after = await connection.chunk(KeyRange(after, keys.upto))
                is_read = after is None
                if chunk.rows.num_rows:
                    yield chunk
    finally:
        await connection.aclose()


class _Connection:
    """Reads chunks, and connects again when the connection is lost."""

    def __init__(self, options: Options, table: TableId) -> None:
        self._options, self._table = options, table
        self._reading: _Reading | None = None

    async def chunk(self, keys: KeyRange) -> tuple[RangeChunk, KeyBytes | None]:
        """As ``_Reading.chunk``."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if self._reading is None:
                    self._reading = await _Reading.open(self._options, self._table)
                return await self._reading.chunk(keys)
            except ConnectionLostError as error:
                await self.aclose()
                if attempt == _ATTEMPTS:
                    raise
                _LOGGER.info("reading %s.%s: %s -- trying again", *self._table, error)
                await asyncio.sleep(_RETRY_PAUSE)
        raise AssertionError

    async def aclose(self) -> None:
        """Close the connection."""
        reading, self._reading = self._reading, None
        if reading is not None:
            await reading.session.aclose()


class _Reading:
    """One connection, and the plan of the table."""

    def __init__(self, session: Session, source: Source, plan: ReadPlan, rows: int) -> None:
        self.session = session
        self._source = source
        self._plan = plan
        self._batches = plan.select.batches()
        self._rows = rows
        self._most = max(rows, _MOST_ROWS)

    @classmethod
    async def open(cls, options: Options, table: TableId) -> "_Reading":
        session = await first_host(options, Session.open)
        try:
            await prepare_session(session)
            source = await ask(session)
            plan = await read_plan(session, source, table, options)
            if plan is None:
                raise SchemaMismatchError(
                    f"{'.'.join(table)} is not there any more, or the user may not see it"
                )
            return cls(session, source, plan, options.snapshot_chunk_rows)
        except BaseException:
            session.abort()
            raise

    async def chunk(self, keys: KeyRange) -> tuple[RangeChunk, KeyBytes | None]:
        """The first chunk of a range, and the bound behind it; None if nothing is left."""
        plan = self._plan
        await self.session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        high = await high_mark(self.session, self._source)
        chunk = await ChunkReader(self.session, plan).start(keys, self._rows if plan.key_names else None)
        rows = UndecodedRows()
        while await chunk.read_undecoded(rows):
            pass
        await self.session.query("COMMIT")
        if len(rows):
            self._rows = min(self._most, max(1, _TARGET_BYTES * len(rows) // max(chunk.size, 1)))
        return RangeChunk(plan.table, self._batches.batch(rows), high), chunk.end
