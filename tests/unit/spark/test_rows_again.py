"""A copy whose rows are read at different moments, and a log whose images lack columns: the table comes out right."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from protocol.errors import SchemaMismatchError
from replica.spark.gather import SEQ_TYPE
from replica.spark.jobs import changes_per_key
from replica.spark.jobs.changes_per_key import complete, key_events, last_events, separated
from replica.spark.jobs.leaf_files import folder
from replica.spark.jobs.rows_again import RowsAgain, may_lose
from replica.spark.jobs.staging import Part, StagingFile
from replica.spool.offsets import Offset

_ABSENT = pa.list_(pa.field("element", pa.string()))
SCHEMA = pa.schema(
    [
        *[("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64())],
        *[("_op", pa.string()), ("_seq", SEQ_TYPE), ("_ts", pa.timestamp("us", "UTC")), ("_absent", _ABSENT)],
        ("_before", pa.struct([("id", pa.int64())])),
    ]
)
COLUMNS = pa.schema([SCHEMA.field(name) for name in ("id", "a", "b")])
DEFAULTS = {"a": pa.scalar(-7), "b": pa.scalar(None, pa.int64())}
KEYS, CHANGES = 9, 200
Rows = dict[int, tuple[int | None, int | None]]


class Source:
    """A table after each of its changes, and the log."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rows: Rows = {key: (key, key) for key in range(0, KEYS, 2)}
        self.states: list[Rows] = [dict(self._rows)]
        self.log: list[dict[str, Any]] = []
        while len(self.log) < CHANGES:
            self._change(*rng.choices(range(KEYS), k=2), number=len(self.log) + 100)

    def _change(self, key: int, new: int, *, number: int) -> None:
        rng, rows = self._rng, self._rows
        lacking = rng.choice([[], ["a"], ["b"], ["a", "b"]])
        logged: dict[str, Any] = {"id": key, "_absent": lacking or None, "_seq": number, "_before": None}
        if key not in rows:
            rows[key] = (-7 if "a" in lacking else number, None if "b" in lacking else number)
            logged["_op"] = "insert"
        elif rng.random() < 0.25:
            logged |= {"_op": "delete", "_absent": ["a", "b"]}
            del rows[key]
        else:
            if rng.random() < 0.2 or new in rows:
                new = key
            a, b = rows.pop(key)
            rows[new] = (a if "a" in lacking else number, b if "b" in lacking else number)
            logged |= {"_op": "update", "id": new, "_before": {"id": key}}
        values = dict(zip("ab", rows.get(logged["id"], (None, None)), strict=True))
        self.log.append(logged | {name: None if name in lacking else values[name] for name in "ab"})
        self.states.append(dict(rows))


class Copy:
    """The copy of a source whose rows were read at different places, and which follows its log."""

    def __init__(self, source: Source, path: Path, rng: random.Random) -> None:
        self._source, self._path, self._rng = source, str(path), rng
        moments = [rng.randrange(CHANGES // 2) for _ in range(KEYS)]
        self.rows: Rows = {
            key: source.states[at][key] for key, at in enumerate(moments) if key in source.states[at]
        }
        self._copied = max(moments)
        self.place = 0
        self.again: RowsAgain | None = None
        self.is_settling = True
        self.rounds = 0

    def follow(self) -> None:
        """Merge some changes."""
        size = self._rng.choice([1, 5, 20, 40])
        logged = self._source.log[self.place : self.place + size]
        was_open, self.place = self.place < self._copied or self.again is not None, self.place + len(logged)
        rows = pa.Table.from_pylist(logged, schema=SCHEMA)
        file = StagingFile(self._path, {})
        part = file.write(rows, ("id",))
        file.close()
        if was_open and may_lose(part):
            self.again = self.again or RowsAgain(("id",))
            self.again.parts.append(part)
        self._merge(rows)
        if self.place >= self._copied:
            self._settle()

    def _merge(self, rows: pa.Table) -> None:
        rows = separated("t", rows, ("id",))
        rows = complete("t", rows, ("id",), self._read, DEFAULTS, is_settling=self.is_settling)
        last = last_events(key_events("t", rows, ("id",)))
        keys, values = last.keys["id"].to_pylist(), rows.take(pa.array(last.rows)).to_pylist()
        for key, row, is_gone in zip(keys, values, last.is_deletion, strict=True):
            self.rows.pop(key, None)
            if not is_gone:
                self.rows[key] = row["a"], row["b"]

    def _read(self, keys: pa.Table) -> pa.Table:
        return self._table(key for key in keys["id"].to_pylist() if key in self.rows)

    def _table(self, keys: Iterable[int]) -> pa.Table:
        rows = [(key, *self.rows[key]) for key in keys]
        return pa.Table.from_pylist(
            [dict(zip(COLUMNS.names, row, strict=True)) for row in rows], schema=COLUMNS
        )

    def _settle(self) -> None:
        end = Offset("b.1", self.place, None, None, 1)
        if self.again is None or not self.again.is_over(end):
            self.is_settling = self.again is not None
            return
        keys = [key for (key,) in self.again.keys(folder(self._path, {}), 0)]
        if not keys:
            self.again, self.is_settling = None, False
            return
        self.rounds += 1
        # The source goes on meanwhile, and each row is read at another moment.
        found = list(self._read_again(keys))
        rows = pa.Table.from_pylist([row for row, _ in found], schema=SCHEMA)
        self._merge(rows)
        file = StagingFile(self._path, {})
        part = file.write(rows, ("id",))
        file.close()
        until = max(at for _, at in found)
        self.again = RowsAgain.from_json(RowsAgain(("id",), [], [part], f"b.1:{until}").to_json())

    def _read_again(self, keys: Sequence[int]) -> Iterator[tuple[dict[str, Any], int]]:
        for key in keys:
            at = min(CHANGES, self.place + self._rng.choice([0, 5, 40]))
            values = self._source.states[at].get(key)
            op, (a, b) = ("delete", (None, None)) if values is None else ("insert", values)
            yield {"_op": op, "_seq": 1, "id": key, "a": a, "b": b, "_absent": None, "_before": None}, at


def test_moves_in_a_copy(seed: int, tmp_path: Path, thorough: bool) -> None:
    rng = random.Random(seed)
    settled = rounds = 0
    copies = 60 if thorough else 20
    for number in range(copies):
        source = Source(rng)
        copy = Copy(source, tmp_path / str(number), rng)
        while copy.place < CHANGES:
            copy.follow()
            if not copy.is_settling:
                settled += 1
                assert copy.rows == source.states[copy.place], (number, copy.place)
        rounds = max(rounds, copy.rounds)
    assert settled > copies
    assert rounds > 1


def test_a_settled_table_lacks_no_row() -> None:
    row = {"_op": "update", "id": 2, "a": 5, "_absent": ["b"], "_before": {"id": 1}}
    rows = pa.Table.from_pylist([row, row | {"id": 3, "_before": {"id": 3}}], schema=SCHEMA)
    nothing = COLUMNS.empty_table()
    with pytest.raises(
        SchemaMismatchError, match=r"^t: an update of the row with the key \(1,\) lacks columns"
    ):
        complete("t", rows, ("id",), lambda keys: nothing, {})
    left = complete("t", rows, ("id",), lambda keys: nothing, {}, is_settling=True)
    assert [(row["_op"], row["id"]) for row in left.to_pylist()] == [("delete", 1)]
    assert changes_per_key.moved(left, ("id",)).tolist() == []


def test_which_keys_are_read_again(tmp_path: Path) -> None:
    file = StagingFile(str(tmp_path), {})

    def part(*moves: tuple[int, int], absent: Sequence[str] | None = ("b",)) -> Part:
        row = {"_op": "update", "_absent": absent, "_seq": 1}
        rows = [row | {"id": new, "_before": {"id": old}} for old, new in moves]
        return file.write(pa.Table.from_pylist(rows, schema=SCHEMA), ("id",))

    moving, whole = part((1, 2), (2, 3), (7, 8), (5, 5)), part((1, 9), absent=None)
    file.close()
    system = folder(str(tmp_path), {})
    assert [may_lose(moving), may_lose(whole)] == [True, False]
    assert RowsAgain(("id",), [moving, whole]).keys(system, 0) == [(2,), (3,), (8,)]
    # Behind the first window only what comes from rows that were read again, on whatever way.
    assert RowsAgain(("id",), [moving], [part_of(tmp_path, 1)], "b.1:5").keys(system, 0) == [(2,), (3,)]
    # In another server's log that read has no place.
    assert RowsAgain(("id",), [], [part_of(tmp_path, 1)], "b.1:5").keys(system, 1) == [(1,)]


def part_of(path: Path, key: int) -> Part:
    """A part with a row that was read again."""
    file = StagingFile(str(path), {})
    found = file.write(
        pa.Table.from_pylist([{"_op": "insert", "id": key, "_seq": 1}], schema=SCHEMA), ("id",)
    )
    file.close()
    return found
