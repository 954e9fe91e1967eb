"""The proxy of the fault tests does what its plan says, at the byte that it says, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from tests.faults.proxy import Fault, FaultProxy, Kind, plan

QUERY = b"\x09\0\0\0\x03SELECT 1"
DUMP = b"\x05\0\0\0\x12\0\0\0\0"
ANSWER = bytes(range(256)) * 40
SECONDS = 10


@contextlib.asynccontextmanager
async def source() -> AsyncIterator[tuple[int, list[asyncio.StreamWriter]]]:
    """Answers each packet it gets with `ANSWER`; yields its port and its open connections."""
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        try:
            while True:
                length = int.from_bytes((await reader.readexactly(4))[:3], "little")
                await reader.readexactly(length)
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            connections.remove(writer)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], connections


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def read_all(reader: asyncio.StreamReader) -> tuple[bytes, str]:
    """What comes until the connection ends, and how it ends."""
    received = bytearray()
    try:
        async with asyncio.timeout(SECONDS):
            while data := await reader.read(1 << 16):
                received += data
    except ConnectionResetError:
        return bytes(received), "rst"
    return bytes(received), "fin"


@pytest.mark.parametrize("kind", ["fin", "rst"])
@pytest.mark.parametrize("distance", [0, 1, 5000, len(ANSWER) - 1])
async def test_a_cut_lies_at_its_byte(kind: Kind, distance: int) -> None:
    async with source() as (port, _), FaultProxy(port) as proxy:
        proxy.arm([Fault(kind, distance)])
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(QUERY)
        received, end = await read_all(reader)
        assert end == kind
        # A reset may overtake what was sent before it.
        assert ANSWER[:distance].startswith(received)
        if kind == "fin":
            assert len(received) == distance
        assert proxy.counts == {kind: 1}
        assert (proxy.pending, len(proxy.history)) == (0, 1)
        await closed(writer)


async def test_distances_go_on_over_connections() -> None:
    faults = [Fault("fin", 100), Fault("fin", len(ANSWER) + 50)]
    async with source() as (port, _), FaultProxy(port) as proxy:
        proxy.arm(faults)
        lengths = []
        for _ in faults:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(QUERY + QUERY)
            lengths.append(len((await read_all(reader))[0]))
            await closed(writer)
        assert lengths == [100, len(ANSWER) + 50]


@pytest.mark.parametrize("command", [b"\x12", b"\x1e"])
async def test_flips_wait_for_the_dump_in_pieces_too(command: bytes) -> None:
    dump = DUMP.replace(b"\x12", command)
    async with source() as (port, _), FaultProxy(port) as proxy:
        proxy.arm([Fault("flip", 7, bit=3)])
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        # The login's packets may begin with that byte: they have another number.
        for piece in (b"\x01\0\0\x01\x12", QUERY[:3], QUERY[3:7], QUERY[7:]):
            writer.write(piece)
            await asyncio.sleep(0.01)
        async with asyncio.timeout(SECONDS):
            assert await reader.readexactly(2 * len(ANSWER)) == ANSWER * 2
            for piece in (dump[:4], dump[4:]):
                writer.write(piece)
                await asyncio.sleep(0.01)
            damaged = await reader.readexactly(len(ANSWER))
        assert [(i, a ^ b) for i, (a, b) in enumerate(zip(ANSWER, damaged, strict=True)) if a != b] == [
            (7, 8)
        ]
        await closed(writer)


@pytest.mark.parametrize("is_seen", [False, True])
async def test_a_stall_keeps_the_connection_open(is_seen: bool) -> None:
    async with source() as (port, connections), FaultProxy(port) as proxy:
        proxy.arm([Fault("stall", 10, is_seen)])
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(QUERY)
        async with asyncio.timeout(SECONDS):
            assert await reader.readexactly(10) == ANSWER[:10]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.readexactly(1)
        assert not reader.at_eof()
        assert len(connections) == 1
        await closed(writer)
        async with asyncio.timeout(SECONDS):
            while proxy.open_connections or len(connections) == is_seen:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_black_hole_holds_what_comes_and_new_connections() -> None:
    async with source() as (port, _), FaultProxy(port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        proxy.black_hole()
        writer.write(QUERY)
        late_reader, late_writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        late_writer.write(QUERY)
        for silent in (reader, late_reader):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await silent.read(1)
        proxy.serve()
        async with asyncio.timeout(SECONDS):
            assert await reader.readexactly(len(ANSWER)) == ANSWER
            assert await late_reader.readexactly(len(ANSWER)) == ANSWER
        proxy.cut_now()
        assert [(await read_all(each))[1] for each in (reader, late_reader)] == ["rst", "rst"]
        await closed(writer)
        await closed(late_writer)


def test_a_plan_has_what_was_asked_for_and_is_repeated_by_its_seed() -> None:
    faults = plan(random.Random(5), cuts=100, stalls=10, flips=12, reach=1_000_000)
    assert Counter(fault.kind for fault in faults) == {"fin": 50, "rst": 50, "stall": 10, "flip": 12}
    assert sum(fault.distance for fault in faults) <= 1_000_000
    assert min(fault.distance for fault in faults) < 1000
    assert faults == plan(random.Random(5), cuts=100, stalls=10, flips=12, reach=1_000_000)
