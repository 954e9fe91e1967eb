"""Tables as a log has them, made from shapes: what a reader of the past sees, and whether it named them right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from protocol.rows.column import Column
from protocol.rows.table import Table
from replica.schemas.catalog import Catalog, Unknown
from replica.schemas.proof import first_difference, logged_types, with_shape
from replica.schemas.shape import ColumnShape, Shape
from replica.schemas.timeline import State
from replica.sql import ddl_statements as ddl
from replica.sql.ddl_reader import read_statement
from replica.sql.dialect import Dialect
from replica.sql.token_reader import TableName

#: What a table map holds: nothing but types (MariaDB, MySQL 5.6), or signs and character sets, too (MySQL).
Metadata = Literal["NO_LOG", "MINIMAL"]
_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"}
_BINARY = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}


def logged_table(name: TableName, shape: Shape, metadata: Metadata) -> Table:
    """The table of a log in which ``shape`` is the truth."""
    columns = [_logged(column, number, metadata) for number, column in enumerate(shape.columns, 1)]
    return Table(name.schema, name.name, tuple(columns))


def _logged(column: ColumnShape, number: int, metadata: Metadata) -> Column:
    code, size = logged_types(column)[0]
    has_more = metadata == "MINIMAL"
    charset = "binary" if column.type in _BINARY else column.charset
    return Column(
        f"@{number}",
        code,
        size or 0,
        bool(column.nullable),
        unsigned=column.unsigned if has_more and column.type in _NUMBERS else None,
        charset=charset if has_more else None,
    )


def wrong_columns(table: Table, truth: Shape) -> Iterator[str]:
    """What a named table says of its columns that is not so; ``@1``, ``@2``... say nothing."""
    for column, true in zip(table.columns, truth.columns, strict=True):
        if column.name.startswith("@"):
            continue
        # A name that was undone has the case of the statement, which the server does not look at.
        if column.name.lower() != true.name.lower():
            yield f"{table} has {column.name!r} where {true.name!r} is"
        if true.type in _NUMBERS and column.unsigned is not None and column.unsigned != true.unsigned:
            yield f"{table}: sign of {true}"
        if true.labels and column.labels != true.labels:
            yield f"{table}: labels of {true}: {column.labels}"
        if true.charset is not None and column.charset != true.charset:
            yield f"{table}: character set of {true}: {column.charset}"
    keys = [[name.lower() for name in key] for key in (table.primary_key, truth.primary_key)]
    if table.primary_key and keys[0] != keys[1] and truth.keys is not None:
        yield f"{table}: the key {table.primary_key}, which is {truth.primary_key}"


def hidden(table: Table, metadata: Metadata) -> Table:
    """The same table as a log with less metadata has it."""
    columns = [_hidden(column, number, metadata) for number, column in enumerate(table.columns, 1)]
    return Table(table.schema, table.name, tuple(columns))


def _hidden(column: Column, number: int, metadata: Metadata) -> Column:
    bare = Column(f"@{number}", column.type, column.metadata, column.nullable)
    if metadata == "NO_LOG":
        return bare
    return replace(bare, unsigned=column.unsigned, charset=column.charset, collation=column.collation)


def named_in_the_past(state: State, truth: Table, counts: Counter[str]) -> Iterator[str]:
    """What a reader of the past makes of a table of a log with all metadata, and what of that is wrong."""
    for metadata in ("NO_LOG", "MINIMAL"):
        bare = hidden(truth, metadata)
        if not isinstance(state, Shape):
            counts["unknown"] += 1
            continue
        problem = first_difference(state, bare)
        if problem is not None:
            counts["refused"] += 1
            yield f"{truth}: {problem}"
            continue
        named = with_shape(bare, state)
        for column, true in zip(named.columns, truth.columns, strict=True):
            if column.name.startswith("@"):
                counts["nameless"] += 1
                continue
            counts["named"] += 1
            said = (column.name.lower(), column.labels, column.charset)
            if said != (true.name.lower(), true.labels, true.charset):
                yield f"{truth}: {column}, which is {true}"
            if column.unsigned is not None and column.unsigned != true.unsigned:
                yield f"{truth}: {column}, which is {true}"


def is_table(state: Shape | Unknown) -> bool:
    """Whether a server could have such a table, and the statement named keys that there were."""
    if not isinstance(state, Shape) or not state.visible or not state.is_whole or state.keys is None:
        return False
    return len({key.name.lower() for key in state.keys}) == len(state.keys)


def is_accepted(sql: str, catalog: Catalog, dialect: Dialect) -> bool:
    """Whether a server would take the statement, as far as names of tables and system versioning go."""
    read = read_statement(sql, "one", dialect)
    pairs: tuple[tuple[TableName, TableName], ...] = ()
    if isinstance(read, ddl.RenameTables):
        pairs = read.pairs
    elif isinstance(read, ddl.AlterTable):
        pairs = tuple((read.table, c.table) for c in read.clauses if isinstance(c, ddl.RenameTo))
        shape = catalog.get(read.table)
        is_versioned = isinstance(shape, Shape) and any(column.role == "start" for column in shape.columns)
        refused = ddl.AddVersioning if is_versioned else ddl.DropVersioning
        versionings = [c for c in read.clauses if isinstance(c, ddl.AddVersioning | ddl.DropVersioning)]
        if len(versionings) > 1 or any(isinstance(clause, refused) for clause in versionings):
            return False
    names = set(catalog.tables)
    if (
        isinstance(read, ddl.CreateTable)
        and not (read.is_conditional or read.is_replaced)
        and read.table in names
    ):
        return False
    for old, new in pairs:
        if old not in names or (new in names and old != new):
            return False
        names = names - {old} | {new}
    return True
