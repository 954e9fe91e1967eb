"""A consumer's rows in SQLite, so that a process that is killed finds them again, all at one place of the log."""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

from replica import Change, Checkpoint
from tests.server.support.copied_shapes import DEFAULTS
from tests.server.support.copied_tables import Kept

Row = dict[str, Any]


class KeptRows(MutableMapping[tuple[Any, ...], Row]):
    """The rows of one table by their keys."""

    def __init__(self, database: sqlite3.Connection, name: str) -> None:
        self._database = database
        self._name = name

    def __getitem__(self, key: tuple[Any, ...]) -> Row:
        found = self._database.execute(
            "SELECT row FROM kept WHERE name = ? AND key = ?", (self._name, repr(key))
        ).fetchone()
        if found is None:
            raise KeyError(key)
        row: Row = pickle.loads(found[0])
        return row

    def __setitem__(self, key: tuple[Any, ...], row: Row) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", (self._name, repr(key), pickle.dumps(row))
        )

    def __delitem__(self, key: tuple[Any, ...]) -> None:
        cursor = self._database.execute(
            "DELETE FROM kept WHERE name = ? AND key = ?", (self._name, repr(key))
        )
        if not cursor.rowcount:
            raise KeyError(key)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def clear(self) -> None:
        self._database.execute("DELETE FROM kept WHERE name = ?", (self._name,))

    def all(self) -> list[Row]:
        """All rows."""
        found = self._database.execute("SELECT row FROM kept WHERE name = ?", (self._name,))
        return [pickle.loads(row) for (row,) in found]


class KeptStore:
    """The file with rows, prepared transactions, violations and the checkpoint. It outlives its process.

    ``generated`` are columns that the log of updates lacks: see ``Kept``.
    """

    def __init__(self, path: Path, keys: dict[str, tuple[str, ...]], generated: tuple[str, ...] = ()) -> None:
        self._database = sqlite3.connect(path)
        self._database.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;"
            "CREATE TABLE IF NOT EXISTS kept (name, key, row, PRIMARY KEY (name, key)) WITHOUT ROWID;"
            "CREATE TABLE IF NOT EXISTS facts (name PRIMARY KEY, value);"
            "CREATE TABLE IF NOT EXISTS violations (text);"
        )
        rows = {name: KeptRows(self._database, name) for name in keys}
        prepared: dict[str, list[Change]] = pickle.loads(self._fact("prepared", pickle.dumps({})))
        self.kept = Kept(
            keys,
            rows,  # type: ignore[arg-type]
            prepared=prepared,
            defaults=DEFAULTS,
            generated=generated,
        )
        self._count = len(prepared)

    def _fact(self, name: str, default: Any) -> Any:
        found = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return default if found is None else found[0]

    def _set(self, name: str, value: Any) -> None:
        self._database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The place up to which everything is in the store."""
        text = self._fact("checkpoint", None)
        return None if text is None else Checkpoint.from_dict(json.loads(text))

    @property
    def violations(self) -> list[str]:
        """Changes whose before image was not what was kept."""
        return [text for (text,) in self._database.execute("SELECT text FROM violations")]

    @property
    def largest_checkpoint(self) -> int:
        """The most bytes that a checkpoint had."""
        return int(self._fact("largest", 0))

    def rows(self, name: str) -> list[Row]:
        """All rows that are kept of a table."""
        return KeptRows(self._database, name).all()

    def commit(self, checkpoint: Checkpoint) -> None:
        """What was applied since the last commit, and its place."""
        text = json.dumps(checkpoint.to_dict())
        self._set("checkpoint", text)
        if len(text) > self.largest_checkpoint:
            self._set("largest", len(text))
        if self.kept.prepared or self._count:
            self._set("prepared", pickle.dumps(self.kept.prepared))
            self._count = len(self.kept.prepared)
        self._database.executemany(
            "INSERT INTO violations VALUES (?)", [(text,) for text in self.kept.violations]
        )
        self.kept.violations.clear()
        self._database.commit()

    def close(self) -> None:
        self._database.close()
