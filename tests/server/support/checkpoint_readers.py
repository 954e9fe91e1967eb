"""Consumers that begin at any checkpoint between statements that change tables, and whether names are right."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import replica
from protocol.position import BinlogPosition
from replica import Change, Checkpoint, FileSchemaStore
from replica.schemas.shape import Shape
from replica.sql.token_reader import TableName
from tests.server.support.schema_oracle import DdlRun
from tests.server.support.streams import PASSWORD
from tests.support.past_tables import wrong_columns


@dataclass
class Read:
    """A transaction with its rows."""

    checkpoint: Checkpoint
    changes: list[Change]

    @property
    def rows(self) -> list[tuple[str, Any]]:
        return [(str(change.table), change.after or change.before) for change in self.changes]


class Readers:
    """Consumers of one user, with a schema store that was there before the first statement."""

    def __init__(self, run: DdlRun, user: str, folder: Path) -> None:
        self._run = run
        self._dsn = run.server.dsn(user, PASSWORD)
        self._store = FileSchemaStore(folder / "schemas")
        self._tables = [f"{schema}.*" for schema in run.schemas]

    async def begin(self) -> Checkpoint:
        """Where consumers may begin from here on."""
        async with replica.connect(self._dsn, tables=self._tables, schemas=self._store) as stream:
            assert stream.checkpoint is not None
            return stream.checkpoint

    async def read(
        self, start: Checkpoint, *, has_store: bool = True, is_positional: bool = False
    ) -> list[Read]:
        """All transactions from a checkpoint on; without the store columns that nothing names are @1, @2..."""
        given: dict[str, Any] = {"schemas": self._store} if has_store else {}
        if is_positional or not has_store:
            given["on_schema_mismatch"] = "positional"
        options: dict[str, Any] = {"tables": self._tables, "stop": "now", **given}
        async with replica.connect(self._dsn, start=start, **options) as stream:
            found = []
            async for tx in stream.transactions():
                changes = await tx.collect()
                found.append(Read(tx.checkpoint, changes))
            return found

    async def check(self, start: Checkpoint, rng: random.Random, starts: int, past: int) -> Counter[str]:
        """Read from ``start``, from some checkpoints behind it, and from some without the store."""
        counts: Counter[str] = Counter()
        whole = await self.read(start)
        for read in whole:
            self._check_names(read, counts, is_past=False)
        for _ in range(starts):
            number = rng.randrange(len(whole))
            rest = await self.read(whole[number].checkpoint)
            assert [read.rows for read in rest if read.rows] == [
                read.rows for read in whole[number + 1 :] if read.rows
            ], whole[number].checkpoint
            for read in rest:
                self._check_names(read, counts, is_past=False)
        for _ in range(past):
            number = rng.randrange(len(whole))
            for read in await self.read(whole[number].checkpoint, has_store=False):
                self._check_names(read, counts, is_past=True)
        return counts

    async def check_doubtful(self, start: Checkpoint, rng: random.Random, starts: int) -> Counter[str]:
        """Read from ``start`` and from some checkpoints behind it, with the store and without: no name is wrong.

        Statements may be such that shapes are unknown: columns are @1, @2... then, or tables are not told.
        """
        counts: Counter[str] = Counter()
        whole = await self.read(start, is_positional=True)
        places = [start, *(rng.choice(whole).checkpoint for _ in range(starts if whole else 0))]
        for place in places:
            for has_store in (True, False):
                for read in await self.read(place, has_store=has_store, is_positional=True):
                    self._check_doubtful(read, counts)
        return counts

    def _check_doubtful(self, read: Read, counts: Counter[str]) -> None:
        for change in read.changes:
            table = change.table
            truth = self._truth(TableName(table.schema, table.name), read.checkpoint)
            assert len(table.columns) == len(truth.columns)
            wrong = [problem for problem in wrong_columns(table, truth) if not problem.endswith(": None")]
            assert not wrong, (wrong, read.checkpoint)
            nameless = sum(name.startswith("@") for name in table.column_names)
            counts["nameless"] += nameless
            counts["named"] += len(table.columns) - nameless

    def _check_names(self, read: Read, counts: Counter[str], *, is_past: bool) -> None:
        for change in read.changes:
            table = change.table
            truth = self._truth(TableName(table.schema, table.name), read.checkpoint)
            if not is_past:
                assert table.names_from == "history", (table, read.checkpoint)
                assert not any(name.startswith("@") for name in table.column_names), (table, read.checkpoint)
            assert len(table.columns) == len(truth.columns)
            wrong = list(wrong_columns(table, truth))
            assert not wrong, (wrong, read.checkpoint)
            kind = "past" if is_past else "stored"
            nameless = sum(name.startswith("@") for name in table.column_names)
            counts[f"{kind}, nameless"] += nameless
            counts[f"{kind}, named"] += len(table.columns) - nameless

    def _truth(self, table: TableName, behind: Checkpoint) -> Shape:
        """The table as the server showed it then; rows of CREATE ... SELECT end with their statement."""
        end = BinlogPosition(behind.file, behind.position)
        before = [snapshot for snapshot in self._run.snapshots if snapshot.position < end]
        made = [snapshot for snapshot in self._run.snapshots if snapshot.position == end]
        shape = (made or before)[-1].catalog.get(table)
        assert isinstance(shape, Shape), (table, end)
        return shape
