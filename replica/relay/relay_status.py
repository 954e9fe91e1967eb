"""``RelayStatus``, the value of ``BinlogRelay.status``, and its OpenMetrics text. Counts nothing itself."""

from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal

from protocol.position import BinlogPosition
from protocol.records import record

from ..config.open_metrics import Metrics, metrics_text, seconds_of

RelayState = Literal["new", "connecting", "streaming", "waiting", "closed"]


@record(frozen=True, slots=True, kw_only=True)
class RelayStatus:
    """State, place and counters of a relay at one moment.

    ``state`` is a ``RelayState``, ``address`` the source's host and port, ``position`` the place after the last
    copied event. ``seconds_behind`` is the source's clock minus the time of the last copied event (whole seconds), 0
    if the source has nothing more to send, None before the first event. ``last_event`` and ``last_sync`` are when an
    event last came, and when the files were last synced to the disk. The counters run since the relay was made:
    ``bytes`` received, ``events`` copied, ``reconnects``.
    """

    state: RelayState
    address: str
    position: BinlogPosition | None
    seconds_behind: float | None
    last_event: datetime | None
    last_sync: datetime | None
    bytes: int
    events: int
    reconnects: int


_METRICS: Final[Metrics[RelayStatus]] = MappingProxyType(
    {
        "connected": ("1 while the relay reads from the source.", lambda s: float(s.state == "streaming")),
        "seconds_behind": ("Age of the last copied event.", lambda s: s.seconds_behind),
        "last_event_timestamp_seconds": ("When the last event came.", lambda s: seconds_of(s.last_event)),
        "last_sync_timestamp_seconds": ("When files were last synced.", lambda s: seconds_of(s.last_sync)),
        "events_total": ("Events copied.", lambda s: s.events),
        "received_bytes_total": ("Bytes received from the source.", lambda s: s.bytes),
        "reconnects_total": ("Connections made after the first one.", lambda s: s.reconnects),
    }
)


def relay_metrics(status: RelayStatus) -> str:
    """A relay's status as OpenMetrics text; the label ``source`` is the source's address."""
    return metrics_text(_METRICS, status, status.address)
