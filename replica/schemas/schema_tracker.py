"""The schema history of a stream while it reads: follows the statements of the log, and names tables.

    QueryEvent -> SchemaTracker.follow -> SchemaChangeEvent
    TableMapEvent without names -> SchemaTracker.named -> Table, or None: the source has to be asked

It runs as far ahead as the decoder. Places of another server's log mean nothing here: after a failover the history
begins anew with the tables as they were at the last transaction boundary. It asks no server and awaits nothing;
``schema_keeper`` does.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Final

from protocol.binlog.events import QueryEvent, TableMapEvent
from protocol.binlog.query_status import is_unfinished_alter
from protocol.errors import ConfigurationError
from protocol.position import BinlogPosition, is_older
from protocol.records import replace
from protocol.rows.table import Table

from ..config.options import Options
from ..config.schema_store import FileSchemaStore
from ..config.table_filter import table_filter
from ..sql.statement_kind import may_grant
from ..sql.token_reader import TableName
from .catalog import Catalog
from .change_event import SchemaChangeEvent, seen_changes
from .logged_statements import LogTraits, statement_of
from .proof import first_difference, nameless, with_shape
from .shape import Shape
from .timeline import SchemaHistory

# A source sends so many bytes for a scan in about 0.1 s.
_FAR: Final = 16 << 20


class SchemaTracker:
    """Follows one stream. ``history`` is None until tables have been read or loaded.

    ``asks``: the source can be asked for names that the history lacks (``sought``).
    """

    def __init__(self, options: Options, *, asks: bool = False) -> None:
        self._wants_table = table_filter(options.tables, options.exclude_tables)
        self._takes_nameless = options.on_schema_mismatch == "positional"
        # Tables whose lost names were sought; None if they cannot be sought.
        self._sought: set[TableName] | None = set() if asks else None
        self._traits: LogTraits | None = None
        self.history: SchemaHistory | None = None
        # How many statements have been followed, and how many of them may let the user see other tables.
        self.statements = self.grants = 0
        # Places at which the history changes without a statement that the stream sees, in order.
        self.unseen: list[BinlogPosition] = []
        # Wanted tables that statements have changed, or that are suspect, until they are compared with the source.
        self.changed: set[TableName] = set()
        # Suspect tables, which a statement that the log lacks may have changed: the first and the last place at which
        # they had a new id. The statement came before one of these places.
        self.suspects: dict[TableName, tuple[BinlogPosition, BinlogPosition]] = {}
        # Where the first dump of this server began; or, of a dump by GTIDs without an event, the start of its file.
        self.begin: BinlogPosition | None = None
        # The place that the source told first: at the beginning of the dump, or before it in the same file.
        self._told_begin: BinlogPosition | None = None
        # The tables at the beginning of a dump whose first place is not known yet, and the source's identity.
        self._awaiting: tuple[str, Catalog] | None = None
        # The place up to which the log was followed, and the last such place that was passed on to the history.
        self._reached = self._told = ("", 0)
        self._unsaved: list[str] = []
        self._is_new = False

    def use(self, traits: LogTraits, history: SchemaHistory | None) -> None:
        """Go on with this history of the source from which the log now comes."""
        if history is not None:
            # A relay does not tell lower_case_table_names; the history of its files does.
            traits = replace(traits, folds_names=history.folds_names)
        self._traits, self.history, self._awaiting = traits, history, None
        self._reached = self._told = ("", 0)
        self._unsaved.clear()
        self.changed.clear()
        self.suspects.clear()
        self.unseen.clear()
        self._is_new = history is not None

    def move(self, traits: LogTraits, source: str, catalog: Catalog) -> None:
        """Go on with the log of another server; the tables are as in ``catalog`` where it begins."""
        self._traits, self.history, self._awaiting = traits, None, (source, catalog)
        self._sought = None if self._sought is None else set()
        self._is_new = False
        self.begin = self._told_begin = None
        self._reached = self._told = ("", 0)
        self._unsaved.clear()
        self.changed.clear()
        self.suspects.clear()
        self.unseen.clear()

    def begin_at(self, file: str, position: int, *, is_exact: bool = True) -> None:
        """Note that the dump begins at this place, or before it without a statement in between.

        Not ``is_exact``: it begins at this place or anywhere after it. By GTIDs a source may begin to send far behind
        the place that it names first, and the log between the two places need not be read.
        """
        place = BinlogPosition(file, position)
        if file and not is_exact and self.begin is None:
            self._told_begin = place
        if file and (self.begin is None or (is_exact and self.begin is self._told_begin)):
            self.begin = place
        if self._awaiting is not None and file:
            (source, catalog), self._awaiting = self._awaiting, None
            folds = self._traits is not None and self._traits.folds_names
            begin = BinlogPosition(file, position)
            self.history, self._is_new = SchemaHistory(source, begin, catalog, folds_names=folds), True

    def take_file(self, file: str, begun: int) -> None:
        """Note that the source began a file, which the dump sends from now on, at this time."""
        history = self.history
        if history is not None and history.note_begun(file, begun):
            self._unsaved.append(history.head_line())

    def follow(self, event: QueryEvent) -> list[SchemaChangeEvent]:
        """Apply a statement of the log. Returns its changes of wanted tables."""
        self.statements += 1
        self.grants += may_grant(event.sql)
        self.begin_at(event.file, event.position)
        history = self.history
        if history is None or self._traits is None or is_unfinished_alter(event.status_variables):
            return []
        end = BinlogPosition(event.file, event.position + event.header.size)
        is_new = end > history.head
        changes = history.apply(statement_of(event, self._traits), end)
        if is_new:
            self._unsaved += history.change_lines(changes)
        seen = seen_changes(event, changes, self._wants_table)
        for change in seen:
            name = TableName(change.schema, change.name)
            self.suspects.pop(name, None)
            (self.changed.discard if change.after is None else self.changed.add)(name)
        return seen

    def suspect(self, tables: Iterable[tuple[Table, str, int]]) -> None:
        """Have tables compared with the source: a statement that the log lacks may have changed them."""
        for table, file, offset in tables if self.history is not None else ():
            name, position = self.name_of(table), BinlogPosition(file, offset)
            first, _ = self.suspects.get(name, (position, position))
            self.suspects[name] = first, position
            self.changed.add(name)

    def compared(self, tables: Iterable[TableName]) -> None:
        """Note that these tables need no comparison any more."""
        for name in tables:
            self.changed.discard(name)
            self.suspects.pop(name, None)

    def passes_unseen(self, file: str, position: int) -> bool:
        """Whether the stream has reached a change of tables that it does not see as a statement."""
        place = BinlogPosition(file, position)
        passed = sum(unseen <= place for unseen in self.unseen)
        del self.unseen[:passed]
        return passed > 0

    @property
    def reached(self) -> BinlogPosition | None:
        """The place before which all statements have been followed; None before the first."""
        file, position = self._reached
        return BinlogPosition(file, position) if file else None

    def reach(self, file: str, position: int) -> None:
        """Note that all statements before a place were followed. The store is told once a file, and every 16 MB.

        A place before the last one is ignored: a dump by GTIDs may begin with a file that was followed before.
        """
        reached, until = self._reached
        if position < until if file == reached else is_older(file, reached):
            return
        self._reached = file, position
        told_file, told = self._told
        if file != told_file or position - told >= _FAR:
            self.settle()

    def settle(self) -> None:
        """Move the end of the history to the place up to which statements were followed: a restart reads less log."""
        self._told = file, position = self._reached
        if self.history is None or not file:
            return
        place = BinlogPosition(file, position)
        if place > self.history.head:
            self.history.advance(place)
            self._unsaved.append(self.history.head_line())

    def named(self, event: TableMapEvent) -> Table | None:
        """The table with the names of its place; None if the history does not know them.

        A column without a name is @n if ``on_schema_mismatch`` allows it, and the source was asked for its name.
        """
        shape = self._fitting(event)
        if shape is None:
            return None
        table = with_shape(event.table, shape)
        if not nameless(table, shape):
            return table
        is_lost = self._sought is None or self.name_of(event.table) in self._sought
        return table if self._takes_nameless and is_lost else None

    def partly_named(self, event: TableMapEvent) -> Table:
        """The table with the names of its place that are known: for a table that the source does not show."""
        shape = self._fitting(event)
        table = event.table if shape is None else with_shape(event.table, shape)
        has_names = any(column.name != f"@{number}" for number, column in enumerate(table.columns, 1))
        return table if has_names else event.table

    def sought(self, event: TableMapEvent) -> Table | None:
        """``named``, after the source was asked about the table: names that are still lacking are lost."""
        if self._sought is not None:
            self._sought.add(self.name_of(event.table))
        return self.named(event)

    def _fitting(self, event: TableMapEvent) -> Shape | None:
        """The shape of the table at its place; None if no known shape fits."""
        self.begin_at(event.file, event.position)
        if self.history is None:
            return None
        shape = self.history.shape_at(self.name_of(event.table), BinlogPosition(event.file, event.position))
        if not isinstance(shape, Shape) or first_difference(shape, event.table) is not None:
            return None
        return shape

    def name_of(self, table: Table) -> TableName:
        """The table's name as the history has it."""
        name = TableName(table.schema, table.name)
        return name.folded if self._traits is not None and self._traits.folds_names else name

    def tables_at(self, position: BinlogPosition | None) -> Catalog | None:
        """All tables as they were at a place of the log; None without a history.

        Without a place, as they were where the log began: a stream by GTIDs has none until a transaction has ended.
        """
        history = self.history
        if history is None:
            return None if self._awaiting is None else self._awaiting[1]
        position = position or self.begin or history.head
        try:
            states = {table: history.shape_at(table, position) for table in history.tables}
        except ConfigurationError:
            return None
        found = {table: state for table, state in states.items() if state is not None}
        return Catalog(found, history.catalog.schemas)

    @property
    def is_unsaved(self) -> bool:
        """Whether the store lacks something of the history."""
        return self._is_new or bool(self._unsaved)

    def take_unsaved(self) -> tuple[list[str], bool]:
        """Lines for the store, and whether they are the whole history."""
        history = self.history
        assert history is not None
        is_whole, self._is_new = self._is_new, False
        added, self._unsaved = self._unsaved, []
        return list(history.to_lines()) if is_whole else added, is_whole

    @contextlib.contextmanager
    def taking_unsaved(self) -> Iterator[tuple[list[str], bool]]:
        """The result of ``take_unsaved``, for a block that writes it.

        After an exception, a cancelled call included, it is not known how much was written. Lines after missing ones
        would be damage of the store, so the whole history is saved again.
        """
        try:
            yield self.take_unsaved()
        except BaseException:
            self.renew()
            raise

    def forget_unsaved(self) -> int:
        """Drop the lines for a store, as there is none. Returns their number."""
        added, self._is_new = len(self._unsaved), False
        self._unsaved.clear()
        return added

    def forget_before(self, position: BinlogPosition) -> None:
        """Forget the history before a place, as no dump begins before it again."""
        if self.history is not None:
            self.history.prune(position)
            self.begin = max(self.begin or position, position)

    def note(self, table: TableName, position: BinlogPosition) -> None:
        """Have the store told of one table that was set from a place on; other tables are not written again."""
        if self.history is not None:
            self._unsaved += self.history.set_lines(table, position)

    def renew(self) -> None:
        """Have the whole history saved again."""
        self._is_new = self.history is not None


def write_unsaved(tracker: SchemaTracker, store: FileSchemaStore) -> None:
    """Write what the store lacks, and sync it. Raises ``CheckpointError``."""
    if tracker.is_unsaved:
        with tracker.taking_unsaved() as (lines, is_whole):
            (store.save if is_whole else store.append)(lines)
