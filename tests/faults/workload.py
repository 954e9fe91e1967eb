"""A numbered workload and what a stream of it must deliver: every change of every transaction, in commit order.

All of it follows from a seed, so what is to come is known without asking: transactions of 1 to 5,000 changes over
several tables, each change with a number of its own. `Collector` brings the events of a stream into the same form.
Nothing here talks to a server; `tests.faults.writer` does.
"""

from __future__ import annotations

import bisect
import random
import zlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from replica import (
    BinlogStream,
    Change,
    DeleteRowsEvent,
    Event,
    FormatDescriptionEvent,
    QueryEvent,
    TransactionRestarted,
    UpdateRowsEvent,
    WriteRowsEvent,
    XidEvent,
)

LARGEST_TRANSACTION: Final = 5_000
_LARGEST_RUN: Final = 400
_LARGEST_CHANGE_RUN: Final = 60

Operation = Literal["insert", "update", "delete"]
# Operation, table, the row's number, the number of its last update, and a checksum of the whole row.
Identity = tuple[str, str, int, int, int]

# Table -> its columns behind `n INT PRIMARY KEY, touched INT NOT NULL`.
TABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "narrow": "v INT NOT NULL",
        "wide": ", ".join(f"c{i} VARCHAR(200) CHARACTER SET latin1, d{i} INT" for i in range(12)),
        "gaps": ", ".join(f"a{i} INT NULL, b{i} VARCHAR(40) CHARACTER SET utf8 NULL" for i in range(5)),
        "large": "t MEDIUMTEXT CHARACTER SET utf8, v INT NULL",
    }
)
# `large` holds some rows that alone are bigger than an event otherwise gets, and than a chunk of the network.
_WEIGHTS: Final = (5, 2, 4, 1)
_HUGE_EVERY: Final = 199
PROGRESS: Final = "progress"

_TEXTS: Final = tuple(chr(97 + i % 26) * (1 + i * 37 % 60) for i in range(101))


def _narrow(n: int) -> tuple[Any, ...]:
    return (n * 7919 % 1_000_003,)


def _wide(n: int) -> tuple[Any, ...]:
    return tuple(_TEXTS[(n + i) % 101] if i % 2 == 0 else n + i for i in range(24))


def _gaps(n: int) -> tuple[Any, ...]:
    texts = (None, "", "é€", "text")
    return tuple((None if (n >> i) & 1 else n - i) if i % 2 == 0 else texts[(n + i) % 4] for i in range(10))


def _large(n: int) -> tuple[Any, ...]:
    return _TEXTS[n % 101] * (3000 if n % _HUGE_EVERY == 0 else 5), None if n % 3 else n


_COLUMNS: Final = MappingProxyType({"narrow": _narrow, "wide": _wide, "gaps": _gaps, "large": _large})


def row_of(table: str, n: int, touched: int) -> tuple[Any, ...]:
    """The whole row with the number `n` after its last update."""
    return n, touched, *_COLUMNS[table](n)


def identity(operation: str, table: str, row: tuple[Any, ...]) -> Identity:
    return operation, table, row[0], row[1], zlib.crc32(repr(row).encode())


def identity_of(change: Change) -> Identity:
    """The same of a change with names, whose columns are all there and in their order."""
    image = change.before if change.op == "delete" else change.after
    assert image is not None
    return identity(change.op, change.table.name, tuple(image.values()))


@dataclass(frozen=True, slots=True)
class Run:
    """One statement: rows with these numbers of one table; `number` is that of its first change."""

    operation: Operation
    table: str
    number: int
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """`end` is the number of the last change. With `is_repeated` it is rolled back first, whole and in parts."""

    runs: tuple[Run, ...]
    end: int
    is_repeated: bool
    rotates: bool


class Workload:
    """`changes` numbered changes in `transactions`, made from a seed."""

    def __init__(self, seed: int, changes: int) -> None:
        self.changes = changes
        self.transactions: list[Transaction] = []
        self._rng = random.Random(seed)
        self._live: dict[str, list[int]] = {table: [] for table in TABLES}
        number = 1
        while number <= changes:
            # As many small ones as large ones, on a scale of powers.
            size = min(int(LARGEST_TRANSACTION ** self._rng.random()), changes - number + 1)
            runs = tuple(self._runs(number, number + size))
            number += size
            rng = self._rng
            self.transactions.append(Transaction(runs, number - 1, rng.random() < 0.05, rng.random() < 0.03))

    def identities(self) -> Iterator[Identity]:
        """Every change in commit order, as `Collector` sees it."""
        touched: dict[int, int] = {}
        for transaction in self.transactions:
            for run in transaction.runs:
                for n in run.rows:
                    if run.operation == "update":
                        touched[n] = run.number
                    yield identity(run.operation, run.table, row_of(run.table, n, touched.get(n, 0)))

    def final_rows(self) -> dict[str, list[tuple[int, int]]]:
        """Table -> number and last update of each row that is left, by number."""
        rows: dict[str, dict[int, int]] = {table: {} for table in TABLES}
        for transaction in self.transactions:
            for run in transaction.runs:
                if run.operation == "delete":
                    for n in run.rows:
                        del rows[run.table][n]
                else:
                    rows[run.table].update(dict.fromkeys(run.rows, run.number * (run.operation == "update")))
        return {table: sorted(found.items()) for table, found in rows.items()}

    def _runs(self, number: int, end: int) -> Iterator[Run]:
        rng = self._rng
        while number < end:
            [table] = rng.choices(tuple(TABLES), _WEIGHTS)
            live = self._live[table]
            operation: Operation = rng.choices(("insert", "update", "delete"), (8, 2, 1))[0]
            if operation != "insert" and len(live) < 2 * _LARGEST_CHANGE_RUN:
                operation = "insert"
            largest = _LARGEST_RUN if operation == "insert" else _LARGEST_CHANGE_RUN
            size = min(rng.randint(1, largest), end - number)
            if operation == "insert":
                rows = tuple(range(number, number + size))
                live += rows
            else:
                first = rng.randrange(len(live) - size)
                rows = tuple(live[first : first + size])
                if operation == "delete":
                    del live[first : first + size]
            yield Run(operation, table, number, rows)
            number += size


class Collector:
    """What a consumer has of the workload: `delivered` of finished transactions, `open` of the one under way.

    `progress` is the number of the last change that a finished transaction has brought. `lost` counts the rows of
    transactions that the source has lost in a crash, in its log's middle; `restarts` the `TransactionRestarted`.
    """

    def __init__(self, schema: str) -> None:
        self.delivered: list[Identity] = []
        self.open: list[Identity] = []
        self.progress = 0
        self.lost = 0
        self.restarts = 0
        self._schema = schema
        self._reached = 0

    @property
    def arrived(self) -> int:
        """How many changes there are, those of the open transaction included."""
        return len(self.delivered) + len(self.open)

    async def follow_events(self, stream: BinlogStream, last: int) -> AsyncGenerator[None, None]:
        """Read a stream event by event up to the end of the transaction with the change `last`."""
        async for event in stream:
            self.feed(event)
            yield
            if self.progress == last:
                return

    async def follow_transactions(self, stream: BinlogStream, last: int) -> AsyncGenerator[None, None]:
        """The same change by change of each transaction; only what was committed is kept."""
        async for transaction in stream.transactions():
            self.open.clear()
            async for change in transaction:
                if change.table.schema == self._schema:
                    self._change(change)
                yield
            if transaction.outcome == "commit":
                self._commit()
            elif transaction.outcome == "restarted":
                self.restarts += 1
            else:
                self.lost += len(self.open)
            self.open.clear()
            if self.progress == last:
                return

    def _change(self, change: Change) -> None:
        if change.table.name != PROGRESS:
            self.open.append(identity_of(change))
        elif change.op == "update":
            assert change.after is not None
            self._reached = int(str(change.after["n"]))

    def _commit(self) -> None:
        self.delivered += self.open
        self.open.clear()
        self.progress = self._reached

    def feed(self, event: Event) -> None:
        """Take in the next event of the stream."""
        if isinstance(event, WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent):
            if event.table.schema == self._schema:
                self._rows(event)
        elif isinstance(event, XidEvent) or (isinstance(event, QueryEvent) and event.sql == "COMMIT"):
            self._commit()
        elif isinstance(event, FormatDescriptionEvent):
            self.lost += len(self.open)
            self.open.clear()
        elif isinstance(event, TransactionRestarted):
            self.restarts += 1
            self.open.clear()

    def _rows(self, event: WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent) -> None:
        table = event.table.name
        if isinstance(event, UpdateRowsEvent):
            if table == PROGRESS:
                self._reached = int(str(event.rows[-1][1][1]))
            else:
                self.open += [identity("update", table, after) for _, after in event.rows]
        elif table != PROGRESS:
            operation = "insert" if isinstance(event, WriteRowsEvent) else "delete"
            self.open += [identity(operation, table, row) for row in event.rows]


def first_difference(found: list[Identity], expected: list[Identity]) -> str:
    """Nothing if the lists are equal; otherwise where they part, with what stands around that place."""
    if found == expected:
        return ""
    same = (
        bisect.bisect_left(
            range(min(len(found), len(expected)) + 1), True, key=lambda n: found[:n] != expected[:n]
        )
        - 1
    )
    place = slice(max(same - 2, 0), same + 3)
    return (
        f"{len(found)} changes instead of {len(expected)}, equal up to {same};\nfound    {found[place]}\n"
        f"expected {expected[place]}"
    )
