"""What a replica has sent is freed when it leaves, and not when Python looks for objects that hold each other."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path

import pytest

from protocol.errors import ServerError
from protocol.gtid import GtidSet
from replica.server.event_filter import WithoutGtids
from replica.server.send_dump import Dump
from tests.support.served import (
    CHECKSUM_ASKED,
    SECONDS,
    dumped,
    gtids,
    logged_in,
    serving,
    write_mysql_files,
)
from tests.support.socket_source import until


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_gtids_of_a_replica_that_has_left(tmp_path: Path, is_damaged: bool) -> None:
    """A million intervals took 77 MB at each connection: after 14 of them the server had 1,260 MB."""
    write_mysql_files(tmp_path)
    sent = GtidSet(f"{str(gtids(1, 1)).partition(':')[0]}:1:3:5").encode()
    async with serving(tmp_path) as server:
        gc.collect()
        gc.disable()
        try:
            async with logged_in(server, CHECKSUM_ASKED) as session:
                session.start_dump_gtid(sent[:-3] if is_damaged else sent, 500, 1)
                try:
                    while await session.read_events(SECONDS):
                        pass
                except ServerError:
                    assert is_damaged
            await until(lambda: not server.connections)
            await asyncio.sleep(0)
            assert not [found for found in gc.get_objects() if isinstance(found, Dump | WithoutGtids)]
        finally:
            gc.enable()


async def test_decoders_that_read_no_rows(tmp_path: Path) -> None:
    """Each look for GTIDs had one with counters for images of rows, of 131 KB, until Python looked for cycles."""
    write_mysql_files(tmp_path)
    async with serving(tmp_path) as server:
        await dumped(server)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(5):
                await dumped(server)
            await until(lambda: not server.connections)
            assert tracemalloc.get_traced_memory()[0] < 5 * 200_000
        finally:
            tracemalloc.stop()
            gc.enable()
