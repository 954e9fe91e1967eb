"""Random DDL of sessions with other character sets, modes, binlog formats and temporary tables, and its views.

What the log tells of such statements does not always suffice: shapes may be unknown, and must not be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from replica.schemas.catalog import Catalog
from replica.sql.token_reader import TableName
from tests.support.random_ddl import RandomDdl

# Character sets of clients, and Python's codecs of them.
CLIENTS: Mapping[str, str] = MappingProxyType(
    {
        "utf8": "utf-8",
        "utf8mb4": "utf-8",
        "latin1": "latin1",
        "latin2": "iso8859-2",
        "cp1251": "cp1251",
        "cp1250": "cp1250",
        "cp852": "cp852",
        "greek": "iso8859-7",
        "koi8r": "koi8-r",
        "hebrew": "iso8859-8",
        "gbk": "gbk",
        "big5": "big5",
        "sjis": "shift_jis",
        "cp932": "cp932",
        "ujis": "euc-jp",
        "euckr": "euc-kr",
        "binary": "utf-8",
    }
)
WORDS = (
    "é",
    "ß",
    "ä",
    "żó",
    "ж",
    "цена",
    "λ",
    "日",
    "表",
    "ソ能",
    "稜縗",
    "中",
    "名",
    "가",
    "\U0001f600",
    "naïve",
)


class RandomSessions(RandomDdl):
    """``statement`` as of ``RandomDdl``; ``sent`` is its bytes in the client's character set."""

    has_known_shapes = False
    client = "utf8mb4"
    #: Values for binlog_format. A stream refuses rows that another one than ROW makes of CREATE TABLE ... SELECT.
    formats: tuple[str, ...] = ("ROW", "ROW", "MIXED", "STATEMENT")

    @property
    def is_utf8(self) -> bool:
        return CLIENTS[self.client] == "utf-8"

    def new_name(self, taken: tuple[str, ...] | list[str] = ()) -> str:  # type: ignore[override]
        words = [word for word in WORDS if word not in taken and len(word.encode()) < 4 * len(word)]
        return self.pick(*words) if words and self.rng.random() < 0.4 else super().new_name(taken)

    def labels(self) -> str:
        if self.rng.random() < 0.5:
            return super().labels()
        return ", ".join(self.text(word) for word in self.rng.sample(WORDS, self.rng.randint(1, 3)))

    def sent(self, sql: str) -> bytes | None:
        """The statement as the client sends it; None if it cannot."""
        try:
            text = sql.encode(CLIENTS[self.client])
        except UnicodeEncodeError:
            return None
        return text

    def noise(self, sql: str) -> str:
        sql = super().noise(sql)
        roll = self.rng.random()
        if roll < 0.1 and not self.is_utf8:
            return sql.replace(" ", "\xa0", 1)
        if roll < 0.15:
            return sql.replace(
                " ", self.pick("\t", "\v", "\f", "\r\n", "/**/", "/* it's */", "-- `\n", "--\x02'\n"), 1
            )
        if roll < 0.2 and self.mariadb:
            mode = self.pick(
                "max_statement_time = 9", "sql_mode = 'ANSI_QUOTES'", "sql_mode = 'NO_BACKSLASH_ESCAPES'"
            )
            return f"SET STATEMENT {mode} FOR {sql}"
        return sql

    def statement(self, catalog: Catalog) -> str:
        self.catalog = catalog
        if self.rng.random() < 0.75:
            return super().statement(catalog)
        found = self.known_table()
        old = self.any_table() if found is None else found[0]
        new, other = self.any_table(), self.any_table()
        column = "a" if found is None else self.rng.choice(found[1].visible).name
        exists = self.maybe("IF NOT EXISTS ")
        sql = self.pick(
            f"CREATE TEMPORARY TABLE {exists}{self.table_name(new)} LIKE {self.table_name(old)}",
            f"CREATE TEMPORARY TABLE {exists}{self.table_name(new)} ({self.name(self.new_name())} {self.type()})",
            f"CREATE TABLE {exists}{self.table_name(new)} LIKE {self.table_name(old)}",
            f"CREATE TABLE {exists}{self.table_name(new)} {self.pick('', 'AS ', 'IGNORE ', 'REPLACE ')}"
            f"SELECT * FROM {self.table_name(old)}",
            f"CREATE TABLE {exists}{self.table_name(new)} ({self.name(self.new_name())} INT) "
            f"SELECT {self.name(column)} FROM {self.table_name(old)} WHERE 1 = 0",
            f"DROP TABLE {self.table_name(old)}",
            f"DROP TABLE {self.table_name(old)}, {self.table_name(other)}",
            f"DROP TEMPORARY TABLE {self.table_name(new)}",
            f"CREATE {self.maybe('OR REPLACE ')}VIEW {self.table_name(new)} AS SELECT * FROM {self.table_name(old)}",
            f"DROP VIEW {self.maybe('IF EXISTS ')}{self.table_name(new)}",
            f"ALTER TABLE {self.table_name(new)} RENAME {self.table_name(other)}",
            f"RENAME TABLE {self.table_name(new)} TO {self.table_name(other)}",
            f"ALTER TABLE {self.table_name(old)} MODIFY {self.name(column)} {self.definition()}",
            f"CREATE PROCEDURE p() ALTER TABLE {self.table_name(old)} ADD {self.name(self.new_name())} {self.type()}",
            "CALL p()",
            "DROP PROCEDURE p",
        )
        return self.noise(sql)

    def setting(self) -> str:
        roll = self.rng.random()
        if roll < 0.45:
            self.client = self.rng.choice(list(CLIENTS))
            return f"SET NAMES {self.client}"
        if roll < 0.55:
            return f"SET character_set_connection = {self.pick('latin1', 'utf8', 'gbk', 'binary', 'ucs2')}"
        if roll < 0.65:
            return f"SET SESSION binlog_format = {self.pick(*self.formats)}"
        if roll < 0.7 and self.mariadb:
            self.mode = self.pick("ORACLE", "MSSQL")
            return f"SET SESSION sql_mode = '{self.mode}'"
        return super().setting()

    def any_table(self) -> TableName:
        table = super().any_table()
        return (
            table
            if self.rng.random() < 0.8
            else TableName(table.schema, self.pick("ä", "日", "表", "ж", "0x61"))
        )
