"""The log of a small case: scripts of transactions, the rows events that they write, and the table after each.

Used by `source_model`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from protocol.binlog.events import DeleteRowsEvent, Event, QueryEvent, UpdateRowsEvent, WriteRowsEvent
from protocol.constants import ColumnType
from protocol.rows.column import ABSENT, Column
from protocol.rows.table import Table
from tests.support.grouped_events import AT

SOURCE = uuid.UUID(int=1)
FILE = "binlog.000001"
IDENTITY = ("shop", "t")
COLUMNS = tuple(Column(name, ColumnType.LONG, 0, True) for name in ("id", "a", "b"))
TABLE = Table(*IDENTITY, COLUMNS, ("id",), "log")
#: Changes of a script: ("update", key, a), ("insert", key, a), ("delete", key), ("move", key, new key)
Op = tuple[Any, ...]
Rows = dict[int, tuple[int, int, int]]


@dataclass(frozen=True)
class Script:
    """A transaction: its changes, and how it ends: "commit", "rollback" (of XA) or "xa"."""

    ops: tuple[Op, ...]
    is_xa: bool = False
    is_rolled_back: bool = False


@dataclass(frozen=True)
class Entry:
    """A transaction of the log: of which script, and whether it is its XA PREPARE or the end of that."""

    script: int
    part: str  # "whole", "prepare", "decide"


@dataclass(frozen=True)
class Case:
    """What is run: the table at first, the transactions in the order of the log, and the settings of the source."""

    name: str
    rows: tuple[int, ...]
    scripts: tuple[Script, ...]
    entries: tuple[Entry, ...]
    image: str = "FULL"
    low: str = "gtid"
    is_ordered: bool = True
    kills: int = 1
    has_key: bool = True
    # The consumer takes its time for a chunk: the reader goes on meanwhile.
    is_slow: bool = False
    # Rows that one transaction deletes and makes anew, with columns left out, may wait for the next log file.
    may_await_file: bool = False


def log_of(scripts: tuple[Script, ...], order: tuple[int, ...] | None = None) -> tuple[Entry, ...]:
    """The log of scripts one after another; an index that comes twice in `order` is an XA PREPARE and its end."""
    order = order or tuple(range(len(scripts)))
    entries, seen = [], set()
    for number in order:
        if not scripts[number].is_xa:
            entries.append(Entry(number, "whole"))
        else:
            entries.append(Entry(number, "decide" if number in seen else "prepare"))
            seen.add(number)
    return tuple(entries)


def apply(rows: Rows, ops: tuple[Op, ...]) -> Rows:
    rows = dict(rows)
    for kind, key, *value in ops:
        if kind == "insert":
            rows.setdefault(key, (key, value[0], 0))
        elif key in rows:
            old = rows.pop(key)
            if kind == "update":
                rows[key] = (key, value[0], old[2])
            elif kind == "move" and value[0] not in rows:
                rows[value[0]] = (value[0], *old[1:])
            elif kind == "move":
                rows[key] = old
    return rows


def keys_of(script: Script) -> set[int]:
    return {key for op in script.ops for key in (op[1], *(op[2:] if op[0] == "move" else ()))}


def row_events(before: Rows, ops: tuple[Op, ...], image: str) -> Iterator[Event]:
    """The rows events of changes, with FULL or MINIMAL images."""
    is_full = image == "FULL"
    for op in ops:
        after = apply(before, (op,))
        gone = [row for key, row in before.items() if after.get(key) != row]
        new = [row for key, row in after.items() if before.get(key) != row]
        common = (*AT, 1, TABLE, 0, b"")
        if gone and new:
            old_row, new_row = gone[0], new[0]
            changed = tuple(
                value if is_full or value != old else ABSENT
                for old, value in zip(old_row, new_row, strict=True)
            )
            shown = old_row if is_full else (old_row[0], ABSENT, ABSENT)
            yield UpdateRowsEvent(*common, [(shown, changed)])
        elif new:
            # The statement names `id` and `a`; `b` gets its default.
            yield WriteRowsEvent(*common, [new[0] if is_full else (*new[0][:2], ABSENT)])
        elif gone:
            yield DeleteRowsEvent(*common, [gone[0] if is_full else (gone[0][0], ABSENT, ABSENT)])
        before = after


def changes_of(event: Event) -> Iterator[tuple[Any, Any, int]]:
    if isinstance(event, WriteRowsEvent):
        for row in event.rows:
            yield None, row, row[0]  # type: ignore[misc]
    elif isinstance(event, UpdateRowsEvent):
        for before, after in event.rows:
            yield before, after, before[0]  # type: ignore[misc]
    elif isinstance(event, DeleteRowsEvent):
        for row in event.rows:
            yield row, None, row[0]  # type: ignore[misc]


def query(sql: str) -> QueryEvent:
    return QueryEvent(*AT, 1, 0, 0, "", sql, b"")


def bound(key: int) -> tuple[bytes]:
    return (str(key).encode(),)


def number_of(given: tuple[bytes, ...] | None, default: int) -> int:
    return default if given is None else int(given[0])
