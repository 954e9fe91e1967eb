"""Shapes that statements make: CREATE TABLE makes one, ALTER TABLE makes one of another.

The order in which ALTER TABLE does its clauses is that of ``mysql_prepare_alter_table`` (sql_table.cc), the same on
both families: columns are dropped, changed and renamed in their place; then additions and moves are done one after
another; then character sets, keys and hidden columns follow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from protocol.constants import MAX_COLUMNS
from protocol.records import field, record, replace

from ..sql import ddl_statements as ddl
from ..sql.dialect import Dialect
from .charset_names import UnknownShapeError, UnknownTextError, charset_of
from .column_shapes import BLOB_TYPES, TEXT_TYPES, CharsetContext, converted, make_column
from .hidden_columns import hash_columns, hidden_period
from .key_list import HASH_ENGINES, KeyList
from .shape import ColumnShape, Period, Shape

_HASHES_SINCE: Final = (10, 4)
_CONVERTS_ALWAYS_SINCE: Final = (8,)
_SIZES_BY_OLD_COLUMN_SINCE: Final = (5, 7)
_GENERATES_KEYS_SINCE: Final = (8, 0, 30)
_GENERATED_KEY: Final = "my_row_id"
# Between these versions of MariaDB the meaning of CONVERT TO CHARACTER SET DEFAULT changed.
_CONVERTS_TO_TABLES_SCHEMA: Final = ((10, 7), (10, 11))


def fold(name: str) -> str:
    """A column's name as servers compare it: small letters, one character each."""
    if name.isascii():
        return name.lower()
    return "".join(low if len(low := character.lower()) == 1 else character for character in name)


def created_shape(statement: ddl.CreateTable, schema_charset: str | None, dialect: Dialect) -> Shape:
    """The shape that CREATE TABLE with a list of columns makes. Raises ``UnknownShapeError``."""
    if statement.has_rows:
        raise UnknownShapeError("its columns come from a SELECT")
    if not statement.columns:
        raise UnknownShapeError("its columns come from the engine")
    _check_count(statement.columns)
    charset = charset_of(statement.options.charset, schema_charset, schema_charset)
    draft = _Draft([], KeyList(), charset, statement.options.engine, dialect)
    context = CharsetContext(charset)
    draft.columns = [_column(clause, context, dialect) for clause in statement.columns]
    for key in statement.keys:
        draft.keys.add(key)
    for period in statement.periods:
        draft.add_period(period)
    versioned = statement.options.is_versioned or any(clause.versioning for clause in statement.columns)
    draft.has_hidden_period = versioned and not draft.has_explicit_period
    return draft.finished()


def _check_count(columns: Sequence[object]) -> None:
    if len(columns) > MAX_COLUMNS:
        raise UnknownShapeError(f"more than {MAX_COLUMNS} columns, which no table can have")


def _column(clause: ddl.ColumnClause, context: CharsetContext, dialect: Dialect) -> ColumnShape:
    """The column that a statement defines; without a type if its character set or a label is not known."""
    try:
        return make_column(clause, context, dialect)
    except UnknownTextError:
        return ColumnShape(
            clause.name,
            "",
            nullable=True if clause.nullable is None else clause.nullable,
            generated=clause.generated,
            invisible=clause.invisible,
        )


def _converted(column: ColumnShape, charset: str) -> ColumnShape:
    """The column after CONVERT TO; without a type if its labels are not known then."""
    try:
        return converted(column, charset)
    except UnknownTextError:
        return replace(column, type="", charset=None, labels=())


def altered_shape(
    before: Shape,
    statement: ddl.AlterTable,
    schema_charset: str | None,
    dialect: Dialect,
    session_charset: str | None,
) -> Shape:
    """The shape of a table behind ALTER TABLE. Raises ``UnknownShapeError``."""
    conversion = _default_of_conversion(schema_charset, session_charset, dialect)
    return _Alteration(before, statement, schema_charset, dialect, conversion).run()


def _default_of_conversion(schema: str | None, session: str | None, dialect: Dialect) -> str | None:
    """The set of CONVERT TO CHARACTER SET DEFAULT: that of the session's default schema, or of the table's schema.

    None if it is not known. Measured on MySQL 5.6 to 9.7 and MariaDB 10.6, 10.11 and 11.8.
    """
    if not dialect.is_mariadb or dialect.version < _CONVERTS_TO_TABLES_SCHEMA[0]:
        return session
    is_told = schema == session or dialect.version >= _CONVERTS_TO_TABLES_SCHEMA[1]
    return schema if is_told else None


def shape_like(before: Shape, dialect: Dialect) -> Shape:
    """The shape of CREATE TABLE ... LIKE."""
    return _draft_of(before, dialect).finished()


@cache
def sequence_shape() -> Shape:
    """What MariaDB logs of a sequence whose numbers are BIGINT (sql_sequence.cc)."""
    columns = [
        ("next_not_cached_value", "bigint", False),
        ("minimum_value", "bigint", False),
        ("maximum_value", "bigint", False),
        ("start_value", "bigint", False),
        ("increment", "bigint", False),
        ("cache_size", "bigint", True),
        ("cycle_option", "tinyint", True),
        ("cycle_count", "bigint", False),
    ]
    return Shape(
        tuple(ColumnShape(name, kind, unsigned=unsigned, nullable=False) for name, kind, unsigned in columns)
    )


def _draft_of(shape: Shape, dialect: Dialect) -> "_Draft":
    if shape.lost != (0, 0):
        raise UnknownShapeError("not all columns are known")
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
        for period in self.periods:
            self.forbid_null([period.start, period.end])
        late: list[str] = []
        if self.keys.primary is not None:
            if self.keys.has_new_primary:
                late = [column.name for column in self.columns if column.nullable is not False]
            self.forbid_null([name for name, _ in self.keys.primary.parts])
        folded = [fold(column.name) for column in self.columns]
        if len(set(folded)) != len(folded):
            raise UnknownShapeError("two columns of one name")
        hidden = hidden_period() if self.has_hidden_period else []
        dialect = self.dialect
        has_hashes = dialect.is_mariadb and dialect.version >= _HASHES_SINCE
        keys = self.keys.finish(
            [*self.columns, *hidden], self.periods, self.engine, late=late, has_hashes=has_hashes
        )
        hidden += hash_columns(self.columns, keys.hashes)
        return Shape(
            (*self.columns, *hidden),
            keys.primary,
            keys.others,
            self.charset,
            self.engine,
            tuple(self.periods),
        )


class _Alteration:
    """One ALTER TABLE. The clauses are taken from the statement by kind."""

    def __init__(
        self,
        before: Shape,
        statement: ddl.AlterTable,
        schema_charset: str | None,
        dialect: Dialect,
        conversion_default: str | None,
    ) -> None:
        self._before = before
        self._clauses = statement.clauses
        self._schema_charset = schema_charset
        self._conversion_default = conversion_default
        self._dialect = dialect
        self._draft = _draft_of(before, dialect)
        self._old = {fold(column.name): column for column in before.visible}
        self._defined: set[str] = set()
        # The names of the draft's columns, folded, once only additions and moves are left.
        self._folded: list[str] = []
        self._context = CharsetContext(self._draft.charset)

    def run(self) -> Shape:
        self._set_charset()
        self._drop_and_rename_keys()
        self._change_in_place()
        self._folded = [fold(column.name) for column in self._draft.columns]
        for clause in self._clauses:
            self._add_or_move(clause)
        self._keep_generated_key_first()
        self._convert()
        for clause in self._clauses:
            apply = _TABLE_CLAUSES.get(type(clause))
            if apply is not None:
                apply(self, clause)
        return self._draft.finished()

    @property
    def _has_hashes(self) -> bool:
        """Whether the server is a MariaDB, and the table has unique keys."""
        return self._dialect.is_mariadb and any(key.kind == "unique" for key in self._before.keys or ())

    @property
    def _may_have_primary(self) -> bool:
        """Whether nothing tells that there is no primary key: it makes its columns NOT NULL."""
        return self._before.primary is None and self._before.keys is None

    def _keep_generated_key_first(self) -> None:
        """MySQL: FIRST means behind the key of sql_generate_invisible_primary_key, whatever the session has now."""
        if self._dialect.is_mariadb or self._dialect.version < _GENERATES_KEYS_SINCE:
            return
        if any(
            isinstance(one, ddl.AddColumn) and fold(one.column.name) == _GENERATED_KEY
            for one in self._clauses
        ):
            # It takes the place of the key, which is dropped, and stands where the clause says.
            return
        key = self._before.primary
        is_of_it = key is None or [fold(name) for name, _ in key.parts] == [_GENERATED_KEY]
        is_generated = is_of_it and any(
            (fold(column.name), column.type, column.unsigned, column.invisible)
            == (_GENERATED_KEY, "bigint", True, True)
            for column in self._before.columns[:1]
        )
        if is_generated:
            self._draft.columns.sort(key=lambda column: fold(column.name) != _GENERATED_KEY)

    # Character sets.

    def _set_charset(self) -> None:
        """The table's default, and the set that all character columns get, before any column is made.

        CONVERT TO sets the default, too. Of it and a default in the same statement the last holds in MySQL, the
        default in MariaDB.
        """
        draft, conversion, default = self._draft, None, None
        for clause in self._clauses:
            if isinstance(clause, ddl.ConvertCharset):
                conversion = charset_of(clause.charset, None, self._conversion_default)
                if conversion is None:
                    raise UnknownShapeError("the default character set of the schema is not known")
                if not self._dialect.is_mariadb:
                    default = None
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
            column if fold(column.name) in self._defined else _converted(column, charset)
            for column in draft.columns
        ]
        if self._may_do_nothing and tuple(draft.columns) == self._before.visible:
            # The table's default changed if a column's collation did, which is not known here.
            draft.charset = charset if self._before.charset == charset else None

    @property
    def _may_do_nothing(self) -> bool:
        """Whether the server is a MySQL that does nothing where CONVERT TO alone changes no column: 5.6 is."""
        is_old = not self._dialect.is_mariadb and self._dialect.version < _CONVERTS_ALWAYS_SINCE
        return is_old and all(
            isinstance(clause, ddl.ConvertCharset)
            or (isinstance(clause, ddl.KeepColumns) and clause.words == "ALGORITHM")
            for clause in self._clauses
        )

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
        pairs: list[tuple[ColumnShape, ColumnShape | None]] = []
        for clause in self._clauses:
            for old, new in self._change(clause):
                pairs.append((old, new))
                if fold(old.name) in changes and not (new is None and changes[fold(old.name)] is None):
                    raise UnknownShapeError(f"column {old.name} is changed twice")
                changes[fold(old.name)] = new
        if not self._dialect.is_mariadb:
            # MySQL refuses to, unless it remembers a prefix from before an ENUM or SET hid it.
            long = [old.name for old, new in pairs if new is not None and _becomes_long(old, new)]
            self._draft.keys.lose_over(long)
        columns = [changes.get(fold(column.name), column) for column in self._draft.columns]
        self._draft.columns = [column for column in columns if column is not None]
        names = {
            column.name: None if new is None else new.name
            for column in self._before.visible
            if fold(column.name) in changes
            for new in [changes[fold(column.name)]]
        }
        self._rename_periods(names)
        self._draft.keys.rename_columns(self._with_added_again(names))

    def _with_added_again(self, names: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """The same, with dropped columns that the statement adds again: keys over them go on with the new ones."""
        dropped = {fold(name): name for name, new in names.items() if new is None}
        added: dict[str, str] = {}
        for clause in self._clauses if dropped else ():
            if isinstance(clause, ddl.AddColumn) and not clause.is_conditional:
                name = dropped.get(fold(clause.column.name))
                if name is not None:
                    added[name] = clause.column.name
                    self._lose_prefixes(name, _column(clause.column, self._context, self._dialect))
        return {**names, **added}

    def _lose_prefixes(self, name: str, new: ColumnShape) -> None:
        """A key has as many bytes of the new column as it had of the old one: a prefix, if that is shorter."""
        old = self._old[fold(name)]
        if (old.type, old.numbers, old.charset) != (new.type, new.numbers, new.charset):
            self._draft.keys.lose_over([name])

    def _change(self, clause: ddl.AlterClause) -> Iterator[tuple[ColumnShape, ColumnShape | None]]:
        if isinstance(clause, ddl.DropColumn):
            column = self._column_of(clause.name, is_conditional=clause.is_conditional)
            if column is not None:
                yield column, None
        elif isinstance(clause, ddl.ChangeColumn):
            column = self._column_of(clause.name, is_conditional=clause.is_conditional)
            if column is not None:
                new = _column(clause.column, self._context, self._dialect)
                self._check_size(new)
                if new.nullable and self._may_have_primary:
                    new = replace(new, nullable=None)
                self._defined.add(fold(new.name))
                yield column, new
        elif isinstance(clause, ddl.RenameColumn):
            column = self._column_of(clause.name, is_conditional=clause.is_conditional)
            if column is not None:
                yield column, replace(column, name=clause.new_name)

    def _check_size(self, new: ColumnShape) -> None:
        """MySQL 9.7 sizes a TEXT that is changed and converted at once by the old column; 5.6 does not."""
        is_odd = not self._dialect.is_mariadb and self._dialect.version >= _SIZES_BY_OLD_COLUMN_SINCE
        if is_odd and self._context.converted is not None and new.type in TEXT_TYPES:
            raise UnknownShapeError(f"the size of {new.name}, which is changed and converted at once")

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
        if isinstance(clause, ddl.AddColumn):
            name = fold(clause.column.name)
            # What was there before counts, even if this statement drops it.
            if clause.is_conditional and (name in self._old or name in self._folded):
                return
            column = _column(clause.column, self._context, self._dialect)
            if column.nullable and name in self._old and self._may_have_primary:
                column = replace(column, nullable=None)
            self._defined.add(name)
            self._insert(column, clause.position)
        elif isinstance(clause, ddl.ChangeColumn) and clause.position is not None:
            name = fold(clause.column.name)
            # IF EXISTS may name a column that there was not.
            if fold(clause.name) in self._old and name in self._folded:
                place = self._folded.index(name)
                del self._folded[place]
                self._insert(self._draft.columns.pop(place), clause.position)

    def _insert(self, column: ColumnShape, position: ddl.Position | None) -> None:
        columns, place = self._draft.columns, 0
        if position is None:
            place = len(columns)
        elif position.after is not None:
            after = fold(position.after)
            if after not in self._folded:
                raise UnknownShapeError(f"no column {position.after} is known")
            place = self._folded.index(after) + 1
        columns.insert(place, column)
        self._folded.insert(place, fold(column.name))
        _check_count(columns)

    def _set_visibility(self, clause: ddl.AlterVisibility) -> None:
        self._column_of(clause.name, is_conditional=False)
        name = fold(clause.name)
        if name in self._folded:
            place = self._folded.index(name)
            columns = self._draft.columns
            columns[place] = replace(columns[place], invisible=not clause.is_visible)

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
        draft, engine = self._draft, clause.options.engine
        if draft.engine in HASH_ENGINES and engine not in ("", *HASH_ENGINES) and self._has_hashes:
            raise UnknownShapeError("which keys of a MEMORY table are USING HASH")
        draft.engine = engine or draft.engine
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


def _becomes_long(old: ColumnShape, new: ColumnShape) -> bool:
    return old.type not in BLOB_TYPES and (new.type in BLOB_TYPES or not new.type)


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
