"""A consumer that may be killed at any moment: it keeps rows with the names that they came under.

Usage: python -m tests.server.support.schema_consumer KIND DSN SCHEMAS DIRECTORY [now]

    file      rows are appended to a file; the stream saves its checkpoints, and the schema history beside them
    database  rows and the transaction's checkpoint go into an SQLite database in one transaction; the schema
              history is in a store of its own

With ``now`` it ends at the end of the log. ``read()`` says afterwards what each process has kept.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import pickle
import sqlite3
import sys
from pathlib import Path
from typing import Any, Final

import replica
from replica import Checkpoint, FileCheckpointStore, FileSchemaStore

FILE: Final = "file"
DATABASE: Final = "database"
#: A table, and a row as a dict.
Kept = tuple[str, dict[str, Any]]


class Rows:
    """What is kept in a directory."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind, self._directory = kind, directory
        if kind == FILE:
            self._file = (directory / "rows").open("ab", buffering=0)
            # Behind a torn line, too, this ends the part of the process before.
            self._file.write(b"\n\n")
        else:
            self._database = _open(directory)
            self._database.execute("CREATE TABLE IF NOT EXISTS kept (id INTEGER PRIMARY KEY, data BLOB)")
            self._database.execute("CREATE TABLE IF NOT EXISTS places (id INTEGER PRIMARY KEY, content TEXT)")

    def options(self) -> dict[str, Any]:
        """What the stream is opened with."""
        if self.kind == FILE:
            store = FileCheckpointStore(self._directory / "checkpoint")
            return {"checkpoints": store, "checkpoint_interval": 0}
        found = self._database.execute("SELECT content FROM places").fetchone()
        start = None if found is None else Checkpoint.from_dict(json.loads(found[0]))
        return {"start": start, "schemas": FileSchemaStore(self._directory / "schemas")}

    def keep(self, rows: list[Kept], checkpoint: Checkpoint) -> None:
        """Keep the rows of a transaction."""
        packed = [pickle.dumps(row) for row in rows]
        if self.kind == FILE:
            self._file.write(b"".join(base64.b64encode(row) + b".\n" for row in packed))
            return
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO kept (data) VALUES (?)", [(row,) for row in packed])
        content = json.dumps(checkpoint.to_dict())
        self._database.execute("REPLACE INTO places VALUES (1, ?)", (content,))
        self._database.execute("COMMIT")


def _open(directory: Path) -> sqlite3.Connection:
    return sqlite3.connect(directory / "rows.db", isolation_level=None)


def read(kind: str, directory: Path) -> list[list[Kept]]:
    """The rows that each process has kept; of a database those of all."""
    if kind == FILE:
        parts = (directory / "rows").read_bytes().split(b"\n\n")
        lines = [[line for line in part.splitlines() if line.endswith(b".")] for part in parts]
        return [[pickle.loads(base64.b64decode(line[:-1])) for line in part] for part in lines]
    with contextlib.closing(_open(directory)) as database:
        found = database.execute("SELECT data FROM kept ORDER BY id")
        return [[pickle.loads(data) for (data,) in found]]


async def main(kind: str, dsn: str, schemas: str, directory: str, *now: str) -> None:
    kept = Rows(kind, Path(directory))
    options = kept.options() | {"tables": schemas.split(","), "stop": "now" if now else None}
    async with replica.connect(dsn, **options) as stream:
        if kind == DATABASE and options["start"] is None:
            assert stream.checkpoint is not None
            kept.keep([], stream.checkpoint)
        async for tx in stream.transactions():
            rows = []
            for change in await tx.collect():
                if "next_not_cached_value" in change.table.column_names or change.op not in (
                    "insert",
                    "update",
                ):
                    continue
                assert change.table.names_from == "history", change.table
                assert change.after is not None
                hidden = ("row_start", "row_end")
                row = {name: value for name, value in change.after.items() if name not in hidden}
                rows.append((str(change.table), row))
            kept.keep(rows, tx.checkpoint)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
