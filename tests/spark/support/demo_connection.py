"""The options of the Spark source for the demo's log."""

from __future__ import annotations

from replica.demo.source import USER, DemoSource


def connection_to(source: DemoSource) -> dict[str, str]:
    host, _, port = source.address.rpartition(":")
    return {"host": host, "port": port, "user": USER, "password": source.password}
