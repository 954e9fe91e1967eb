"""The statements of a part of the log, remembered: a part that was read for one table serves all others.

A consumer that is behind may ask about each table of its source. To read the log from its place on for each of them
would be 1 TB for 1,000 tables and 1 GB of log. Statements are undone for a table and for those that its columns come
from, not for all tables.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from protocol.errors import PositionError
from protocol.position import BinlogPosition, split_file_name

from ..sql.ddl_reader import read_statement
from ..sql.token_reader import TableName
from .catalog import Catalog, Lost
from .past_history import LoggedStatement, is_doubtful
from .reading import IsUntouched, TableReader
from .shape import Shape
from .timeline import SchemaHistory
from .touched import EVERY, Linked, linked_by

# The text of the statements, and what each takes besides.
_MOST_BYTES: Final = 32 << 20
_BESIDES: Final = 1000
_STATEMENTS_AT_ONCE: Final = 16

_END: Final = attrgetter("end")


class ScannedLog:
    """The statements between two places of one source's log. Beyond a size the oldest are forgotten."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self.forget()

    def forget(self) -> None:
        """Forget all, as the log is now that of another source."""
        #: The oldest file, if an older one was looked for and is not there; and a place at which the log has ended.
        self.first_file = ""
        self.known_end: BinlogPosition | None = None
        self._clear()

    def _clear(self) -> None:
        self._begin: BinlogPosition | None = None
        self._end: BinlogPosition | None = None
        self._found: list[LoggedStatement] = []
        self._bytes = 0
        # The number of the first statement of ``_found``; numbers stay when statements are added before it.
        self._first = 0
        # The ``Linked`` of each statement, by its number; the numbers of the statements about a table or schema. Both
        # cover the statements from ``_linked_from`` to ``_linked_to``, and are extended when a table is asked about.
        self._links: dict[int, Linked] = {}
        self._numbers: dict[TableName | str, list[int]] = {}
        self._linked_from = self._linked_to = 0

    async def between(
        self, reader: TableReader, begin: BinlogPosition, end: BinlogPosition
    ) -> list[LoggedStatement]:
        """The statements from a place to another one. Raises what ``TableReader.statements`` raises."""
        if self._is_of_log(end) and self._begin is not None and end < self._begin:
            # The known statements lie behind the range, and stay: the stream will get there.
            return await reader.statements(begin, end)
        await self._cover(reader, begin, end)
        low, high = self._range(begin, end)
        found = self._found[low - self._first : high - self._first]
        self._forget_oldest()
        return found

    async def about(
        self, reader: TableReader, table: TableName, begin: BinlogPosition, end: BinlogPosition
    ) -> tuple[list[LoggedStatement], set[TableName]]:
        """The statements between two places on which the columns of a table depend, and the table's sources.

        The sources are the table itself, tables that were renamed to it or gave it their columns, and their sources.
        """
        await self._cover(reader, begin, end)
        await self._link()
        low, high = self._range(begin, end)
        numbers, names = set[int](), {table}
        waiting: list[TableName | str] = [table, table.schema, EVERY]
        seen = set[TableName | str](waiting)
        while waiting:
            known = self._numbers.get(waiting.pop(), [])
            for number in known[bisect_left(known, low) : bisect_left(known, high)]:
                if number not in numbers:
                    numbers.add(number)
                    new = self._links[number].sources - names
                    names |= new
                    # A list of 1,000 tables names one schema.
                    more: set[TableName | str] = {*new, *(name.schema for name in new)}
                    more -= seen
                    seen |= more
                    waiting += more
        found = [self._found[number - self._first] for number in sorted(numbers)]
        self._forget_oldest()
        return found, names

    async def find_lost(
        self, reader: TableReader, history: SchemaHistory, table: TableName, place: BinlogPosition
    ) -> None:
        """Set a table's shape at a place, if it is lost there, and older shapes and statements since then tell it.

        Or if types of its columns are not known there, and these tell all of them.

        A RENAME or ALTER between them made the table, and a later statement took away what undoing would tell.
        """
        begin = history.begin
        changed = history.next_change(table, begin)
        is_made_since = changed is not None and changed <= place
        before = history.shape_at(table, place)
        is_partial = isinstance(before, Shape) and is_doubtful(before)
        if not (is_made_since and (is_partial or isinstance(before, Lost))):
            return
        found, names = await self.about(reader, table, begin, place)
        states = {name: state for name in names if (state := history.shape_at(name, begin)) is not None}
        forward = SchemaHistory(history.source, begin, Catalog(states))
        for logged in found:
            for change in forward.apply(logged.statement, logged.end):
                known = history.shape_at(change.table, logged.end)
                if isinstance(known, Shape) and (known.is_whole or not isinstance(change.after, Shape)):
                    forward.set_at(change.table, logged.end, known)
        shape = forward.shape_at(table, place)
        if isinstance(shape, Shape) and (shape.is_whole or not is_partial):
            history.set_at(table, place, shape)

    def untouched(self, reader: TableReader, table: TableName, place: BinlogPosition) -> IsUntouched:
        """An argument of ``TableReader.read``: a row at the place proves that all earlier statements are finished."""

        async def is_untouched(end: BinlogPosition) -> bool:
            return place < end and not (await self.about(reader, table, place, end))[0]

        return is_untouched

    async def _cover(self, reader: TableReader, begin: BinlogPosition, end: BinlogPosition) -> None:
        """Read what is not known yet between two places."""
        if not self._adjoins(begin, end):
            self._clear()
        if self._begin is None or self._end is None:
            self._add(await reader.statements(begin, end))
            self._begin, self._end = begin, end
            return
        if begin < self._begin:
            older = await reader.statements(begin, self._begin)
            self._found[:0] = older
            self._first -= len(older)
            self._bytes += _size(older)
            self._begin = begin
        if self._end < end:
            try:
                newer = await reader.statements(self._end, end)
            except PositionError:
                # The source has lost the end of its log in a crash, and with it statements that are known.
                self._clear()
                await self._cover(reader, begin, end)
                return
            self._add(newer)
            self._end = end

    def _is_of_log(self, place: BinlogPosition) -> bool:
        known = self._begin
        return known is not None and split_file_name(place.file)[0] == split_file_name(known.file)[0]

    def _adjoins(self, begin: BinlogPosition, end: BinlogPosition) -> bool:
        if self._begin is None or self._end is None or not self._is_of_log(begin):
            return False
        return begin <= self._end and self._begin <= end

    def _add(self, newer: Sequence[LoggedStatement]) -> None:
        self._found += newer
        self._bytes += _size(newer)

    def _range(self, begin: BinlogPosition, end: BinlogPosition) -> tuple[int, int]:
        """The numbers of the statements that end behind a place, up to another place."""
        return (
            self._first + bisect_right(self._found, begin, key=_END),
            self._first + bisect_right(self._found, end, key=_END),
        )

    async def _link(self) -> None:
        if self._linked_from == self._linked_to:
            self._linked_from = self._linked_to = self._first
        while self._linked_from > self._first:
            number = self._linked_from - 1
            for name in self._linked(number):
                self._numbers.setdefault(name, []).insert(0, number)
            self._linked_from = number
            await self._turn(number)
        while self._linked_to < self._first + len(self._found):
            number = self._linked_to
            for name in self._linked(number):
                self._numbers.setdefault(name, []).append(number)
            self._linked_to = number + 1
            await self._turn(number)

    async def _turn(self, number: int) -> None:
        """Give other tasks a turn now and then: reading a statement takes up to 0.7 ms."""
        if not number % _STATEMENTS_AT_ONCE:
            await asyncio.sleep(0)

    def _linked(self, number: int) -> Iterable[TableName | str]:
        statement = self._found[number - self._first].statement
        linked = linked_by(read_statement(statement.sql, statement.schema, statement.dialect))
        self._links[number] = linked
        return linked.changed

    def _forget_oldest(self) -> None:
        count = 0
        while self._bytes > self._most_bytes and count < len(self._found):
            self._bytes -= _size(self._found[count : count + 1])
            linked = self._links.pop(self._first + count, None)
            for name in () if linked is None else linked.changed:
                del self._numbers[name][0]
                if not self._numbers[name]:
                    del self._numbers[name]
            count += 1
        if count:
            self._begin = self._found[count - 1].end
            del self._found[:count]
            self._first += count
            self._linked_from = max(self._linked_from, self._first)
            self._linked_to = max(self._linked_to, self._first)


def _size(statements: Iterable[LoggedStatement]) -> int:
    return sum(len(logged.statement.sql) + _BESIDES for logged in statements)
