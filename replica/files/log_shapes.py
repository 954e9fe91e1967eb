"""Names tables of binlog files by their place in the log: a schema history, and the statements of the files.

    FormatDescriptionEvent, QueryEvent -> LogShapes.follow
    TableMapEvent without names -> LogShapes.named -> Table

A history that begins after the first file, or ends before it, is completed by the statements of the files between,
which are read once more. Without these files, tables have no names there.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from protocol.binlog.events import Event, FormatDescriptionEvent, QueryEvent, RotateEvent, TableMapEvent
from protocol.binlog.query_status import is_unfinished_alter
from protocol.constants import ARTIFICIAL, POSITION_MASK
from protocol.errors import SchemaMismatchError
from protocol.position import FIRST_POSITION, BinlogPosition, file_with_number, split_file_name
from protocol.rows.table import Table

from ..config.selection import SchemaMismatch
from ..schemas.catalog import Catalog, TableChange, Unknown
from ..schemas.change_event import SchemaChangeEvent, seen_changes
from ..schemas.logged_statements import LogTraits, shape_statement, statement_of
from ..schemas.past_history import LoggedStatement, history_before
from ..schemas.proof import first_difference, nameless, with_shape
from ..schemas.shape import ColumnShape, Shape
from ..schemas.timeline import SchemaHistory, State
from ..schemas.touched import touched_by
from ..sql.token_reader import TableName
from .log_files import LogFile

#: Reads files once more: their format descriptions, rotations and statements.
Scan = Callable[[Sequence[LogFile]], Iterator[Event]]

_NUMBERS: Final = re.compile(r"\d+")


class LogShapes:
    """Follows one reading of files. It updates ``history``, and asks no server."""

    def __init__(
        self,
        history: SchemaHistory,
        scan: Scan,
        on_mismatch: SchemaMismatch,
        *,
        looks_beside: bool = False,
        tells_changes: bool = False,
        is_partial: bool = False,
    ) -> None:
        """``looks_beside``: files that were not given, but lie beside the given files, are scanned, too.

        ``tells_changes``: users get a ``SchemaChangeEvent`` after a statement. ``is_partial``: tables may have
        existed that the history does not know.
        """
        self._is_partial = is_partial
        self._tells_changes = tells_changes
        #: Whether the fields below are needed also for tables that have names in the log.
        self.learns_all = False
        #: The generated columns of named tables, as of their last table map.
        self.generated: dict[str, frozenset[str]] = {}
        #: The names of the row start and row end columns of system-versioned tables.
        self.periods: dict[str, tuple[str, str]] = {}
        self._history = history
        # The history before ``history`` begins, from statements of the files.
        self._past: SchemaHistory | None = None
        self._scan = scan
        self._looks_beside = looks_beside
        self._on_mismatch = on_mismatch
        self._traits = LogTraits(is_mariadb=False, version=())
        self._is_relay_log = False
        self._lost: Unknown | None = None

    def begin(self, chosen: Sequence[LogFile], files: Sequence[LogFile]) -> None:
        """Prepare for reading the files ``chosen`` of ``files``. Raises the errors of reading files."""
        first = BinlogPosition(chosen[0].name, FIRST_POSITION)
        history = self._history
        if first > history.head:
            found = self._statements(files, history.head, first)
            if found is None:
                self._lost = Unknown(
                    f"the schema ends at {history.head}, and the log up to {first} is not given"
                )
            else:
                for logged in found:
                    self._apply(logged)
                history.advance(first)
        elif first < history.begin:
            found = self._statements(files, first, history.begin)
            if found is not None:
                now = {table: history.shape_at(table, history.begin) for table in history.tables}
                catalog = Catalog(
                    {table: state for table, state in now.items() if state}, history.catalog.schemas
                )
                self._past = history_before(history.source, first, catalog, found)
                self._lose_folded(self._past, found)

    def read_whole(self, files: Sequence[LogFile]) -> list[SchemaHistory]:
        """Apply all statements of the files; returns the histories of their tables, the later one last.

        Leaves out a history in which the trail of all tables is lost. Raises the errors of reading files.
        """
        self.begin(files, files)
        number = split_file_name(self._history.head.file)[1]
        later = [file for file in files if int(split_file_name(file.name)[1] or 0) >= int(number)]
        for event in self._scan(later) if later else ():
            self.follow(event, None)
        found = [self._past, self._history] if self._lost is None else []
        return [history for history in found if history is not None]

    def follow(self, event: Event, wants_table: Callable[[str, str], bool] | None) -> list[SchemaChangeEvent]:
        """Apply an event to the history; returns the changes of wanted tables if ``tells_changes``."""
        if isinstance(event, QueryEvent):
            if is_unfinished_alter(event.status_variables):
                return []
            changes = self._apply(LoggedStatement(self._end(event), statement_of(event, self._traits)))
            return seen_changes(event, changes, wants_table) if self._tells_changes else []
        if isinstance(event, FormatDescriptionEvent):
            self._traits = self._traits_of(event)
            self._is_relay_log = False
        elif isinstance(event, RotateEvent) and event.header.flags & ARTIFICIAL:
            self._is_relay_log = True
        return []

    def _apply(self, logged: LoggedStatement) -> list[TableChange]:
        is_doubtful = self._is_partial and "EXISTS" in logged.statement.sql.upper()
        # List all tables only for the few statements that need them: MySQL has a BEGIN for each transaction.
        known = self._history.tables if is_doubtful else {}
        changes = self._history.apply(logged.statement, logged.end)
        if is_doubtful:
            for table in [change.table for change in changes if change.after and change.table not in known]:
                # IF NOT EXISTS is logged also if the table existed and the statement did nothing.
                reason = f"the statement that ends at {logged.end} may have found the table"
                self._history.set_at(table, logged.end, Unknown(reason))
        for table in [change.table for change in changes]:
            # Only a schema store knows lower_case_table_names; the statement may mean the table in lower case.
            folded = table.folded
            if folded != table and self._history.catalog.get(folded) is not None:
                self._history.set_at(folded, logged.end, _changed(folded, table))
        return changes

    def _lose_folded(self, past: SchemaHistory, found: Sequence[LoggedStatement]) -> None:
        """Make tables unknown in ``past`` up to the last statement that may mean them in other letters."""
        last = {
            table.folded: (logged.end, table)
            for logged in found
            for table in touched_by([logged.statement]).tables
            if table.folded != table
        }
        for folded, (end, table) in last.items():
            if folded in past.tables:
                past.set_at(folded, end, past.shape_at(folded, end))
                for place in past.places_of(folded):
                    if place < end:
                        past.set_at(folded, place, _changed(folded, table))

    def named(self, event: TableMapEvent) -> Table | None:
        """The table with the names that it had at its place; None if names are not known, and that is no error.

        Raises ``SchemaMismatchError`` if the schema does not fit the log, or its trail is lost, unless
        ``on_schema_mismatch`` is ``"positional"``.
        """
        state = self._state(event)
        if state is None:
            return None
        if isinstance(state, Unknown):
            problem: str | None = state.reason
        else:
            problem = first_difference(state, event.table)
        table = with_shape(event.table, state) if isinstance(state, Shape) and problem is None else None
        if isinstance(state, Shape) and table is not None:
            self._note(table, state.columns)
        if isinstance(state, Shape) and table is not None and nameless(table, state):
            problem = "a later statement dropped, moved or changed some of them"
        if problem is not None and self._on_mismatch == "error":
            raise SchemaMismatchError(
                f"{event.table} at {self._end(event)}: its columns there are not known ({problem}). "
                'on_schema_mismatch="positional" names them @1, @2...; a schema of a nearer place may have names'
            )
        return table

    def learn(self, event: TableMapEvent) -> None:
        """Note what a log with names lacks about a table: its generated columns, its system versioning."""
        state = self._state(event)
        is_known = isinstance(state, Shape) and first_difference(state, event.table) is None
        self._note(event.table, state.columns if isinstance(state, Shape) and is_known else ())

    def _note(self, table: Table, columns: Sequence[ColumnShape]) -> None:
        self.generated[str(table)] = frozenset(one.name for one in columns if one.generated)
        names = {one.role: one.name for one in columns}
        if "start" in names and "end" in names:
            self.periods[str(table)] = names["start"], names["end"]
        else:
            self.periods.pop(str(table), None)

    def _state(self, event: TableMapEvent) -> State:
        if self._lost is not None:
            return self._lost
        place = self._end(event)
        history = self._history
        if self._past is not None and place < history.begin:
            history = self._past
        table = TableName(event.table.schema, event.table.name)
        return history.shape_at(table.folded if history.folds_names else table, place)

    def _end(self, event: Event) -> BinlogPosition:
        """The place after an event, in the log of the source."""
        end, told = event.position + event.header.size, event.header.next_position
        if self._is_relay_log and told and end & POSITION_MASK != told:
            end = told
        return BinlogPosition(event.file, end)

    def _statements(
        self, files: Sequence[LogFile], begin: BinlogPosition, end: BinlogPosition
    ) -> list[LoggedStatement] | None:
        """The statements between two places; None if the files do not cover all of the log between them."""
        wanted = _between(files, begin.file, end.file, looks_beside=self._looks_beside)
        if wanted is None:
            return None
        found: list[LoggedStatement] = []
        traits = self._traits
        for event in self._scan(wanted):
            place = BinlogPosition(event.file, event.position + event.header.size)
            if isinstance(event, FormatDescriptionEvent):
                traits = self._traits_of(event)
            elif isinstance(event, QueryEvent) and begin < place <= end:
                statement = shape_statement(event, traits)
                if statement is not None:
                    found.append(LoggedStatement(place, statement))
            if place.file == end.file and place >= end:
                break
        return found

    def _traits_of(self, event: FormatDescriptionEvent) -> LogTraits:
        version = tuple(int(number) for number in _NUMBERS.findall(event.server_version)[:3])
        is_mariadb = "mariadb" in event.server_version.lower()
        return LogTraits(is_mariadb, version, self._history.folds_names)


def _changed(folded: TableName, table: TableName) -> Unknown:
    return Unknown(f"{table} may be {folded}, and was changed")


def empty_history(files: Sequence[LogFile]) -> SchemaHistory | None:
    """A history without tables that begins with the files; None if the files are not part of one log, in order."""
    names = [split_file_name(file.name) for file in files]
    first, digits = names[0]
    wanted = [(first, int(digits or 0) + number) for number in range(len(names))]
    # A file alone is part of one log by any name; standard input has none.
    if len(files) > 1 and (not digits or [(base, int(number or -1)) for base, number in names] != wanted):
        return None
    return SchemaHistory("", BinlogPosition(files[0].name, FIRST_POSITION))


def _between(files: Sequence[LogFile], first: str, last: str, *, looks_beside: bool) -> list[LogFile] | None:
    """The files from one name to another; None if one of them is missing, or cannot be read twice."""
    base, begin = split_file_name(first)
    digits = split_file_name(last)[1]
    by_number = {
        int(number): file
        for file in files
        for name, number in [split_file_name(file.name)]
        if name == base and number and file.path is not None
    }
    if not begin or not digits:
        return None
    found = []
    for number in range(int(begin), int(digits) + 1):
        file = by_number.get(number)
        if file is None and looks_beside:
            file = _sibling(files, file_with_number(base, begin, number))
        if file is None:
            return None
        found.append(file)
    return found


def _sibling(files: Sequence[LogFile], name: str) -> LogFile | None:
    """A file of this name that was not given, but lies beside the first file."""
    path = os.path.join(os.path.dirname(files[0].path), name) if files[0].path is not None else ""
    return LogFile(name, path) if os.path.isfile(path) else None
