"""The follower: a live log's raw events -> the spool, and the places where a micro-batch may end.

These places lie between transactions. The follower sees every event and reads no rows. It neither connects nor waits:
``live_log`` feeds it the events that arrive, or those that the spool kept. Its own lock makes ``take`` safe from
another thread.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import (
    Event,
    FormatDescriptionEvent,
    HeartbeatEvent,
    MariadbGtidListEvent,
    PreviousGtidsEvent,
    RotateEvent,
    RowsEvent,
    TransactionPayloadEvent,
)
from protocol.errors import ProtocolError
from protocol.gtid import AnyGtidSet, Gtid, MariadbGtid
from protocol.records import record

from ..source.dump import check_rotate, is_behind_description, is_internal
from ..source.same_log import note_file
from ..source.server_facts import Identity
from ..transactions.boundary import Progress
from ..transactions.replay import COMPARED_BYTES, other_event
from .offsets import Offset
from .spool import Segment, Spool

# Without a limit one mark is enough, which moves along.
_NO_LIMIT: Final = 1 << 62


@record(slots=True)
class _Mark:
    """A place between two transactions.

    ``bytes`` and ``rows`` count from the follower's start. The GTID set there is the one before and ``added``, unless
    ``known`` replaces it. ``is_anonymous``: the transaction before the place is of MySQL and has no GTID, so that no
    server can be asked by that set, see ``Progress.resume_set``. ``begun``: when the source began ``file``.
    """

    file: str
    position: int
    epoch: int
    begun: int | None
    server: Identity
    bytes: int
    rows: int
    added: list[Gtid | MariadbGtid]
    known: AnyGtidSet | None
    is_anonymous: bool


#: Events at the beginning of a file.
_OF_THE_FILE: Final = frozenset({FormatDescriptionEvent, PreviousGtidsEvent, RotateEvent})


class Follower:
    """Follows one stream from the offset ``start`` on, over any number of connections.

    ``count_rows`` gives the number of selected rows in an event; None if rows are not limited. ``look`` sees each
    event of the log, and may raise. ``max_rows`` and ``max_bytes`` are the limits that ``take`` will be called with.
    """

    def __init__(
        self,
        spool: Spool,
        start: Offset,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        count_rows: Callable[[RowsEvent], int] | None = None,
        look: Callable[[Event], None],
    ) -> None:
        self.spool = spool
        self.bytes = self.rows = 0
        self.newest_timestamp = 0
        self.is_idle = False  # the source has said that it has nothing more
        # True while column names are being looked up: ``take`` then gives no new place.
        self.is_held = False
        self.gap = ""
        self._start = start
        self._taken = start
        self._taken_gtids = start.gtids
        self._taken_bytes = self._taken_rows = 0
        self._marks: deque[_Mark] = deque()
        self._lock = threading.Lock()
        # About ten marks a micro-batch: its size need not be exact.
        self._rows_apart = _NO_LIMIT if max_rows is None else max(1, max_rows // 10)
        self._bytes_apart = _NO_LIMIT if max_bytes is None else max(1, max_bytes // 10)
        self._count_rows = count_rows
        self._look = look
        self._decoder = EventDecoder()
        self._progress = Progress(start.file, start.position, start.gtids, has_gtids=True)
        self._epoch = start.epoch
        self._server = start.identity
        self._has_gtids = True
        self._description = b""
        self._is_spooling = True
        self._is_by_gtid = False
        self._on_file: Callable[[FormatDescriptionEvent, Progress], None] = note_file
        # The last event before the boundary, and its place.
        self._last = "", 0, b""
        # The event that the source sends first, because it was read before: see ``last_event``.
        self._again = b""
        self._awaits_rotate = True
        # No transaction has come yet of a log that is read by a GTID set.
        self._is_passing = False

    @property
    def boundary(self) -> Offset:
        """The last place between two transactions that has been received."""
        with self._lock:
            gtids = self._gtids_behind(list(self._marks))
            if not self._marks:
                return self._taken
            return _offset(self._marks[-1], gtids)

    @property
    def epoch(self) -> int:
        """The epoch of the log that is followed now."""
        return self._epoch

    @property
    def has_news(self) -> bool:
        """Whether ``take`` would give a new place."""
        return bool(self._marks) and not self.is_held

    @property
    def is_drained(self) -> bool:
        """Whether everything received up to the last boundary has been taken."""
        return not self._marks

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were received but not taken."""
        return self.bytes - self._taken_bytes

    def take(self, max_rows: int | None, max_bytes: int | None) -> Offset:
        """The place where the next micro-batch ends, at most about ``max_rows`` or ``max_bytes`` after the last one.

        It is at least one transaction further, if one has been received.
        """
        with self._lock:
            taken: list[_Mark] = []
            while self._marks and not self.is_held:
                mark = self._marks[0]
                is_far = (max_rows is not None and mark.rows - self._taken_rows > max_rows) or (
                    max_bytes is not None and mark.bytes - self._taken_bytes > max_bytes
                )
                if taken and is_far:
                    break
                taken.append(self._marks.popleft())
            if not taken:
                return self._taken
            self._taken_gtids = self._gtids_behind(taken)
            self._taken = _offset(taken[-1], self._taken_gtids)
            self._taken_rows, self._taken_bytes = taken[-1].rows, taken[-1].bytes
            return self._taken

    def last_event(self) -> bytes:
        """The event that ends at ``boundary``, if it is known: a source that sends it again has the same log."""
        file, position, raw = self._last
        boundary = self.boundary
        return raw if (boundary.file, boundary.position) == (file, position + len(raw)) else b""

    # Events that arrive.

    def open(
        self,
        decoder: EventDecoder,
        progress: Progress,
        server: Identity,
        epoch: int,
        *,
        has_gtids: bool,
        is_by_gtid: bool = False,
        is_spooling: bool = True,
        again: bytes = b"",
        on_file: Callable[[FormatDescriptionEvent, Progress], None] = note_file,
    ) -> None:
        """Follow another connection, or the spool's own events. An open transaction is dropped: it comes again.

        ``again``: the ``last_event``, if the source is asked to send it again, at which ``decoder`` begins.
        ``is_by_gtid``: the source leaves out the transactions of a GTID set. By position it leaves out nothing.
        ``on_file`` notes when a file was begun, and may raise if another file of that name was read before.
        """
        self.spool.roll_back()
        self._decoder, self._progress = decoder, progress
        self._server, self._epoch = server, epoch
        self._has_gtids, self._is_spooling = has_gtids, is_spooling
        self._is_by_gtid = is_by_gtid
        self._is_passing = not progress.file
        self._again = again
        self._awaits_rotate = True
        self._description = b""
        self._on_file = on_file

    def describe(self, description: bytes) -> None:
        """Set the FORMAT_DESCRIPTION that holds from here on."""
        event = self._decoder.decode(description, 4)
        if isinstance(event, FormatDescriptionEvent):
            self._on_file(event, self._progress)
        self._description = description

    def feed(self, raw: bytes) -> bool:
        """Take the next event. Returns whether the log so far ends between two transactions.

        Raises the errors of decoding, and ``ProtocolError`` if the source leaves out events that it must send.
        """
        decoder, progress = self._decoder, self._progress
        file = decoder.file
        event = decoder.decode(raw)
        if event is not None and is_internal(event):
            self._internal(event, raw)
            return False
        if self._again:
            self._compare(raw)
            return False
        end = event.position + len(raw) if event is not None else decoder.position
        if isinstance(event, FormatDescriptionEvent):
            self._description = raw
            self._on_file(event, progress)
        if event is not None:
            self._look_at(event)
        if self._is_spooling:
            self._spool(raw, file, end - len(raw))
        self.bytes += len(raw)
        if event is None:
            return False
        gtid = progress.open_gtid
        known = progress.gtid_set is not None
        if not progress.follow(event, decoder.file, decoder.position):
            return False
        if self._is_passing and type(event) in _OF_THE_FILE:
            # The source leaves out transactions of the set that stand behind this event. Somebody who goes on from
            # here by the position would get them.
            return False
        self._is_passing = False
        self.spool.mark()
        self._mark(gtid, progress.gtid_set if not known else None)
        if not isinstance(event, FormatDescriptionEvent):
            # A source alters that one as it sends it.
            self.note_last(event.file, event.position, raw)
        return True

    def note_last(self, file: str, position: int, raw: bytes) -> None:
        """Keep the event that ends at the boundary."""
        self._last = file, position, raw if len(raw) <= COMPARED_BYTES else b""

    def _compare(self, raw: bytes) -> None:
        again, self._again = self._again, b""
        if raw != again:
            file, position, _ = self._last
            raise other_event(file, position)

    def pass_gap(self, reason: str) -> None:
        """Note that events are missing after the last boundary, because the source has purged them."""
        self.gap = reason

    def _look_at(self, event: Event) -> None:
        self.newest_timestamp = event.header.timestamp or self.newest_timestamp
        self.is_idle = False
        inside = [event]
        if isinstance(event, TransactionPayloadEvent):
            inside += self._decoder.payload_events(event)
        for one in inside:
            self._look(one)
            if self._count_rows is not None and isinstance(one, RowsEvent):
                self.rows += self._count_rows(one)

    def _internal(self, event: Event, raw: bytes) -> None:
        """Handle an event that belongs to the connection, not to the log."""
        progress, decoder = self._progress, self._decoder
        if isinstance(event, FormatDescriptionEvent):
            self._description = raw
            self._on_file(event, progress)
        elif isinstance(event, RotateEvent):
            is_first, self._awaits_rotate = self._awaits_rotate, False
            if not is_first:
                check_rotate(event)
            progress.follow(event, decoder.file, decoder.position)
        elif isinstance(event, HeartbeatEvent):
            self.is_idle = True
            self._idle(event.source_file, event.source_position)
        elif isinstance(event, MariadbGtidListEvent):
            self._idle(event.file, event.header.next_position)

    def _idle(self, file: str, position: int) -> None:
        """The source has sent everything up to this position: it skipped events after the last boundary."""
        if self._is_by_gtid or is_behind_description(self._decoder, self._decoder.position):
            self._progress.idle(file, position)

    def _mark(self, gtid: Gtid | MariadbGtid | None, known: AnyGtidSet | None) -> None:
        added = [] if gtid is None else [gtid]
        progress = self._progress
        mark = _Mark(
            progress.file,
            progress.position,
            self._epoch,
            progress.file_begun,
            self._server,
            self.bytes,
            self.rows,
            added,
            None if known is None else known.copy(),
            progress.is_anonymous,
        )
        with self._lock:
            before = self._marks[-2] if len(self._marks) > 1 else None
            rows, size = (before.rows, before.bytes) if before else (self._taken_rows, self._taken_bytes)
            last = self._marks[-1] if self._marks else None
            is_near = self.rows - rows <= self._rows_apart and self.bytes - size <= self._bytes_apart
            if last is not None and is_near:
                if known is None:
                    last.added.extend(added)
                    mark.added, mark.known = last.added, last.known
                self._marks[-1] = mark
            else:
                self._marks.append(mark)

    def _gtids_behind(self, marks: list[_Mark]) -> AnyGtidSet | None:
        gtids = None if self._taken_gtids is None else self._taken_gtids.copy()
        for mark in marks:
            if mark.known is not None:
                gtids = mark.known.copy()
            if gtids is not None:
                for gtid in mark.added:
                    gtids.add(gtid)  # type: ignore[arg-type]
        return gtids

    def _spool(self, raw: bytes, file: str, position: int) -> None:
        spool, is_open = self.spool, self._progress.in_transaction
        if not spool.continues(file, position, self._epoch):
            end = spool.end_in(file, self._epoch)
            if end != position and (is_open or not (end is None or self._may_skip(end))):
                raise ProtocolError(f"the source has left out events before {file}:{position}")
            # Else it follows directly on the current segment, which is merely full.
            if not is_open:
                self._begin_segment(file, position)
        spool.append(raw)

    def _may_skip(self, end: int) -> bool:
        """Whether the source may leave out events here, between two transactions: see ``Dump.check_place``."""
        return self._is_by_gtid or bool(self.gap) or is_behind_description(self._decoder, end)

    def _begin_segment(self, file: str, position: int) -> None:
        server_uuid, server_id = self._server
        gap, self.gap = self.gap, ""
        self.spool.begin(
            Segment(
                number=0,
                path="",
                after=self.boundary,
                file=file,
                position=position,
                epoch=self._epoch,
                server_uuid=server_uuid,
                server_id=server_id,
                head=0,
                has_gtids=self._has_gtids,
                gap=gap,
            ),
            self._description,
        )


def _offset(mark: _Mark, gtids: AnyGtidSet | None) -> Offset:
    server_uuid, server_id = mark.server
    text = None if gtids is None or mark.is_anonymous else str(gtids)
    return Offset(mark.file, mark.position, text, server_uuid, server_id, mark.epoch, mark.begun)
