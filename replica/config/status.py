"""What a service wants to know of its stream while it runs: the value of ``stream.status``. It counts nothing."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal

from protocol.errors import ReplicaError
from protocol.position import BinlogPosition
from protocol.records import record

#: ``seeking``: the source looks for the first transaction that is to be sent, and has sent nothing yet.
StreamState = Literal["new", "connecting", "seeking", "streaming", "waiting", "closed"]


@record(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """How a stream stands.

    ``state`` is a ``StreamState``, ``address`` the host and port in use; ``server_uuid`` (MySQL) and ``server_id``
    are those of the source behind it. ``position`` and ``gtid_set`` are those of the checkpoint. ``seconds_behind``
    is the source's clock less the time of the last event (0 when the source has said that there is nothing more to
    send, None before the first event). ``last_heartbeat`` is when the source last said that it is there,
    ``last_event`` when it last sent an event. ``bytes`` have been received, ``events`` and ``rows`` handed out since
    the stream was made; ``skipped`` events came again after one of ``reconnects`` and were passed over; ``restarts``
    counts ``TransactionRestarted`` markers. ``last_error`` is why the last connection was lost. ``semi_sync``: the
    source gets acknowledgements now.
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


#: Called with the status when the state changes and, while events are read, every ``status_interval`` seconds.
StatusHook = Callable[[StreamStatus], None]
