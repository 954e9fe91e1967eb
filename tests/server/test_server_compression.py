"""BinlogServer with clients that want their connection compressed: real replicas, the servers' tool, and streams."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import protocol.conversation.source_side
import replica
from protocol.constants import Capability
from protocol.conversation.compressed_packets import Codec, agreed_codec
from replica import RowsEvent
from tests.server.support.served_replicas import (
    MARIADB,
    MYSQL,
    acknowledges_everything,
    of_ours,
    of_the_source,
    on,
    shell,
)
from tests.support.servers import Server

from .support.served_logs import (
    PASSWORD,
    USER,
    Recorded,
    catch_up,
    checksum_of,
    follow,
    gateway,
    serve,
    trouble,
    unfollow,
)
from .support.streams import SECONDS

MYSQL_OPTIONS = "SOURCE_SSL = 1, SOURCE_COMPRESSION_ALGORITHMS = '{}'"
MARIADB_OPTIONS = "MASTER_SSL = 0, MASTER_SSL_VERIFY_SERVER_CERT = 0"
by_algorithm = pytest.mark.parametrize("algorithm", ["zlib", "zstd"])


@pytest.fixture
def agreed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How each connection of a server of ours is compressed."""
    names: list[str] = []

    def agree(capabilities: Capability) -> Codec | None:
        codec = agreed_codec(capabilities)
        names.append("uncompressed" if codec is None else codec.name)
        return codec

    monkeypatch.setattr(protocol.conversation.source_side, "agreed_codec", agree)
    return names


@pytest.fixture
def compressing(follower: Server) -> Iterator[Server]:
    """A MariaDB that asks for it."""
    follower.query("SET GLOBAL slave_compressed_protocol = 1")
    yield follower
    follower.query("SET GLOBAL slave_compressed_protocol = 0")


async def replicates(recorded: Recorded, follower: Server, options: str) -> None:
    async with serve(recorded.folder, follower) as ours:
        try:
            await asyncio.to_thread(
                follow, follower, ours, by_gtid=True, file=recorded.files[0], options=options
            )
            await asyncio.to_thread(catch_up, follower, recorded.executed)
            assert await asyncio.to_thread(checksum_of, follower) == recorded.checksum
            # Heartbeats come, too.
            await asyncio.sleep(1.5)
            assert trouble(follower) == {}
            assert len(ours.replicas) == 1
        finally:
            await asyncio.to_thread(unfollow, follower)


@on(MYSQL)
@by_algorithm
async def test_a_replica_of_mysql(
    recorded: Recorded, follower: Server, agreed: list[str], algorithm: str
) -> None:
    await replicates(recorded, follower, MYSQL_OPTIONS.format(algorithm))
    assert set(agreed) == {algorithm}


@on(MARIADB)
async def test_a_replica_of_mariadb(recorded: Recorded, compressing: Server, agreed: list[str]) -> None:
    await replicates(recorded, compressing, MARIADB_OPTIONS)
    assert set(agreed) == {"zlib"}


@on(MYSQL)
@by_algorithm
async def test_a_semi_synchronous_replica_of_mysql(
    recorded: Recorded, follower: Server, agreed: list[str], algorithm: str
) -> None:
    follower.query("INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'")
    follower.query("SET GLOBAL rpl_semi_sync_replica_enabled = 1")
    try:
        await acknowledges_everything(recorded, follower, MYSQL_OPTIONS.format(algorithm))
    finally:
        follower.query("UNINSTALL PLUGIN rpl_semi_sync_replica")
    assert set(agreed) == {algorithm}


@on(MARIADB)
async def test_a_semi_synchronous_replica_of_mariadb(
    recorded: Recorded, compressing: Server, agreed: list[str]
) -> None:
    compressing.query("SET GLOBAL rpl_semi_sync_slave_enabled = 1")
    try:
        await acknowledges_everything(recorded, compressing, MARIADB_OPTIONS)
    finally:
        compressing.query("SET GLOBAL rpl_semi_sync_slave_enabled = 0")
    # STOP SLAVE's own connection may not ask for it.
    assert agreed[0] == "zlib"


@on(MYSQL)
@by_algorithm
async def test_mysqlbinlog(recorded: Recorded, agreed: list[str], algorithm: str) -> None:
    source = recorded.source
    what = ("-vv", "--to-last-log", recorded.files[0])
    async with serve(recorded.folder, source) as ours:
        options = ("--ssl-mode=REQUIRED", f"--compression-algorithms={algorithm}")
        script = f"""
            {shell(*of_the_source(source, *what))} >/tmp/theirs || exit 1
            {shell(*of_ours(source, ours, *options, *what))} >/tmp/ours || exit 2
            cmp /tmp/theirs /tmp/ours >&2 || exit 3
        """
        await asyncio.to_thread(source.exec, "bash", "-c", script)
    assert set(agreed) == {algorithm}


@pytest.mark.parametrize("semi_sync", [False, True])
@by_algorithm
async def test_a_stream_of_ours(
    recorded: Recorded, agreed: list[str], algorithm: str, semi_sync: bool
) -> None:
    counts = []
    async with serve(recorded.folder, recorded.source, semi_sync=semi_sync) as ours:
        for compression in ("uncompressed", algorithm):
            stream = replica.connect(
                f"mysql://{USER}:{PASSWORD}@{gateway(recorded.source)}:{ours.port}",
                compression=compression,
                semi_sync=semi_sync,
                start="earliest",
                stop="now",
                row_values=False,
            )
            rows = 0
            async with asyncio.timeout(SECONDS), stream:
                async for event in stream:
                    if isinstance(event, RowsEvent):
                        rows += len(event.rows)  # type: ignore[attr-defined]
            counts.append((rows, stream.status.bytes))
            assert compression in agreed
    (plain_rows, plain), (rows, packed) = counts
    print(recorded.source.name, algorithm, plain, "bytes as", packed)
    assert rows == plain_rows > 100_000
    assert packed < plain / 2
