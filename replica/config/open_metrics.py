"""A status as OpenMetrics text (https://openmetrics.io), which Prometheus and its relatives scrape.

``replica.open_metrics(stream.status)`` is for services that have an HTTP server of their own; ``--metrics`` of the
commands serves the same text.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, TypeVar

from .snapshot_status import SnapshotStatus
from .status import StreamStatus

#: The value of the header Content-Type.
CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
#: States in which a stream or relay has a connection that delivers.
CONNECTED: Final = frozenset({"seeking", "streaming"})
_PREFIX: Final = "mysql_replica_"
_Status = TypeVar("_Status")
#: Names without the prefix: the help text, and the value; None: no sample. Counters end in ``_total``.
Metrics = Mapping[str, tuple[str, Callable[[_Status], float | None]]]


def seconds_of(moment: datetime | None) -> float | None:
    """A moment in seconds since 1970; None for None."""
    return None if moment is None else moment.timestamp()


def _of_copy(value: Callable[[SnapshotStatus], float | None]) -> Callable[[StreamStatus], float | None]:
    return lambda status: None if status.snapshot is None else value(status.snapshot)


_METRICS: Final[Metrics[StreamStatus]] = MappingProxyType(
    {
        "connected": ("1 while the stream reads from the source.", lambda s: float(s.state in CONNECTED)),
        "seconds_behind": ("Age of the transaction that is being processed.", lambda s: s.seconds_behind),
        "last_event_timestamp_seconds": ("When the last event came.", lambda s: seconds_of(s.last_event)),
        "last_heartbeat_timestamp_seconds": (
            "When the last heartbeat came.",
            lambda s: seconds_of(s.last_heartbeat),
        ),
        "last_checkpoint_timestamp_seconds": (
            "When the checkpoint was last saved.",
            lambda s: seconds_of(s.last_checkpoint),
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
        "snapshot_tables": ("Tables of the initial copy.", _of_copy(lambda c: c.tables)),
        "snapshot_tables_complete": ("Tables that are copied.", _of_copy(lambda c: c.tables_complete)),
        "snapshot_rows": ("Rows copied.", _of_copy(lambda c: c.rows)),
        "snapshot_estimated_rows": ("Rows to copy, as the source estimates.", _of_copy(lambda c: c.estimate)),
        "snapshot_complete": ("1 when all tables are copied.", _of_copy(lambda c: float(c.complete))),
    }
)


def open_metrics(status: StreamStatus) -> str:
    """``status``, which is ``stream.status``, as OpenMetrics text; the label ``source`` is the source's address.

    Serve it as ``application/openmetrics-text; version=1.0.0; charset=utf-8``. All names begin with
    ``mysql_replica_``. What is not known yet has no sample, such as ``seconds_behind`` before the first transaction.
    """
    return metrics_text(_METRICS, status, status.address)


def metrics_text(metrics: Metrics[_Status], status: _Status, address: str) -> str:
    """Any status as OpenMetrics text, with ``address`` as the label ``source``."""
    label = address.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    lines = []
    for name, (text, value_of) in metrics.items():
        family = _PREFIX + name.removesuffix("_total")
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE {family} {kind}", f"# HELP {family} {text}"]
        value = value_of(status)
        if value is not None:
            lines.append(f'{_PREFIX}{name}{{source="{label}"}} {value:.15g}')
    return "\n".join([*lines, "# EOF", ""])
