"""The tables before a statement, from the tables behind it: what a statement took away is lost, the rest is undone.

Names come back by renames, added columns drop out. A dropped column is ``Shape.lost``: its name and type stood
somewhere. A column that was changed keeps its name and place, and has no type; one that was moved is lost. Nothing is
guessed: what cannot be undone is ``Unknown``. Names have the case in which the statement has them: servers compare
names without it. ``past_history`` puts this together with what later statements say.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from protocol.records import record, replace

from ..sql import ddl_statements as ddl
from ..sql.dialect import Dialect
from ..sql.token_reader import TableName
from .catalog import (
    NO_SUCH_TABLE,
    Catalog,
    Lost,
    Statement,
    Unknown,
    keeps_table,
    short_text,
)
from .charset_names import NO_SHAPE, UnknownShapeError
from .column_shapes import BLOB_TYPES, STRING_TYPES, CharsetContext, make_column
from .drafts import fold
from .shape import ColumnShape, Key, Shape


@record(slots=True, frozen=True)
class Doomed:
    """The tables that a statement about a schema may have found there.

    ``has_others``: others, too, of which no statement tells.
    """

    tables: Collection[TableName] = ()
    has_others: bool = False


def undo(
    catalog: Catalog, statement: Statement, read: ddl.DdlStatement | None, doomed: Doomed
) -> dict[TableName, Shape | Unknown | None]:
    """Make ``catalog``, which is valid behind a statement, valid before it.

    ``read`` is what ``read_statement`` makes of it. Returns the tables that the statement is about, as they were
    behind it.
    """
    if read is None:
        return {}
    step = _Undo(catalog, statement, doomed)
    if statement.doubt:
        step.lose(ddl.tables_of(read), statement.doubt)
    elif statement.uses_temporary and isinstance(read, ddl.AlterTable | ddl.RenameTables):
        step.lose(
            [table for table in ddl.tables_of(read) if catalog.get(table) is not None], "temporary tables"
        )
    elif not statement.error_code:
        _UNDO[type(read)](step, read)
    elif isinstance(read, ddl.DropTables) and statement.error_code == NO_SUCH_TABLE:
        step.drop_tables(read)
    else:
        step.lose(ddl.tables_of(read), f"failed with error {statement.error_code}")
    return step.behind


class _Undo:
    """One statement on its way back; ``behind`` are the tables that it is about, as they were behind it."""

    def __init__(self, catalog: Catalog, statement: Statement, doomed: Doomed) -> None:
        self._catalog = catalog
        self._statement = statement
        self._doomed = doomed
        self.behind: dict[TableName, Shape | Unknown | None] = {}

    def _set(self, table: TableName, state: Shape | Unknown | None) -> None:
        self.behind.setdefault(table, self._catalog.get(table))
        self._catalog.set(table, state)

    def _unknown(self, reason: str) -> Unknown:
        return Lost(f"{reason}, before: {short_text(self._statement.sql)}")

    def lose(self, tables: Iterable[TableName], reason: str) -> None:
        for table in tables:
            self._set(table, self._unknown(reason))

    def create(self, read: ddl.CreateTable | ddl.CreateSequence) -> None:
        if read.is_replaced:
            self._set(read.table, self._unknown("its columns are not known"))
        elif read.is_conditional:
            # If there was the table before, the statement did nothing.
            self._set(read.table, self._catalog.get(read.table))
        else:
            self._set(read.table, None)

    def drop_tables(self, read: ddl.DropTables) -> None:
        self.lose(read.tables, "its columns are not known")

    def drop_views(self, read: ddl.DropViews) -> None:
        """Tables of the names, as IF EXISTS leaves them alone, are what they are behind it."""
        for table in read.views:
            if self._catalog.get(table) is not None:
                self._set(table, self._catalog.get(table))

    def pass_over(self, read: ddl.TruncateTable | ddl.CreateTemporary) -> None:
        """Rows alone, or no table."""

    def unread(self, read: ddl.Unread) -> None:
        every = {*self._catalog.tables, *self._doomed.tables}
        self.lose(sorted(every) if read.is_about_any else read.tables, read.reason)

    def rename_tables(self, read: ddl.RenameTables) -> None:
        for old, new in reversed(read.pairs):
            self._rename_back(old, new)

    def _rename_back(self, old: TableName, new: TableName) -> None:
        state = self._catalog.get(new)
        self._set(new, None)
        self._set(old, state or self._unknown("its columns are not known"))

    def alter_table(self, read: ddl.AlterTable) -> None:
        for clause in reversed(read.clauses):
            if isinstance(clause, ddl.RenameTo) and clause.table != read.table:
                self._rename_back(read.table, clause.table)
        state = self._catalog.get(read.table) or self._unknown("its columns are not known")
        if isinstance(state, Shape):
            state = _as_written(state, read.clauses, self._statement.dialect)
            # Statements behind this one may have been undone to less than this one tells.
            self._catalog.set(read.table, state)
            try:
                state = shape_before(state, read.clauses, is_mariadb=self._statement.dialect.is_mariadb)
            except UnknownShapeError as error:
                state = self._unknown(str(error))
        self._set(read.table, state)
        for clause in read.clauses:
            if isinstance(clause, ddl.ChangePartitions) and clause.table is not None:
                if clause.words == "CONVERT PARTITION":
                    self._set(clause.table, None)
                elif clause.words == "CONVERT TABLE":
                    self._set(clause.table, self._unknown("its columns are not known"))

    def create_schema(self, read: ddl.CreateSchema) -> None:
        if read.is_replaced:
            self._lose_schema(read.schema)
        elif not read.is_conditional:
            for table in (*self._catalog.tables_of(read.schema), *self._doomed.tables):
                self._set(table, None)
            self._catalog.forget_schema(read.schema)

    def alter_schema(self, read: ddl.AlterSchema) -> None:
        if read.charset:
            self._catalog.set_schema(read.schema, None)

    def drop_schema(self, read: ddl.DropSchema) -> None:
        self._lose_schema(read.schema)

    def _lose_schema(self, schema: str) -> None:
        """Which tables were in it nothing tells; those of the same names behind it were created later."""
        reason = "its columns are not known"
        self.lose(self._doomed.tables, reason)
        for table in self._catalog.tables_of(schema):
            if table not in self.behind:
                self._set(table, self._unknown(reason) if self._doomed.has_others else None)
        self._catalog.set_schema(schema, None)


_UNDO: Final[Mapping[type, Callable[[_Undo, Any], None]]] = MappingProxyType(
    {
        ddl.CreateTable: _Undo.create,
        ddl.CreateTemporary: _Undo.pass_over,
        ddl.CreateSequence: _Undo.create,
        ddl.DropTables: _Undo.drop_tables,
        ddl.DropViews: _Undo.drop_views,
        ddl.TruncateTable: _Undo.pass_over,
        ddl.RenameTables: _Undo.rename_tables,
        ddl.AlterTable: _Undo.alter_table,
        ddl.Unread: _Undo.unread,
        ddl.CreateSchema: _Undo.create_schema,
        ddl.AlterSchema: _Undo.alter_schema,
        ddl.DropSchema: _Undo.drop_schema,
    }
)


def _as_written(after: Shape, clauses: Sequence[ddl.AlterClause], dialect: Dialect) -> Shape:
    """The shape behind ALTER TABLE, with the names and the types that the statement gives to columns."""
    columns = list(after.columns)
    places = {fold(column.name): place for place, column in enumerate(columns)}
    is_converted = any(isinstance(clause, ddl.ConvertCharset) for clause in clauses)
    for clause in clauses:
        if isinstance(clause, ddl.RenameColumn) and not clause.is_conditional:
            name, defined = clause.new_name, None
        elif isinstance(clause, ddl.AddColumn | ddl.ChangeColumn) and not clause.is_conditional:
            name, defined = clause.column.name, clause.column
        else:
            continue
        place = places.get(fold(name))
        if place is None:
            continue
        column = columns[place]
        if defined is not None and not (column.type or is_converted):
            with contextlib.suppress(*NO_SHAPE):
                made = make_column(defined, CharsetContext(after.charset), dialect)
                # A key may forbid NULL.
                column = replace(made, nullable=None if made.nullable else made.nullable)
        columns[place] = replace(column, name=name)
    return replace(after, columns=tuple(columns))


def shape_before(after: Shape, clauses: Sequence[ddl.AlterClause], *, is_mariadb: bool) -> Shape:
    """The shape before ALTER TABLE with these clauses. Raises ``UnknownShapeError``."""
    return _ShapeBefore(after, clauses, is_mariadb).run()


class _ShapeBefore:
    """One ALTER TABLE on its way back; ``_fewest`` and ``_most`` count lost columns."""

    def __init__(self, after: Shape, clauses: Sequence[ddl.AlterClause], is_mariadb: bool) -> None:
        self._after = after
        self._clauses = clauses
        self._is_mariadb = is_mariadb
        self._columns = list(after.visible)
        self._hidden = [column for column in after.columns if column.is_hidden]
        self._fewest, self._most = after.lost
        self._primary = after.primary
        self._keys = None if after.keys is None else list(after.keys)
        self._charset, self._engine, self._periods = after.charset, after.engine, after.periods

    def run(self) -> Shape:
        self._take_added([clause for clause in self._clauses if isinstance(clause, ddl.AddColumn)])
        # Keys name columns as they are called behind the statement.
        self._undo_keys()
        self._change_back()
        self._set_visibility([clause for clause in self._clauses if isinstance(clause, ddl.AlterVisibility)])
        for clause in self._clauses:
            undo_one = _TABLE_CLAUSES.get(type(clause))
            if undo_one is not None:
                undo_one(self, clause)
        self._undo_hashes()
        return Shape(
            (*self._columns, *self._hidden),
            self._primary,
            None if self._keys is None else tuple(self._keys),
            self._charset,
            self._engine,
            self._periods,
            (self._fewest, self._most),
        )

    def _lose(self, fewest: int, most: int) -> None:
        self._fewest += fewest
        self._most += most

    def _places(self) -> dict[str, int]:
        """The place of each column by its folded name: for statements with a clause for each of many columns."""
        return {fold(column.name): place for place, column in enumerate(self._columns)}

    def _take_added(self, clauses: Sequence[ddl.AddColumn]) -> None:
        places = self._places() if clauses else {}
        added = set()
        for clause in clauses:
            place = places.pop(fold(clause.column.name), None)
            if place is not None:
                added.add(place)
                self._lose(0, int(clause.is_conditional))
            elif self._most and not clause.is_conditional:
                self._fewest, self._most = max(self._fewest - 1, 0), self._most - 1
            else:
                raise UnknownShapeError(f"no column {clause.column.name} is known")
        if added:
            self._columns = [column for place, column in enumerate(self._columns) if place not in added]

    def _change_back(self) -> None:
        """DROP, CHANGE, MODIFY and RENAME COLUMN, all at once: names may be swapped."""
        changes: dict[int, ColumnShape | None] = {}
        names: dict[str, str] = {}
        conditional: set[str] = set()
        dropped: dict[str, bool] = {}
        places = self._places()
        for clause in sorted(self._clauses, key=_is_conditional):
            if isinstance(clause, ddl.DropColumn):
                dropped[fold(clause.name)] = clause.is_conditional
            elif isinstance(clause, ddl.ChangeColumn | ddl.RenameColumn):
                new = clause.column.name if isinstance(clause, ddl.ChangeColumn) else clause.new_name
                place = places.get(fold(new))
                if clause.is_conditional and fold(new) in names:
                    # Another clause gave a column this name, so this one found none, unless that one is conditional.
                    if place is not None and fold(new) in conditional:
                        changes[place] = None
                    continue
                # Keys name lost columns, too.
                names[fold(new)] = clause.name
                if clause.is_conditional:
                    conditional.add(fold(new))
                if place is not None:
                    changes[place] = self._before_change(clause, self._columns[place])
                elif not self._most and not clause.is_conditional:
                    raise UnknownShapeError(f"no column {new} is known")
        moved = sum(column is None for column in changes.values())
        self._lose(
            moved + sum(not is_conditional for is_conditional in dropped.values()), moved + len(dropped)
        )
        columns = [changes.get(place, column) for place, column in enumerate(self._columns)]
        self._columns = [column for column in columns if column is not None]
        if self._primary is not None:
            self._primary = _with_names(self._primary, names)
        if self._keys is not None:
            self._keys = [_with_names(key, names) for key in self._keys]

    def _before_change(
        self, clause: ddl.ChangeColumn | ddl.RenameColumn, column: ColumnShape
    ) -> ColumnShape | None:
        """The column before; None: it stood at a place that is not known."""
        is_renamed = isinstance(clause, ddl.RenameColumn) or fold(clause.name) != fold(clause.column.name)
        if clause.is_conditional and is_renamed:
            # There may have been a column of the new name, and none of the old one.
            return None
        if isinstance(clause, ddl.RenameColumn):
            return replace(column, name=clause.name)
        return None if clause.position is not None else ColumnShape(clause.name, "", nullable=None)

    # Keys.

    def _undo_keys(self) -> None:
        """The primary key is what it was where no clause is about it; others come back if they were only added."""
        for clause in self._clauses:
            match clause:
                case ddl.AddKey(key):
                    self._take_key(key)
                case (
                    ddl.DropColumn()
                    | ddl.RenameColumn(is_conditional=True)
                    | ddl.ChangeColumn(is_conditional=True)
                ):
                    # A dropped column may have been a part of any key.
                    self._primary = self._keys = None
                case ddl.DropKey():
                    if clause.name.upper() == "PRIMARY":
                        self._primary = None
                    self._keys = None
                case ddl.ChangeColumn() | ddl.RenameKey() | ddl.SetOptions():
                    self._keys = None
                case _:
                    pass

    def _take_key(self, key: ddl.KeyClause) -> None:
        if key.kind == "primary":
            self._primary = self._keys = None
            self._unsure_of_null([part.column for part in key.parts])
        elif self._keys is not None:
            left = [other for other in self._keys if fold(other.name) != fold(key.name)]
            is_taken = key.name and key.kind != "foreign" and not key.is_conditional
            self._keys = left if is_taken and len(left) < len(self._keys) else None

    def _unsure_of_null(self, names: Sequence[str]) -> None:
        wanted = set(map(fold, names))
        self._columns = [
            replace(column, nullable=None) if fold(column.name) in wanted else column
            for column in self._columns
        ]

    def _undo_hashes(self) -> None:
        """MariaDB: almost any statement may have added hidden columns of keys, or taken them away."""
        if not self._is_mariadb or all(map(keeps_table, self._clauses)):
            return
        hashes = [column for column in self._hidden if column.role == "hash"]
        self._hidden = [column for column in self._hidden if column.role != "hash"]
        if self._after.keys is None:
            self._lose(0, _MOST_KEYS)
            return
        kept = [key for key in self._after.keys if key.kind == "unique"]
        dropped = sum(isinstance(clause, ddl.DropKey | ddl.DropColumn) for clause in self._clauses)
        self._lose(0, max(len(hashes), len(kept)) + dropped)

    # The table.

    def _unconvert(self, clause: ddl.ConvertCharset) -> None:
        self._charset = None
        self._columns = [
            replace(column, type="", numbers=(), charset=None, labels=()) if _is_converted(column) else column
            for column in self._columns
        ]

    def _unset_options(self, clause: ddl.SetOptions) -> None:
        if clause.options.charset:
            self._charset = None
        if clause.options.engine:
            self._engine = ""
        if clause.options.is_versioned:
            self._remove_period(None)

    def _set_visibility(self, clauses: Sequence[ddl.AlterVisibility]) -> None:
        invisible = {fold(clause.name): clause.is_visible for clause in clauses}
        if invisible:
            self._columns = [
                replace(column, invisible=invisible.get(fold(column.name), column.invisible))
                for column in self._columns
            ]

    def _remove_period(self, clause: ddl.AddVersioning | None) -> None:
        self._hidden = [column for column in self._hidden if column.role == "hash"]
        self._lose_keys()

    def _restore_period(self, clause: ddl.DropVersioning) -> None:
        self._lose(0, 2)
        self._lose_keys()

    def _lose_keys(self) -> None:
        """Unique keys of a versioned table end in the end of its period."""
        self._primary = self._keys = None

    def _forget_period(self, clause: ddl.AddPeriod | ddl.DropPeriod) -> None:
        self._periods = ()
        if isinstance(clause, ddl.AddPeriod):
            self._unsure_of_null([clause.period.start, clause.period.end])


def _is_conditional(clause: ddl.AlterClause) -> bool:
    return isinstance(clause, ddl.ChangeColumn | ddl.RenameColumn) and clause.is_conditional


_MOST_KEYS: Final = 64
_TABLE_CLAUSES: Final[Mapping[type, Callable[[_ShapeBefore, Any], None]]] = MappingProxyType(
    {
        ddl.ConvertCharset: _ShapeBefore._unconvert,
        ddl.SetOptions: _ShapeBefore._unset_options,
        ddl.AddVersioning: _ShapeBefore._remove_period,
        ddl.DropVersioning: _ShapeBefore._restore_period,
        ddl.AddPeriod: _ShapeBefore._forget_period,
        ddl.DropPeriod: _ShapeBefore._forget_period,
    }
)


def _is_converted(column: ColumnShape) -> bool:
    """Whether CONVERT TO may have changed a column: those of text, and what the binary set makes of them."""
    return column.charset is not None or column.type in BLOB_TYPES or column.type in STRING_TYPES


def _with_names(key: Key, names: Mapping[str, str]) -> Key:
    """The key with other names of columns; ``names``: folded names -> the others."""
    return replace(key, parts=tuple((names.get(fold(name), name), length) for name, length in key.parts))
