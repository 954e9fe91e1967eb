"""Both sides of a compressed connection, joined in memory, and damaged packets sent to the server's side."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from protocol.constants import MAX_FRAME_PAYLOAD, Capability
from protocol.conversation.commands import (
    Answered,
    BinlogDump,
    BinlogDumpGtid,
    Query,
    RegisterReplica,
    SemiSyncAck,
)
from protocol.conversation.compressed_packets import (
    ALL_COMPRESSIONS,
    CompressedPackets,
    CompressionName,
    available_compressions,
)
from protocol.conversation.login import Authenticated
from protocol.conversation.messages import Err, Handshake, HandshakeResponse, Ok, ResultSet
from protocol.conversation.packets import FrameStream
from protocol.conversation.phases import NEED_DATA, Phase
from protocol.conversation.replica_side import Connection
from protocol.conversation.server_plugins import Account, StoredPassword
from protocol.conversation.source_side import Acceptor
from protocol.errors import ProtocolError, ReplicaError, ServerError
from tests.support.fake_source import NONCE, PASSWORD, sha2_scramble
from tests.support.packed_packets import ALGORITHMS, codec_of, frame, packed, packet, stream_of
from tests.support.source_pair import OFFERED, USER, Pair, logged_in

COMPRESSING = OFFERED | ALL_COMPRESSIONS
PLUGIN = "caching_sha2_password"
EVENT = bytes(range(19)) + b"an event"


def pair_of(name: CompressionName, **options: Any) -> Pair:
    return logged_in(**({"capabilities": COMPRESSING, "compression": [name]} | options))


def dumping(name: CompressionName, *, semi_sync: bool = False, **options: Any) -> Pair:
    pair = pair_of(name, **options)
    pair.client.semi_sync = pair.server.semi_sync = semi_sync
    assert isinstance(pair.ask(lambda client: client.send_dump("binlog.000001", 4, 4711)), BinlogDump)
    return pair


def received(pair: Pair) -> list[bytes]:
    pair.move()
    events: list[bytes] = []
    while run := pair.client.next_events():
        events += run
    return events


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_commands_and_answers(name: CompressionName, chunk: int) -> None:
    pair = pair_of(name, chunk=chunk)
    assert pair.client.compression == name
    for number in range(300):
        sql = f"SELECT {number}" + " " * (number * 5)
        assert pair.ask(partial(Connection.send_query, sql=sql)) == Query(sql)
        rows = [(str(number), "x" * row) for row in range(number % 20)]
        if number % 3 == 0:
            pair.server.send_rows(("a", "b"), rows)
        elif number % 3 == 1:
            pair.server.send_ok()
        else:
            pair.server.send_error(Err(1193, "HY000", "Unknown system variable"))
        pair.move()
        if number % 3 == 2:
            with pytest.raises(ServerError, match="Unknown system variable"):
                pair.client.next_event()
            continue
        answer = pair.client.next_event()
        if isinstance(answer, ResultSet):
            assert answer.rows == rows
        else:
            assert answer == Ok()
    command = pair.ask(lambda client: client.send_register_replica(4711, host="here"))
    assert command == RegisterReplica(4711, "here")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_dump_and_its_end(name: CompressionName) -> None:
    pair = dumping(name)
    events = [EVENT + bytes(index) for index in range(600)]
    for event in events[:300]:
        pair.server.send_events([event])
        assert received(pair) == [event]
    pair.server.send_events(events)
    large = b"large" * (MAX_FRAME_PAYLOAD // 4)
    pair.server.send_events([large, EVENT])
    assert received(pair) == [*events, large, EVENT]
    pair.server.send_dump_end()
    assert received(pair) == []
    assert pair.client.dump_ended
    assert pair.server.phase is Phase.READY


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_dump_that_is_refused(name: CompressionName) -> None:
    pair = dumping(name)
    pair.server.send_events([EVENT])
    pair.server.send_error(Err(1236, "HY000", "no more"))
    pair.move()
    assert pair.client.next_events() == [EVENT]
    with pytest.raises(ServerError, match="no more"):
        pair.client.next_events()


@pytest.mark.parametrize("version", ["9.7.4", "11.8.6-MariaDB"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_acknowledgements(name: CompressionName, version: str) -> None:
    """Acknowledgements arrive even if the source has sent more after the event that asked for one."""
    pair = dumping(name, semi_sync=True, version=version)
    for number in range(300):
        more = [EVENT + bytes([index]) * 100 for index in range(number % 3)]
        pair.server.send_events(more)
        pair.server.send_event_to_acknowledge(EVENT)
        pair.server.send_events(more)
        pair.move()
        got: list[bytes] = []
        while run := pair.client.next_events():
            got += run
            if pair.client.ack_requested:
                pair.client.send_semi_sync_ack("binlog.000001", number)
        assert got == [*more, EVENT, *more]
        pair.seen.clear()
        pair.move()
        assert pair.seen == [SemiSyncAck("binlog.000001", number)]


def test_what_is_offered_is_understood() -> None:
    assert available_compressions() == ALL_COMPRESSIONS
    # A client that does not ask for compression gets none.
    pair = logged_in(capabilities=COMPRESSING)
    assert pair.client.compression == "uncompressed"
    assert pair.ask(lambda client: client.send_query("SELECT 1")) == Query("SELECT 1")


def login(capabilities: Capability) -> tuple[Acceptor, bytes]:
    """A server, and a client's answer to its greeting."""
    accounts = {USER: Account(StoredPassword.of(PASSWORD))}
    server = Acceptor(Handshake("9.7.4", 7, COMPRESSING, NONCE + b"\0", PLUGIN), accounts)
    server.data_to_send()
    frames = FrameStream()
    frames.sequence = 1
    answer = HandshakeResponse(
        capabilities & ~Capability.SSL & ~Capability.QUERY_ATTRIBUTES,
        USER,
        sha2_scramble(PASSWORD),
        auth_plugin=PLUGIN,
    )
    return server, frames.encode(answer.encode())


def test_a_command_in_one_piece_with_the_login() -> None:
    server, answer = login(OFFERED | Capability.COMPRESS)
    server.receive_data(answer + stream_of("zlib").encode(Query("SELECT 1").encode()))
    server.next_event()
    assert server.next_event() == Query("SELECT 1")


WRONG = [
    packet(frame(b"\x0e", 0), 1),
    packet(b"no zlib", 0, 50),
    packed("zlib", frame(b"\x0e" * 100, 0), 0, 10),
    packed("zlib", frame(b"\x0e" * 100, 3), 0),
    packet(frame(b"", 0), 0),
]


@pytest.mark.parametrize("data", WRONG)
def test_wrong_packets_are_told_and_end_it(data: bytes) -> None:
    server, answer = login(OFFERED | Capability.COMPRESS)
    server.receive_data(answer)
    server.next_event()
    server.data_to_send()
    server.receive_data(data)
    for _ in range(2):
        with pytest.raises(ProtocolError):
            server.next_event()
    assert server.phase is Phase.CLOSED
    said = CompressedPackets(codec_of("zlib"))
    said.receive(server.data_to_send())
    said.sequence = said._received[3]
    unpacked = said.unpack()
    assert unpacked is not None
    assert Err.parse(unpacked[1][4:]).code == 1835


def test_random_damage_ends_in_errors_of_the_tree(seed: int) -> None:
    generator = random.Random(seed)
    commands = [
        Query("SELECT 1" + " " * 500).encode(),
        RegisterReplica(4711, "here").encode(),
        BinlogDumpGtid(bytes(200), 4711).encode(),
        SemiSyncAck("f", 5).encode(),
    ]
    for _ in range(2000):
        name = generator.choice(ALGORITHMS)
        server, answer = login(
            OFFERED | (Capability.COMPRESS if name == "zlib" else Capability.ZSTD_COMPRESSION)
        )
        server.receive_data(answer)
        wire = bytearray(b"".join(stream_of(name).encode(command) for command in commands))
        for _ in range(generator.randrange(1, 4)):
            wire[generator.randrange(len(wire))] = generator.randrange(256)
        try:
            for start in range(0, len(wire), 50):
                server.receive_data(bytes(wire[start : start + 50]))
                while (event := server.next_event()) is not NEED_DATA:
                    if server.phase is Phase.QUERY:
                        server.send_rows(("a",), [("1",)])
                    elif server.phase is Phase.REGISTER:
                        server.send_ok()
                    elif isinstance(event, BinlogDump | BinlogDumpGtid):
                        server.send_events([EVENT, EVENT])
                    server.data_to_send()
        except ReplicaError:
            assert server.phase is Phase.CLOSED


def test_the_login_itself_is_not_compressed() -> None:
    pair = Pair(capabilities=COMPRESSING, compression=["zlib"], full=True)
    assert isinstance(pair.log_in()[-1], Authenticated)
    assert bytes(pair.sent[3:4]) == b"\1"


@pytest.mark.parametrize("command", [b"\x0e", b"\x99"])
def test_commands_in_one_packet_are_answered_one_by_one(command: bytes) -> None:
    """23 KB of packed pings held the server's loop for 10 s, and made 57 MB of answers before the first was sent."""
    pair = pair_of("zlib")
    pair.server.receive_data(packed("zlib", frame(command, 0) * 1000, 0))
    for _ in range(1000):
        assert pair.server.next_event() == Answered()
        assert len(pair.server.data_to_send()) < 100
    assert pair.server.next_event() is NEED_DATA
