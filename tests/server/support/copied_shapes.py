"""Tables with keys of every kind for tests of copies, and statements that change their rows.

Each row has the number ``n`` of its place in the order of the key, so that writers can find the front of a copy.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.servers import Server

#: Values of columns that a row lacks where the log does not say them: defaults, and a column that DDL adds.
DEFAULTS: dict[str, object] = {"b": "none", "i": 7, "added": 5}
#: The generated columns.
GENERATED = ("g", "s")
_FILLED_AT_ONCE = 2000


@dataclass
class CopiedTable:
    """One table: ``key`` has its key's columns (none: it has no key), ``keys`` makes their values of n in SQL."""

    name: str
    key: tuple[str, ...]
    keys: Callable[[int], dict[str, str]]
    columns: str
    options: str = ""
    others: Callable[[int], dict[str, str]] = lambda n: {}

    def values(self, n: int, a: int) -> dict[str, str]:
        """Values of all columns without a default."""
        return {**self.keys(n), "n": str(n), "a": str(a), **self.others(n)}

    def where(self, n: int) -> str:
        """The condition for row n."""
        return " AND ".join(f"{name} = {value}" for name, value in (self.keys(n) or {"n": str(n)}).items())

    def create(self, server: Server, schema: str, rows: int) -> None:
        """Make the table, with rows of even numbers."""
        server.query(
            f"CREATE TABLE {schema}.{self.name} ({self.columns}, n INT NOT NULL, a BIGINT NOT NULL) "
            f"ENGINE=InnoDB {self.options}"
        )
        for begin in range(0, rows, _FILLED_AT_ONCE):
            filled = [self.values(2 * n, n) for n in range(begin, min(begin + _FILLED_AT_ONCE, rows))]
            names = ", ".join(filled[0])
            values = ", ".join(f"({', '.join(row.values())})" for row in filled)
            server.query(f"INSERT INTO {schema}.{self.name} ({names}) VALUES {values}")

    def statement(self, schema: str, n: int, other: int, rng: random.Random) -> str:
        """A random change of row n; ``other`` is the number that it gets if its key moves."""
        table, kind, value = f"{schema}.{self.name}", rng.random(), rng.randrange(1 << 30)
        limit = "" if self.key else " LIMIT 1"
        if kind < 0.35:
            return f"UPDATE {table} SET a = {value} WHERE {self.where(n)}{limit}"
        if kind < 0.5:
            return f"UPDATE {table} SET b = 'b{value}', a = a + 1 WHERE {self.where(n)}{limit}"
        if kind < 0.7:
            return f"DELETE FROM {table} WHERE {self.where(n)}{limit}"
        values = self.values(n, value)
        if kind < 0.9:
            return f"INSERT IGNORE INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())})"
        moved = {**self.keys(other), "n": str(other)}
        assigned = ", ".join(f"{name} = {value}" for name, value in moved.items())
        return f"UPDATE IGNORE {table} SET {assigned} WHERE {self.where(n)}{limit}"


def copied_tables(server: Server, *, keyless: bool) -> list[CopiedTable]:
    """Five tables with what the server knows; ``keyless``: the last one has no key."""
    is_mariadb, version = server.family == "mariadb", server.version
    is_old = not is_mariadb and version < (5, 7)
    has_vectors = version >= (11, 7) if is_mariadb else version >= (9,)
    text = "b VARCHAR(40) NOT NULL DEFAULT 'none'"
    # Where updates do not log generated columns, whoever follows the log cannot know them.
    has_generated = not is_old and server.logs_generated
    generated = "" if not has_generated else ", g BIGINT AS (a * 2) VIRTUAL, s BIGINT AS (a + 1) STORED"
    has_hidden = is_mariadb or version >= (8, 0, 23)
    hidden = (
        "" if not has_hidden else f", i INT {'INVISIBLE DEFAULT 7' if is_mariadb else 'DEFAULT 7 INVISIBLE'}"
    )
    compressed = f"b VARCHAR(400) {'COMPRESSED ' if is_mariadb else ''}NOT NULL DEFAULT 'none'"
    vector = ", e VECTOR(3) NOT NULL" if has_vectors else ""

    def shapes(n: int) -> dict[str, str]:
        function = "VEC_FromText" if is_mariadb else "STRING_TO_VECTOR"
        point = {"p": f"POINT({n}, {n % 7})"}
        return point | ({"e": f"{function}('[{n % 5}, 0.5, -{n % 3}]')"} if has_vectors else {})

    last = CopiedTable("amounts", ("k",), _amounts, f"k DECIMAL(20, 4) NOT NULL PRIMARY KEY, {text}")
    if keyless:
        last = CopiedTable("nokey", (), lambda n: {}, text)
    return [
        CopiedTable(
            "numbers",
            ("id",),
            lambda n: {"id": str(n)},
            f"id INT NOT NULL PRIMARY KEY, {text}{generated}",
            "PARTITION BY HASH (id) PARTITIONS 3",
        ),
        CopiedTable(
            "texts",
            ("k",),
            _texts,
            "k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL PRIMARY KEY, "
            f"{compressed}{hidden}",
            "" if is_mariadb else "ROW_FORMAT=COMPRESSED",
        ),
        CopiedTable(
            "pairs",
            ("k1", "k2"),
            _pairs,
            f"k1 INT NOT NULL, k2 VARBINARY(16) NOT NULL, PRIMARY KEY (k1, k2), {text}, p POINT NOT NULL{vector}",
            others=shapes,
        ),
        CopiedTable(
            "times",
            ("k",),
            _times,
            f"k DATETIME(6) NOT NULL, UNIQUE KEY (k), {text}",
            "WITH SYSTEM VERSIONING" if is_mariadb else "",
        ),
        last,
    ]


def _texts(n: int) -> dict[str, str]:
    # Two letter cases of one key are equal in the collation, and different in the log.
    return {"k": f"'{random.choice('kK')}{n:07d}'"}


def _pairs(n: int) -> dict[str, str]:
    return {"k1": str(n // 10), "k2": f"X'{n:08x}'"}


def _times(n: int) -> dict[str, str]:
    return {"k": f"'2024-01-01 {n // 3600 % 24:02d}:{n // 60 % 60:02d}:{n % 60:02d}.{n // 86400:06d}'"}


def _amounts(n: int) -> dict[str, str]:
    return {"k": f"{n - 1000}.{n % 10000:04d}"}
