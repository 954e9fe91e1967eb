"""``StreamStatus``, the value of ``stream.status``: state, place and counters of a stream. Counts nothing itself."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from protocol.errors import ReplicaError
from protocol.position import BinlogPosition
from protocol.records import record

from .snapshot_status import SnapshotStatus

#: ``seeking``: the source still searches its log for the first transaction to send, and has sent nothing yet.
StreamState = Literal["new", "connecting", "seeking", "streaming", "waiting", "closed"]


@record(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """State, place and counters of a stream at one moment.

    ``state`` is a ``StreamState``; ``address`` is the host and port in use; ``server_uuid`` (MySQL) and ``server_id``
    identify the source there. ``position`` and ``gtid_set`` are the checkpoint's; with ``batches()`` the end of what
    was collected. ``seconds_behind`` is the source's clock minus the commit time of the transaction you have come to:
    0 if the source has nothing more to send, None before the first transaction. In logs that have whole seconds only
    (MariaDB, MySQL before 8.0.1) it is up to a second less. ``last_heartbeat`` and ``last_event`` are the times at
    which the source last sent a heartbeat and an event. The counters run since the stream was made: ``bytes``
    received, ``events`` and ``rows`` delivered, ``reconnects``, ``skipped`` (events that came again after a reconnect
    and were not delivered again), ``restarts`` (``TransactionRestarted`` markers). ``last_error`` is the error that
    ended the last connection. ``semi_sync`` is True while the source gets acknowledgements. ``snapshot`` tells how
    far the initial copy has come; None without. ``last_checkpoint`` is when the checkpoint was last saved to the
    store; None before, and without a store.
    """

    state: StreamState
    address: str
    position: BinlogPosition | None
    gtid_set: str | None
    server_uuid: str | None
    server_id: int | None
    seconds_behind: float | None
    last_heartbeat: datetime | None
    last_event: datetime | None
    bytes: int
    events: int
    rows: int
    reconnects: int
    skipped: int
    restarts: int
    last_error: ReplicaError | None
    semi_sync: bool
    snapshot: SnapshotStatus | None = None
    last_checkpoint: datetime | None = None


def moment(seconds: float) -> datetime | None:
    """Seconds since 1970 as a time in UTC; None for 0."""
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


#: Called with the status when the state changes and, while events are read, every ``status_interval`` seconds.
StatusHook = Callable[[StreamStatus], None]
