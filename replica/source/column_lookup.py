"""Looks up column names, signs, character sets and labels in information_schema for tables whose log has none.

It finds the table as it is now, not as it was when the rows were logged; ``EventDecoder.describe`` compares count and
types. If the user may not see the table, there are no names, and one warning is logged.
"""

import logging
from typing import Final

from protocol.conversation.messages import TextValue
from protocol.errors import ServerError
from protocol.rows.description import ColumnDescription
from protocol.rows.table import Table
from protocol.wire import utf8_text

from ..config.log_facts import log_facts
from ..config.options import Options
from ..config.reconnect import is_account_limit, is_passing_refusal
from ..sql.quoting import hex_literal
from .second_connection import SecondConnection
from .statement_answers import read_value

_LOGGER: Final = logging.getLogger(__name__)

# The literals in this statement have the connection's character set.
_COLUMNS: Final = (
    "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME, COLUMN_KEY "
    "FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = {schema} AND TABLE_NAME = {table} "
    "ORDER BY ORDINAL_POSITION"
)
# MariaDB logs columns that information_schema does not list, after the listed columns: the period of a
# system-versioned table, and a hash for each unique key over a BLOB or TEXT.
_HIDDEN: Final = (
    "SELECT (SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = {schema} AND TABLE_NAME = {table} "
    "AND TABLE_TYPE = 'SYSTEM VERSIONED'), (SELECT COUNT(DISTINCT INDEX_NAME) FROM information_schema.STATISTICS "
    "WHERE TABLE_SCHEMA = {schema} AND TABLE_NAME = {table} AND INDEX_TYPE = 'HASH' AND NON_UNIQUE = 0)"
)
#: Tables that a lookup remembers, 4 KB each; when there are more, it asks again for one of them.
TABLES_KEPT: Final = 20_000
_PERIOD: Final = tuple(
    ColumnDescription(name, "timestamp", "timestamp(6)", nullable=False) for name in ("row_start", "row_end")
)


class ColumnLookup:
    """Descriptions of tables, fetched over a second connection at first use, and cached."""

    def __init__(self, options: Options) -> None:
        self._connection = SecondConnection(options)
        self._known: dict[Table, list[ColumnDescription] | None] = {}
        self._nameless: set[Table] = set()
        self._warn = NamelessWarning()

    async def columns(self, table: Table) -> list[ColumnDescription] | None:
        """The columns of a table that the log describes; None if information_schema does not show them."""
        # The key is the whole table map: after an unlogged DDL the same name comes with other columns.
        if table not in self._known:
            if len(self._known) >= TABLES_KEPT:
                del self._known[next(iter(self._known))]
            self._known[table] = await self._fetch(table)
        return self._known[table]

    def is_needed(self, table: Table) -> bool:
        """Whether a table of the log has no names, and a lookup may still find them."""
        return table.names_from is None and table not in self._nameless

    def settle(self, table: Table) -> None:
        """Do not look this table up again: no names were found, or they did not fit."""
        if len(self._nameless) >= TABLES_KEPT:
            self._nameless.pop()
        self._nameless.add(table)

    async def aclose(self) -> None:
        """Close the connection and wait until it is closed."""
        await self._connection.aclose()

    async def _fetch(self, table: Table) -> list[ColumnDescription] | None:
        try:
            return await self._describe(table)
        except ServerError as error:
            if is_passing_refusal(error) or is_account_limit(error):
                raise
            self._warn(table, str(error))
            return None

    async def _describe(self, table: Table) -> list[ColumnDescription] | None:
        names = {"schema": hex_literal(table.schema), "table": hex_literal(table.name)}
        rows = await self._connection.query(_COLUMNS.format(**names), 6)
        if not rows:
            self._warn(
                table, "the user cannot see the table: grant SELECT on it, unless the table was dropped"
            )
            return None
        found = [
            ColumnDescription(
                name=_text(name),
                data_type=_text(data_type).lower(),
                column_type=_text(column_type),
                nullable=_text(nullable) == "YES",
                charset=None if charset is None else _text(charset),
                primary=_text(key) == "PRI",
            )
            for name, data_type, column_type, nullable, charset, key in rows
        ]
        missing = len(table.columns) - len(found)
        if missing > 0 and self._connection.is_mariadb:
            statement = _HIDDEN.format(**names)
            rows = await self._connection.query(statement, 2)
            versioned, hashes = rows[0] if rows else (None, None)
            found += _hidden_columns(missing, versioned != "0", read_value(int, hashes, statement))
        return found


class NamelessWarning:
    """Warns of the first table whose columns the source does not show, and of no other one."""

    def __init__(self) -> None:
        self._has_warned = False

    def __call__(self, table: Table, reason: str) -> None:
        """Log the warning unless it has been logged."""
        if not self._has_warned:
            self._has_warned = True
            _LOGGER.warning(
                "no column names for %s from information_schema (%s): its columns are named @1, @2... This is logged "
                "once, for the first such table. binlog_row_metadata=FULL on the source puts names into the log",
                table,
                reason,
                extra=log_facts("names-unknown", table=table, reason=reason),
            )


def _hidden_columns(missing: int, is_versioned: bool, hashes: int) -> list[ColumnDescription]:
    """The hidden columns, if their number matches; information_schema may list the period's columns, too."""
    if hashes > missing:
        # Nothing is made of a number that only a lie can be.
        return []
    hash_columns = [
        ColumnDescription(f"DB_ROW_HASH_{number}", "bigint", "bigint(20) unsigned", nullable=False)
        for number in range(1, hashes + 1)
    ]
    hidden = [*_PERIOD, *hash_columns] if is_versioned else hash_columns
    for columns in (hidden, hash_columns):
        if len(columns) == missing:
            return columns
    return []


def _text(value: TextValue) -> str:
    return utf8_text(value) if isinstance(value, bytes) else value or ""
