"""Reads DDL: turns a statement of the log into the actions that a copy of the tables must follow.

It does not parse all of SQL. A part of ALTER TABLE that it does not understand becomes ``Refused`` if it may change
rows, and is ignored if it cannot. Sources: the grammars of MySQL 9.7 (sql_yacc.yy: ``alter_list_item``,
``alter_commands``) and MariaDB 11.8.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from protocol.records import record

from . import column_kinds
from .quoting import quoted
from .words import END, SqlReader


@record(frozen=True, slots=True)
class ColumnDefinition:
    """A column of CREATE TABLE or ALTER TABLE.

    ``default`` is the value of rows that give none: text, or None for NULL. ``is_filled``: the value is not in the
    statement, only the server knows it. ``kind`` is the type in the form of ``column_kinds``.
    """

    name: str
    default: str | None = None
    is_filled: bool = False
    kind: str = ""
    is_nullable: bool = True
    is_generated: bool = False


@record(frozen=True, slots=True)
class CreateTable:
    """A new table. ``is_conditional``: IF NOT EXISTS. ``columns`` is None if they are another table's (LIKE)."""

    table: str
    is_conditional: bool = False
    columns: tuple[ColumnDefinition, ...] | None = None


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
class DropColumn:
    """A column is dropped."""

    table: str
    name: str


@record(frozen=True, slots=True)
class Refused:
    """The statement changes rows in a way that the log does not show; ``what`` names that part of the statement."""

    table: str
    what: str


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
    | DropColumn
    | Refused
)

_NOT_A_COLUMN: Final = frozenset(
    {
        "CONSTRAINT",
        "INDEX",
        "KEY",
        "PRIMARY",
        "UNIQUE",
        "FULLTEXT",
        "SPATIAL",
        "FOREIGN",
        "CHECK",
        "PARTITION",
    }
)
# A word here may name a column, unless one of its values follows.
_NOT_A_COLUMN_BEFORE: Final = MappingProxyType(
    {"PERIOD": ("FOR",), "SYSTEM": ("VERSIONING",), "VECTOR": ("INDEX", "KEY")}
)


def table_actions(
    sql: str, schema: str, *, folds: bool = False, explicit_timestamps: bool = True
) -> list[Action]:
    """The actions of a statement; ``schema`` is the default schema, which completes names without a schema.

    Names are ``schema.table``. With ``folds`` they are in lower case, as on a server with lower_case_table_names=1.
    """
    reader = SqlReader(sql, schema, folds, explicit_timestamps)
    first, second = reader.next().upper, reader.peek().upper
    for words, read in _STATEMENTS:
        if first == words[0] and (len(words) == 1 or second == words[1]):
            return list(read(reader))
    return list(_with_modifiers(first, reader))


# Statements.


def _create_schema(reader: SqlReader) -> Iterator[Action]:
    reader.next()
    is_conditional = reader.skip("IF", "NOT", "EXISTS")
    yield CreateSchema(reader.folded(reader.next().value), is_conditional)


def _drop_schema(reader: SqlReader) -> Iterator[Action]:
    reader.next()
    reader.skip("IF", "EXISTS")
    yield DropSchema(reader.folded(reader.next().value))


def _create_table(reader: SqlReader, *, is_replaced: bool = False) -> Iterator[Action]:
    reader.next()
    is_conditional = reader.skip("IF", "NOT", "EXISTS")
    table = reader.table()
    if is_replaced:
        yield DropTable(table)
    columns = None
    if reader.peek().upper == "(" and reader.peek(1).upper != "LIKE":
        reader.next()
        columns = tuple(_columns(reader))
    yield CreateTable(table, is_conditional, columns)


def _drop_table(reader: SqlReader) -> Iterator[Action]:
    reader.next()
    reader.skip("IF", "EXISTS")
    for item in reader.items():
        yield DropTable(item.table())


def _truncate(reader: SqlReader) -> Iterator[Action]:
    reader.skip("TABLE")
    yield TruncateTable(reader.table())


def _rename_table(reader: SqlReader) -> Iterator[Action]:
    reader.next()
    reader.skip("IF", "EXISTS")
    for item in reader.items():
        table = item.table()
        while item.peek() is not END and not item.skip("TO"):
            item.next()
        yield RenameTable(table, item.table())


def _alter_table(reader: SqlReader) -> Iterator[Action]:
    reader.next()
    reader.skip("IF", "EXISTS")
    table = reader.table()
    actions = [action for item in reader.items() for action in _alteration(item, table)]
    changed = [
        (action.name.lower(), action.new_name.lower())
        for action in actions
        if isinstance(action, ChangeColumn)
    ]
    if {new for name, new in changed if name != new} & {name for name, new in changed if name != new}:
        yield Refused(table, "an exchange of columns' names")
    # Dropped and renamed columns come first, because a new column may reuse their names. The rename of the table
    # comes last, because all actions name the table by its old name.
    yield from sorted(actions, key=lambda action: _ALTERATION_ORDER.get(type(action), 2))


def _altered(reader: SqlReader) -> str:
    place = next(place for place, token in enumerate(reader.tokens) if token.upper == "TABLE")
    reader.place = place + 1
    reader.skip("IF", "EXISTS")
    return reader.table()


def _delete_all(reader: SqlReader) -> Iterator[Action]:
    """MySQL logs an emptied MEMORY table as a DELETE: see ``replica.sql.statement_kind.empties_table``."""
    reader.next()
    table = reader.table()
    if reader.peek() is END:
        yield TruncateTable(table)


_STATEMENTS: Final[tuple[tuple[tuple[str, ...], Callable[[SqlReader], Iterator[Action]]], ...]] = (
    (("CREATE", "TABLE"), _create_table),
    (("CREATE", "DATABASE"), _create_schema),
    (("CREATE", "SCHEMA"), _create_schema),
    (("DROP", "TABLE"), _drop_table),
    (("DROP", "TABLES"), _drop_table),
    (("DROP", "DATABASE"), _drop_schema),
    (("DROP", "SCHEMA"), _drop_schema),
    (("TRUNCATE",), _truncate),
    (("RENAME", "TABLE"), _rename_table),
    (("RENAME", "TABLES"), _rename_table),
    (("ALTER", "TABLE"), _alter_table),
    (("DELETE", "FROM"), _delete_all),
)


def _with_modifiers(first: str, reader: SqlReader) -> Iterator[Action]:
    """Statements with modifiers, such as MariaDB's CREATE OR REPLACE and ALTER ONLINE IGNORE TABLE."""
    is_replaced = first == "CREATE" and reader.skip("OR", "REPLACE")
    is_lossy = False
    while reader.peek().upper in ("ONLINE", "OFFLINE", "IGNORE"):
        is_lossy = reader.next().upper == "IGNORE" or is_lossy
    if reader.peek().upper == "TABLE":
        if first == "CREATE":
            yield from _create_table(reader, is_replaced=is_replaced)
        elif first == "ALTER":
            actions = list(_alter_table(reader))
            if is_lossy:
                yield Refused(_altered(reader), "ALTER IGNORE TABLE")
            yield from actions
    elif is_replaced and reader.peek().upper in ("DATABASE", "SCHEMA"):
        yield DropSchema(reader.folded(reader.peek(1).value))
        yield from _create_schema(reader)


# ALTER TABLE.


def _alteration(item: SqlReader, table: str) -> Iterator[Action]:
    word = item.next().upper
    read = _ALTERATIONS.get(word)
    if read is not None:
        yield from read(item, table)
    elif word in ("EXCHANGE", "TRUNCATE", "DISCARD", "IMPORT", "CONVERT") and item.peek().upper in (
        "PARTITION",
        "TABLESPACE",
        "TABLE",
    ):
        what = f"{word} {item.next().upper}"
        yield Refused(table, what)
        while word == "EXCHANGE" and item.peek() is not END and not item.skip("WITH", "TABLE"):
            item.next()
        if what in ("EXCHANGE PARTITION", "CONVERT TABLE") and item.peek() is not END:
            # These statements also change the rows of the other table.
            yield Refused(item.table(), what)


def _add(item: SqlReader, table: str) -> Iterator[Action]:
    if _is_no_column(item):
        return
    item.skip("COLUMN")
    item.skip("IF", "NOT", "EXISTS")
    if item.skip("("):
        for one in item.items():
            if not _is_no_column(one):
                yield AddColumn(table, _column(one))
        return
    yield AddColumn(table, _column(item))


def _drop(item: SqlReader, table: str) -> Iterator[Action]:
    if item.peek().upper == "PARTITION":
        yield Refused(table, "DROP PARTITION")
        return
    if _is_no_column(item):
        return
    item.skip("COLUMN")
    item.skip("IF", "EXISTS")
    yield DropColumn(table, item.next().value)


def _change(item: SqlReader, table: str) -> Iterator[Action]:
    item.skip("COLUMN")
    item.skip("IF", "EXISTS")
    name = item.next().value
    yield from _changed(table, name, _column(item))


def _modify(item: SqlReader, table: str) -> Iterator[Action]:
    item.skip("COLUMN")
    item.skip("IF", "EXISTS")
    column = _column(item)
    yield from _changed(table, column.name, column)


def _changed(table: str, name: str, column: ColumnDefinition) -> Iterator[Action]:
    if column.is_generated:
        # The old expression is not known here, so it cannot be compared with the new one.
        yield Refused(table, f"a definition of the generated column {column.name}")
    yield ChangeColumn(table, name, column.name, column)


def _rename(item: SqlReader, table: str) -> Iterator[Action]:
    if item.skip("COLUMN"):
        item.skip("IF", "EXISTS")
        name = item.next().value
        item.skip("TO")
        yield ChangeColumn(table, name, item.next().value)
    elif item.peek().upper not in ("INDEX", "KEY"):
        if item.peek().upper in ("TO", "AS", "="):
            item.next()
        yield RenameTable(table, item.table())


def _alter_column(item: SqlReader, table: str) -> Iterator[Action]:
    if item.peek().upper in ("INDEX", "CHECK", "CONSTRAINT", "KEY"):
        return
    item.skip("COLUMN")
    item.skip("IF", "EXISTS")
    name = item.next().value
    if item.skip("SET", "DEFAULT"):
        default, is_filled = _literal(item)
        yield SetDefault(table, ColumnDefinition(name, default, is_filled))
    elif item.skip("DROP", "DEFAULT"):
        yield SetDefault(table, ColumnDefinition(name, None, True))


_ALTERATION_ORDER: Final[Mapping[type[Action], int]] = MappingProxyType(
    {DropColumn: 0, ChangeColumn: 1, RenameTable: 3}
)
_ALTERATIONS: Final[Mapping[str, Callable[[SqlReader, str], Iterator[Action]]]] = MappingProxyType(
    {
        "ADD": _add,
        "DROP": _drop,
        "CHANGE": _change,
        "MODIFY": _modify,
        "RENAME": _rename,
        "ALTER": _alter_column,
    }
)


# Columns.


def _columns(reader: SqlReader) -> Iterator[ColumnDefinition]:
    for item in reader.items():
        if not _is_no_column(item):
            yield _column(item)


def _is_no_column(item: SqlReader) -> bool:
    """Whether the next item defines a key, a constraint or the like. A quoted name is always a column."""
    word = item.peek().upper
    return word in _NOT_A_COLUMN or item.peek(1).upper in _NOT_A_COLUMN_BEFORE.get(word, ())


def _column(item: SqlReader) -> ColumnDefinition:
    """Read a column's name, type and attributes."""
    name = item.next().value
    kind = item.next().upper + _size(item)
    is_not_null = is_null = is_filled = has_default = is_generated = False
    default: str | None = None
    while (token := item.next()) is not END:
        if token.upper == "(":
            item.pass_brackets()
        elif token.upper == "NOT" and item.skip("NULL"):
            is_not_null = True
        elif token.upper == "NULL":
            is_null = True
        elif token.upper == "DEFAULT":
            has_default = True
            default, is_filled = _literal(item)
        elif token.upper in ("GENERATED", "AS"):
            has_default = is_filled = is_generated = True
        elif token.upper in ("AUTO_INCREMENT", "SERIAL", "PRIMARY"):
            has_default = is_filled = True
    is_old_timestamp = kind.startswith("TIMESTAMP") and not item.explicit_timestamps
    if kind == "SERIAL" or (is_old_timestamp and not (is_null or is_not_null or has_default)):
        # Such a TIMESTAMP is NOT NULL with a default that the statement does not show.
        is_filled = True
    elif is_not_null and not has_default:
        # In old rows a new NOT NULL column has the type's implied default.
        default = column_kinds.implied_default(kind)
        is_filled = default is None
    elif default is not None:
        is_filled = not column_kinds.stores_default_as_written(kind, default)
    return ColumnDefinition(
        name, None if is_filled else default, is_filled, kind, not is_not_null, is_generated
    )


def _size(item: SqlReader) -> str:
    """The brackets after a type, with their content; empty if there are none."""
    if item.peek().upper != "(":
        return ""
    begin = item.place
    item.next()
    item.pass_brackets()
    return "".join(
        quoted(token.value, "'") if token.kind == "text" else token.value
        for token in item.tokens[begin : item.place]
    )


def _literal(item: SqlReader) -> tuple[str | None, bool]:
    """The value after DEFAULT, and whether it is an expression instead of a plain value."""
    sign = ""
    if item.peek().upper in ("-", "+"):
        sign = item.next().upper.replace("+", "")
    token = item.next()
    if token.kind == "text" and item.peek().upper != "(":
        return token.value, False
    if token.upper == "NULL":
        return None, False
    if token.upper in ("TRUE", "FALSE"):
        return ("1" if token.upper == "TRUE" else "0"), False
    if token.kind == "number":
        return sign + token.value, False
    if token.upper == "(":
        item.pass_brackets()
    return None, True
