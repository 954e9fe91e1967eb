"""What a stream does beside handing out events: count, show its status, save its checkpoint. It reads no log."""

import asyncio
import time
from datetime import UTC, datetime

from protocol.binlog.events import Event
from protocol.errors import ReplicaError
from protocol.position import BinlogPosition, Checkpoint
from protocol.records import record

from ..config.checkpoint import CheckpointKeeper
from ..config.options import Options
from ..config.status import StreamState, StreamStatus
from ..source.server_facts import Source
from ..source.session import Session
from ..transactions.boundary import Progress


@record(slots=True)
class Counters:
    """The numbers of a status, as the stream counts them."""

    events: int = 0
    rows: int = 0
    reconnects: int = 0
    skipped: int = 0
    restarts: int = 0


class Upkeep:
    """Counters, status and checkpoints of one stream.

    ``is_unsaved`` is set by the stream whenever its checkpoint has moved.
    """

    def __init__(self, options: Options) -> None:
        self.counters = Counters()
        self.is_unsaved = False
        self._options = options
        self._keeper = (
            None
            if options.checkpoints is None
            else CheckpointKeeper(options.checkpoints, options.checkpoint_interval)
        )
        self.has_duties = self._keeper is not None or options.on_status is not None
        self._state: StreamState = "new"
        self._last_error: ReplicaError | None = None
        self._shown_at = float("-inf")
        self._bytes_before = 0
        self._last_event = self._last_heartbeat = 0.0
        # Behind which event the source has had nothing more to send.
        self._last_before_idling: Event | None = None

    async def load(self) -> Checkpoint | None:
        """The checkpoint of the store; None if there is none, or no store."""
        return None if self._keeper is None else await self._keeper.load()

    async def save(self, checkpoint: Checkpoint | None, now: float) -> None:
        """Have the store hold the checkpoint, if it has moved."""
        if self._keeper is None or checkpoint is None or not self.is_unsaved:
            return
        self.is_unsaved = False
        try:
            await self._keeper.save(checkpoint, now)
        except BaseException:
            self.is_unsaved = True
            raise

    def is_due(self) -> bool:
        """Whether something is to be saved or shown, by the running loop's clock."""
        if not self.has_duties:
            return False
        now = asyncio.get_running_loop().time()
        return self.is_save_due(now) or self.is_status_due(now)

    def is_save_due(self, now: float) -> bool:
        """Whether ``save`` should be called, by a clock that only goes forward."""
        return self.is_unsaved and self._keeper is not None and self._keeper.should_save(now)

    def is_status_due(self, now: float) -> bool:
        """Whether ``on_status`` is to be called."""
        return self._options.on_status is not None and now - self._shown_at >= self._options.status_interval

    def limit(self) -> float | None:
        """How long the stream may wait for events, in seconds, before something here is due."""
        options = self._options
        limits = []
        if self.is_unsaved and self._keeper is not None:
            limits.append(options.checkpoint_interval)
        if options.on_status is not None:
            limits.append(options.status_interval)
        return min(limits, default=None)

    def received(self) -> None:
        """Events of the log have come."""
        self._last_event = time.time()

    def heard(self, newest: Event | None) -> None:
        """The source has said that it is there and has nothing more to send behind the newest event."""
        self._last_heartbeat = time.time()
        self._last_before_idling = newest

    def lost(self, session: Session) -> None:
        """A connection is dropped; its bytes still count."""
        self._bytes_before += session.bytes_received

    def turn(self, state: StreamState, error: ReplicaError | None) -> bool:
        """Note the stream's state, and why it has changed; whether it has. Then it is to be shown."""
        if state == self._state:
            return False
        self._state = state
        self._shown_at = float("-inf")
        self._last_error = error or self._last_error
        return True

    def show(self, status: StreamStatus, now: float) -> None:
        """Call the hook; what it raises goes on to who iterates."""
        self._shown_at = now
        if self._options.on_status is not None:
            self._options.on_status(status)

    def status(
        self, progress: Progress, source: Source | None, session: Session | None, newest: Event | None
    ) -> StreamStatus:
        """How things stand; ``newest`` is the last event of the log that has come."""
        counters = self.counters
        behind = None
        if source is not None and newest is not None:
            is_idle = newest is self._last_before_idling
            behind = 0.0 if is_idle else max(source.now - newest.header.timestamp, 0.0)
        return StreamStatus(
            state=self._state,
            address=(self._options if session is None else session.options).address,
            position=BinlogPosition(progress.file, progress.position) if progress.file else None,
            gtid_set=None if progress.gtid_set is None else str(progress.gtid_set),
            server_uuid=None if source is None else source.server_uuid,
            server_id=None if source is None else source.server_id,
            seconds_behind=behind,
            last_heartbeat=_moment(self._last_heartbeat),
            last_event=_moment(self._last_event),
            bytes=self._bytes_before + (session.bytes_received if session is not None else 0),
            events=counters.events,
            rows=counters.rows,
            reconnects=counters.reconnects,
            skipped=counters.skipped,
            restarts=counters.restarts,
            last_error=self._last_error,
            semi_sync=session is not None and session.is_semi_sync,
        )


def _moment(seconds: float) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
