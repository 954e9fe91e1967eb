"""A consumer that may be killed at any moment: it keeps the changes of a workload, and how far it has come.

Usage: python -m tests.faults.consumer KIND DSN SCHEMA START LAST DIRECTORY

    file      changes are appended to a file; the stream saves its checkpoints to another one
    database  changes and the transaction's checkpoint go into an SQLite database in one transaction
    file-batches, database-batches  the same with `stream.batches()`: many transactions at once

It ends when the transaction with the change LAST is kept. `read()` of the keepers says afterwards what there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import replica
from replica import BinlogStream, Change, Checkpoint, FileCheckpointStore

from .workload import PROGRESS, Identity, identity_of

FILE: Final = "file"
DATABASE: Final = "database"
FILE_BATCHES: Final = "file-batches"
DATABASE_BATCHES: Final = "database-batches"


class FileKeeper:
    """Lines of JSON; the last one of a process that was killed may be torn."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "changes"
        self.store: FileCheckpointStore | None = FileCheckpointStore(directory / "checkpoint")
        self.checkpoint: Checkpoint | None = None
        self._file = self._path.open("ab", buffering=0)
        # Behind a torn line, too, this ends the part of the process before.
        self._file.write(b"\n\n")

    def keep(self, changes: list[Identity], checkpoint: Checkpoint) -> None:
        self._file.write("".join(json.dumps(change) + "\n" for change in changes).encode())

    @staticmethod
    def read(directory: Path) -> list[list[Identity]]:
        """The changes that each process has kept, process by process."""
        return [_lines(part) for part in (directory / "changes").read_bytes().split(b"\n\n")]

    @staticmethod
    def count(directory: Path) -> int:
        """How many changes have been kept so far, also while a process is at work."""
        path = directory / "changes"
        return path.read_bytes().count(b"]\n") if path.exists() else 0


def _lines(part: bytes) -> list[Identity]:
    changes: list[Identity] = []
    for line in part.splitlines():
        with contextlib.suppress(ValueError):
            operation, table, n, touched, checksum = json.loads(line)
            changes.append((operation, table, n, touched, checksum))
    return changes


class DatabaseKeeper:
    """One transaction of ours for each one of the source's."""

    def __init__(self, directory: Path) -> None:
        self.store: FileCheckpointStore | None = None
        self._database = _open(directory)
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS changes (id INTEGER PRIMARY KEY, operation, place, n, touched, checksum)"
        )
        self._database.execute("CREATE TABLE IF NOT EXISTS checkpoints (id INTEGER PRIMARY KEY, content)")
        found = self._database.execute("SELECT content FROM checkpoints").fetchone()
        self.checkpoint = None if found is None else Checkpoint.from_dict(json.loads(found[0]))

    def keep(self, changes: list[Identity], checkpoint: Checkpoint) -> None:
        content = json.dumps(checkpoint.to_dict())
        self._database.execute("BEGIN")
        self._database.executemany(
            "INSERT INTO changes (operation, place, n, touched, checksum) VALUES (?, ?, ?, ?, ?)", changes
        )
        self._database.execute("REPLACE INTO checkpoints VALUES (1, ?)", (content,))
        self._database.execute("COMMIT")

    @staticmethod
    def read(directory: Path) -> list[list[Identity]]:
        with contextlib.closing(_open(directory)) as database:
            sql = "SELECT operation, place, n, touched, checksum FROM changes ORDER BY id"
            return [list(database.execute(sql))]

    @staticmethod
    def count(directory: Path) -> int:
        """How many changes have been kept so far, also while a process is at work."""
        with contextlib.closing(_open(directory)) as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'changes'").fetchall():
                return 0
            [(count,)] = database.execute("SELECT count(*) FROM changes")
            return int(count)


def _open(directory: Path) -> sqlite3.Connection:
    return sqlite3.connect(directory / "changes.db", isolation_level=None)


async def collect(stream: BinlogStream, last: int) -> AsyncIterator[tuple[list[Identity], Checkpoint]]:
    """The changes of each transaction, up to the one that ends with the change `last`."""
    reached = 0
    async for transaction in stream.transactions():
        changes: list[Identity] = []
        async for change in transaction:
            reached = max(reached, _take(change, changes))
        yield changes, transaction.checkpoint
        if reached == last:
            return


async def collect_batches(
    stream: BinlogStream, last: int
) -> AsyncIterator[tuple[list[Identity], Checkpoint]]:
    """As `collect`, for batches of transactions."""
    async for batch in stream.batches(max_rows=700, max_seconds=0.05):
        changes: list[Identity] = []
        reached = max((_take(change, changes) for change in batch.changes), default=0)
        yield changes, batch.checkpoint
        if reached == last:
            return


def _take(change: Change, changes: list[Identity]) -> int:
    """Add the change to the list; how far the workload has come, if this is what the change says."""
    if change.table.name != PROGRESS:
        changes.append(identity_of(change))
    elif change.op == "update":
        return int(str(change.after["n"]))
    return 0


async def main(kind: str, dsn: str, schema: str, start: str, last: str, directory: str) -> None:
    in_files = kind in (FILE, FILE_BATCHES)
    keeper = FileKeeper(Path(directory)) if in_files else DatabaseKeeper(Path(directory))
    read = collect if kind in (FILE, DATABASE) else collect_batches
    stream = replica.connect(
        dsn,
        tls="disabled",
        tables=f"{schema}.*",
        start=start if keeper.checkpoint is None else keeper.checkpoint,
        checkpoints=keeper.store,
        checkpoint_interval=0.02,
    )
    async with stream:
        async for changes, checkpoint in read(stream, int(last)):
            keeper.keep(changes, checkpoint)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
