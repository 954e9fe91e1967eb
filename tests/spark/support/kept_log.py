"""A random log for jobs with kept tables, as the packed rows that Spark gives them, and a plain model of the result.

The model has the expected tables and histories in dicts and lists, updated change by change.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from replica.config.table_names import split_text
from replica.spark.packed import pack
from replica.spark.packed_items import PackedItem

Row = dict[str, Any]
Key = tuple[Any, ...]

KEY = ("id", "k")
TYPES: dict[str, pa.DataType] = {
    "id": pa.int32(),
    "k": pa.string(),
    "a": pa.int32(),
    "b": pa.string(),
    "Some name": pa.decimal128(12, 2),
    "blob": pa.binary(),
}
ADDED = {"new 1": pa.int64(), "new 2": pa.timestamp("us")}
_NAMES = pa.list_(pa.field("element", pa.string()))
_SECOND = 1_000_000
BEGIN = 1_700_000_000 * _SECOND


@dataclass
class State:
    """A state of a row, with its interval."""

    values: Row
    begin: int
    seq: int
    end: int | None = None


@dataclass
class Modelled:
    """The model of a table: its columns, its present rows, and all states of its rows."""

    columns: dict[str, pa.DataType]
    rows: dict[Key, Row] = field(default_factory=dict)
    past: list[State] = field(default_factory=list)
    current: dict[Key, State] = field(default_factory=dict)

    def put(self, row: Row, ts: int, seq: int) -> None:
        key = tuple(row[name] for name in KEY)
        self.end(key, ts)
        self.rows[key] = row
        state = State(dict(row), ts, seq)
        self.past.append(state)
        self.current[key] = state

    def remove(self, key: Key, ts: int) -> None:
        self.rows.pop(key, None)
        self.end(key, ts)

    def end(self, key: Key, ts: int) -> None:
        state = self.current.pop(key, None)
        if state is not None:
            state.end = ts

    def clear(self, ts: int) -> None:
        for key in list(self.rows):
            self.remove(key, ts)


@dataclass
class Change:
    """A row change in the log."""

    table: str
    layout: tuple[tuple[str, pa.DataType], ...]
    op: str
    row: Row
    before: Row | None
    absent: list[str] | None
    before_absent: list[str] | None
    ts: int
    seq: int
    outcome: str
    xa: str | None


class RandomLog:
    """A random log. ``transactions`` has lists of changes and statements (``PackedItem``), in log order."""

    def __init__(self, rng: random.Random, *, schema: str = "shop", minimal: bool | None = None) -> None:
        self.rng = rng
        self.schema = schema
        self.minimal = minimal
        self.tables: dict[str, Modelled] = {}
        self.transactions: list[list[Change | PackedItem]] = []
        self._ts = BEGIN
        self._seq = 10**30
        self._prepared: dict[str, tuple[set[tuple[str, Key]], list[Any]]] = {}
        self._current: list[Change | PackedItem] = []
        self._number = 0

    # What is written.

    def create(self, name: str) -> None:
        columns = ", ".join(f"`{column}` INT" for column in TYPES)
        self.statement(f"CREATE TABLE `{name}` ({columns}, PRIMARY KEY (id, k))")
        self.tables[f"{self.schema}.{name}"] = Modelled(dict(TYPES))

    def statement(self, sql: str, op: str = "ddl") -> None:
        self._seq += 1
        self._tick()
        item = PackedItem(op, self.schema, None, None, self._ts, "binlog.000001", 4, sql, seq=str(self._seq))
        self.transactions.append([item])

    def transaction(self, size: int, outcome: str = "commit", only: str | None = None) -> None:
        """Log random changes. With an outcome other than ``commit`` they have no effect, or not yet."""
        self._tick()
        self._number += 1
        xa = f"X'{self._number:04x}',X'',1" if outcome == "prepared" else None
        locked = {place for places, _ in self._prepared.values() for place in places}
        self._current, effects = [], []
        touched: set[Any] = set()
        for _ in range(size):
            name = only or self.rng.choice(list(self.tables))
            table = self.tables[name]
            found = self._change(
                name, table, locked | (set() if outcome == "commit" else touched), outcome, xa
            )
            if found is None:
                continue
            places, effect = found
            touched |= places
            if outcome == "commit":
                effect(self._ts)
            else:
                effects.append(effect)
        if not self._current:
            return
        self.transactions.append(self._current)
        if xa is not None:
            self._prepared[xa] = (touched, effects)

    def end_prepared(self) -> None:
        """Log XA COMMIT or XA ROLLBACK of a prepared transaction."""
        if not self._prepared:
            return
        xa = self.rng.choice(list(self._prepared))
        _, effects = self._prepared.pop(xa)
        if self.rng.random() < 0.5:
            self.statement(f"XA ROLLBACK {xa}", "xa_rollback")
            return
        self.statement(f"XA COMMIT {xa}", "xa_commit")
        for effect in effects:
            effect(self._ts)

    def alter(self) -> None:
        """Log a random DDL that jobs follow, after all prepared transactions have ended."""
        rng = self.rng
        while self._prepared:
            self.end_prepared()
        name = rng.choice(list(self.tables))
        table, short = self.tables[name], name.partition(".")[2]
        kind = rng.choice(["truncate", "drop", "rename", "add", "add", "drop column", "rename column"])
        new = [column for column in ADDED if column not in table.columns]
        old = [column for column in ADDED if column in table.columns]
        if kind == "truncate":
            self.statement(f"TRUNCATE TABLE `{short}`")
            table.clear(self._ts)
        elif kind == "drop":
            self.statement(f"DROP TABLE `{short}` /* generated by server */")
            table.clear(self._ts)
            self.create(short)
            self.tables[name].past = table.past
        elif kind == "rename":
            self._rename(name)
        elif kind == "add" and new:
            self._add_column(table, short, new[0])
        elif kind == "drop column" and old:
            self.statement(f"ALTER TABLE `{short}` DROP COLUMN `{old[0]}`")
            del table.columns[old[0]]
            for row in table.rows.values():
                del row[old[0]]
        elif kind == "rename column":
            self._rename_column(table, short, *(("b", "c") if "b" in table.columns else ("c", "b")))

    def _add_column(self, table: Modelled, short: str, column: str) -> None:
        default = self.rng.choice([None, "2026-01-01 00:00:00" if "2" in column else "-7"])
        text = "" if default is None else f" NOT NULL DEFAULT '{default}'"
        self.statement(f"ALTER TABLE `{short}` ADD COLUMN `{column}` INT{text}")
        table.columns[column] = ADDED[column]
        value = None if default is None else pa.array([default]).cast(ADDED[column])[0].as_py()
        for key, row in table.rows.items():
            row[column] = value
            table.current[key].values[column] = value

        before = len(self.transactions)
        while len(self.transactions) == before:
            # A history learns the column's type, and so the value in old rows, from the next row change.
            self.transaction(1, only=f"{self.schema}.{short}")

    def _rename_column(self, table: Modelled, short: str, column: str, new: str) -> None:
        self.statement(f"ALTER TABLE `{short}` CHANGE COLUMN {column} {new} VARCHAR(100)")
        table.columns = {new if name == column else name: kind for name, kind in table.columns.items()}
        for row in [*table.rows.values(), *(state.values for state in table.past)]:
            if column in row:
                row[new] = row.pop(column)

    def _rename(self, name: str) -> None:
        short = name.partition(".")[2]
        self._number += 1
        other = f"renamed_{self._number}"
        self.statement(f"RENAME TABLE `{short}` TO {self.schema}.{other}")
        self.tables[f"{self.schema}.{other}"] = self.tables.pop(name)

    def _tick(self) -> None:
        # Several transactions may be committed at the same time.
        self._ts += self.rng.choice([0, 1, 17, _SECOND])

    # Row changes.

    def _change(
        self, name: str, table: Modelled, locked: set[tuple[str, Key]], outcome: str, xa: str | None
    ) -> Any:
        rng = self.rng
        free = [key for key in table.rows if (name, key) not in locked]
        kind = rng.choice(["insert", "insert", "update", "update", "move", "delete"]) if free else "insert"
        key = self._new_key() if kind == "insert" else rng.choice(free)
        to = self._new_key() if kind == "move" else key
        if (name, to) in locked or (kind in ("insert", "move") and to in table.rows):
            return None
        self._seq += rng.choice([1, 1000])
        seq, is_minimal = self._seq, rng.random() < 0.7 if self.minimal is None else self.minimal
        if kind == "delete":
            self._log(name, table, "delete", table.rows[key], None, is_minimal, outcome, xa)
            return {(name, key)}, lambda ts: table.remove(key, ts)
        row = dict(table.rows[key]) if kind != "insert" else {}
        row |= dict(zip(KEY, to, strict=True))
        changed = [column for column in table.columns if column not in KEY]
        if kind != "insert":
            changed = rng.sample(changed, rng.randint(0, len(changed)))
        row |= {column: self._value(table.columns[column]) for column in changed}
        before = None if kind == "insert" else table.rows[key]
        self._log(
            name, table, "insert" if kind == "insert" else "update", row, before, is_minimal, outcome, xa
        )

        def effect(ts: int) -> None:
            if kind == "move":
                table.remove(key, ts)
            table.put(row, ts, seq)

        return {(name, key), (name, to)}, effect

    def _log(
        self,
        name: str,
        table: Modelled,
        op: str,
        row: Row,
        before: Row | None,
        is_minimal: bool,
        outcome: str,
        xa: str | None,
    ) -> None:
        absent = before_absent = None
        if is_minimal and op != "insert":
            other = [column for column in table.columns if column not in KEY]
            if op == "update":
                assert before is not None
                absent = [column for column in other if row[column] == before[column]]
                before = {column: value for column, value in before.items() if column in KEY}
                before_absent = other
            else:
                absent = other
            row = {column: value for column, value in row.items() if column not in (absent or ())}
        layout = tuple(table.columns.items())
        ts, seq = self._ts, self._seq
        self._current.append(
            Change(name, layout, op, dict(row), before, absent or None, before_absent, ts, seq, outcome, xa)
        )

    def _new_key(self) -> Key:
        return self.rng.randint(1, 12), self.rng.choice(["x", "X", "ü", ""])

    def _value(self, kind: pa.DataType) -> Any:
        if self.rng.random() < 0.2:
            return None
        number = self.rng.randint(-1000, 1000)
        if pa.types.is_timestamp(kind):
            return pa.scalar(BEGIN + number, kind).as_py()
        if pa.types.is_decimal(kind):
            return Decimal(number).scaleb(-2)
        if pa.types.is_string(kind):
            return f"{number}'\"\\é"
        return str(number).encode() + b"\xff" if pa.types.is_binary(kind) else number


def packed(rng: random.Random, transactions: list[list[Change | PackedItem]]) -> Iterator[PackedItem]:
    """The items that Spark would give: rows of one table each, split at random, in order with statements."""
    waiting: list[Change] = []
    for event in (event for transaction in transactions for event in transaction):
        if isinstance(event, PackedItem):
            yield from groups(waiting)
            waiting = []
            yield event
        else:
            waiting.append(event)
            if rng.random() < 0.1:
                yield from groups(waiting)
                waiting = []
    yield from groups(waiting)


def groups(changes: list[Change]) -> Iterator[PackedItem]:
    """An item for each table and its layout."""
    found: dict[Any, list[Change]] = {}
    for change in changes:
        found.setdefault((change.table, change.layout), []).append(change)
    for (name, layout), group in found.items():
        schema, table = split_text(name)
        rows = pack(_batch(layout, group), KEY, has_names=True)
        yield PackedItem("rows", schema, table, rows, group[0].ts, "binlog.000001", 4, None)


def _batch(layout: tuple[tuple[str, pa.DataType], ...], changes: list[Change]) -> pa.RecordBatch:
    columns = [pa.array([change.row.get(name) for change in changes], kind) for name, kind in layout]
    before = pa.array([change.before for change in changes], pa.struct(list(layout)))
    facts = {
        "_op": pa.array([change.op for change in changes]),
        "_seq": pa.array([Decimal(change.seq) for change in changes], pa.decimal128(38, 0)),
        "_ts": pa.array([change.ts for change in changes], pa.timestamp("us", "UTC")),
        "_gtid": pa.nulls(len(changes), pa.string()),
        "_file": pa.array(["binlog.000001"] * len(changes)),
        "_pos": pa.array([4] * len(changes), pa.int64()),
        "_outcome": pa.array([change.outcome for change in changes]),
        "_xa": pa.array([change.xa for change in changes], pa.string()),
        "_absent": pa.array([change.absent for change in changes], _NAMES),
        "_before": before,
        "_before_absent": pa.array([change.before_absent for change in changes], _NAMES),
    }
    names = [*(name for name, _ in layout), *facts]
    return pa.RecordBatch.from_arrays([*columns, *facts.values()], names=names)
