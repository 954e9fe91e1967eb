"""Five tables of a shop with all kinds of keys, transactions on them at random, and what they hold, row by row."""

from __future__ import annotations

import contextlib
import hashlib
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pymysql
from pymysql.cursors import Cursor

from replica.render.json_lines import time_text
from tests.spark.support.kept_tables import rows_of
from tests.support.servers import Server

# Name -> the key, and the definition of all columns.
TABLES: Final[Mapping[str, tuple[tuple[str, ...], str]]] = MappingProxyType(
    {
        "customers": (
            ("id",),
            "id INT AUTO_INCREMENT, name VARCHAR(50), score DOUBLE DEFAULT 1.5, born DATE, PRIMARY KEY (id)",
        ),
        "orders": (
            ("shop", "number"),
            "shop SMALLINT UNSIGNED, number BIGINT UNSIGNED, total DECIMAL(12,2) NOT NULL DEFAULT '0.5', "
            "at TIMESTAMP(6) NULL, note TEXT, PRIMARY KEY (shop, number)",
        ),
        "codes": (("code",), "code VARCHAR(20), text VARCHAR(100), PRIMARY KEY (code)"),
        "files": (("hash",), "hash BINARY(4), data BLOB, taken TIME(3), facts JSON, PRIMARY KEY (hash)"),
        "days": (
            ("day", "slot"),
            "day DATE, slot ENUM('am', 'pm'), visits INT, flags BIT(3), PRIMARY KEY (day, slot)",
        ),
    }
)


def create(server: Server, schema: str) -> None:
    """The tables, empty."""
    for name, (_, columns) in TABLES.items():
        server.query(f"CREATE TABLE {schema}.{name} ({columns})")


class RandomWriter:
    """Transactions at random until it has made as many as are ``allowed``, and then slowly more; in a thread."""

    def __init__(
        self,
        server: Server,
        schema: str,
        rng: random.Random,
        images: Sequence[str] = ("FULL", "MINIMAL", "NOBLOB"),
    ) -> None:
        self._server, self._schema, self._rng = server, schema, rng
        self._images = images
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.allowed = self.made = 0
        self.error: BaseException | None = None

    def __enter__(self) -> RandomWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self.error is None, self.error

    def reach(self, count: int, seconds: float = 300) -> None:
        """Wait until it has made so many."""
        self.allowed = count
        until = time.monotonic() + seconds
        while self.made < count:
            assert time.monotonic() < until
            assert self.error is None, self.error
            time.sleep(0.05)

    def _run(self) -> None:
        try:
            with self._server.connect(autocommit=False) as connection, connection.cursor() as cursor:
                self._prepare(cursor)
                while not self._stop.is_set():
                    if self.made < self.allowed or self._rng.random() < 0.1:
                        self._transaction(connection, cursor)
                        self.made += 1
                    self._stop.wait(0.002 if self.made < self.allowed else 0.05)
        except BaseException as error:
            self.error = error

    def _prepare(self, cursor: Cursor) -> None:
        cursor.execute("SET time_zone = '+00:00', innodb_lock_wait_timeout = 1")
        cursor.execute(f"USE {self._schema}")

    def _transaction(self, connection: pymysql.Connection[Any], cursor: Cursor) -> None:
        rng = self._rng
        if rng.random() < 0.03:
            self._xa_transaction(cursor)
            return
        cursor.execute(f"SET SESSION binlog_row_image = '{rng.choice(self._images)}'")
        self._changes(cursor)
        if rng.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()

    def _changes(self, cursor: Cursor) -> None:
        for _ in range(self._rng.choice([1, 1, 2, 5, 20])):
            # Keys that are taken, and rows that a prepared transaction holds.
            with contextlib.suppress(pymysql.err.IntegrityError, pymysql.err.OperationalError):
                self._change(cursor)

    def _xa_transaction(self, cursor: Cursor) -> None:
        """Prepared, then others write, then it ends."""
        with self._server.connect(autocommit=True) as connection, connection.cursor() as prepared:
            self._prepare(prepared)
            name = f"'{self._schema}{self.made}'"
            prepared.execute(f"XA START {name}")
            self._changes(prepared)
            prepared.execute(f"XA END {name}")
            prepared.execute(f"XA PREPARE {name}")
            for _ in range(self._rng.randint(0, 3)):
                self._changes(cursor)
                cursor.execute("COMMIT")
            prepared.execute(f"XA {self._rng.choice(['COMMIT', 'ROLLBACK'])} {name}")

    def _change(self, cursor: Cursor) -> None:
        rng = self._rng
        name = rng.choice(list(TABLES))
        key = TABLES[name][0]
        kind = rng.choice(["insert", "insert", "insert", "update", "update", "key", "delete", "replace"])
        where = " AND ".join(f"{column} = %s" for column in key)
        old = [self._value(column) for column in key]
        if kind in ("insert", "replace"):
            # In MINIMAL images MariaDB logs no column to which REPLACE gave its default: its own replicas differ.
            is_whole = kind == "replace" and self._server.family == "mariadb"
            columns = [*key, *self._some(name, is_whole=is_whole)]
            marks = ", ".join(["%s"] * len(columns))
            verb = "INSERT" if kind == "insert" else "REPLACE"
            cursor.execute(
                f"{verb} INTO {name} ({', '.join(columns)}) VALUES ({marks})",
                [self._value(column) for column in columns],
            )
        elif kind == "delete":
            cursor.execute(f"DELETE FROM {name} WHERE {where}", old)
        else:
            columns = self._some(name) if kind == "update" else list(key)
            # Without a WHERE many rows at once.
            is_all = kind == "update" and rng.random() < 0.1
            text = ", ".join(f"{column} = %s" for column in columns or [key[0]])
            values = [self._value(column) for column in columns or [key[0]]]
            limit = " LIMIT 20" if is_all else f" WHERE {where}"
            if columns:
                cursor.execute(f"UPDATE {name} SET {text}{limit}", values + ([] if is_all else old))

    def _some(self, name: str, *, is_whole: bool = False) -> list[str]:
        others = [column for column in _VALUES if column not in _KEYS and f"{column} " in TABLES[name][1]]
        return others if is_whole else self._rng.sample(others, self._rng.randint(0, len(others)))

    def _value(self, column: str) -> Any:
        rng = self._rng
        if column not in _KEYS and column != "total" and rng.random() < 0.15:
            return None
        return _VALUES[column](rng)


_KEYS: Final = frozenset(column for key, _ in TABLES.values() for column in key)
_VALUES: Final[Mapping[str, Callable[[random.Random], object]]] = MappingProxyType(
    {
        "id": lambda rng: rng.randint(1, 200),
        "name": lambda rng: rng.choice(["Anna", "Zoë", "李", "o'Neil", ""]) + str(rng.randint(0, 9)),
        "score": lambda rng: rng.uniform(-1e6, 1e6),
        "born": lambda rng: date(1950, 1, 1) + timedelta(days=rng.randint(0, 20_000)),
        "shop": lambda rng: rng.choice([0, 1, 65535]),
        "number": lambda rng: rng.choice([0, (1 << 64) - 1, *range(1, 60)]),
        "total": lambda rng: f"{rng.randint(-(10**9), 10**9) / 100:.2f}",
        "at": lambda rng: datetime(2001, 1, 1) + timedelta(microseconds=rng.randint(0, 10**15)),
        "note": lambda rng: "x" * rng.choice([0, 3, 500]) + str(rng.random()),
        "code": lambda rng: rng.choice("aAbBcCüß") * rng.randint(1, 8),
        "text": lambda rng: str(rng.random()),
        "hash": lambda rng: bytes([rng.randint(0, 40), 0xFF, 0, rng.choice([0, 32])]),
        "data": lambda rng: rng.randbytes(rng.choice([0, 5, 300])),
        "taken": lambda rng: (
            f"{rng.choice(['', '-'])}{rng.randint(0, 838)}:{rng.randint(0, 59)}:{rng.randint(0, 58)}.125"
        ),
        "facts": lambda rng: f'{{"a": {rng.randint(0, 9)}, "b": ["x", null]}}',
        "day": lambda rng: date(2026, 1, 1) + timedelta(days=rng.randint(0, 60)),
        "slot": lambda rng: rng.choice(["am", "pm"]),
        "visits": lambda rng: rng.randint(-100, 100),
        "flags": lambda rng: rng.randint(0, 7),
    }
)


def source_rows(server: Server, schema: str, table: str) -> dict[tuple[Any, ...], str]:
    """A checksum of each row of the source, by its key."""
    with server.connect() as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT * FROM {schema}.{table}")
        return checksums(table, [dict(row) for row in cursor.fetchall()])


def kept_rows(
    target: Path, schema: str, table: str, *, is_history: bool = False
) -> dict[tuple[Any, ...], str]:
    """The same of the target; of a history, of its current rows."""
    rows = rows_of(target, f"{schema}.{table}")
    return checksums(table, without_states(rows) if is_history else rows)


def without_states(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The current rows of a history, as a mirror has them."""
    own = ("valid_from", "valid_to", "is_current", "_seq")
    return [{name: row[name] for name in row if name not in own} for row in rows if row["is_current"]]


def checksums(table: str, rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], str]:
    """A checksum of each row, by its key."""
    key = TABLES[table][0]
    plain = [{name: _plain(name, value) for name, value in row.items()} for row in rows]
    found = {
        tuple(row[name] for name in key): hashlib.sha256(repr(sorted(row.items())).encode()).hexdigest()
        for row in plain
    }
    assert len(found) == len(rows)
    return found


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, timedelta):
        return time_text(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if name == "flags" and isinstance(value, bytes):
        return str(int.from_bytes(value, "big"))
    # Unsigned numbers are decimals in Spark.
    return str(value) if name in ("flags", "number") and value is not None else value
