"""Reads a table in chunks by its key: rows as tuples with the values of the log, and the bounds of the next chunk.

A chunk is one SELECT. The caller opens the read view around it, and corrects the rows by the log: this module knows
no transactions, positions or other readers. Rows are handed on as they come from the network, some hundred at a time;
TCP holds back the rest.
"""

from collections.abc import AsyncIterator
from typing import Final

from protocol.conversation.packets import FrameStream, Item
from protocol.conversation.phases import BINARY_ROW
from protocol.errors import ProtocolError, SourceConfigurationError
from protocol.rows.result_compiler import Row
from protocol.rows.table import Table
from protocol.rows.undecoded_rows import UndecodedRows

from ..source.session import PIECE_SIZE, Session
from ..source.statement_answers import Question, rows_of
from .read_plan import ReadPlan
from .row_keys import KeyBytes, KeyRange
from .select_list import SelectList

#: Seconds without any byte of an answer after which a connection is given up.
SILENCE: Final = 60.0
# A time zone must not change values. ALLOW_INVALID_DATES: what the table holds is a bound of a chunk, too.
# net_write_timeout: the reader may be slower than the server for a while.
_SETTINGS: Final = (
    "SET SESSION time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES', character_set_results = NULL, "
    "net_write_timeout = 600"
)
_LARGEST_PACKET: Final = "SELECT @@max_allowed_packet"
# A server gathers what it sends in a buffer of 16 KB, which the largest packet that has come makes larger: 40 MB were
# 2,460 writes, and are 150 with this, for which the server takes 10 % less processor. It cuts the spaces off before
# it reads or logs the statement.
_LARGE_PACKET: Final = " " * PIECE_SIZE


async def prepare_session(session: Session) -> None:
    """Set up a session for ``ChunkReader``: values as stored, REPEATABLE READ, large writes."""
    settings = _SETTINGS
    if await session.query_as(int, _LARGEST_PACKET) >= 2 * PIECE_SIZE:
        settings += _LARGE_PACKET
    isolation = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
    for answer in await session.query_each([Question(settings), Question(isolation)]):
        rows_of(answer)


class ChunkReader:
    """Reads chunks of one table over a session of its own, one after another.

        reader = ChunkReader(session, plan)
        largest = await reader.largest_key()
        chunk = await reader.start(KeyRange(after, largest), limit=1000)
        async for rows in chunk: ...             # lists of row tuples
        after = chunk.end                        # None: the table is done

    ``session`` is prepared by ``prepare_session``. Methods raise ``SchemaMismatchError`` if the table no longer has
    the plan's shape, ``ServerError`` if the server refuses or stops (the table was dropped, deadlocks),
    ``ConnectionLostError`` and ``SourceSilentError`` (nothing for ``silence`` seconds). After any error but
    ``ServerError``, and after a chunk that was not read to its end, the session has to be closed.
    """

    def __init__(self, session: Session, plan: ReadPlan, *, silence: float = SILENCE) -> None:
        self._session = session
        self._plan = plan
        self._silence = silence

    async def touch(self, keys: KeyRange) -> None:
        """Open the table, and a read view, in a transaction that has begun: no DDL changes the table until its end.

        In an older read view, a server may show the old rows of another table that has got the name since; it refuses
        a table that was rebuilt since.
        """
        await self._session.start_rows(self._plan.touch_sql(keys), self._silence)
        await read_few(self._session, self._silence, 1)

    async def largest_key(self) -> KeyBytes | None:
        """The key of the last row; None for an empty table."""
        return await self._one_key(self._plan.largest_sql())

    async def smallest_key(self) -> KeyBytes | None:
        """The key of the first row; None for an empty table."""
        return await self.key_behind(KeyRange(), 1)

    async def key_behind(self, keys: KeyRange, rows: int) -> KeyBytes | None:
        """The key of the row that is so many rows (1: the first) into a range; None if it has fewer."""
        key = await self._one_key(self._plan.key_sql(keys, rows))
        if key is not None and key == keys.after:
            raise _goes_no_further(self._plan.table)
        return key

    async def start(self, keys: KeyRange, limit: int | None = None) -> "Chunk":
        """Begin to read the rows of a range; returns when the server has found the first one.

        With a ``limit`` the chunk ends after so many rows, and ``Chunk.end`` is the bound at which the next begins.
        """
        if (limit is not None or keys != KeyRange()) and not self._plan.key_names:
            raise SourceConfigurationError(
                f"{self._plan.table} has no key by which it could be read in chunks"
            )
        definitions = await self._session.start_rows(self._plan.rows_sql(keys, limit), self._silence)
        self._plan.select.check(definitions)
        return Chunk(self._session, self._plan.select, self._silence, keys, limit)

    async def _one_key(self, sql: str) -> KeyBytes | None:
        self._plan.select.check_key(await self._session.start_rows(sql, self._silence))
        rows = await read_few(self._session, self._silence, 1)
        return self._plan.select.key_alone(rows[0]) if rows else None


class Chunk:
    """The rows of one chunk: an asynchronous iterator of lists of row tuples, in the order of the key.

    ``rows`` and ``size`` count the rows and their bytes so far. When all are read, ``end`` is the bound at which the
    next chunk begins; it is None if nothing is left of the range.
    """

    def __init__(
        self, session: Session, select: SelectList, silence: float, keys: KeyRange, limit: int | None
    ) -> None:
        self.rows = 0
        self.size = 0
        self.end: KeyBytes | None = None
        self._session = session
        self._select = select
        self._silence = silence
        self._keys = keys
        self._limit = limit
        self._last: bytes | None = None

    def __aiter__(self) -> AsyncIterator[list[Row]]:
        return self

    async def __anext__(self) -> list[Row]:
        rows = await self._session.take_rows(self._take, self._silence)
        if not rows:
            self._finish()
            raise StopAsyncIteration
        return rows

    @property
    def _are_many(self) -> bool:
        """Whether rows of ``PIECE_SIZE`` bytes are still to come, by the limit.

        It matters for columns only, which are made faster than a server sends; for tuples there is always enough.
        """
        if self.size < PIECE_SIZE:
            return False
        return self._limit is None or (self._limit - self.rows) * self.size > PIECE_SIZE * self.rows

    def _take(self, frames: FrameStream) -> list[Row]:
        return self._count(frames.read_walked(BINARY_ROW, self._select.walk, self._select.rows))

    async def read_undecoded(self, rows: UndecodedRows) -> bool:
        """Add the next rows as they came, for ``SelectList.batches``; False at the end."""

        def take(frames: FrameStream) -> list[int]:
            return self._count(frames.read_walked(BINARY_ROW, rows.walk, rows.add))

        if await self._session.take_rows(take, self._silence, are_many=self._are_many):
            return True
        self._finish()
        return False

    async def read_payloads(self) -> list[bytes]:
        """The next rows, undecoded, for ``SelectList.rows``; empty at the end."""
        payloads = await self._session.read_rows(self._silence)
        if payloads:
            return self._count((payloads, sum(map(len, payloads)), payloads[-1]))
        self._finish()
        return payloads

    def _count(self, found: tuple[list[Item], int, bytes]) -> list[Item]:
        items, size, last = found
        if items:
            self.rows += len(items)
            self.size += size
            self._last = last
            _check_count(self.rows, self._limit)
        return items

    def _finish(self) -> None:
        if self._limit is not None and self.rows >= self._limit and self._last is not None:
            end = self._select.row_key(self._last)
            if end == self._keys.after:
                raise _goes_no_further(self._select.table)
            self.end = None if end == self._keys.upto else end


async def read_few(session: Session, silence: float, limit: int) -> list[bytes]:
    """All rows of a SELECT that was started; ``ProtocolError`` if there are more than ``limit``."""
    rows: list[bytes] = []
    while found := await session.read_rows(silence):
        rows += found
        _check_count(len(rows), limit)
    return rows


def _goes_no_further(table: Table) -> ProtocolError:
    return ProtocolError(
        f"the server sends rows of {table} up to the key behind which it was to send rows: the next chunk would be "
        "the same, and so on for ever"
    )


def _check_count(rows: int, limit: int | None) -> None:
    """Raise ``ProtocolError`` for more rows than were asked for: they would be kept without end."""
    if limit is not None and rows > limit:
        raise ProtocolError(f"the server sends more rows than the {limit} that were asked for")
