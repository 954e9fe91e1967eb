"""Copies tables of every kind under writers that chase the copy, with a consumer that is killed and cut off."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pymysql

from tests.server.support.copied_shapes import DEFAULTS, GENERATED, CopiedTable, copied_tables
from tests.server.support.copied_tables import Writers
from tests.server.support.kept_rows import KeptStore
from tests.support.servers import Server

#: The end of the period of a current row: 32 bits of seconds with a sign, or without one (MariaDB 11.5 and later).
_ENDLESS = (
    datetime(2038, 1, 19, 3, 14, 7, 999999, UTC),
    datetime(2106, 2, 7, 6, 28, 15, 999999, UTC),
)
_KEYLESS_SHARE = 0.01
#: The writers wait while the consumer is so many bytes behind: no machine is too slow for the test then.
_BACKLOG = 100_000
_LOOK_SECONDS = 0.02
#: No life of a consumer lasts so many seconds.
_LIFE_SECONDS = 600


class ChasingWriters(Writers):
    """Writers of several tables. Most of their changes are near the row that was copied last."""

    def __init__(
        self, server: Server, schema: str, tables: list[CopiedTable], span: int, **options: Any
    ) -> None:
        super().__init__(server, schema, span, **options)
        self._tables = tables
        self.at = tables[0]
        #: How many bytes of the log the consumer has still to read.
        self.backlog: Callable[[], int] = lambda: 0

    def _transaction(self, connection: Any, rng: random.Random) -> None:
        while self.backlog() > _BACKLOG and not self._stop.wait(_LOOK_SECONDS):
            pass
        super()._transaction(connection, rng)

    def _statement(self, cursor: Any, rng: random.Random) -> None:
        table = self.at if rng.random() < 0.6 else rng.choice(self._tables)
        if not table.key and rng.random() > _KEYLESS_SHARE:
            table = self._tables[0]
        cursor.execute(table.statement(self.table, self._key(rng), self._key(rng), rng))


@dataclass
class Copied:
    """What came of a copy. ``chunks`` and ``corrected`` count over all lives of the consumer."""

    kills: int = 0
    cuts: int = 0
    chunks: int = 0
    corrected: int = 0
    transactions: int = 0
    rows: int = 0
    differences: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    largest_checkpoint: int = 0


@dataclass
class ChasedCopy:
    """One copy of five tables with ``rows`` rows each. ``options`` are those of ``replica.connect``."""

    server: Server
    schema: str
    path: Path
    rows: int
    seed: int
    keyless: bool = False
    writers: int = 8
    pause: float = 0.004
    with_ddl: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, kills: int, chunk_rows: int) -> Copied:
        """Copy, follow to the end, and compare. Each life of the consumer but the last ends with SIGKILL."""
        self.tables = copied_tables(self.server, keyless=self.keyless)
        self._name_keys()
        self._unlogged = () if self.server.logs_generated else GENERATED
        for table in self.tables:
            table.create(self.server, self.schema, self.rows)
        # Without exact GTIDs a copy begins at the start of the current file.
        self.server.query("FLUSH BINARY LOGS")
        result, rng = Copied(), random.Random(self.seed)
        options = {"tables": f"{self.schema}.*", "snapshot_chunk_rows": chunk_rows, **self.options}
        writers = ChasingWriters(self.server, self.schema, self.tables, 2 * self.rows, pause=self.pause)
        # So many chunks for each life, a quarter left over: else chance may complete the copy before the last kill.
        share = max(2, len(self.tables) * self.rows * 3 // 4 // chunk_rows // (kills + 1))
        is_complete, has_altered = False, not self.with_ddl
        with self._watched() as backlog, writers.run(self.writers, self.seed):
            writers.backlog = backlog
            while not is_complete:
                left = rng.randint(1, 2 * share - 1) if result.kills < kills else None
                with self._life(options) as process:
                    is_complete = self._follow(process, writers, result, left, rng)
                result.kills += not is_complete
                if not has_altered and result.kills >= kills // 2:
                    has_altered = True
                    self.server.query(
                        f"ALTER TABLE {self.schema}.texts ADD COLUMN added INT NOT NULL DEFAULT 5"
                    )
        result.transactions = writers.transactions
        with self._life({**options, "stop": "now"}) as process:
            assert process.wait(_LIFE_SECONDS) == 0
        self._compare(result)
        return result

    @contextlib.contextmanager
    def _watched(self) -> Iterator[Callable[[], int]]:
        """A function that tells how far the consumer is behind the log; a thread asks the server."""
        over = threading.Event()
        self._place: tuple[str, int] = ("", 4)
        self._end: tuple[str, int] = ("", 4)

        def watch() -> None:
            with self.server.connect() as connection, connection.cursor() as cursor:
                while not over.wait(_LOOK_SECONDS):
                    cursor.execute(self.server.log_status)
                    [(file, position, *_)] = cursor.fetchall()
                    self._end = file, int(position)

        def backlog() -> int:
            (file, position), (newest, end) = self._place, self._end
            return end - (position if file == newest else 4)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield backlog
        finally:
            over.set()
            thread.join()

    def _name_keys(self) -> None:
        is_mariadb = self.server.family == "mariadb"
        self._keys = {
            table.name: (*table.key, "row_end") if is_mariadb and "VERSIONING" in table.options else table.key
            for table in self.tables
        }

    @contextlib.contextmanager
    def _life(self, options: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.server.support.copying_consumer",
                str(self.path),
                self.server.dsn(),
                json.dumps(self._keys),
                json.dumps(self._unlogged),
                json.dumps(options),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        timer = threading.Timer(_LIFE_SECONDS, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()
            process.communicate()

    def _follow(
        self,
        process: subprocess.Popen[str],
        writers: ChasingWriters,
        result: Copied,
        left: int | None,
        rng: random.Random,
    ) -> bool:
        """Follow one life until ``left`` chunks have come, and cut it half way; whether the copy is complete."""
        cut_at = None if left is None else left // 2
        by_name = {table.name: table for table in self.tables}
        said: dict[str, Any] = {"chunks": 0, "corrected": 0, "complete": False}
        assert process.stdout is not None
        number = -1
        for line in process.stdout:
            news = json.loads(line)
            self._place = news["place"][0], news["place"][1]
            if "chunks" not in news:
                continue
            said = news
            number += 1
            if said["n"] is not None:
                writers.at, writers.front = by_name[said["table"]], said["n"]
            if number == cut_at:
                result.cuts += self._cut()
            if said["complete"] or (left is not None and number + 1 >= left):
                break
        else:
            raise AssertionError(f"the consumer has ended with {process.wait()}")
        if not said["complete"]:
            # It is killed at any moment, not always when it has just told of a chunk.
            threading.Event().wait(rng.random() * 0.05)
        result.chunks += said["chunks"]
        result.corrected += said["corrected"]
        return bool(said["complete"])

    def _cut(self) -> bool:
        cut = False
        for row in self.server.query("SHOW PROCESSLIST"):
            if row[1] == self.server.replica_user:
                with contextlib.suppress(pymysql.err.MySQLError):
                    self.server.query(f"KILL {row[0]}")
                    cut = True
        return cut

    # Comparing

    def _compare(self, result: Copied) -> None:
        store = KeptStore(self.path, self._keys)
        result.violations, result.largest_checkpoint = store.violations, store.largest_checkpoint
        for table in self.tables:
            held = self._held(table)
            result.rows += len(held)
            kept = store.rows(table.name)
            if not table.key:
                kept = [entry["row"] for entry in kept for _ in range(entry["count"])]
            elif "row_end" in self._keys[table.name]:
                kept = [row for row in kept if row["row_end"] in _ENDLESS]
            result.differences += _differences(table, kept, held, self._unlogged)
        store.close()

    def _held(self, table: CopiedTable) -> list[dict[str, Any]]:
        columns = [row[0] for row in self.server.query(f"SHOW COLUMNS FROM {self.schema}.{table.name}")]
        selected = ", ".join("HEX(e)" if name == "e" else name for name in columns)
        return [
            dict(zip(columns, row, strict=True))
            for row in self.server.query(f"SELECT {selected} FROM {self.schema}.{table.name}")
        ]


def _differences(
    table: CopiedTable, kept: list[dict[str, Any]], held: list[dict[str, Any]], unlogged: Sequence[str]
) -> list[str]:
    """Rows that differ, by their key; of a table without a key, as a whole.

    A kept row without ``unlogged`` columns was updated, and the log did not have their new values.
    """
    columns = held[0].keys() if held else ()
    found: dict[str, list[list[str]]] = {}
    unknown: dict[str, set[str]] = {}
    for side, rows in enumerate((kept, held)):
        for row in rows:
            plain = {name: row.get(name, DEFAULTS.get(name)) for name in columns}
            if side == 0 and "e" in plain:
                plain["e"] = bytes(plain["e"]).hex().upper()
            key = repr([plain[name] for name in table.key or columns])
            if side == 0:
                unknown[key] = {name for name in unlogged if name in columns and name not in row}
            known = {name: value for name, value in plain.items() if name not in unknown.get(key, ())}
            found.setdefault(key, [[], []])[side].append(repr(known))
    return [
        f"{table.name} {key}: kept {sides[0]}, table {sides[1]}"
        for key, sides in found.items()
        if sorted(sides[0]) != sorted(sides[1])
    ]
