"""What a statement of the log does to the rows of tables: the actions that a copy of the tables must follow.

``ddl_reader`` reads the statement. A part of it that may change rows in a way that the log does not show becomes
``Refused``, as does a statement that is not understood; what cannot change rows is left out.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from protocol.records import record
from protocol.rows.table import table_text
from protocol.wire import utf8_text

from . import column_kinds
from . import ddl_statements as ddl
from .ddl_reader import read_statement
from .dialect import Dialect
from .quoting import quoted


@record(frozen=True, slots=True)
class ColumnDefinition:
    """A column of CREATE TABLE or ALTER TABLE.

    ``default`` is the value of rows that give none: text, or None for NULL. ``is_filled``: the value is not in the
    statement, only the server knows it. ``kind`` is the type in the form of ``column_kinds``. ``charset``: the
    character set that the statement names, else "". ``says_not_null``: NOT NULL is in the statement; a TIMESTAMP may
    have NULL or not without a word.
    """

    name: str
    default: str | None = None
    is_filled: bool = False
    kind: str = ""
    is_nullable: bool = True
    is_generated: bool = False
    is_unsigned: bool = False
    charset: str = ""
    is_zerofill: bool = False
    says_not_null: bool = False


@record(frozen=True, slots=True)
class CreateTable:
    """A new table. ``is_conditional``: IF NOT EXISTS. ``columns`` is None if they are another table's (LIKE).

    ``charset``: the default character set that the statement names, else "".
    """

    table: str
    is_conditional: bool = False
    columns: tuple[ColumnDefinition, ...] | None = None
    charset: str = ""


@record(frozen=True, slots=True)
class DropTable:
    """The table is dropped."""

    table: str


@record(frozen=True, slots=True)
class TruncateTable:
    """The table is emptied."""

    table: str


@record(frozen=True, slots=True)
class RenameTable:
    """The table gets another name."""

    table: str
    new_table: str


@record(frozen=True, slots=True)
class CreateSchema:
    """A new schema. ``is_conditional``: IF NOT EXISTS."""

    schema: str
    is_conditional: bool = False


@record(frozen=True, slots=True)
class DropSchema:
    """A schema is dropped with all its tables."""

    schema: str


@record(frozen=True, slots=True)
class AddColumn:
    """A new column of a table."""

    table: str
    column: ColumnDefinition


@record(frozen=True, slots=True)
class ChangeColumn:
    """A column gets another definition or name; ``column`` is None if the statement gives only the name."""

    table: str
    name: str
    new_name: str
    column: ColumnDefinition | None = None


@record(frozen=True, slots=True)
class SetDefault:
    """A column gets another default, which later rows use."""

    table: str
    column: ColumnDefinition


@record(frozen=True, slots=True)
class SetCharset:
    """Later columns get this character set unless they name one; ``is_conversion``: so do all texts of the table."""

    table: str
    charset: str
    is_conversion: bool = False


@record(frozen=True, slots=True)
class DropColumn:
    """A column is dropped."""

    table: str
    name: str


@record(frozen=True, slots=True)
class Refused:
    """The statement changes rows in a way that the log does not show; ``what`` names that part of the statement.

    ``is_new``: it makes the table.
    """

    table: str
    what: str
    is_new: bool = False


@record(frozen=True, slots=True)
class Unreadable:
    """The statement may change any table, because the name of one could not be read; ``table`` is empty."""

    what: str
    table: str = ""


Action = (
    CreateTable
    | DropTable
    | TruncateTable
    | RenameTable
    | CreateSchema
    | DropSchema
    | AddColumn
    | ChangeColumn
    | SetDefault
    | SetCharset
    | DropColumn
    | Refused
    | Unreadable
)


def table_actions(
    sql: str, schema: str, *, folds: bool = False, explicit_timestamps: bool = True, sql_mode: int = 0
) -> list[Action]:
    """The actions of a statement; ``schema`` is the default schema, which completes names without a schema.

    Names are those of ``table_text``. With ``folds`` they are in lower case, as with lower_case_table_names=1.
    ``explicit_timestamps``: the value of explicit_defaults_for_timestamp for the statement.
    """
    # MariaDB's grammar takes all that MySQL's does.
    dialect = Dialect(True, (), sql_mode, folds, explicit_timestamps)
    read = read_statement(sql, schema, dialect)
    actions = None if read is None else _STATEMENTS.get(type(read))
    return [] if actions is None else list(actions(read, dialect))


# Statements.


def _create_table(read: ddl.CreateTable, dialect: Dialect) -> Iterator[Action]:
    if read.is_replaced:
        yield DropTable(table_text(*read.table))
    columns = tuple(_column(column, dialect) for column in read.columns)
    charset = _charset(read.options.charset)
    yield CreateTable(table_text(*read.table), read.is_conditional, columns or None, charset)


def _drop_tables(read: ddl.DropTables, dialect: Dialect) -> Iterator[Action]:
    for table in read.tables:
        yield DropTable(table_text(*table))


def _truncate(read: ddl.TruncateTable, dialect: Dialect) -> Iterator[Action]:
    yield TruncateTable(table_text(*read.table))


def _rename_tables(read: ddl.RenameTables, dialect: Dialect) -> Iterator[Action]:
    for old, new in read.pairs:
        yield RenameTable(table_text(*old), table_text(*new))


def _create_schema(read: ddl.CreateSchema, dialect: Dialect) -> Iterator[Action]:
    if read.is_replaced:
        yield DropSchema(read.schema)
    yield CreateSchema(read.schema, read.is_conditional)


def _drop_schema(read: ddl.DropSchema, dialect: Dialect) -> Iterator[Action]:
    yield DropSchema(read.schema)


def _unread(read: ddl.Unread, dialect: Dialect) -> Iterator[Action]:
    if read.is_about_any:
        yield Unreadable(f"a statement about a table whose name cannot be read ({read.reason})")
    for table in read.tables:
        yield Refused(table_text(*table), f"a statement that is not understood ({read.reason})")


def _alter_table(read: ddl.AlterTable, dialect: Dialect) -> Iterator[Action]:
    table = table_text(*read.table)
    if read.is_lossy:
        yield Refused(table, "ALTER IGNORE TABLE")
    actions = [
        action
        for clause in read.clauses
        if type(clause) in _CLAUSES
        for action in _CLAUSES[type(clause)](clause, table, dialect)
    ]
    changed = [
        (action.name.lower(), action.new_name.lower())
        for action in actions
        if isinstance(action, ChangeColumn)
    ]
    if {new for name, new in changed if name != new} & {name for name, new in changed if name != new}:
        yield Refused(table, "an exchange of columns' names")
    # Dropped and renamed columns come first, because a new column may reuse their names, and the table's character
    # set, which columns in the same statement take. The rename of the table comes last, because all actions name the
    # table by its old name.
    yield from sorted(actions, key=lambda action: _ALTERATION_ORDER.get(type(action), 2))


_STATEMENTS: Final[Mapping[type, Callable[[Any, Dialect], Iterator[Action]]]] = MappingProxyType(
    {
        ddl.CreateTable: _create_table,
        ddl.DropTables: _drop_tables,
        ddl.TruncateTable: _truncate,
        ddl.RenameTables: _rename_tables,
        ddl.AlterTable: _alter_table,
        ddl.CreateSchema: _create_schema,
        ddl.DropSchema: _drop_schema,
        ddl.Unread: _unread,
    }
)


# ALTER TABLE.


def _add(clause: ddl.AddColumn, table: str, dialect: Dialect) -> Iterator[Action]:
    yield AddColumn(table, _column(clause.column, dialect))


def _drop(clause: ddl.DropColumn, table: str, dialect: Dialect) -> Iterator[Action]:
    yield DropColumn(table, clause.name)


def _change(clause: ddl.ChangeColumn, table: str, dialect: Dialect) -> Iterator[Action]:
    column = _column(clause.column, dialect)
    if column.is_generated:
        # The old expression is not known here, so it cannot be compared with the new one.
        yield Refused(table, f"a definition of the generated column {column.name}")
    yield ChangeColumn(table, clause.name, column.name, column)


def _rename_column(clause: ddl.RenameColumn, table: str, dialect: Dialect) -> Iterator[Action]:
    yield ChangeColumn(table, clause.name, clause.new_name)


def _alter_default(clause: ddl.AlterDefault, table: str, dialect: Dialect) -> Iterator[Action]:
    default = clause.default or ddl.DefaultClause(is_filled=True)
    yield SetDefault(table, ColumnDefinition(clause.name, default.text, default.is_filled))


def _convert_charset(clause: ddl.ConvertCharset, table: str, dialect: Dialect) -> Iterator[Action]:
    yield SetCharset(table, _charset(clause.charset), is_conversion=True)


def _set_options(clause: ddl.SetOptions, table: str, dialect: Dialect) -> Iterator[Action]:
    if charset := _charset(clause.options.charset):
        yield SetCharset(table, charset)


def _rename_to(clause: ddl.RenameTo, table: str, dialect: Dialect) -> Iterator[Action]:
    yield RenameTable(table, table_text(*clause.table))


def _change_partitions(clause: ddl.ChangePartitions, table: str, dialect: Dialect) -> Iterator[Action]:
    if clause.words in _LOSSY_PARTITIONS:
        yield Refused(table, clause.words)
        if clause.table is not None:
            # These statements also change the rows of the other table.
            yield Refused(table_text(*clause.table), clause.words, clause.words == "CONVERT PARTITION")


# What changes rows: the partition's, or another table's.
_LOSSY_PARTITIONS: Final = frozenset(
    {f"{word} PARTITION" for word in ("DROP", "TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT", "CONVERT")}
    | {"CONVERT TABLE", "DISCARD TABLESPACE", "IMPORT TABLESPACE"}
)
_ALTERATION_ORDER: Final[Mapping[type[Action], int]] = MappingProxyType(
    {DropColumn: 0, SetCharset: 0, ChangeColumn: 1, RenameTable: 3}
)
_CLAUSES: Final[Mapping[type, Callable[[Any, str, Dialect], Iterator[Action]]]] = MappingProxyType(
    {
        ddl.AddColumn: _add,
        ddl.DropColumn: _drop,
        ddl.ChangeColumn: _change,
        ddl.RenameColumn: _rename_column,
        ddl.AlterDefault: _alter_default,
        ddl.ConvertCharset: _convert_charset,
        ddl.SetOptions: _set_options,
        ddl.RenameTo: _rename_to,
        ddl.ChangePartitions: _change_partitions,
    }
)


# Columns.


def _column(clause: ddl.ColumnClause, dialect: Dialect) -> ColumnDefinition:
    """A column with the value that old rows get in it."""
    kind = _kind(clause.type)
    is_computed = bool(clause.generated) or clause.auto_increment
    given = clause.default
    if is_computed or (given is not None and given.is_filled):
        default, is_filled = None, True
    elif given is not None and given.text is not None:
        default, is_filled = given.text, not column_kinds.stores_default_as_written(kind, given.text)
    elif given is None and clause.nullable is None and clause.type.name == "timestamp":
        # Without explicit_defaults_for_timestamp it is NOT NULL, with a default that the statement does not show.
        default, is_filled = None, not dialect.explicit_timestamps
    elif given is None and clause.nullable is False:
        # In old rows a new NOT NULL column has the type's implied default.
        default = column_kinds.implied_default(kind)
        is_filled = default is None
    else:
        default, is_filled = None, False
    is_nullable = clause.nullable is not False
    if clause.nullable is None and clause.type.name == "timestamp":
        is_nullable = bool(dialect.explicit_timestamps)
    return ColumnDefinition(
        clause.name,
        None if is_filled else default,
        is_filled,
        kind,
        is_nullable,
        bool(clause.generated),
        clause.type.unsigned,
        _charset(clause.type.charset),
        clause.type.zerofill,
        clause.nullable is False,
    )


def _charset(clause: ddl.CharsetClause) -> str:
    """The name of a character set; "" if the clause names none. The names of collations begin with it.

    MariaDB's ``uca1400_ai_ci`` is of the character set that the column or the table has.
    """
    named = clause.charset or (clause.collation or "").partition("_")[0]
    return "" if named.lower() == "uca1400" else named


def _kind(type_: ddl.TypeClause) -> str:
    """The type in the form of ``column_kinds``."""
    labels = [label if isinstance(label, str) else utf8_text(label) for label in type_.labels]
    inside = ",".join([*map(str, type_.numbers), *(quoted(label, "'") for label in labels)])
    name = type_.name.lstrip("?").upper()
    return f"{name}({inside})" if inside else name
