"""Streams through the fault proxy: where they start, how they connect, and what a failed test prints of them."""

from __future__ import annotations

from typing import Any

import replica
from tests.faults.proxy import FaultProxy
from tests.faults.workload import Collector
from tests.faults.writer import Writer
from tests.server.support.streams import end_of_log, executed
from tests.support.servers import Server

FILE_POSITION, GTID = "file and position", "GTID"


def start_of(server: Server, mode: str) -> Any:
    """Where the log ends now, as a position or as a GTID set."""
    if mode == FILE_POSITION:
        return end_of_log(server)
    family = replica.GtidSet if server.family == "mysql" else replica.MariadbGtidSet
    return family(executed(server))


def stream_through(proxy: FaultProxy, server: Server, **options: Any) -> replica.BinlogStream:
    defaults: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": proxy.port,
        "user": server.replica_user,
        "password": server.replica_password,
        "tls": "disabled",
        "heartbeat": 0.4,
        "connect_timeout": 2.0,
        "reconnect": replica.ReconnectPolicy(initial=0.02, maximum=0.5),
    }
    return replica.connect(**(defaults | options))


def report(proxy: FaultProxy, stream: replica.BinlogStream, collector: Collector, writer: Writer) -> None:
    status = stream.status
    print("faults", dict(proxy.counts), "to come", proxy.pending, "writer reconnects", writer.reconnects)
    print("delivered", len(collector.delivered), "open", len(collector.open), "lost", collector.lost)
    print("reconnects", status.reconnects, "skipped", status.skipped, "last error", status.last_error)
    print(*proxy.history, sep="\n")
