"""A batch of decoded events, and an account of how far the user has come with it.

The user takes events from an iterator, and nothing is counted per event. Progress, counters and the notes for a
reconnect are derived from the length of the rest of the iterator, at the moment when they are needed: for a
checkpoint or a status in the middle of a batch, at its end, and when the connection is lost. An event is done when
the user has come back for the next one. This module decodes nothing and knows no connection.
"""

import time
from collections.abc import Iterator, Sequence
from operator import length_hint
from typing import TYPE_CHECKING, Final

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import AnonymousGtidEvent, Event
from protocol.gtid import Gtid, MariadbGtid
from protocol.position import FIRST_POSITION
from protocol.records import record

from ..schemas.change_event import SchemaChangeEvent
from ..transactions.boundary import Progress, place_behind
from ..transactions.replay import FILE_EVENTS, Delivered, TransactionRestarted, transaction_restarted
from ..transactions.snapshot_events import SNAPSHOT_EVENTS, SnapshotRowsEvent
from ..transactions.units import ROWS

if TYPE_CHECKING:
    # Most streams copy no table.
    from ..snapshot.copy_state import CopyState
    from ..snapshot.snapshot_copy import SnapshotCopy

# Events that belong to no transaction: their age is no lag.
_OUTSIDE: Final = (*FILE_EVENTS, *SNAPSHOT_EVENTS)
_COUNTED: Final = ROWS | {SnapshotRowsEvent}


@record(slots=True)
class Batch:
    """Events in the order of the log, with their bytes.

    ``end`` and ``inner`` are set if the events come from one event of the log, a compressed transaction. ``end`` is
    then the place after that event, and ``inner`` the number of the first event within it, from 1 on; else 0.
    """

    events: Sequence[Event]
    raws: Sequence[bytes]
    end: tuple[str, int] | None = None
    inner: int = 0

    def place(self, number: int) -> tuple[str, int]:
        """File and position after an event of the batch."""
        return self.end or place_behind(self.events[number])

    def end_of(self, number: int) -> int:
        """The number of events up to an event and the schema changes behind it."""
        number += 1
        while number < len(self.events) and type(self.events[number]) is SchemaChangeEvent:
            number += 1
        return number

    def before(self, number: int) -> "Batch":
        """The events before ``number``."""
        return self if number == len(self.events) else self._part(0, number)

    def behind(self, number: int) -> "Batch":
        """The events from ``number`` on."""
        return self._part(number, len(self.events)) if number else self

    def inner_number(self, number: int) -> int:
        """The number of an event in its compressed transaction, from 1 on; 0 if it is in none."""
        return self.inner and self.inner + number

    def _part(self, begin: int, end: int) -> "Batch":
        return Batch(self.events[begin:end], self.raws[begin:end], self.end, self.inner_number(begin))


_NOTHING: Final = Batch((), ())


@record(slots=True)
class Counters:
    """The numbers of a stream's status."""

    events: int = 0
    rows: int = 0
    skipped: int = 0
    restarts: int = 0


class Account:
    """How far the user of one stream has come, across all batches and dumps.

    ``last`` is the last event of the finished batches, or the last that was passed over, with its bytes and its
    number in its compressed transaction. ``delivered`` and ``open_rows`` describe the part of the open transaction
    that is done.
    """

    def __init__(self, wanted: tuple[type[Event], ...]) -> None:
        self.delivered = Delivered()
        self.open_rows = 0
        self.last: tuple[Event, bytes, int] | None = None
        # When events of the log came last.
        self.received_at = 0.0
        # When the last heartbeat came, and the last event before it: the source had nothing more to send then.
        self.heard_at = 0.0
        self.idle_behind: Event | None = None
        self._wanted = None if Event in wanted else wanted
        self._progress = Progress("", FIRST_POSITION, None, has_gtids=False)
        self._counters = Counters()
        # The decoder that reads the noted events of the open transaction; None unless the dump is by GTID.
        self._decoder: EventDecoder | None = None
        # The initial copy of tables, which follows all events that are done; None without one.
        self.copy: SnapshotCopy | None = None
        #: Tables whose copies were ordered. A copy begins between two transactions, so a batch has to end there.
        self.ordered: list[tuple[str, str]] = []
        # False if the rows of events are undecoded.
        self._counts_rows = True
        # The copy's state as a checkpoint last had it: the same for most transactions.
        self._state: CopyState | None = None
        self._state_text = ""
        self._moves = 0
        self._take(_NOTHING)

    def begin(self, progress: Progress) -> None:
        """Begin the stream at this progress."""
        self._progress = progress

    def begin_dump(self, decoder: EventDecoder | None) -> None:
        """A dump begins at the last boundary. ``decoder``: note the rows of the open transaction, which it reads."""
        self._decoder = decoder
        self._progress.reopen()

    def move(self) -> None:
        """Another server answers: places in the previous server's log mean nothing in its log."""
        self.last = self._progress.begun = None

    def restart(self, gtid: Gtid | MariadbGtid | None, reason: str) -> TransactionRestarted:
        """Void the delivered part of the open transaction ``gtid``, and return the marker that says so."""
        progress = self._progress
        marker = transaction_restarted((progress.file, progress.position), gtid, self.open_rows, reason)
        self._counters.restarts += 1
        self.delivered.end()
        self.open_rows, self.last = 0, None
        progress.reopen()
        if self.copy is not None:
            self.copy.settle([marker])
        return marker

    def received(self) -> None:
        """Events of the log have come."""
        self.received_at = time.time()

    def heard(self) -> None:
        """A heartbeat has come: the source is alive and has nothing more to send."""
        self.heard_at, self.idle_behind = time.time(), self.newest

    # Handing out events

    def hand_out(self, batch: Batch) -> Iterator[Event]:
        """An iterator over the events of the batch that the user selected. The previous batch must be finished."""
        self._take(batch)
        return self._handing

    def skip(self, event: Event, file: str, position: int) -> None:
        """Follow an event before the start; ``file`` and ``position`` are the place after it."""
        self._moves += self._progress.follow(event, file, position)

    def pass_over(self, batch: Batch, number: int, *, is_followed: bool) -> None:
        """Count an event of a batch that the user already has. ``is_followed``: progress follows it, too."""
        event = batch.events[number]
        self.last = event, batch.raws[number], batch.inner_number(number)
        self._counters.skipped += 1
        if is_followed:
            self._progress.follow(event, *batch.place(number))

    def finish_handed(self) -> None:
        """The user is done with all events handed out, and with the unselected events after them."""
        self._finished = self._handed
        self._settle(self._done(self._finished))

    def finish_batch(self) -> None:
        """Do ``finish_handed``, and forget the events not handed out: the source sends them again."""
        batch = self._batch
        if not batch.events:
            return
        self._count(self._handed)
        self.finish_handed()
        if self._settled and type(batch.events[self._settled - 1]) not in SNAPSHOT_EVENTS:
            number = self._settled - 1
            self.last = batch.events[number], batch.raws[number], batch.inner_number(number)
        self._take(_NOTHING)

    # How far the user has come

    @property
    def progress(self) -> Progress:
        """Place, GTIDs and state after the last event that is done."""
        if self._batch.events:
            self._settle(self._done(max(self._finished, self._handed - 1)))
        return self._progress

    def progress_behind(self) -> Progress:
        """A copy of the progress as if all events handed out were done."""
        behind = self.progress.copy()
        behind.follow_all(self._batch.events[self._settled : self._before(self._handed)], self._batch.end)
        return behind

    @property
    def is_copying(self) -> bool:
        """Whether tables are being copied."""
        return self.copy is not None and self.copy.is_active

    def copy_state(self, *, is_behind: bool = False) -> str | None:
        """The state of the initial copy for a checkpoint; ``is_behind``: as if all events handed out were done."""
        if self.copy is None:
            return None
        _ = self.progress
        ahead = self._batch.events[self._settled : self._done(self._handed)] if is_behind else ()
        state = self.copy.state(ahead)
        if state != self._state:
            self._state, self._state_text = state, state.to_text()
        return self._state_text

    @property
    def counters(self) -> Counters:
        """The numbers of events and rows handed out so far."""
        self._count(self._handed)
        return self._counters

    def lag_at(self, now: float) -> float | None:
        """Seconds from the commit of the transaction that the user has come to, until ``now`` on the source's clock.

        If the log has whole seconds only (MariaDB, MySQL before 8.0.1), this is up to a second less than the
        truth. None before the first transaction.
        """
        # A batch that has just arrived: the user comes to its first event.
        before = self._batch.events[: self._done(max(self._handed, 1))]
        newest: Event | None = None
        for event in reversed(before):
            if newest is None and not isinstance(event, _OUTSIDE):
                newest = event
            if isinstance(event, AnonymousGtidEvent):
                if event.immediate_commit_timestamp is None:
                    break
                return max(now - event.immediate_commit_timestamp / 1e6, 0.0)
        if newest is None and self.last is not None and not isinstance(self.last[0], _OUTSIDE):
            newest = self.last[0]
        return None if newest is None else max(now - newest.header.timestamp - 1, 0.0)

    @property
    def newest(self) -> Event | None:
        """The last event that was handed out or passed over."""
        handed = self._handed
        if handed and type(self._shown[handed - 1]) not in SNAPSHOT_EVENTS:
            return self._shown[handed - 1]
        return self.last and self.last[0]

    @property
    def moves(self) -> int:
        """How often the checkpoint has moved."""
        _ = self.progress
        return self._moves

    def move_checkpoint(self) -> None:
        """The checkpoint moves without an event: it was held back until the user was done with many."""
        self._moves += 1

    @property
    def _handed(self) -> int:
        return len(self._shown) - length_hint(self._handing)

    def _done(self, handed: int) -> int:
        """How many events of the batch are done when ``handed`` selected events are done.

        A statement is done when the schema changes behind it are done, so that they come again after a kill.
        """
        events, done = self._batch.events, self._before(handed)
        while done < len(events) and type(events[done]) is SchemaChangeEvent:
            done -= 1
        return done

    def _before(self, handed: int) -> int:
        """How many events of the batch come before the selected event of this number."""
        if self._places is None:
            return handed
        return self._places[handed] if handed < len(self._places) else len(self._batch.events)

    def _take(self, batch: Batch) -> None:
        self._batch, events, copy = batch, batch.events, self.copy
        # The index of each selected event in the batch; None if all are selected.
        places: list[int] | None = None
        if self._wanted is not None:
            places = [number for number, event in enumerate(events) if isinstance(event, self._wanted)]
        # Events of a table which the initial copy still has to read as a whole are left out.
        if copy is not None and any(map(copy.hides, events)):
            selected = range(len(events)) if places is None else places
            places = [number for number in selected if not copy.hides(events[number])]
        self._places = places
        self._shown = events if places is None else [events[number] for number in places]
        self._handing = iter(self._shown)
        self._settled = self._counted = self._finished = 0

    def _count(self, handed: int) -> None:
        """Add the events up to ``handed`` to the counters."""
        shown, counted = self._shown, self._counted
        if handed > counted:
            self._counted = handed
            self._counters.events += handed - counted
            if self._counts_rows:
                self.add_rows(_rows_of(shown if handed - counted == len(shown) else shown[counted:handed]))

    def leave_rows(self) -> None:
        """Count no rows of events: they are undecoded, and whoever makes columns of them calls ``add_rows``."""
        self._counts_rows = False

    def add_rows(self, rows: int) -> None:
        """Add rows to the counters."""
        self._counters.rows += rows

    def _settle(self, done: int) -> None:
        """The first ``done`` events of the batch are done: move progress and notes."""
        batch, begin = self._batch, self._settled
        if done <= begin:
            return
        self._settled = done
        events = batch.events if done - begin == len(batch.events) else batch.events[begin:done]
        closed = self._progress.follow_all(events, batch.end)
        if self.copy is not None:
            self.copy.settle(events)
        if closed:
            self._moves += 1
            self.open_rows = 0
            self.delivered.end()
        if closed < len(events):
            self._note(events[closed:], batch.raws[begin + closed : done])

    def _note(self, events: Sequence[Event], raws: Sequence[bytes]) -> None:
        """Note events of the open transaction that are done."""
        selected = events if self._wanted is None else [e for e in events if isinstance(e, self._wanted)]
        self.open_rows += _rows_of(selected)
        if self._decoder is not None:
            for event, raw in zip(events, raws, strict=True):
                self.delivered.add(event, raw, _rows_of((event,)), self._decoder)


def _rows_of(events: Sequence[Event]) -> int:
    counts: list[int] = [len(event.rows) for event in events if type(event) in _COUNTED]  # type: ignore[attr-defined]
    return sum(counts)
