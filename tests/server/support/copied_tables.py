"""Tables under writers, and a consumer that keeps what a copy and the log give: the two must be equal at the end."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pymysql

from replica import Change, Checkpoint, Delete, Insert, Read, Transaction, Update
from tests.support.servers import Server

Row = tuple[Any, ...]
_XIDS = itertools.count(1)


@dataclass
class Kept:
    """A consumer in its strictest form: an UPDATE or DELETE of a row that it does not have does nothing.

    `rows` are by table and key; of a table without a key, equal rows are one with a count. `violations` are changes
    whose before image is not what was kept. `defaults` are values of columns that the log did not say. `generated`
    are columns whose values are unknown, and so not kept, after an update that lacks them.
    """

    keys: dict[str, tuple[str, ...]]
    rows: dict[str, dict[Row, dict[str, Any]]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    reads: int = 0
    checks: bool = True
    prepared: dict[str, list[Change]] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    generated: tuple[str, ...] = ()

    async def take(self, tx: Transaction) -> list[Change]:
        """Apply a transaction; the changes of a prepared one wait for its XA COMMIT. Returns its changes."""
        changes = await tx.collect(prepared=True)
        if tx.voided is not None:
            self.rows.setdefault(tx.voided.name, {}).clear()
        if tx.outcome == "prepared":
            self.prepared[str(tx.xid)] = changes
            return changes
        if tx.xid is not None and not changes:
            waiting = self.prepared.pop(str(tx.xid), [])
            changes = waiting if tx.outcome == "commit" else []
        for change in changes:
            self.apply(change)
        return changes

    def apply(self, change: Change) -> None:
        name = change.table.name
        kept = self.rows.setdefault(name, {})
        if not self.keys[name]:
            self._count(name, change)
            return
        match change:
            case Read(after=after):
                self.reads += 1
                kept[self._key(name, after)] = dict(after)
            case Insert(after=after):
                key = self._key(name, after)
                if key in kept:
                    self.violations.append(f"{name} {key} is inserted, and was kept: {kept[key]}")
                kept[key] = dict(after)
            case Update(before=before, after=after):
                key = self._key(name, before)
                if key in kept:
                    self._check(name, key, kept[key], before)
                    old = kept.pop(key)
                    row = {name: value for name, value in old.items() if name not in self.generated} | after
                    kept[self._key(name, row)] = row
            case Delete(before=before):
                key = self._key(name, before)
                if key in kept:
                    self._check(name, key, kept.pop(key), before)

    def _check(self, name: str, key: Row, kept: dict[str, Any], before: dict[str, Any]) -> None:
        if self.checks and any(
            kept.get(column, self.defaults.get(column)) != value for column, value in before.items()
        ):
            self.violations.append(f"{name} {key}: kept {kept}, before image {before}")

    def _count(self, name: str, change: Change) -> None:
        kept = self.rows[name]
        self.reads += change.op == "read"
        for image, step in ((change.before, -1), (change.after, 1)):
            if image is not None:
                row = dict(image)
                key = tuple(row.items())
                count = kept[key]["count"] + step if key in kept else step
                if count < 0:
                    self.violations.append(f"{name}: {row} was not kept")
                elif count:
                    kept[key] = {"row": row, "count": count}
                else:
                    del kept[key]

    def _key(self, name: str, row: dict[str, Any]) -> Row:
        return tuple(row[column] for column in self.keys[name])

    def differences(self, server: Server, schema: str, name: str) -> list[str]:
        """How the kept rows of a table differ from the rows that it has now."""
        kept = self.rows.get(name, {})
        columns = [row[0] for row in server.query(f"SHOW COLUMNS FROM `{schema}`.`{name}`")]
        held = [
            dict(zip(columns, row, strict=True)) for row in server.query(f"SELECT * FROM `{schema}`.`{name}`")
        ]
        found = {self._key(name, row): row for row in held}
        kept = {key: {**_of(self.defaults, columns), **row} for key, row in kept.items()}
        both = kept.keys() | found.keys()
        return [
            f"{name} {key}: kept {kept.get(key)}, table {found.get(key)}"
            for key in sorted(both, key=repr)
            if kept.get(key) != found.get(key)
        ]


def _of(defaults: dict[str, Any], columns: list[str]) -> dict[str, Any]:
    return {name: value for name, value in defaults.items() if name in columns}


@dataclass
class Writers:
    """Threads that insert, update, delete, move keys, roll back and run XA in a table `(id, a, b)` with integer keys.

    `front` is where the copy stands: half of the changes are near it. `failures` are errors that ended a thread.
    """

    server: Server
    table: str
    span: int
    front: int = 0
    transactions: int = 0
    with_xa: bool = True
    moves: bool = True
    pause: float = 0.0
    failures: list[BaseException] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def run(self, count: int, seed: int) -> Iterator[Writers]:
        threads = [
            threading.Thread(target=self._write, args=(random.Random(seed * 100 + number),), daemon=True)
            for number in range(count)
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(30)
            assert not self.failures, self.failures

    def stop(self) -> None:
        self._stop.set()

    def _write(self, rng: random.Random) -> None:
        connection = self.server.connect(autocommit=False)
        try:
            while not self._stop.is_set():
                try:
                    self._transaction(connection, rng)
                except pymysql.err.MySQLError as error:
                    # Two writers met in one row.
                    if error.args[0] not in (1205, 1213, 1062, 1614, 1397, 1399, 1402):
                        raise
                    with contextlib.suppress(pymysql.err.MySQLError):
                        connection.rollback()
                    connection.close()
                    connection = self.server.connect(autocommit=False)
                self.transactions += 1
                if self.pause:
                    self._stop.wait(self.pause)
        except BaseException as error:
            self.failures.append(error)
        finally:
            connection.close()

    def _transaction(self, connection: Any, rng: random.Random) -> None:
        cursor = connection.cursor()
        is_xa = self.with_xa and rng.random() < 0.15
        xid = f"'x{next(_XIDS)}_{rng.randrange(1 << 30)}'"
        cursor.execute(f"XA START {xid}" if is_xa else "BEGIN")
        for _ in range(rng.randint(1, 3)):
            self._statement(cursor, rng)
        is_kept = rng.random() < 0.9
        if is_xa:
            cursor.execute(f"XA END {xid}")
            cursor.execute(f"XA PREPARE {xid}")
            if rng.random() < 0.5:
                self._stop.wait(rng.random() * 0.02)
            cursor.execute(f"XA {'COMMIT' if is_kept else 'ROLLBACK'} {xid}")
        else:
            cursor.execute("COMMIT" if is_kept else "ROLLBACK")

    def _statement(self, cursor: Any, rng: random.Random) -> None:
        key = self._key(rng)
        value = rng.randrange(1 << 30)
        kind = rng.random()
        if kind < 0.35:
            cursor.execute(f"UPDATE {self.table} SET a = {value} WHERE id = {key}")
        elif kind < 0.5:
            cursor.execute(f"UPDATE {self.table} SET b = 'b{value}', a = a + 1 WHERE id = {key}")
        elif kind < 0.7:
            cursor.execute(f"DELETE FROM {self.table} WHERE id = {key}")
        elif kind < 0.9 or not self.moves:
            cursor.execute(f"INSERT IGNORE INTO {self.table} (id, a) VALUES ({key}, {value})")
        else:
            cursor.execute(f"UPDATE IGNORE {self.table} SET id = {self._key(rng)} WHERE id = {key}")

    def _key(self, rng: random.Random) -> int:
        if rng.random() < 0.5:
            return max(1, self.front + rng.randint(-50, 200))
        return rng.randint(1, self.span)


def make_table(server: Server, schema: str, name: str, rows: int) -> None:
    """A table `(id, a, b)` with rows of even ids."""
    server.query(
        f"CREATE TABLE `{schema}`.`{name}` (id INT NOT NULL PRIMARY KEY, a BIGINT NOT NULL, "
        "b VARCHAR(40) NOT NULL DEFAULT 'none') ENGINE=InnoDB"
    )
    for begin in range(0, rows, 5000):
        values = ",".join(f"({2 * n + 2}, {n}, 'row {n}')" for n in range(begin, min(begin + 5000, rows)))
        server.query(f"INSERT INTO `{schema}`.`{name}` VALUES {values}")
