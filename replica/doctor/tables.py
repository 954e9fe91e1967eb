"""Asks a source about the tables that a stream selects: keys, engines, sizes, and foreign keys that cascade.

``information_schema`` only shows tables that the user may see. MariaDB shows the rules of a foreign key to the owner
of the table only, so they are read from SHOW CREATE TABLE, for which SELECT is enough.
"""

import re
from typing import Final

from protocol.errors import ConnectionLostError, ServerError
from protocol.records import record

from ..config.options import Options
from ..config.table_filter import TableFilter, is_exact, split_pattern, table_filter
from ..source.hosts import first_host
from ..source.session import Session
from ..source.statement_answers import read_value
from ..sql.quoting import hex_literal, identifier

_SYSTEM: Final = "NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
_WITHOUT_KEY: Final = (
    "SELECT t.TABLE_SCHEMA, t.TABLE_NAME FROM information_schema.TABLES t LEFT JOIN information_schema.STATISTICS s "
    "ON s.TABLE_SCHEMA = t.TABLE_SCHEMA AND s.TABLE_NAME = t.TABLE_NAME AND s.INDEX_NAME = 'PRIMARY' "
    "WHERE t.TABLE_TYPE = 'BASE TABLE' AND t.TABLE_SCHEMA {schemas} AND s.INDEX_NAME IS NULL ORDER BY 1, 2"
)
# A key by which a table can be read in chunks: unique, without NULL, prefixes and expressions.
_COPIED: Final = (
    "SELECT t.TABLE_SCHEMA, t.TABLE_NAME, t.ENGINE, t.TABLE_ROWS, t.DATA_LENGTH, k.TABLE_NAME IS NOT NULL "
    "FROM information_schema.TABLES t LEFT JOIN (SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM (SELECT TABLE_SCHEMA, "
    "TABLE_NAME, INDEX_NAME FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0 AND TABLE_SCHEMA {schemas} "
    "GROUP BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME HAVING SUM(NULLABLE = 'YES' OR SUB_PART IS NOT NULL OR "
    "COLUMN_NAME IS NULL) = 0) u) k ON k.TABLE_SCHEMA = t.TABLE_SCHEMA AND k.TABLE_NAME = t.TABLE_NAME "
    "WHERE t.TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND t.TABLE_SCHEMA {schemas} ORDER BY 1, 2"
)
_WITH_FOREIGN_KEYS: Final = (
    "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.KEY_COLUMN_USAGE "
    "WHERE REFERENCED_TABLE_NAME IS NOT NULL AND TABLE_SCHEMA {schemas} ORDER BY 1, 2"
)
# MariaDB 11.8.9 logs no generated columns of updates and deletes, whatever binlog_row_image is (MDEV-40057).
_LACKS_GENERATED: Final = (11, 8, 9)
_GENERATED: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS "
    "WHERE GENERATION_EXPRESSION <> '' AND TABLE_SCHEMA {schemas} ORDER BY 1, 2, ORDINAL_POSITION"
)
_NAME: Final = r"`(?:[^`]|``)+`"
# The columns match any text: MariaDB prints a foreign key's column names without doubling the backticks in them.
_CONSTRAINT: Final = re.compile(
    rf"^ *CONSTRAINT (?P<name>{_NAME}) (?P<key>FOREIGN KEY .*\))(?P<rules>(?: ON (?:DELETE|UPDATE) [A-Z ]+)+),?$",
    re.MULTILINE,
)
# Ends before the name of a referenced table that has no schema.
_REFERENCE: Final = re.compile(rf" REFERENCES (?={_NAME} \()")
_SCHEMA: Final = re.compile(rf"{_NAME}\.")
_CASCADES: Final = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")
_COLUMN: Final = re.compile(rf"^ *({_NAME}) ([^\n]*)", re.MULTILINE)


@record(frozen=True, slots=True)
class KeylessTable:
    """A table without a primary key. ``counter`` is its AUTO_INCREMENT column, empty if it has none."""

    name: str
    counter: str
    columns: frozenset[str]


@record(frozen=True, slots=True)
class Cascade:
    """A foreign key that changes rows of ``table`` when referenced rows change.

    Names are quoted. ``key`` is the definition without the ``rules`` (ON DELETE, ON UPDATE).
    """

    table: str
    name: str
    key: str
    rules: str


@record(frozen=True, slots=True)
class CopiedTable:
    """A table as an initial copy finds it. ``rows`` and ``size`` (bytes) are the source's estimates.

    ``has_key``: it has a primary key, or a unique key without NULL, by which it can be read in chunks.
    """

    name: str
    engine: str
    rows: int
    size: int
    has_key: bool


@record(frozen=True, slots=True)
class Tables:
    """Keyless tables, cascades, and what a copy finds, among the selected tables that the user can see.

    ``unlogged`` are the quoted names of generated columns that the log of updates and deletes lacks, ``unmatched``
    the patterns that match no table.
    """

    keyless: tuple[KeylessTable, ...]
    cascades: tuple[Cascade, ...]
    copied: tuple[CopiedTable, ...] = ()
    unlogged: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()


async def look_at_tables(options: Options) -> Tables | None:
    """Ask for the selected tables, over a separate connection; None if the source does not answer."""
    try:
        session = await first_host(options, Session.open)
        try:
            return await _look(session, options)
        finally:
            await session.aclose()
    except ConnectionLostError:
        return None


async def _look(session: Session, options: Options) -> Tables:
    keyless = []
    for name in await _selected(session, options, _WITHOUT_KEY):
        columns = dict(_COLUMN.findall(await _definition(session, name)))
        counter = next((column for column, rest in columns.items() if "AUTO_INCREMENT" in rest), "")
        keyless.append(KeylessTable(name, counter, frozenset(columns)))
    cascades = []
    for name in await _selected(session, options, _WITH_FOREIGN_KEYS):
        for found in _CONSTRAINT.finditer(await _definition(session, name)):
            if _CASCADES.search(found["rules"]):
                key = _with_schema(found["key"], name)
                cascades.append(Cascade(name, found["name"], key, found["rules"].strip()))
    wants = table_filter(options.tables)
    copied = [
        CopiedTable(
            str(name),
            engine or "",
            read_value(int, rows or "0", _COPIED),
            read_value(int, size or "0", _COPIED),
            has_key == "1",
        )
        for name, engine, rows, size, has_key in await _selected_rows(session, options, _COPIED, 6, wants)
    ]
    unlogged: list[str] = []
    if session.handshake.is_mariadb and session.handshake.version >= _LACKS_GENERATED:
        generated = await _selected_rows(session, options, _GENERATED, 3)
        unlogged = [f"{table}.{identifier(str(column))}" for table, column in generated]
    unmatched = wants.seen.unmatched if wants is not None else ()
    return Tables(tuple(keyless), tuple(cascades), tuple(copied), tuple(unlogged), unmatched)


async def _selected(session: Session, options: Options, statement: str) -> list[str]:
    return [str(name) for name, *_ in await _selected_rows(session, options, statement, 2)]


async def _selected_rows(
    session: Session, options: Options, statement: str, columns: int, sees: TableFilter | None = None
) -> list[list[str | None]]:
    """The rows of a statement that are about selected tables: the quoted name, and the columns from the third on.

    ``sees`` is shown all tables.
    """
    wants = table_filter(options.tables, options.exclude_tables)
    plain = dict.fromkeys(split_pattern(pattern)[0] for pattern in options.tables)
    schemas = _SYSTEM
    if all(is_exact(schema) for schema in plain):
        schemas = f"IN ({', '.join(map(hex_literal, plain))})"
    try:
        rows = await session.query(statement.format(schemas=schemas), columns)
    except ServerError:
        return []
    if sees is not None:
        for schema, table, *_ in rows:
            sees(str(schema), str(table))
    return [
        [f"{identifier(str(schema))}.{identifier(str(table))}", *(_as_text(value) for value in rest)]
        for schema, table, *rest in rows
        if wants is None or wants(str(schema), str(table))
    ]


def _as_text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


async def _definition(session: Session, name: str) -> str:
    try:
        rows = await session.query(f"SHOW CREATE TABLE {name}", 2)
    except ServerError:
        return ""
    return _as_text(rows[0][1]) or "" if rows else ""


def _with_schema(key: str, table: str) -> str:
    """Add the schema to the referenced table: MySQL 5.6 would look for it in the connection's default schema."""
    at = _REFERENCE.search(key)
    schema = _SCHEMA.match(table)
    return key if at is None or schema is None else f"{key[: at.end()]}{schema[0]}{key[at.end() :]}"
