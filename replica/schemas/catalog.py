"""All tables of a source with their shapes, and what a statement of the log makes of them.

``Catalog.apply`` takes statements one after another, as the log has them. A statement that is not understood makes
the shapes of its tables ``Unknown``, with the reason; no statement raises an error.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from protocol.records import field, record

from ..sql import ddl_statements as ddl
from ..sql.client_text import may_be_like_by_mariadb, may_hide_charset
from ..sql.ddl_reader import read_statement
from ..sql.dialect import Dialect
from ..sql.token_reader import TableName
from .charset_names import NO_SHAPE, UnknownShapeError, charset_of, known
from .drafts import altered_shape, created_shape, sequence_shape, shape_like
from .shape import Shape
from .shared import Shared
from .temporary_names import TemporaryNames

_MOST_TEXT: Final = 200
_MOST_READ: Final = 4 * _MOST_TEXT
#: ER_BAD_TABLE_ERROR: DROP TABLE of several tables has dropped those that there were.
NO_SUCH_TABLE: Final = 1051


@record(slots=True, frozen=True)
class Unknown:
    """A table whose shape is not known; ``reason`` names the statement that the trail ends at."""

    reason: str


@record(slots=True, frozen=True)
class Lost(Unknown):
    """A shape that a later statement has taken away, as DROP TABLE: only the log before this place can tell it."""


def by_schema(tables: Iterable[TableName]) -> dict[str, dict[TableName, None]]:
    """The tables of each schema, in their order."""
    found: dict[str, dict[TableName, None]] = {}
    for table in tables:
        found.setdefault(table.schema, {})[table] = None
    return found


def other_tables(schema: str) -> TableName:
    """Stands for the tables of a schema that nothing names: those that only a DROP DATABASE speaks of."""
    return TableName(schema, "")


@record(slots=True, frozen=True)
class Statement:
    """A statement of the log with what its QUERY event says of the session.

    ``schema`` is the default schema. ``server_charset`` is the name of collation_server's character set, None where
    it is not known: schemas without a character set of their own get it. ``error_code`` is not 0 for a statement that
    failed on the source with an effect. ``uses_temporary``: it may be about a temporary table, as only sessions with
    another binlog_format than ROW log them. ``doubt`` is why its text is not known for sure, or empty.
    """

    sql: str
    schema: str = ""
    dialect: Dialect = field(default_factory=Dialect)
    server_charset: str | None = None
    error_code: int = 0
    uses_temporary: bool = False
    doubt: str = ""


@record(slots=True, frozen=True)
class TableChange:
    """A table before and after a statement; None: there was or is no such table.

    ``renamed_to`` and ``renamed_from`` are set for the two halves of a rename.
    """

    table: TableName
    before: Shape | Unknown | None
    after: Shape | Unknown | None
    renamed_from: TableName | None = None
    renamed_to: TableName | None = None


class Listed:
    """A table whose shape is made when it is asked for: few of a source's tables have rows in a stream."""

    __slots__ = ("_make", "_shared", "_state")

    def __init__(self, make: Callable[[], Shape | Unknown], shared: Shared) -> None:
        self._make, self._shared = make, shared
        self._state: Shape | Unknown | None = None

    def state(self) -> Shape | Unknown:
        """The shape, made at the first call."""
        state = self._state
        if state is None:
            made = self._make()
            state = self._state = self._shared.shape(made) if isinstance(made, Shape) else made
            del self._make
        return state


class _Tables(Mapping[TableName, Shape | Unknown]):
    """The tables of a catalog, for looking."""

    def __init__(self, tables: Mapping[TableName, Shape | Unknown | Listed]) -> None:
        self._tables = tables

    def __getitem__(self, table: TableName) -> Shape | Unknown:
        state = self._tables[table]
        return state.state() if isinstance(state, Listed) else state

    def __contains__(self, table: object) -> bool:
        return table in self._tables

    def __iter__(self) -> Iterator[TableName]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


class Catalog:
    """Tables with their shapes, and schemas with their default character sets.

    A table that is not here does not exist: whoever reads a baseline enters the tables that it does not read as
    ``Unknown``. Shapes that are equal share one object.
    """

    def __init__(
        self,
        tables: Mapping[TableName, Shape | Unknown] | None = None,
        schemas: Mapping[str, str | None] | None = None,
    ) -> None:
        self._shared = Shared()
        self._tables: dict[TableName, Shape | Unknown | Listed] = {}
        self._schemas: dict[str, str | None] = dict(schemas or {})
        # The tables by schema, from the first statement on that is about a whole schema: test servers drop schemas
        # all the time, and a walk over 20,000 tables took 5 ms of each.
        self._by_schema: dict[str, dict[TableName, None]] | None = None
        #: Tables that are what a RENAME TABLE made them. MariaDB logs that of temporary tables, too.
        self.renamed: set[TableName] = set()
        #: Tables that a RENAME TABLE gave another name, and what they were, and are if it was a temporary one.
        self.left: dict[TableName, Shape | Unknown] = {}
        #: What temporary tables are called. Sessions that log statements about them log how they are made.
        self.temporary = TemporaryNames()
        #: Schemas that the last statement has made, changed or dropped.
        self.changed_schemas: set[str] = set()
        for table, shape in (tables or {}).items():
            self.set(table, shape)

    @property
    def tables(self) -> Mapping[TableName, Shape | Unknown]:
        """All tables."""
        return _Tables(self._tables)

    @property
    def listed(self) -> Mapping[TableName, Shape | Unknown | Listed]:
        """All tables; shapes that nobody has asked for are not made."""
        return MappingProxyType(self._tables)

    @property
    def schemas(self) -> Mapping[str, str | None]:
        """Schemas and the character sets that their new tables get; None where that is not known."""
        return MappingProxyType(self._schemas)

    def only(self, names: Collection[TableName]) -> "Catalog":
        """A catalog of these tables and their schemas."""
        tables = {name: state for name in names if (state := self.get(name)) is not None}
        schemas = {name.schema for name in names} & self._schemas.keys()
        return Catalog(tables, {schema: self._schemas[schema] for schema in schemas})

    def get(self, table: TableName) -> Shape | Unknown | None:
        """A table's shape now; None if there is no such table."""
        state = self._tables.get(table)
        return state.state() if isinstance(state, Listed) else state

    def set(self, table: TableName, shape: Shape | Unknown | None) -> None:
        """Put a table in, or take it out."""
        self.renamed.discard(table)
        self.left.pop(table, None)
        if shape is None:
            self._tables.pop(table, None)
            if self._by_schema is not None:
                self._by_schema.get(table.schema, {}).pop(table, None)
        else:
            self._put(table, self._shared.shape(shape) if isinstance(shape, Shape) else shape)

    def set_listed(self, table: TableName, make: Callable[[], Shape | Unknown]) -> None:
        """Put a table in; ``make`` gives its shape, when it is asked for."""
        self._put(table, Listed(make, self._shared))

    def _put(self, table: TableName, state: Shape | Unknown | Listed) -> None:
        self._tables[table] = state
        if self._by_schema is not None:
            self._by_schema.setdefault(table.schema, {})[table] = None

    def tables_of(self, schema: str) -> list[TableName]:
        """The tables of a schema."""
        if self._by_schema is None:
            self._by_schema = by_schema(self._tables)
        return list(self._by_schema.get(schema, ()))

    def shared(self, state: Shape | Unknown | None) -> Shape | Unknown | None:
        """An equal state whose parts are those of other shapes, where they are equal."""
        return self._shared.shape(state) if isinstance(state, Shape) else state

    def share_only(self, shapes: Iterable[Shape]) -> None:
        """Forget all shapes but these, which are those of a whole history."""
        self._shared.keep(shapes)

    def set_schema(self, schema: str, charset: str | None) -> None:
        """The default character set of a schema, by its name or ``utf8``."""
        self.changed_schemas.add(schema)
        self._schemas[schema] = None if charset is None else known(charset)

    def forget_schema(self, schema: str) -> None:
        """Take a schema out; its tables stay."""
        self.changed_schemas.add(schema)
        self._schemas.pop(schema, None)

    def apply(self, statement: Statement) -> list[TableChange]:
        """Do what a statement does; the tables that it changed, with their shapes before and after.

        Tables whose shape stays as it is are left out, as are those that TRUNCATE empties.
        """
        self.changed_schemas = set()
        read = read_statement(statement.sql, statement.schema, statement.dialect)
        if read is None:
            return []
        step = _Step(self, statement)
        if statement.doubt:
            step.lose(ddl.tables_of(read), statement.doubt)
        elif statement.error_code:
            step.fail(read)
        else:
            _APPLY[type(read)](step, read)
        return [change for change in step.changes() if change.before != change.after or change.renamed_from]


class _Step:
    """One statement on its way through the catalog."""

    def __init__(self, catalog: Catalog, statement: Statement) -> None:
        self._catalog = catalog
        self._statement = statement
        self._dialect = statement.dialect
        self._before: dict[TableName, Shape | Unknown | None] = {}
        self._renames: dict[TableName, TableName] = {}
        # The same from the new names.
        self._origins: dict[TableName, TableName] = {}

    def changes(self) -> Iterator[TableChange]:
        for table, before in self._before.items():
            yield TableChange(
                table, before, self._catalog.get(table), self._origins.get(table), self._renames.get(table)
            )

    def _get(self, table: TableName) -> Shape | Unknown | None:
        return self._catalog.get(table)

    def _set(self, table: TableName, shape: Shape | Unknown | None) -> None:
        self._before.setdefault(table, self._catalog.get(table))
        self._catalog.set(table, shape)

    def _unknown(self, reason: str) -> Unknown:
        return Unknown(f"{reason}: {short_text(self._statement.sql)}")

    def _made(self, make: Callable[[], Shape]) -> Shape | Unknown:
        try:
            return make()
        except NO_SHAPE as error:
            return self._unknown(str(error))

    def _schema_charset(self, schema: str) -> str | None:
        return self._catalog.schemas.get(schema)

    def fail(self, read: ddl.DdlStatement) -> None:
        """A statement that the source logs although it failed: tables that it dropped before are gone."""
        if isinstance(read, ddl.CreateTable | ddl.CreateSequence) and read.is_replaced:
            self._set(read.table, None)
        elif isinstance(read, ddl.DropTables) and self._statement.error_code == NO_SUCH_TABLE:
            self.drop_tables(read)
        else:
            self.lose(ddl.tables_of(read), f"failed with error {self._statement.error_code}")

    def lose(self, tables: Iterable[TableName], reason: str) -> None:
        """Nothing is known of these tables behind the statement."""
        for table in tables:
            self._set(table, self._unknown(reason))

    # Tables.

    def create_table(self, read: ddl.CreateTable) -> None:
        is_there = read.is_conditional and not read.is_replaced and self._get(read.table) is not None
        if is_there and not (self._dialect.is_mariadb and read.table in self._catalog.renamed):
            return
        if read.like is None:
            charset = None if self._hides_charset(read) else self._schema_charset(read.table.schema)
            shape = self._made(lambda: created_shape(read, charset, self._dialect))
        else:
            shape = self._like(read.like)
            if self._statement.uses_temporary and not self._only_replaces(read, read.like):
                shape = self._unknown(f"{read.like} may be a temporary table")
        if is_there and shape != self._get(read.table):
            # It was a table, which stays as it is; or a temporary one, and this makes a table.
            shape = self._unknown("a temporary table may have been renamed to it before")
        left = (
            self._catalog.left.get(read.table) if self._dialect.is_mariadb and read.is_conditional else None
        )
        if left is not None and not _has_same_columns(shape, left):
            shape = self._unknown("a temporary table of its name may have been renamed before")
        self._set(read.table, shape)

    def _only_replaces(self, read: ddl.CreateTable, like: TableName) -> bool:
        """Whether it uses no temporary table: MariaDB marks what replaces a table as it marks what uses one."""
        is_marked = self._dialect.is_mariadb and read.is_replaced and self._get(read.table) is not None
        return is_marked and like not in self._catalog.temporary

    def create_temporary(self, read: ddl.CreateTemporary) -> None:
        """No table, but LIKE may mean it."""
        self._catalog.temporary.add([read.table])

    def _hides_charset(self, read: ddl.CreateTable) -> bool:
        """Whether it may be what servers log of CREATE TABLE ... SELECT with ANSI, or of LIKE a temporary table.

        It has columns, and not the table's default character set. What they log of CREATE TABLE ... SELECT else,
        which may use temporary tables, too, has all that is not the schema's.
        """
        if read.options.charset or may_hide_charset(self._statement.sql, self._dialect):
            return not read.options.charset
        if not self._statement.uses_temporary:
            return False
        if self._dialect.is_mariadb:
            # It marks what replaces a table, too.
            return bool(read.options.engine) and may_be_like_by_mariadb(self._statement.sql)
        return not self._statement.sql.endswith("START TRANSACTION")

    def _like(self, table: TableName) -> Shape | Unknown:
        shape = self._get(table)
        if shape is None:
            return self._unknown(f"the columns of {table} are not known")
        if isinstance(shape, Unknown):
            return shape
        return self._made(lambda: shape_like(shape, self._dialect))

    def create_sequence(self, read: ddl.CreateSequence) -> None:
        if read.is_conditional and not read.is_replaced and self._get(read.table) is not None:
            return
        self._set(
            read.table,
            sequence_shape() if read.is_plain else self._unknown("the type of a sequence's numbers"),
        )

    def drop_tables(self, read: ddl.DropTables) -> None:
        for table in read.tables:
            self._set(table, None)

    def drop_views(self, read: ddl.DropViews) -> None:
        """MySQL logs CREATE TABLE IF NOT EXISTS where there is a view of the name, too."""
        for table in () if self._dialect.is_mariadb else read.views:
            if isinstance(self._get(table), Shape):
                known = self._unknown("it may have been a view") if read.is_conditional else None
                self._set(table, known)

    def truncate(self, read: ddl.TruncateTable) -> None:
        """Rows alone."""

    def rename_tables(self, read: ddl.RenameTables) -> None:
        if self._statement.uses_temporary:
            self._catalog.temporary.add(ddl.tables_of(read))
            there = [table for table in ddl.tables_of(read) if self._get(table) is not None]
            self.lose(there, "temporary tables may have been renamed")
            return
        for old, new in read.pairs:
            self._rename(old, new)

    def _rename(self, old: TableName, new: TableName) -> None:
        if self._dialect.is_mariadb and old != new and self._get(new) is not None:
            # MariaDB logs RENAME TABLE of a temporary table, too, which leaves the tables of these names alone.
            for table in (old, new):
                self._set(table, self._unknown("a temporary table may have been renamed"))
            return
        shape = self._get(old)
        self._set(old, None)
        self._set(new, shape or self._unknown(f"the columns of {old} are not known"))
        self._catalog.renamed.add(new)
        # A name that only this statement knows is no table's.
        if shape is not None and self._before[old] is not None:
            self._catalog.left[old] = shape
        origin = self._origins.pop(old, old)
        self._renames[origin] = new
        self._origins[new] = origin

    def alter_table(self, read: ddl.AlterTable) -> None:
        shape = self._get(read.table)
        if self._statement.uses_temporary:
            self._catalog.temporary.add(ddl.tables_of(read))
            there = [table for table in ddl.tables_of(read) if self._get(table) is not None]
            self.lose(there, f"{read.table} may be a temporary table")
            return
        if shape is None:
            self._set(read.table, self._unknown("its columns before are not known"))
        elif isinstance(shape, Shape) and not all(map(keeps_table, read.clauses)):
            charset, own = self._schema_charset(read.table.schema), self._statement.schema
            session = self._schema_charset(own) if own else self._statement.server_charset
            before = shape
            make = partial(altered_shape, before, read, charset, self._dialect, session)
            self._set(read.table, self._made(make))
        for clause in read.clauses:
            if isinstance(clause, ddl.ChangePartitions):
                self._change_partitions(read.table, clause)
        for clause in read.clauses:
            if isinstance(clause, ddl.RenameTo) and clause.table != read.table:
                self._rename(read.table, clause.table)

    def _change_partitions(self, table: TableName, clause: ddl.ChangePartitions) -> None:
        if clause.table is None:
            return
        if clause.words == "CONVERT PARTITION":
            self._set(clause.table, self._like(table))
        elif clause.words == "CONVERT TABLE":
            self._set(clause.table, None)

    def unread(self, read: ddl.Unread) -> None:
        self.lose([*self._catalog.tables] if read.is_about_any else read.tables, read.reason)

    # Schemas.

    def create_schema(self, read: ddl.CreateSchema) -> None:
        if read.is_replaced:
            self._drop_schema(read.schema)
        elif read.is_conditional and read.schema in self._catalog.schemas:
            return
        self._set_schema(read.schema, read.charset)

    def alter_schema(self, read: ddl.AlterSchema) -> None:
        if read.charset:
            self._set_schema(read.schema, read.charset)

    def _set_schema(self, schema: str, clause: ddl.CharsetClause) -> None:
        default = self._statement.server_charset
        try:
            self._catalog.set_schema(schema, charset_of(clause, default, default))
        except UnknownShapeError:
            self._catalog.set_schema(schema, None)

    def drop_schema(self, read: ddl.DropSchema) -> None:
        self._drop_schema(read.schema)

    def _drop_schema(self, schema: str) -> None:
        for table in self._catalog.tables_of(schema):
            self._set(table, None)
        self._catalog.forget_schema(schema)


def _has_same_columns(one: Shape | Unknown, other: Shape | Unknown) -> bool:
    return isinstance(one, Shape) and isinstance(other, Shape) and one.columns == other.columns


def keeps_table(clause: ddl.AlterClause) -> bool:
    """Whether a clause keeps the definition; with any other MariaDB forgets which keys are USING HASH."""
    match clause:
        case ddl.RenameTo() | ddl.KeepColumns("KEYS"):
            return True
        case ddl.ChangePartitions(words):
            return words not in ("PARTITION BY", "REMOVE PARTITIONING")
        case _:
            return False


def short_text(sql: str) -> str:
    """The beginning of a statement, in one line; bytes that are no text are escaped, so that it can be printed."""
    # A statement may name many tables, each of which is told why its columns are not known.
    text = " ".join(sql[:_MOST_READ].split()).encode(errors="backslashreplace").decode()
    return text if len(text) <= _MOST_TEXT and len(sql) <= _MOST_READ else f"{text[:_MOST_TEXT]}..."


_APPLY: Final[Mapping[type, Callable[[_Step, Any], None]]] = MappingProxyType(
    {
        ddl.CreateTable: _Step.create_table,
        ddl.CreateTemporary: _Step.create_temporary,
        ddl.CreateSequence: _Step.create_sequence,
        ddl.DropTables: _Step.drop_tables,
        ddl.DropViews: _Step.drop_views,
        ddl.TruncateTable: _Step.truncate,
        ddl.RenameTables: _Step.rename_tables,
        ddl.AlterTable: _Step.alter_table,
        ddl.Unread: _Step.unread,
        ddl.CreateSchema: _Step.create_schema,
        ddl.AlterSchema: _Step.alter_schema,
        ddl.DropSchema: _Step.drop_schema,
    }
)
