"""A stream's status as OpenMetrics text (https://openmetrics.io), which Prometheus and its relatives scrape."""

from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

from .status import StreamStatus

#: The value of the header Content-Type.
CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
#: States in which the stream has a connection that delivers.
CONNECTED: Final = frozenset({"seeking", "streaming"})
_PREFIX: Final = "mysql_replica_"
_Value = Callable[[StreamStatus], float | None]


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


# Name without the prefix: its help text, and its value; None: no sample. Counters end in _total.
_METRICS: Final[Mapping[str, tuple[str, _Value]]] = MappingProxyType(
    {
        "connected": ("1 while the stream reads from the source.", lambda s: float(s.state in CONNECTED)),
        "seconds_behind": ("Age of the transaction that is being processed.", lambda s: s.seconds_behind),
        "last_event_timestamp_seconds": ("When the last event came.", lambda s: _seconds(s.last_event)),
        "last_heartbeat_timestamp_seconds": (
            "When the last heartbeat came.",
            lambda s: _seconds(s.last_heartbeat),
        ),
        "semi_sync": ("1 while the source gets acknowledgements.", lambda s: float(s.semi_sync)),
        "events_total": ("Events delivered.", lambda s: s.events),
        "rows_total": ("Rows delivered.", lambda s: s.rows),
        "received_bytes_total": ("Bytes received from the source.", lambda s: s.bytes),
        "reconnects_total": ("Connections made after the first one.", lambda s: s.reconnects),
        "skipped_total": ("Events that came again and were not delivered again.", lambda s: s.skipped),
        "restarts_total": (
            "Transactions that were delivered again from their beginning.",
            lambda s: s.restarts,
        ),
    }
)


def open_metrics(status: StreamStatus) -> str:
    """The status as OpenMetrics text; the label ``source`` is its address."""
    address = status.address.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    lines = []
    for name, (text, value_of) in _METRICS.items():
        family = _PREFIX + name.removesuffix("_total")
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE {family} {kind}", f"# HELP {family} {text}"]
        value = value_of(status)
        if value is not None:
            lines.append(f'{_PREFIX}{name}{{source="{address}"}} {value:.15g}')
    return "\n".join([*lines, "# EOF", ""])
