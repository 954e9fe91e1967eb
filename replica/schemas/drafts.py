"""Shapes that statements make: CREATE TABLE makes one, ALTER TABLE makes one of another.

The order in which ALTER TABLE does its clauses is that of ``mysql_prepare_alter_table`` (sql_table.cc), the same on
both families: columns are dropped, changed and renamed in their place; then additions and moves are done one after
another; then character sets, keys and hidden columns follow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, Final

from protocol.records import record

from ..sql import ddl_statements as ddl
from ..sql.dialect import Dialect
from .charset_names import UnknownShapeError, charset_of
from .column_shapes import CharsetContext, converted, make_column
from .hidden_columns import hash_columns, hidden_period
from .key_list import KeyList
from .shape import ColumnShape, Period, Shape

_HASHES_SINCE: Final = (10, 4)
_CONVERT_KEEPS_DEFAULT_BEFORE: Final = (8,)


def fold(name: str) -> str:
    """A column's name as servers compare it: small letters, one character each."""
    return "".join(low if len(low := character.lower()) == 1 else character for character in name)


def created_shape(statement: ddl.CreateTable, schema_charset: str | None, dialect: Dialect) -> Shape:
    """The shape that CREATE TABLE with a list of columns makes. Raises ``UnknownShapeError``."""
    if statement.has_rows:
        raise UnknownShapeError("its columns come from a SELECT")
    if not statement.columns:
        raise UnknownShapeError("its columns come from the engine")
    charset = charset_of(statement.options.charset, schema_charset, schema_charset)
    draft = _Draft([], KeyList(), charset, statement.options.engine, dialect)
    context = CharsetContext(charset)
    draft.columns = [make_column(clause, context, dialect) for clause in statement.columns]
    for key in statement.keys:
        draft.keys.add(key)
    for period in statement.periods:
        draft.add_period(period)
    versioned = statement.options.is_versioned or any(clause.versioning for clause in statement.columns)
    draft.has_hidden_period = versioned and not draft.has_explicit_period
    return draft.finished()


def altered_shape(
    before: Shape, statement: ddl.AlterTable, schema_charset: str | None, dialect: Dialect
) -> Shape:
    """The shape of a table behind ALTER TABLE. Raises ``UnknownShapeError``."""
    return _Alteration(before, statement, schema_charset, dialect).run()


def shape_like(before: Shape, dialect: Dialect) -> Shape:
    """The shape of CREATE TABLE ... LIKE."""
    return _draft_of(before, dialect).finished()


def _draft_of(shape: Shape, dialect: Dialect) -> "_Draft":
    keys = KeyList(shape.primary, shape.keys)
    draft = _Draft(list(shape.visible), keys, shape.charset, shape.engine, dialect, list(shape.periods))
    draft.has_hidden_period = any(column.role == "start" and column.is_hidden for column in shape.columns)
    return draft


@record(slots=True)
class _Draft:
    """A shape in the making; ``columns`` are those that the user sees."""

    columns: list[ColumnShape]
    keys: KeyList
    charset: str | None
    engine: str
    dialect: Dialect
    periods: list[Period] = field(default_factory=list)
    has_hidden_period: bool = False

    @property
    def has_explicit_period(self) -> bool:
        return any(column.role == "start" for column in self.columns)

    def add_period(self, period: ddl.PeriodClause) -> None:
        if period.name:
            self.periods.append(Period(period.name, period.start, period.end))

    def forbid_null(self, names: Sequence[str]) -> None:
        wanted = set(map(fold, names))
        self.columns = [
            replace(column, nullable=False)
            if fold(column.name) in wanted and column.nullable is not False
            else column
            for column in self.columns
        ]

    def finished(self) -> Shape:
        if self.keys.primary is not None:
            self.forbid_null([name for name, _ in self.keys.primary.parts])
        for period in self.periods:
            self.forbid_null([period.start, period.end])
        folded = [fold(column.name) for column in self.columns]
        if len(set(folded)) != len(folded):
            raise UnknownShapeError("two columns of one name")
        hidden = hidden_period() if self.has_hidden_period else []
        dialect = self.dialect
        has_hashes = dialect.is_mariadb and dialect.version >= _HASHES_SINCE
        primary, keys = self.keys.finish(
            [*self.columns, *hidden], self.periods, self.engine, has_hashes=has_hashes
        )
        hidden += hash_columns(self.columns, keys or ())
        return Shape((*self.columns, *hidden), primary, keys, self.charset, self.engine, tuple(self.periods))


class _Alteration:
    """One ALTER TABLE. The clauses are taken from the statement by kind."""

    def __init__(
        self, before: Shape, statement: ddl.AlterTable, schema_charset: str | None, dialect: Dialect
    ) -> None:
        self._before = before
        self._clauses = statement.clauses
        self._schema_charset = schema_charset
        self._dialect = dialect
        self._draft = _draft_of(before, dialect)
        self._old = {fold(column.name): column for column in before.visible}
        self._defined: set[str] = set()
        self._context = CharsetContext(self._draft.charset)

    def run(self) -> Shape:
        self._set_charset()
        self._change_in_place()
        for clause in self._clauses:
            self._add_or_move(clause)
        self._convert()
        self._drop_and_rename_keys()
        for clause in self._clauses:
            apply = _TABLE_CLAUSES.get(type(clause))
            if apply is not None:
                apply(self, clause)
        return self._draft.finished()

    # Character sets.

    def _set_charset(self) -> None:
        """The table's default, and the set that all character columns get, before any column is made."""
        draft, conversion, default = self._draft, None, None
        for clause in self._clauses:
            if isinstance(clause, ddl.ConvertCharset):
                conversion = charset_of(clause.charset, None, self._schema_charset)
                if conversion is None:
                    raise UnknownShapeError("the default character set of the schema is not known")
            elif isinstance(clause, ddl.SetOptions) and clause.options.charset:
                default = clause.options.charset
        if default is not None:
            draft.charset = charset_of(default, draft.charset, self._schema_charset)
        elif conversion is not None:
            draft.charset = conversion
        self._context = CharsetContext(draft.charset, conversion)

    def _convert(self) -> None:
        charset = self._context.converted
        if charset is None:
            return
        draft = self._draft
        draft.columns = [
            column if fold(column.name) in self._defined else converted(column, charset)
            for column in draft.columns
        ]
        # MySQL 5.6 leaves the table's default as it was if no column changes, 8.0 does not.
        is_old = not self._dialect.is_mariadb and self._dialect.version < _CONVERT_KEEPS_DEFAULT_BEFORE
        if is_old and tuple(draft.columns) == self._before.visible and self._before.charset != charset:
            draft.charset = None

    # Columns.

    def _column_of(self, name: str, *, is_conditional: bool) -> ColumnShape | None:
        """A column of the table before the statement; None if it may be missing and is."""
        column = self._old.get(fold(name))
        if column is None and not is_conditional:
            raise UnknownShapeError(f"no column {name} is known")
        return column

    def _change_in_place(self) -> None:
        """DROP, CHANGE, MODIFY and RENAME COLUMN; and keys follow."""
        changes: dict[str, ColumnShape | None] = {}
        for clause in self._clauses:
            for old, new in self._change(clause):
                if fold(old.name) in changes:
                    raise UnknownShapeError(f"column {old.name} is changed twice")
                changes[fold(old.name)] = new
        columns = []
        for column in self._draft.columns:
            changed = changes.get(fold(column.name), column)
            if changed is not None:
                columns.append(changed)
        self._draft.columns = columns
        names = {
            column.name: None if new is None else new.name
            for column in self._before.visible
            if fold(column.name) in changes
            for new in [changes[fold(column.name)]]
        }
        self._draft.keys.rename_columns(names)
        self._rename_periods(names)

    def _change(self, clause: ddl.AlterClause) -> Iterator[tuple[ColumnShape, ColumnShape | None]]:
        if isinstance(clause, ddl.DropColumn):
            column = self._column_of(clause.name, is_conditional=clause.is_conditional)
            if column is not None:
                yield column, None
        elif isinstance(clause, ddl.ChangeColumn):
            column = self._column_of(clause.name, is_conditional=clause.is_conditional)
            if column is not None:
                new = make_column(clause.column, self._context, self._dialect)
                self._defined.add(fold(new.name))
                yield column, new
        elif isinstance(clause, ddl.RenameColumn):
            column = self._column_of(clause.name, is_conditional=clause.is_conditional)
            if column is not None:
                yield column, replace(column, name=clause.new_name)

    def _rename_periods(self, names: Mapping[str, str | None]) -> None:
        self._draft.periods = [
            replace(
                period,
                start=names.get(period.start, period.start) or "",
                end=names.get(period.end, period.end) or "",
            )
            for period in self._draft.periods
        ]

    def _add_or_move(self, clause: ddl.AlterClause) -> None:
        columns = self._draft.columns
        if isinstance(clause, ddl.AddColumn):
            name = fold(clause.column.name)
            # What was there before counts, even if this statement drops it.
            if clause.is_conditional and (name in self._old or name in map(fold, self._names())):
                if clause.has_keys:
                    raise UnknownShapeError(f"a key of column {clause.column.name}, which is there already")
                return
            column = make_column(clause.column, self._context, self._dialect)
            self._defined.add(name)
            self._insert(column, clause.position)
        elif isinstance(clause, ddl.ChangeColumn) and clause.position is not None:
            name = fold(clause.column.name)
            found = [column for column in columns if fold(column.name) == name]
            if found:
                columns.remove(found[0])
                self._insert(found[0], clause.position)

    def _insert(self, column: ColumnShape, position: ddl.Position | None) -> None:
        columns = self._draft.columns
        if position is None:
            columns.append(column)
        elif position.after is None:
            columns.insert(0, column)
        else:
            names = list(map(fold, self._names()))
            if fold(position.after) not in names:
                raise UnknownShapeError(f"no column {position.after} is known")
            columns.insert(names.index(fold(position.after)) + 1, column)

    def _names(self) -> list[str]:
        return [column.name for column in self._draft.columns]

    def _set_visibility(self, clause: ddl.AlterVisibility) -> None:
        self._column_of(clause.name, is_conditional=False)
        self._draft.columns = [
            replace(column, invisible=not clause.is_visible)
            if fold(column.name) == fold(clause.name)
            else column
            for column in self._draft.columns
        ]

    # The table.

    def _add_key(self, clause: ddl.AddKey) -> None:
        self._draft.keys.add(clause.key)

    def _drop_and_rename_keys(self) -> None:
        keys, names = self._draft.keys, {}
        for clause in self._clauses:
            if isinstance(clause, ddl.DropKey):
                keys.drop(
                    clause.name, is_conditional=clause.is_conditional, is_constraint=clause.is_constraint
                )
            elif isinstance(clause, ddl.RenameKey):
                names[clause.name.lower()] = clause.new_name
        keys.rename(names)

    def _set_options(self, clause: ddl.SetOptions) -> None:
        self._draft.engine = clause.options.engine or self._draft.engine
        if clause.options.is_versioned:
            self._add_versioning(ddl.AddVersioning())

    def _add_versioning(self, clause: ddl.AddVersioning) -> None:
        self._draft.has_hidden_period = not self._draft.has_explicit_period

    def _drop_versioning(self, clause: ddl.DropVersioning) -> None:
        self._draft.has_hidden_period = False

    def _add_period(self, clause: ddl.AddPeriod) -> None:
        self._draft.add_period(clause.period)

    def _drop_period(self, clause: ddl.DropPeriod) -> None:
        self._draft.periods = [
            period for period in self._draft.periods if fold(period.name) != fold(clause.name)
        ]


# Clauses done behind the columns. Others change neither columns nor keys, or have been done before.
_TABLE_CLAUSES: Final[Mapping[type, Callable[[_Alteration, Any], None]]] = MappingProxyType(
    {
        ddl.AddKey: _Alteration._add_key,
        ddl.SetOptions: _Alteration._set_options,
        ddl.AlterVisibility: _Alteration._set_visibility,
        ddl.AddVersioning: _Alteration._add_versioning,
        ddl.DropVersioning: _Alteration._drop_versioning,
        ddl.AddPeriod: _Alteration._add_period,
        ddl.DropPeriod: _Alteration._drop_period,
    }
)
