"""Compressed connections with real servers: they are on, and what comes over them is what comes without."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable

import pytest

from protocol.constants import DumpFlag
from protocol.errors import AuthenticationError, ConnectionLostError, ServerError, SourceConfigurationError
from replica import BinlogPosition, BinlogStream, XidEvent
from replica.config.options import Options
from replica.source.server_facts import ask, identify, introduce
from replica.source.session import Session
from tests.faults.proxy import FaultProxy
from tests.server.support.faulty_streams import stream_through
from tests.server.support.streams import COMPRESSIONS
from tests.support.servers import Server

from .support.streams import PASSWORD, SECONDS, end_of_log, stream_of, take_rows, user_of

MEGABYTE = 1 << 20
LARGE = 20 * MEGABYTE
each_way = pytest.mark.parametrize(("server", "compression"), COMPRESSIONS, indirect=["server"])
TLS = [pytest.param(mode, id=f"tls {mode}") for mode in ("disabled", "required")]


async def log_in(server: Server, **given: object) -> Session:
    return await Session.open(Options.build(server.dsn(), given))


async def status(session: Session) -> dict[str, str]:
    """What the server says of this connection."""
    rows = await session.query("SHOW SESSION STATUS LIKE 'Compression%'")
    return {str(name): str(value) for name, value in rows}


async def raw_events(
    server: Server, start: BinlogPosition, **given: object
) -> tuple[list[bytes], dict[str, str], int]:
    """The rest of the log as digests, what the server says of the compression, and the bytes that came."""
    options = Options.build(server.dsn(), given)
    session = await Session.open(options)
    try:
        said = await status(session)
        source = await ask(session)
        await introduce(session, source, options)
        await identify(session, source, options)
        before = session.bytes_received
        session.start_dump(
            start.file, start.position, options.server_id, source.dump_flags | DumpFlag.NON_BLOCK
        )
        digests = []
        async with asyncio.timeout(SECONDS):
            while raws := await session.read_events(SECONDS):
                digests += [hashlib.sha256(raw).digest() for raw in raws]
        return digests, said, session.bytes_received - before
    finally:
        await session.aclose()


def write_rows(server: Server, schema: str) -> BinlogPosition:
    """Some thousand small rows, one that compresses well and takes two frames, and one that does not compress."""
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(200), b LONGBLOB)")
    start = end_of_log(server)
    rows = ", ".join(f"('{number} {'x' * (number % 150)}')" for number in range(3000))
    server.query(f"INSERT INTO {schema}.t (a) VALUES {rows}")
    server.query(f"INSERT INTO {schema}.t (b) VALUES (REPEAT('0123456789abcdef', {LARGE // 16}))")
    noise = hashlib.shake_256(b"noise").digest(3 * MEGABYTE)
    server.query(f"INSERT INTO {schema}.t (b) VALUES (%s)", noise)
    for number in range(20):
        server.query(f"INSERT INTO {schema}.t (a) VALUES ('{number}')")
    return start


@each_way
async def test_the_log_is_the_same(server: Server, schema: str, compression: str) -> None:
    start = write_rows(server, schema)
    # MySQL's server of 5.6 has no TLS in its image, and what TLS carries does not depend on it.
    tls = ["disabled", "required"] if server.name in ("mysql:9.7", "mariadb:11.8") else ["disabled"]
    plain, said, size = await raw_events(server, start, tls="disabled")
    assert said["Compression"] == "OFF"
    assert size > LARGE + 3 * MEGABYTE
    for mode in tls:
        compressed, said, packed_size = await raw_events(server, start, tls=mode, compression=compression)
        assert said["Compression"] == "ON"
        if server.version >= (8, 0, 18) and server.family == "mysql":
            assert said["Compression_algorithm"] == compression
        assert compressed == plain
        print(server.name, compression, mode, size, "bytes as", packed_size)
        # The noise stays as large as it is (twice, with MariaDB's ANNOTATE_ROWS), the rest becomes small.
        assert 3 * MEGABYTE < packed_size < size - 0.9 * LARGE


@each_way
async def test_a_stream_goes_on_behind_the_end_of_the_log(
    server: Server, schema: str, compression: str
) -> None:
    """Event after event, each flushed by itself: there frames go on with the packets' numbers."""
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a TEXT)")
    async with stream_of(server, compression=compression, tables=f"{schema}.*", heartbeat=0.2) as stream:
        for number in range(300):
            server.query(f"INSERT INTO {schema}.t VALUES ({number}, REPEAT('x', {number * 7}))")
            if number % 50 == 0:
                # The numbers wrap, and heartbeats come in between.
                await asyncio.sleep(0.5)
                rows = await take_rows(stream, 1 if number == 0 else 50)
                assert rows[-1] == (number, "x" * (number * 7))


@each_way
async def test_any_bit_may_be_flipped(
    seed: int, server: Server, schema: str, compression: str, pytestconfig: pytest.Config
) -> None:
    """On its way, compressed: in the packets' headers, and in what is uncompressed to something else."""
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY, b TEXT)")
    start = end_of_log(server)
    rows = [(number, "x" * number) for number in range(1, 40)]
    server.query(f"INSERT INTO {schema}.t VALUES {', '.join(map(str, rows))}")
    options: dict[str, object] = {
        "start": start,
        "tables": f"{schema}.*",
        "compression": compression,
        "heartbeat": 0.1,
    }
    async with FaultProxy(server.port, is_compressed=True) as proxy:

        async def read() -> BinlogStream:
            async with asyncio.timeout(SECONDS), stream_through(proxy, server, **options) as stream:
                assert await take_rows(stream, len(rows)) == rows
                while not isinstance(await anext(stream), XidEvent):
                    pass
                await stream.acknowledge()
                return stream

        end = (await read()).position
        bits = proxy.dump_bytes * 8
        print("bits", bits)
        count = 1500 if pytestconfig.getoption("long") else 40
        reconnects = 0
        for place in random.Random(seed).sample(range(bits), count):
            print("bit", place)
            proxy.damage_next(place // 8, place % 8)
            stream = await read()
            proxy.disarm()
            assert stream.position == end
            reconnects += stream.status.reconnects
        assert reconnects > count // 2


@each_way
async def test_answers_and_refusals_are_read(server: Server, compression: str) -> None:
    session = await log_in(server, compression=compression)
    try:
        # Of three frames, the last one empty; and one that a single packet cannot hold.
        for size in (2 * ((1 << 24) - 1) - 4, (1 << 24) - 3, 50, 49, 0):
            value = await session.query_value(f"SELECT REPEAT('x', {size})")
            assert len(value) == size
        with pytest.raises(ServerError, match="nosuch"):
            await session.query("SELECT * FROM nosuch.table_of_no_name")
        # Longer than a frame, from us.
        text = "y" * ((1 << 24) + 100)
        assert await session.query_value(f"SELECT LENGTH('{text}')") == str(len(text))
        assert await session.query_value("SELECT 1") == "1"
    finally:
        await session.aclose()


@each_way
async def test_a_killed_connection_is_told_why(server: Server, compression: str) -> None:
    session = await log_in(server, compression=compression)
    try:
        server.query(f"KILL {session.connection_id}")
        with pytest.raises((ServerError, ConnectionLostError)):
            await session.query("SELECT 1")
    finally:
        await session.aclose()


@pytest.mark.parametrize("server", ["mysql:5.6", "mariadb:10.11", "mariadb:11.8"], indirect=True)
async def test_a_server_without_zstd(server: Server) -> None:
    with pytest.raises(
        SourceConfigurationError, match=r"not compress with zstd, but with zlib.*uncompressed"
    ):
        await log_in(server, compression="zstd")
    for wanted, used in (("zstd,zlib", "zlib"), ("zstd,uncompressed", "uncompressed")):
        session = await log_in(server, compression=wanted)
        assert session.compression == used
        assert (await status(session))["Compression"] == ("ON" if used == "zlib" else "OFF")
        await session.aclose()


async def test_what_the_server_allows(extra_server: Callable[..., Server]) -> None:
    """The server's list decides, not its order. If it demands compression, a client without it gets a remedy."""
    server = extra_server("mysql:9.7")
    # PyMySQL could not log in again.
    with server.connect() as connection, connection.cursor() as cursor:

        def allow(algorithms: str) -> None:
            cursor.execute("SET GLOBAL protocol_compression_algorithms = %s", (algorithms,))

        for allowed, wanted, used in (
            ("zlib,zstd", "zstd,zlib", "zstd"),
            ("zlib,uncompressed", "zstd,zlib", "zlib"),
            ("uncompressed", "zstd,zlib,uncompressed", "uncompressed"),
        ):
            allow(allowed)
            session = await log_in(server, compression=wanted)
            assert session.compression == used
            said = await status(session)
            assert said["Compression_algorithm"] == ("" if used == "uncompressed" else used)
            await session.aclose()
        with pytest.raises(
            SourceConfigurationError, match="not compress with zlib or zstd: give 'uncompressed'"
        ):
            await log_in(server, compression=["zlib", "zstd"])
        allow("zstd")
        with pytest.raises(AuthenticationError, match="only: give compression="):
            await log_in(server)


@each_way
async def test_a_refusal_that_answers_the_first_command(server: Server, compression: str) -> None:
    """init_connect is run for users without SUPER; when it fails, the connection is ended with that."""
    server.query("SET GLOBAL init_connect = 'SELECT * FROM nosuch.table_of_no_name'")
    try:
        with user_of(server, grants="") as user:
            options = Options.build(server.dsn(user, PASSWORD), {"compression": compression})
            with pytest.raises(ServerError, match=r"^1184.*init_connect command failed"):
                await Session.open(options)
    finally:
        server.query("SET GLOBAL init_connect = ''")
