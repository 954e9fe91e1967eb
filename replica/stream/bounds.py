"""``Bounds``: where a stream begins, if that is a time, and where it ends."""

from collections.abc import Iterator

from protocol.binlog.events import Event, HeartbeatEvent

from ..snapshot.marks import Place
from ..source.dump import Dump
from ..source.open_dump import FirstOpening
from ..source.resolve_stop import settle
from ..source.server_facts import Source
from ..transactions.stop_point import StopPoint
from .batch import Account, Batch
from .unreached_end import UnreachedEnd


class Bounds:
    """The beginning and the stop of one stream, across its dumps. ``account`` knows how far the user has come."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._stop: StopPoint | None = None
        # Transactions of before this time are skipped; None: no more.
        self._not_before: int | None = None
        # Whether the log goes on behind the stop, although the place does not say so.
        self._is_passed = False
        self._unreached = UnreachedEnd()

    def begin(self, opening: FirstOpening) -> None:
        """The stream is opened; an initial copy has begun before."""
        self._stop, self._not_before = opening.stop, opening.start.not_before

    def move(self) -> None:
        """Another server answers: positions in the previous server's log mean nothing there.

        Raises ``SourceChangedError`` if the stop is only a position.
        """
        if self._stop is not None:
            self._stop = self._stop.on_another_server()

    # The beginning

    @property
    def awaits_start(self) -> bool:
        """Whether the first transaction for the user is still to come."""
        return self._not_before is not None

    def starts_with(self, event: Event) -> bool:
        """Whether the event begins the first transaction for the user."""
        starts = self._account.progress.begins(event) and event.header.timestamp >= (self._not_before or 0)
        if starts:
            self._not_before = None
        return starts

    # The stop

    @property
    def is_over(self) -> bool:
        """Whether the user is done with all events before the stop, and no table is being copied."""
        if self._stop is None or self._account.is_copying:
            return False
        progress = self._account.progress
        return self._is_passed or (not progress.in_transaction and self._stop.is_reached(progress))

    def up_to_stop(self, batch: Batch) -> Batch:
        """The batch without the events behind the stop."""
        stop = self._stop
        if stop is None or self._account.is_copying or not batch.events:
            return batch
        end = batch.place(len(batch.events) - 1)
        if not stop.may_lie_within(batch.events, end, self._account.progress_behind):
            return batch
        progress = self._account.progress_behind()
        for number, event in enumerate(batch.events):
            if progress.begins(event) and stop.excludes(event):
                self._is_passed = True
                return batch.before(number)
            if progress.follow(event, *batch.place(number)) and stop.is_reached(progress):
                self._is_passed = True
                return batch.before(batch.end_of(number))
        return batch

    def follow(self, heartbeat: HeartbeatEvent, source: str) -> None:
        """The source, at this address, has sent everything up to the heartbeat's position."""
        self._unreached.hear(heartbeat, self._told_ends(), source)
        if self._stop is None or self._account.is_copying or self._account.progress.in_transaction:
            return
        self._is_passed = self._is_passed or self._stop.has_passed(heartbeat)

    def _told_ends(self) -> Iterator[Place]:
        """The ends of the log, as the source told them, up to which something waits."""
        stop, copy = self._stop, self._account.copy
        if stop is not None and stop.is_told and stop.position is not None:
            yield Place(stop.position.file, stop.position.position)
        if copy is not None:
            for _, table in copy.unfinished:
                yield from table.high_marks

    def seconds_left(self, source: Source) -> float | None:
        """Seconds until ``settle`` can find the stop in the log; None if no wait is needed."""
        return None if self._stop is None else self._stop.seconds_left(source.now)

    async def settle(self, dump: Dump) -> None:
        """Find the place of a stop by time in the log: that time has come just now."""
        assert self._stop is not None
        self._stop = await settle(self._stop, dump.session.options, dump.source)
