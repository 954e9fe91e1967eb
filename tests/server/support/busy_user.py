"""A user of kept tables while their job runs and is killed: reads them all the time, optimizes and vacuums them.

What the user saw is compared with the states that the source had, by the log.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import threading
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from protocol.rows.column import ABSENT
from protocol.values.jsonb_text import render_json
from replica.spark.jobs.kept_table import table_path
from tests.server.support.copied_tables import Kept
from tests.server.support.random_shop import TABLES, checksums, without_states
from tests.server.support.streams import stream_of
from tests.support.servers import Server

_SECONDS: Final = 300
_PAUSE: Final = 0.02
# What rows have in columns that a MINIMAL image of an INSERT lacks.
_DEFAULTS: Final[Mapping[str, object]] = MappingProxyType({"score": 1.5, "total": Decimal("0.50")})


class BusyUser:
    """Reads the tables of a target in a thread, and optimizes or vacuums one now and then.

    ``seen`` has, by table, the digests of all states that it has seen, with a version of the table. The tables begin
    with the log: nothing was copied, so that each version has to be a state of the source.
    """

    def __init__(self, target: Path, schema: str, seed: object, *, is_history: bool) -> None:
        self._target, self._schema, self._is_history = target, schema, is_history
        self._rng = random.Random(f"user {seed}")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._versions: dict[str, int] = {}
        self.seen: dict[str, dict[str, int]] = {table: {} for table in TABLES}
        self.reads = self.optimized = self.refused = 0
        self.error: BaseException | None = None

    def __enter__(self) -> BusyUser:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self.error is None, self.error

    def _run(self) -> None:
        try:
            while not self._stop.wait(_PAUSE):
                table = self._rng.choice(list(TABLES))
                path = table_path(str(self._target), f"{self._schema}.{table}")
                if DeltaTable.is_deltatable(path):
                    self._look(table, path)
                    if self._rng.random() < 0.05:
                        self._optimize(path)
        except BaseException as error:
            self.error = error

    def _look(self, table: str, path: str) -> None:
        kept = DeltaTable(path)
        version = kept.version()
        if self._versions.get(table) == version:
            return
        self._versions[table] = version
        rows = kept.to_pyarrow_table().to_pylist()
        if self._is_history:
            rows = without_states(rows)
        self.seen[table].setdefault(_digest(table, rows), version)
        self.reads += 1

    def _optimize(self, path: str) -> None:
        try:
            DeltaTable(path).optimize.compact()
            DeltaTable(path).vacuum(dry_run=False)
            self.optimized += 1
        except CommitFailedError:
            # The job was first.
            self.refused += 1

    def check(self, server: Server) -> None:
        """Whatever was seen is a state that the source had at the end of a transaction."""
        states = asyncio.run(source_states(server, self._schema))
        for table, seen in self.seen.items():
            wrong = sorted(version for digest, version in seen.items() if digest not in states[table])
            assert not wrong, f"{table}: versions {wrong[:5]} of {len(seen)} are no states of the source"


async def source_states(server: Server, schema: str) -> dict[str, set[str]]:
    """The digests of all states that the tables have had, transaction by transaction, from the log's beginning on."""
    kept = Kept({name: key for name, (key, _) in TABLES.items()}, defaults=dict(_DEFAULTS))
    found = {table: {_digest(table, [])} for table in TABLES}
    async with (
        asyncio.timeout(_SECONDS),
        stream_of(server, start="earliest", stop="now", tables=f"{schema}.*") as stream,
    ):
        async for tx in stream.transactions():
            for table in {change.table.name for change in await kept.take(tx)}:
                found[table].add(_digest(table, kept.rows.get(table, {}).values()))
    assert kept.violations == []
    return found


def _digest(table: str, rows: Iterable[Mapping[str, Any]]) -> str:
    columns = [
        part.split()[0] for part in TABLES[table][1].split(", PRIMARY")[0].split(", ") if part[0].islower()
    ]
    whole = [{name: _plain(row.get(name, ABSENT), name) for name in columns} for row in rows]
    return hashlib.sha256(repr(sorted(checksums(table, whole).items(), key=repr)).encode()).hexdigest()


def _plain(value: Any, name: str) -> Any:
    if value is ABSENT:
        return _DEFAULTS.get(name)
    return render_json(value) if isinstance(value, dict) else value
