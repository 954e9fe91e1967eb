"""Decoded events at hand, and how far the user has come with them.

The user takes events from an iterator, and nobody counts along: progress, counters and what a reconnect has to know
are derived from how much of the iterator is left, when somebody asks. An event is done when the user has come back
for the next one. Nothing here decodes, and nothing knows a connection.
"""

import time
from collections.abc import Iterator, Sequence
from operator import length_hint
from typing import Final

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import DeleteRowsEvent, Event, UpdateRowsEvent, WriteRowsEvent
from protocol.position import FIRST_POSITION
from protocol.records import record

from ..transactions.boundary import Progress, place_behind
from ..transactions.replay import Delivered

_ROWS: Final = frozenset({WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent})


@record(slots=True)
class Batch:
    """Events in the order of the log, with their bytes.

    ``end`` is the place behind all of them, where they are parts of one event of the log; ``inner`` is then the
    number of the first one in its compressed transaction, else 0.
    """

    events: list[Event]
    raws: list[bytes]
    end: tuple[str, int] | None = None
    inner: int = 0

    def place(self, number: int) -> tuple[str, int]:
        """File and position behind an event of the batch."""
        return self.end or place_behind(self.events[number])

    def before(self, number: int) -> "Batch":
        """The first events."""
        return self if number == len(self.events) else self._part(0, number)

    def behind(self, number: int) -> "Batch":
        """The other ones."""
        return self._part(number, len(self.events)) if number else self

    def inner_number(self, number: int) -> int:
        """The number of an event in its compressed transaction, from 1 on; 0 outside of one."""
        return self.inner and self.inner + number

    def _part(self, begin: int, end: int) -> "Batch":
        return Batch(self.events[begin:end], self.raws[begin:end], self.end, self.inner_number(begin))


@record(slots=True)
class Counters:
    """The numbers of a stream's status."""

    events: int = 0
    rows: int = 0
    skipped: int = 0
    restarts: int = 0


class Account:
    """How far the user of one stream has come, over however many batches and dumps.

    ``last`` is the event that was done or passed over last, with its bytes and its number in its compressed
    transaction. ``delivered`` and ``open_rows`` tell what was done of the open transaction.
    """

    def __init__(self, wanted: tuple[type[Event], ...]) -> None:
        self.delivered = Delivered()
        self.open_rows = 0
        self.last: tuple[Event, bytes, int] | None = None
        # When the source has sent a heartbeat last, and behind which event it had nothing more to send then.
        self.heard_at = 0.0
        self.idle_behind: Event | None = None
        self._wanted = None if Event in wanted else wanted
        self._progress = Progress("", FIRST_POSITION, None, has_gtids=False)
        self._counters = Counters()
        # Who reads what is done of the open transaction, for a source that is asked by GTID.
        self._decoder: EventDecoder | None = None
        self._has_moved = False
        self._take(Batch([], []))

    def begin(self, progress: Progress) -> None:
        """The stream begins there."""
        self._progress = progress

    def begin_dump(self, decoder: EventDecoder | None) -> None:
        """A dump has begun; with its ``decoder`` if the rows of the open transaction are to be noted."""
        self._decoder = decoder

    def restart(self) -> None:
        """What was delivered of the open transaction is void."""
        self._counters.restarts += 1
        self.delivered, self.open_rows, self.last = Delivered(), 0, None
        self._progress.reopen()

    def heard(self) -> None:
        """The source has said that it is there, and has nothing more to send."""
        self.heard_at, self.idle_behind = time.time(), self.newest

    # What is handed out.

    def hand_out(self, batch: Batch) -> Iterator[Event]:
        """The events of the batch that the user selected; the batch before it is finished."""
        self._take(batch)
        return self._handing

    def skip(self, event: Event, file: str, position: int) -> None:
        """An event before the start, behind which the log goes on at ``file`` and ``position``."""
        self._has_moved = self._progress.follow(event, file, position) or self._has_moved

    def pass_over(self, batch: Batch, number: int, *, is_followed: bool) -> None:
        """The user already has this event of a batch; ``is_followed`` if it belongs to the open transaction."""
        event = batch.events[number]
        self.last = event, batch.raws[number], batch.inner_number(number)
        self._counters.skipped += 1
        if is_followed:
            self._progress.follow(event, *batch.place(number))

    def finish_handed(self) -> None:
        """The user is done with all events that were handed out, and with what was not selected behind them."""
        self._finished = self._handed
        done = self._done(self._finished)
        self._settle(done)
        if done:
            self.last = (
                self._batch.events[done - 1],
                self._batch.raws[done - 1],
                self._batch.inner_number(done - 1),
            )

    def finish_batch(self) -> None:
        """``finish_handed``; a batch that was handed out to its end is let go."""
        if self._handed == len(self._shown):
            self.drop_batch()
        else:
            self.finish_handed()

    def drop_batch(self) -> None:
        """``finish_handed``, and forget what was not handed out: it comes again."""
        _ = self.counters
        self.finish_handed()
        self._take(Batch([], []))

    # How far that is.

    @property
    def progress(self) -> Progress:
        """Place, GTIDs and state behind the last event that is done."""
        self._settle(self._done(max(self._finished, self._handed - 1)))
        return self._progress

    def progress_behind(self, batch: Batch | None = None) -> Progress:
        """A copy of the progress as if all events that were handed out, and those of ``batch``, were done."""
        behind = self.progress.copy()
        for events, end in (
            (self._batch.events[self._settled : self._done(self._handed)], self._batch.end),
            ((), None) if batch is None else (batch.events, batch.end),
        ):
            behind.follow_all(events, end)
        return behind

    @property
    def counters(self) -> Counters:
        """What was handed out so far."""
        shown = self._shown[self._counted : self._handed]
        self._counted += len(shown)
        self._counters.events += len(shown)
        self._counters.rows += _rows_of(shown)
        return self._counters

    @property
    def newest(self) -> Event | None:
        """The event that was handed out or passed over last."""
        handed = self._handed
        return self._shown[handed - 1] if handed else self.last and self.last[0]

    def takes_boundary(self) -> bool:
        """Whether the checkpoint has moved since this was asked last."""
        moved, self._has_moved = self._has_moved, False
        return moved

    @property
    def _handed(self) -> int:
        return len(self._shown) - length_hint(self._handing)

    def _done(self, handed: int) -> int:
        """How many of all events are done when so many of the selected ones are."""
        if self._places is None:
            return handed
        return self._places[handed] if handed < len(self._places) else len(self._batch.events)

    def _take(self, batch: Batch) -> None:
        self._batch, self._shown = batch, batch.events
        # The number of each selected event among all; None where all are selected.
        self._places: list[int] | None = None
        if self._wanted is not None:
            self._places = [n for n, event in enumerate(batch.events) if isinstance(event, self._wanted)]
            self._shown = [batch.events[number] for number in self._places]
        self._handing = iter(self._shown)
        self._settled = self._counted = self._finished = 0

    def _settle(self, done: int) -> None:
        """So many events of the batch are done: move progress and notes."""
        batch, begin = self._batch, self._settled
        if done <= begin:
            return
        self._settled = done
        events = batch.events[begin:done]
        closed = self._progress.follow_all(events, batch.end)
        if closed:
            self._has_moved = True
            self.open_rows = 0
            self.delivered.end()
        if closed < len(events):
            rest = events[closed:]
            selected = rest if self._wanted is None else [e for e in rest if isinstance(e, self._wanted)]
            self.open_rows += _rows_of(selected)
            if self._decoder is not None:
                for event, raw in zip(rest, batch.raws[begin + closed : done], strict=True):
                    self.delivered.add(event, raw, _rows_of((event,)), self._decoder)


def _rows_of(events: Sequence[Event]) -> int:
    counts: list[int] = [len(event.rows) for event in events if type(event) in _ROWS]  # type: ignore[attr-defined]
    return sum(counts)
