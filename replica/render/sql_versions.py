"""Changes of MariaDB's system-versioned tables as statements, each at its own time: the server makes the history.

MariaDB logs what these tables store, with the period of each row, which no UPDATE or DELETE may write:

    INSERT           a row that ends never
    UPDATE           the row with a new start, then a row of the history, with the old values
    DELETE           an UPDATE of the row's end
    DELETE HISTORY   a DELETE of rows of the history

Redo sets the session's time to that of each change (``SET TIMESTAMP``), and the server writes the same periods and
the same history. Undo works at the time of its run, on current rows alone: the history then tells of the changes and
of their undoing.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final

from protocol.binlog.events import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent
from protocol.constants import ColumnType, RowsFlag
from protocol.rows.column import ABSENT, Column
from protocol.rows.compiler import Row
from protocol.rows.table import Table

from .sql_session import SqlSession
from .sql_table import HASH, TableSql, unsupported

# The period columns of a table that does not name them: the log has them after all other columns except hashes.
_HIDDEN_PERIOD: Final = ("row_start", "row_end")
_MICROSECONDS: Final = 6
# The end of a current row: the last TIMESTAMP, a later one since MariaDB 11.5.
_NEVER: Final = (
    datetime(2038, 1, 19, 3, 14, 7, 999999, UTC),
    datetime(2106, 2, 7, 6, 28, 15, 999999, UTC),
)
# The first TIMESTAMP that is a time.
_BEFORE_ALL: Final = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
_KEEP_PERIODS: Final = "SET @@session.system_versioning_insert_history=1;\n"
_MAKE_PERIODS: Final = "SET @@session.system_versioning_insert_history=0;\n"

Period = tuple[str, str]


def period_of(event: RowsEvent, generated: Collection[str]) -> Period | None:
    """The period that the columns of the event's table look like, hidden or generated; None if there is none.

    Its end is in the primary key, or without one a row has no end.
    """
    table = event.table
    key = table.primary_key or _endless(event)
    columns = [column for column in table.columns if not HASH.fullmatch(column.name)]
    hidden = [column.name for column in columns[-2:] if _is_moment(column)]
    if tuple(hidden) == _HIDDEN_PERIOD and hidden[1] in key:
        return _HIDDEN_PERIOD
    named = [column.name for column in columns if column.name in generated and _is_moment(column)]
    if len(named) != 2:
        return None
    ends = [name for name in named if name in key]
    [start] = [name for name in named if name not in ends] if len(ends) == 1 else [""]
    return (start, ends[0]) if start else None


def _is_moment(column: Column) -> bool:
    return column.type is ColumnType.TIMESTAMP2 and column.metadata == _MICROSECONDS


def _endless(event: RowsEvent) -> list[str]:
    """The columns that hold the end of a current row."""
    rows: Sequence[Any] = getattr(event, "rows", ())
    row = next(iter(rows), ())
    image = row[0] if isinstance(event, UpdateRowsEvent) and row else row
    return [name for name, value in zip(event.table.column_names, image, strict=False) if value in _NEVER]


class PendingHistory:
    """Rows of the history that the server will make for the UPDATEs of one statement, until the log shows them."""

    def __init__(self) -> None:
        self._rows: list[dict[int, object]] = []

    def expect(self, row: Mapping[int, object]) -> None:
        """Note the row that an UPDATE leaves behind: its values by the numbers of their columns."""
        self._rows.append({index: value for index, value in row.items() if value is not ABSENT})

    def take(self, row: Row) -> bool:
        """Whether the row is one of the expected rows, which is then forgotten."""
        for number, expected in enumerate(self._rows):
            if all(row[index] in (value, ABSENT) for index, value in expected.items()):
                del self._rows[number]
                return True
        return False

    def end_statement(self) -> None:
        """Forget rows that the server did not make."""
        self._rows.clear()


class VersionedSql(TableSql):
    """Makes the statements of a table whose columns ``period`` are the start and the end of its rows."""

    def __init__(
        self,
        table: Table,
        generated: Collection[str],
        period: Period,
        session: SqlSession,
        pending: PendingHistory,
    ) -> None:
        super().__init__(table, generated, period)
        self._start, self._end = map(table.column_names.index, period)
        self._session = session
        self._pending = pending

    def redo(self, event: RowsEvent) -> Iterator[str]:
        if isinstance(event, WriteRowsEvent):
            yield from self._redo_inserts(event.rows)
        elif isinstance(event, UpdateRowsEvent):
            for before, after in event.rows:
                yield from self._redo_update(event, before, after)
        elif isinstance(event, DeleteRowsEvent):
            yield from self._redo_deletes(event)
        self._end_event(event)

    def undo(self, event: RowsEvent) -> Iterator[str]:
        # In the order of the log, in which a row of the history follows the UPDATE that made it.
        undone = [self._undo_row(event, images) for images in self._images(event)]
        self._end_event(event)
        yield from reversed(undone)

    def _end_event(self, event: RowsEvent) -> None:
        if event.rows_flags & RowsFlag.STATEMENT_END:
            self._pending.end_statement()

    def _is_current(self, row: Row) -> bool:
        return row[self._end] is ABSENT or row[self._end] in _NEVER

    # ------------------------------------------------------------------------------------------------ redo

    def _redo_inserts(self, rows: Sequence[Row]) -> Iterator[str]:
        unseen = [row for row in rows if self._is_current(row) or not self._pending.take(row)]
        for (is_current, moment), group in groupby(unseen, self._kind):
            if is_current:
                yield self._at(moment)
                yield from self.inserts(list(group))
            else:
                yield from self._insert_history(list(group))

    def _kind(self, row: Row) -> tuple[bool, object]:
        is_current = self._is_current(row)
        return is_current, row[self._start] if is_current else None

    def _redo_update(self, event: RowsEvent, before: Row, after: Row) -> Iterator[str]:
        if not self._is_current(before):
            raise self._refused(event)
        if not self._is_current(after):
            yield self._at(after[self._end])
            yield self.delete(before, self._order(before))
            return
        moment = after[self._start]
        yield self._at(moment)
        yield self.update(before, after, before, self._order(before))
        self._expect_history(before, moment)

    def _redo_deletes(self, event: DeleteRowsEvent) -> Iterator[str]:
        rows = event.rows
        for row in filter(self._is_current, rows):
            yield self._at(self._time_without_history(event, row))
            yield self.delete(row, self._order(row))
        ends = [
            end for row in rows if not self._is_current(row) and isinstance(end := row[self._end], datetime)
        ]
        if ends:
            # The server has deleted all rows that had ended before a time, which is later than these ends.
            later = self.columns[self._end].value(max(ends) + timedelta(microseconds=1))
            yield f"DELETE HISTORY FROM {self.name} BEFORE SYSTEM_TIME TIMESTAMP{later};\n"

    def _time_without_history(self, event: RowsEvent, row: Row) -> datetime:
        """A time before the start of a row, which the source deleted without a trace (table.cc, TABLE::delete_row).

        It did so at such a time, or because the history had a row with the same key and end. Of its time the log has
        the second; rows that a foreign key deletes in cascade then end with that.
        """
        start, logged = row[self._start], datetime.fromtimestamp(event.header.timestamp, UTC)
        return logged if isinstance(start, datetime) and _BEFORE_ALL < logged < start else _BEFORE_ALL

    def _at(self, moment: object) -> str:
        return self._session.moment(moment) if isinstance(moment, datetime) else ""

    def _order(self, row: Row) -> str:
        """ORDER BY that puts the row with this start first, among rows that are equal except for their start."""
        start = row[self._start]
        if self.has_key(row) or not isinstance(start, datetime):
            return ""
        column = self.columns[self._start]
        return f" ORDER BY {column.name} = {column.value(start)} DESC"

    def _expect_history(self, before: Row, moment: object) -> None:
        """Expect the history of a row. Of a row that begins later, as after a clock was set back, none is made."""
        start = before[self._start]
        if not isinstance(moment, datetime) or (isinstance(start, datetime) and start >= moment):
            return
        # Not the hashes of unique keys, which are others in the history.
        kept = {index: before[index] for index in (*self.written, self._start)}
        self._pending.expect(kept | {self._end: moment})

    def _insert_history(self, rows: Sequence[Row]) -> Iterator[str]:
        yield _KEEP_PERIODS
        yield from self.inserts(rows, also=(self._start, self._end))
        yield _MAKE_PERIODS

    # ------------------------------------------------------------------------------------------------ undo

    @staticmethod
    def _images(event: RowsEvent) -> list[tuple[Row | None, Row | None]]:
        if isinstance(event, UpdateRowsEvent):
            return list(event.rows)
        rows: Sequence[Row] = getattr(event, "rows", ())
        return [(row, None) if isinstance(event, DeleteRowsEvent) else (None, row) for row in rows]

    def _undo_row(self, event: RowsEvent, images: tuple[Row | None, Row | None]) -> str:
        before, after = images
        if before is None:
            return "" if after is None else self._undo_written(event, after)
        if after is not None and not self._is_current(before):
            raise self._refused(event)
        if after is None or not self._is_current(after):
            self.check_image(event, before)
            is_current = self._is_current(before)
            return "".join(self.inserts([before]) if is_current else self._insert_history([before]))
        self._expect_history(before, after[self._start])
        self.check_image(event, before, after)
        return self.update(after, before, before)

    def _undo_written(self, event: RowsEvent, row: Row) -> str:
        if self._is_current(row):
            return self.undo_insert(event, row)
        if self._pending.take(row):
            return ""
        raise unsupported(
            event,
            f"{event.table} is system-versioned, and no statement can take a single row out of its history: this one "
            "was inserted with system_versioning_insert_history",
        )

    def _refused(self, event: RowsEvent) -> Exception:
        return unsupported(
            event, f"{event.table} is system-versioned, and no statement can change a row of its history"
        )
