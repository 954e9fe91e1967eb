"""A mirror of the shop's tables that a test gives changes and statements one after another."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.job_state import JobState
from replica.spark.jobs.target import Target
from replica.spark.packed_items import PackedItem
from tests.spark.support.kept_log import BEGIN, Change, packed
from tests.spark.support.kept_tables import Row, rows_of
from tests.support.one_batch import run_batch

LAYOUT = (("id", pa.int32()), ("k", pa.string()), ("a", pa.int32()))


class Kept:
    """A mirror of the tables of ``shop``, fed with changes and statements one after another."""

    def __init__(self, path: Path, *, kind: Any = CurrentTable, begin: JobState | None = None) -> None:
        self.path = path
        self.target = Target(str(path), kind, lambda name: name.startswith("shop."))
        self.begin = begin or JobState()
        self.number = self.seq = 0
        self.layout: tuple[tuple[str, pa.DataType], ...] = LAYOUT
        self.events: list[Change | PackedItem] = []

    def say(self, *statements: str) -> Kept:
        for sql in statements:
            self.seq += 1
            place = BEGIN, "binlog.000001", 4
            item = PackedItem("ddl", "shop", None, None, *place, sql, seq=str(self.seq))
            self.events.append(item)
        return self

    def insert(self, *rows: Row, table: str = "shop.t", absent: list[str] | None = None) -> Kept:
        for row in rows:
            self._add(table, "insert", row, None, absent)
        return self

    def update(self, before: Row, row: Row, absent: list[str] | None = None) -> Kept:
        self._add("shop.t", "update", row, before, absent)
        return self

    def _add(self, table: str, op: str, row: Row, before: Row | None, absent: list[str] | None) -> None:
        self.seq += 1
        change = Change(table, self.layout, op, row, before, absent, None, BEGIN, self.seq, "commit", None)
        self.events.append(change)

    def packed(self) -> list[PackedItem]:
        """Everything so far as the items of one micro-batch."""
        found = list(packed(random.Random(0), [self.events]))
        self.events = []
        return found

    def run(self, items: Sequence[PackedItem] | None = None) -> list[PackedItem]:
        """Process everything so far as one micro-batch."""
        found = self.packed() if items is None else list(items)
        self.events = []
        run_batch(self.target, self.begin, "query", self.number, lambda: found)
        self.number += 1
        return found

    def rows(self, table: str = "shop.t") -> list[Row]:
        return sorted(rows_of(self.path, table), key=lambda row: (row["id"], row["k"]))


CREATE = "CREATE TABLE t (id INT, k VARCHAR(9), a INT DEFAULT 7, PRIMARY KEY (id, k))"
ONE, TWO = {"id": 1, "k": "x", "a": 1}, {"id": 2, "k": "x", "a": 2}
