"""The tools of the fault tests at real servers: what is written is counted right, and killed servers lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import replica
from tests.faults import container
from tests.faults.workload import Collector, Workload, first_difference
from tests.faults.writer import Writer
from tests.support.servers import Server

from .support.streams import SECONDS


@pytest.mark.parametrize("name", ["mysql:9.7", "mysql:5.6", "mariadb:11.8"])
async def test_a_writer_outlives_its_server(
    seed: int, name: str, supervised_server: Callable[..., Server]
) -> None:
    """The log, read afterwards, holds the workload exactly once and in order."""
    server = supervised_server(name, "--max-binlog-size=1M")
    workload = Workload(seed, 5_000)
    with server.fresh_schema() as schema:
        writer = Writer(server, schema, workload, pause=0.02)
        writer.create_tables()
        writing = asyncio.create_task(asyncio.to_thread(writer.run))
        for _ in range(2):
            await asyncio.to_thread(container.restart, server)
        await writing
        writer.assert_all_is_there()
        collector = Collector(schema)
        async with (
            asyncio.timeout(SECONDS),
            replica.connect(server.dsn(), start="earliest", stop="now", tls="disabled") as stream,
        ):
            async for event in stream:
                collector.feed(event)
        assert first_difference(collector.delivered, list(workload.identities())) == ""
        assert (collector.open, collector.progress) == ([], workload.changes)


def test_the_comparison_finds_what_is_missing_repeated_or_changed() -> None:
    expected = list(Workload(1, 500).identities())
    assert first_difference(expected, expected) == ""
    repeated = [*expected[:100], expected[99], *expected[100:]]
    changed = [*expected[:7], (*expected[7][:4], 0), *expected[8:]]
    for found, equal in ((expected[:-1], 499), (expected[1:], 0), (repeated, 100), (changed, 7)):
        assert f"equal up to {equal};" in first_difference(found, expected)
