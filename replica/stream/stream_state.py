"""``Upkeep``: what a stream does beside handing out events. It shows the status and saves the checkpoint."""

import time
from time import monotonic
from typing import Final

from protocol.errors import ReplicaError
from protocol.position import FIRST_POSITION, BinlogPosition, Checkpoint

from ..config.checkpoint import CheckpointKeeper
from ..config.file_lock import locks_of
from ..config.options import Options
from ..config.snapshot_status import SnapshotStatus
from ..config.status import StreamState, StreamStatus, moment
from ..config.steady_time import steady_time
from ..source.resolve_start import is_same_server
from ..source.server_facts import Identity, Source
from ..source.session import Session
from ..transactions.boundary import Progress
from .batch import Account

# A source that has more to send does so at once. After so much silence nothing is left.
_QUIET_SECONDS: Final = 0.25


class Upkeep:
    """Status and checkpoints of one stream. It reads no log."""

    def __init__(self, options: Options, account: Account) -> None:
        #: The server that the log comes from; None before the stream is opened.
        self.source: Source | None = None
        self._options = options
        self._account = account
        store = options.checkpoints
        self._keeper = None if store is None else CheckpointKeeper(store, options.checkpoint_interval)
        self._locks = locks_of(store, options.schemas)
        # Whether the user gave a checkpoint store or a status hook.
        self.has_duties = self._keeper is not None or options.on_status is not None
        # How often the checkpoint had moved when it was saved last.
        self._saved_moves = 0
        self._saved_at = 0.0
        self._state: StreamState = "new"
        self._last_error: ReplicaError | None = None
        self._shown_at = float("-inf")
        self._reconnects = self._bytes_before = 0
        # A place in the log of the server before this one: the stream's until the first event of this server.
        self._place_elsewhere = "", 0
        # Since when the user waits for the next batch; and since when nothing has come, with the bytes until then.
        self._waiting: float | None = None
        self._silent_at = 0.0, -1

    async def load(self) -> Checkpoint | None:
        """Lock the stores, and load the stored checkpoint; None without one: the stream's start is not saved yet."""
        for lock in self._locks:
            lock.take()
        stored = None if self._keeper is None else await self._keeper.load()
        if stored is None:
            self._account.move_checkpoint()
        return stored

    def release(self) -> None:
        """Release the stores: another stream may have them now."""
        for lock in self._locks:
            lock.release()

    def check_stores(self) -> None:
        """Before each write to a store: raise ``CheckpointError`` if another stream has taken it over."""
        for lock in self._locks:
            lock.check()

    async def save(self, checkpoint: Checkpoint | None) -> None:
        """Save the checkpoint to the store if it has moved."""
        if self._keeper is None or checkpoint is None or not self._has_moved():
            return
        self.check_stores()
        moves = self._account.moves
        await self._keeper.save(checkpoint, monotonic())
        self._saved_moves, self._saved_at = moves, time.time()

    def checkpoint(self) -> Checkpoint:
        """The place after the last transaction that is done."""
        return self._checkpoint(self._account.progress, self._account.copy_state())

    def checkpoint_behind(self) -> Checkpoint:
        """The checkpoint as if all events handed out were done."""
        return self._checkpoint(self._account.progress_behind(), self._account.copy_state(is_behind=True))

    def _checkpoint(self, progress: Progress, copy_state: str | None) -> Checkpoint:
        assert self.source is not None
        place, begun = (progress.file, progress.position), progress.file_begun
        if place == self._place_elsewhere:
            place, begun = ("", FIRST_POSITION), None
        return Checkpoint(
            *place,
            None if progress.resume_set is None else str(progress.resume_set),
            self.source.server_uuid,
            self.source.server_id,
            snapshot=copy_state,
            file_begun=begun,
        )

    def is_save_due(self) -> bool:
        """Whether ``save`` is to be called now."""
        return self._keeper is not None and self._keeper.should_save(monotonic()) and self._has_moved()

    def is_status_due(self) -> bool:
        """Whether ``on_status`` is to be called now."""
        return (
            self._options.on_status is not None
            and monotonic() - self._shown_at >= self._options.status_interval
        )

    def next_look(self) -> float:
        """When to check for duties again, by ``time.monotonic``; it may be in the middle of a batch."""
        # With an interval of 0 each transaction is a batch, and duties are checked after each batch.
        saves = self._keeper is not None and self._options.checkpoint_interval > 0
        return monotonic() + min(self._intervals(saves=saves), default=float("inf")) / 4

    def limit(self) -> float | None:
        """Seconds that the stream may wait for events before a duty is due; None: no limit."""
        return min(self._intervals(saves=self._keeper is not None and self._has_moved()), default=None)

    def _intervals(self, *, saves: bool) -> list[float]:
        intervals = [self._options.checkpoint_interval] if saves else []
        if self._options.on_status is not None:
            intervals.append(self._options.status_interval)
        return intervals

    def lost(self, session: Session | None) -> None:
        """Count the bytes of a dropped connection."""
        self._waiting = None
        self._bytes_before += 0 if session is None else session.bytes_received

    def begin(self, source: Source) -> None:
        """The stream is being opened."""
        self.source = source

    def reconnected(self, before: Identity, source: Source) -> None:
        """Count a reconnect to ``source``; the server ``before`` was connected to until then."""
        self.source = source
        self._reconnects += 1
        if not is_same_server(before, source):
            self._place_elsewhere = self._account.progress.file, self._account.progress.position

    def turn(self, state: StreamState, error: ReplicaError | None = None) -> bool:
        """Set the state, and the error that caused it. Returns whether the state is new: then it must be shown."""
        if state == self._state:
            return False
        self._state = state
        self._shown_at = float("-inf")
        self._last_error = error or self._last_error
        return True

    def show(self, status: StreamStatus) -> None:
        """Call ``on_status``. An exception of the hook goes on to the code that iterates."""
        self._shown_at = monotonic()
        if self._options.on_status is not None:
            self._options.on_status(status)

    def status(self, session: Session | None, snapshot: SnapshotStatus | None = None) -> StreamStatus:
        """The status of the stream now; ``session`` is its connection."""
        source, progress, counters = self.source, self._account.progress, self._account.counters
        behind = None if source is None else self._behind(source, session)
        return StreamStatus(
            state=self._state,
            address=(self._options if session is None else session.options).address,
            position=BinlogPosition(progress.file, progress.position) if progress.file else None,
            gtid_set=None if progress.gtid_set is None else str(progress.gtid_set),
            server_uuid=None if source is None else source.server_uuid,
            server_id=None if source is None else source.server_id,
            seconds_behind=behind,
            last_heartbeat=moment(self._account.heard_at),
            last_event=moment(self._account.received_at),
            bytes=self._bytes_before + (session.bytes_received if session is not None else 0),
            events=counters.events,
            rows=counters.rows,
            reconnects=self._reconnects,
            skipped=counters.skipped,
            restarts=counters.restarts,
            last_error=self._last_error,
            semi_sync=session is not None and session.is_semi_sync,
            snapshot=snapshot,
            last_checkpoint=moment(self._saved_at),
        )

    def delivers(self) -> None:
        """A new batch is there for the user."""
        self._waiting = None

    def waits(self, session: Session) -> None:
        """The user has come to the end of what has arrived, and the stream waits for more."""
        now = steady_time()
        if self._waiting is None:
            self._waiting = now
        if self._silent_at[1] != session.bytes_received:
            self._silent_at = now, session.bytes_received

    def _behind(self, source: Source, session: Session | None) -> float | None:
        account, now = self._account, steady_time()
        newest = account.newest
        if newest is not None and newest is account.idle_behind:
            return 0.0
        if self._waiting is not None:
            since, received = self._silent_at
            is_silent = session is not None and session.bytes_received == received
            if is_silent and newest is not None and now - since >= _QUIET_SECONDS:
                return 0.0
            now = self._waiting
        return account.lag_at(now + source.clock_lead)

    def _has_moved(self) -> bool:
        """Whether the checkpoint differs from the stored one."""
        return self._account.moves != self._saved_moves
