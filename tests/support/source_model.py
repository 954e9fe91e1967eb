"""A model of a source whose commits go through their stages one by one, and of a stream that copies a table from it.

The stages are those of MySQL's binlog group commit: flush (the dump threads may send the transaction from here on: a
source with AFTER_SYNC waits here), engine commit (readers see it), GTID (it enters gtid_executed). A prepared XA
transaction goes through them twice, and is visible after the second time only. The barrier is the product's own:
`SnapshotCopy` and `Window`. `explore` runs every schedule of these steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from protocol.binlog.events import Event, XaPrepareEvent, XidEvent
from protocol.gtid import Gtid, GtidSet
from protocol.rows.column import ABSENT
from replica.snapshot.copy_state import CopyState
from replica.snapshot.marks import LOWEST, FileMark, GtidMark, LowMark, Place
from replica.snapshot.snapshot_copy import SnapshotCopy
from replica.snapshot.table_copy import TableCopy
from replica.snapshot.touches import Touch, Touched, add_transaction
from replica.snapshot.transaction_touches import KeyColumns, Touching, TransactionTouches
from replica.snapshot.window import Step, Window
from replica.transactions.snapshot_events import SnapshotRestartedEvent, SnapshotRowsEvent
from tests.support.grouped_events import AT
from tests.support.scripted_source import (
    FILE,
    IDENTITY,
    SOURCE,
    TABLE,
    Case,
    Rows,
    apply,
    bound,
    changes_of,
    keys_of,
    number_of,
    query,
    row_events,
)

CHUNK_ROWS = 2


class Violation(AssertionError):
    """A schedule breaks the rule of the copy."""


@dataclass
class Break:
    """What a barrier that is broken on purpose answers instead; None: as it should be."""

    low: Callable[[World], LowMark] | None = None
    high: Callable[[World], Place] | None = None


class World:
    """One state of source, stream, reader and consumer."""

    def __init__(self, case: Case, broken: Break) -> None:
        self.case = case
        self.broken = broken
        first: Rows = {key: (key, key * 10, 7) for key in case.rows}
        # The table after each entry of the log, as the log says it, and its events.
        self.states: list[Rows] = [first]
        self.events: list[list[Event]] = []
        self._make_log(first)
        self.flushed = self.delivered = 0
        self.visible: tuple[int, ...] = ()  # entries that the engine has committed
        self.executed: tuple[int, ...] = ()  # entries whose GTIDs are in gtid_executed
        self.kept: Rows = {}
        # Rows that came from the copy and that the stream has not changed since, for a slow consumer.
        self.read_keys: frozenset[int] = frozenset()
        self.held: dict[int, list[tuple[str, Any, Any]]] = {}
        self.kills = case.kills
        self.window: Window | None = None
        self.holding: Event | None = None
        self.view: Rows = {}
        self.committed_at_low = 0
        self.is_complete = False
        self.copy = SnapshotCopy()
        self._begin(None)
        self.checkpoint = self._saved()

    # Source

    def _make_log(self, rows: Rows) -> None:
        prepared: dict[int, Rows] = {}
        for entry in self.case.entries:
            script = self.case.scripts[entry.script]
            body: list[Event] = []
            if entry.part != "decide":
                body += row_events(rows, script.ops, self.case.image)
            if entry.part == "whole":
                body = [query("BEGIN"), *body, XidEvent(*AT, 1)]
                rows = apply(rows, script.ops)
            elif entry.part == "prepare":
                body = [query(f"XA START X'{entry.script:02x}',X'',1"), *body]
                body.append(XaPrepareEvent(*AT, False, 1, bytes([entry.script]), b""))
                prepared[entry.script] = rows
            else:
                word = "ROLLBACK" if script.is_rolled_back else "COMMIT"
                body = [query(f"XA {word} X'{entry.script:02x}',X'',1")]
                if not script.is_rolled_back:
                    rows = apply(rows, script.ops)
            self.events.append(body)
            self.states.append(rows)

    def _keys_in_flight(self) -> set[int]:
        """Keys that transactions hold locked: flushed and not committed, or prepared and not decided."""
        held: set[int] = set()
        undecided: dict[int, set[int]] = {}
        for number in range(self.flushed):
            entry = self.case.entries[number]
            keys = keys_of(self.case.scripts[entry.script])
            if entry.part == "prepare":
                undecided[entry.script] = keys
            elif entry.part == "decide":
                undecided.pop(entry.script, None)
            if number not in self.visible and entry.part != "prepare":
                held |= keys
        return held.union(*undecided.values())

    def table(self) -> Rows:
        """What a read view that is opened now sees."""
        rows = self.states[0]
        for number in sorted(self.visible):
            entry = self.case.entries[number]
            script = self.case.scripts[entry.script]
            if entry.part != "prepare" and not script.is_rolled_back:
                rows = apply(rows, script.ops)
        return rows

    def source_steps(self) -> Iterator[tuple[str, int]]:
        entries = self.case.entries
        if self.flushed < len(entries):
            entry = entries[self.flushed]
            waits = keys_of(self.case.scripts[entry.script]) & self._keys_in_flight()
            if entry.part == "decide" or not waits:
                yield "flush", self.flushed
        waiting = [number for number in range(self.flushed) if number not in self.visible]
        for number in waiting[:1] if self.case.is_ordered else waiting:
            yield "commit", number
        if self.case.is_ordered:
            ready = [number for number in self.visible if number not in self.executed]
        else:
            # Without the order a GTID may be there before the engine has committed.
            ready = [number for number in range(self.flushed) if number not in self.executed]
        for number in ready[:1]:
            yield "gtid", number

    # Stream

    def place(self) -> Place:
        gtids = GtidSet([Gtid(SOURCE, number + 1) for number in range(self.delivered)])
        return Place(FILE, 4 + self.delivered, gtids)

    def _begin(self, state: CopyState | None) -> None:
        self.copy = SnapshotCopy()
        progress = None if state is None else state.tables[IDENTITY]
        key = KeyColumns(("id",), (0,)) if self.case.has_key else KeyColumns((), ())
        self.copy.add(IDENTITY, key, self.place(), progress)
        if state is not None:
            self.copy.restore(state)

    def _saved(self) -> tuple[Any, ...]:
        held = {xid: list(changes) for xid, changes in self.held.items()}
        return (
            self.copy.state().to_text(),
            self.delivered,
            dict(self.kept),
            held,
            self.is_complete,
            self.read_keys,
        )

    def steps(self) -> list[tuple[str, int]]:
        """Everything that may happen next."""
        found = list(self.source_steps())
        if self.is_holding:
            found.append(("done", 0))
        elif self.delivered < self.flushed:
            found.append(("deliver", self.delivered))
        if self._can_read():
            found.append(("read", 0))
        if self.kills and not self.is_complete:
            found.append(("kill", 0))
        return found

    def _can_read(self) -> bool:
        window = self.window
        if window is None:
            window = next((window for _, window in self.clone().copy.windows(self.place(), 2)), None)
        if window is not None and window.step is Step.LOW and self.case.low == "gtid":
            return window._segments.covering(self._low()) is not None
        return window is not None

    def do(self, step: tuple[str, int]) -> None:
        kind, number = step
        if kind == "flush":
            self.flushed += 1
        elif kind == "commit":
            self.visible += (number,)
        elif kind == "gtid":
            self.executed += (number,)
        elif kind == "deliver":
            self._deliver()
        elif kind == "read":
            self._read()
        elif kind == "done":
            self._be_done()
        else:
            self._kill()
        if kind in ("deliver", "read", "kill", "done"):
            self._take_chunks()

    def _deliver(self) -> None:
        """The consumer gets the next transaction, and is done with it."""
        number, entry = self.delivered, self.case.entries[self.delivered]
        script = self.case.scripts[entry.script]
        shown = [event for event in self.events[number] if not self.copy.hides(event)]
        changes = [change for event in shown for change in changes_of(event)]
        self.delivered += 1
        self.copy.settle(self.events[number])
        if entry.part == "prepare":
            self.held[entry.script] = changes
            return
        if entry.part == "decide":
            changes = self.held.pop(entry.script)
            changes = [] if script.is_rolled_back else changes
        for before, after, key in changes:
            self._apply(before, after, key)

    def _apply(self, before: Any, after: Any, key: int) -> None:
        """A strict consumer: an update of a row that it does not have does nothing."""
        kept = self.kept.pop(key, None)
        self.read_keys -= {key, key if after is None else after[0]}
        if before is None:
            if kept is not None:
                raise Violation(f"{key} is inserted, and was kept as {kept}")
            self.kept[key] = tuple(0 if value is ABSENT else value for value in after)  # type: ignore[assignment]
        elif kept is None:
            if not self.case.has_key:
                raise Violation(f"{before} was not kept, and without a key nothing comes before the copy")
        else:
            if any(value not in (ABSENT, mine) for value, mine in zip(before, kept, strict=True)):
                raise Violation(f"{key} was kept as {kept}, its before image is {before}")
            if after is not None:
                row = tuple(
                    mine if value is ABSENT else value for value, mine in zip(after, kept, strict=True)
                )
                self.kept[row[0]] = row  # type: ignore[assignment]

    def _take_chunks(self) -> None:
        while not self.is_holding and (event := self.copy.deliver(self.place())) is not None:
            self._take_chunk(event)
            self.holding = event
            if not self.case.is_slow:
                self._be_done()
        if self.is_complete and self.kept != self.states[self.delivered]:
            raise Violation(f"complete with {self.kept}, the table is {self.states[self.delivered]}")
        if not self.is_holding:
            self.checkpoint = self._saved()

    def _take_chunk(self, event: Event) -> None:
        if isinstance(event, SnapshotRestartedEvent):
            self.kept.clear()
            self.read_keys = frozenset()
        elif not isinstance(event, SnapshotRowsEvent):
            self.is_complete = True
        else:
            said = self.states[self.delivered]
            for read in event.rows:
                row: tuple[Any, ...] = read
                if said.get(row[0]) != row:
                    raise Violation(f"read {row} at place {self.delivered}, where it is {said.get(row[0])}")
                if row[0] in self.read_keys:
                    raise Violation(f"{row} is given as read a second time")
                if row[0] in self.kept and not self.case.has_key:
                    raise Violation(f"{row} is read, and was kept: without a key it counts twice")
                self.kept[row[0]] = row
                # Where keys move, and after XA, rows are read by their keys that may have been read before.
                if self.case.is_slow:
                    self.read_keys |= {row[0]}

    def _be_done(self) -> None:
        """The consumer is done with a chunk."""
        assert self.holding is not None
        self.copy.settle([self.holding])
        self.holding = None

    @property
    def is_holding(self) -> bool:
        """Whether the consumer has a chunk that it is not done with."""
        return self.holding is not None

    def _kill(self) -> None:
        """The consumer is killed, and goes on from its checkpoint, which is as old as its data."""
        text, self.delivered, self.kept, self.held, self.is_complete, self.read_keys = self.checkpoint
        self.kept, self.held = dict(self.kept), dict(self.held)
        self.window = self.holding = None
        self._begin(CopyState.from_text(text))
        self.kills -= 1

    # Reader

    def _low(self) -> LowMark:
        if self.broken.low is not None:
            return self.broken.low(self)
        if self.case.low == "file":
            return FileMark(FILE)
        return GtidMark(GtidSet([Gtid(SOURCE, number + 1) for number in self.executed]))

    def _read(self) -> None:
        if self.window is None:
            self.window = next(window for _, window in self.copy.windows(self.place(), 2))
        window, step = self.window, self.window.step
        if step is Step.LOW:
            self.committed_at_low = len(self.visible)
            if not window.take_low(self._low()):
                self._read_beginning_of_file()
        elif step is Step.OPEN:
            self.view = self.table()
            window.take_view()
        elif step is Step.HIGH:
            high = Place(FILE, 4 + self.flushed) if self.broken.high is None else self.broken.high(self)
            window.take_high(high)
        elif step is Step.READ:
            self._read_rows(window)
            window.close()
            self.window = None
        else:
            self.window = None

    def _read_beginning_of_file(self) -> None:
        """As `Copier._read_touches` does: what the transactions before the first segment touched."""
        segments = self.copy.tables[IDENTITY].segments
        touched: Touched = {}

        def add(touching: Touching) -> None:
            add_transaction(touched, touching.touched[IDENTITY])

        touches = TransactionTouches(self.copy._keys, add, lambda xid: None, lambda event: None)
        for events in self.events[: segments.start.position - 4]:
            touches.follow(events)
        self.copy.resolve(touches.prepared)
        segments.lay_before(touched, Place(FILE, 4))

    def _read_rows(self, window: Window) -> None:
        ordered = sorted(self.view)
        if window.what == "table":
            window.take_rows(TABLE, (), [self.view[key] for key in ordered], None)
            return
        if window.what == "keys":
            rows: list[Any] = [self.view[key] for (key,) in window.wanted if key in self.view]
            window.take_rows(TABLE, (0,), rows, None)
            return
        low, high = number_of(window.after, -1), number_of(window.upto, 99)
        found = [key for key in ordered if low < key <= high]
        chunk = found[:CHUNK_ROWS]
        end = bound(chunk[-1]) if len(chunk) == CHUNK_ROWS and chunk[-1] != high else None
        upto = window.upto
        if window.what == "first" and end is not None:
            upto = bound(ordered[-1])
            end = None if end == upto else end
        window.take_rows(TABLE, (0,), [self.view[key] for key in chunk], end, upto)

    # Exploring

    def clone(self) -> World:
        other = copy.copy(self)
        other.kept, other.held = dict(self.kept), dict(self.held)
        other.copy = SnapshotCopy()
        windows: dict[int, Window] = {}
        other.copy._put(IDENTITY, _clone_table(self.copy.tables[IDENTITY], windows))
        if IDENTITY not in self.copy._at_work._stirred:
            del other.copy._at_work._stirred[IDENTITY]
        other.copy._handed = self.copy._handed
        other.copy._known, other.copy._keys = dict(self.copy._known), dict(self.copy._keys)
        other.copy.touches._tables = other.copy._keys
        other.copy.touches.prepared = dict(self.copy.touches.prepared)
        if self.window is not None:
            # A window that is void belongs to no table any more.
            other.window = windows.get(id(self.window)) or copy.copy(self.window)
        return other

    def fingerprint(self) -> tuple[Any, ...]:
        table = self.copy.tables[IDENTITY]
        segments = table.segments
        windows = [*table._chunks, *([] if table._again is None else [table._again])]
        return (
            self.flushed,
            self.delivered,
            self.visible,
            self.executed,
            frozenset(self.kept.items()),
            self.read_keys,
            frozenset((script, tuple(changes)) for script, changes in self.held.items()),
            self.kills,
            self.is_complete,
            IDENTITY in self.copy._at_work._stirred,
            self.copy._handed if self.is_holding else None,
            None if self.window is None else (frozenset(self.view.items()), self.committed_at_low),
            table.progress,
            tuple(_touched(one.touched) for one in segments._segments),
            tuple(
                None if one.start is LOWEST else (one.start.position, str(one.start.gtid_set))
                for one in segments._segments
            ),
            tuple(map(_window, windows)),
            None if self.window is None else _window(self.window),
            tuple(
                (xid, tuple((table, _touched(touched)) for table, touched in one.touched.items()))
                for xid, one in self.copy.touches.prepared.items()
            ),
            self.copy.follows(IDENTITY),
        )


def _clone_table(table: TableCopy, windows: dict[int, Window]) -> TableCopy:
    other = copy.copy(table)
    other.segments = copy.copy(table.segments)
    other.segments._segments = [replace(one, touched=dict(one.touched)) for one in table.segments._segments]

    def clone(window: Window) -> Window:
        twin = windows[id(window)] = copy.copy(window)
        twin._segments = other.segments
        return twin

    other._chunks = [*map(clone, table._chunks)]
    other._again = None if table._again is None else clone(table._again)
    return other


def _touched(touched: Touched) -> frozenset[Any]:
    return frozenset((key, *_touch(one), one.last and _touch(one.last)) for key, one in touched.items())


def _touch(touch: Touch) -> tuple[Any, ...]:
    part = None if touch.part is None else tuple(touch.part.items())
    return touch.row, part, touch.is_gone, touch.is_new, touch.is_doubtful


def _window(window: Window) -> tuple[Any, ...]:
    index = window._segments._index
    return (
        window.what,
        window._done,
        None if window.segment is None else index(window.segment),
        index(window.opened),
        window.is_void,
        tuple(window.rows),
        window.end,
        window.upto,
        None if window.high is None else window.high.position,
        window.wanted,
    )


@dataclass
class Explored:
    """What `explore` has run: distinct states, and schedules that lead to an end."""

    states: int = 0
    schedules: int = 0
    violation: str = ""
    _known: dict[tuple[Any, ...], int] = field(default_factory=dict)


def explore(case: Case, broken: Break | None = None) -> Explored:
    """Run every schedule of a case. It ends at the first violation."""
    explored = Explored()
    try:
        explored.schedules = _schedules(World(case, broken or Break()), explored)
    except Violation as violation:
        explored.violation = f"{case.name}: {violation}"
    explored.states = len(explored._known)
    return explored


def _schedules(world: World, explored: Explored) -> int:
    key = world.fingerprint()
    known = explored._known.get(key)
    if known is not None:
        return known
    # A row that is not visible yet is read again and again: that is no other schedule.
    explored._known[key] = 0
    steps = world.steps()
    awaits_file = world.case.may_await_file and world.copy.tables[IDENTITY].awaits_file
    if not (steps or world.is_complete or awaits_file):
        raise Violation("nothing can happen, and the copy is not complete")
    count = 0 if steps else 1
    for step in steps:
        following = world.clone()
        following.do(step)
        count += _schedules(following, explored)
    explored._known[key] = count
    return count
