"""The state of a ``BinlogServer`` as OpenMetrics text."""

from types import MappingProxyType
from typing import Final

from ..config.open_metrics import Metrics, metrics_text
from .binlog_server import BinlogServer

_METRICS: Final[Metrics[BinlogServer]] = MappingProxyType(
    {
        "served_connections": ("Connections, logged in or not.", lambda s: s.connections),
        "served_replicas": ("Replicas with a binlog dump.", lambda s: len(s.replicas)),
        "served_replicas_waiting": (
            "Replicas that have all of the log.",
            lambda s: sum(replica.is_waiting for replica in s.replicas),
        ),
    }
)


def server_metrics(server: BinlogServer, address: str) -> str:
    """The server's connections and replicas; the label ``source`` is the address that it listens on."""
    return metrics_text(_METRICS, server, address)
