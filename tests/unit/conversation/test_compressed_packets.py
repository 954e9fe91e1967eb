"""Compressed packets: packing, cuts anywhere, the servers' numbering, damage, and content larger than announced."""

from __future__ import annotations

import builtins
import random
import sys
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.constants import MAX_FRAME_PAYLOAD, Capability
from protocol.conversation.commands import BinlogDump, Query, Quit, SemiSyncAck
from protocol.conversation.compressed_packets import (
    COMPRESSIONS,
    ZSTD_LEVEL,
    CompressionName,
    choose_compression,
)
from protocol.conversation.login import Authenticated
from protocol.conversation.messages import Err, Handshake, HandshakeResponse, Ok
from protocol.conversation.packets import FrameStream
from protocol.conversation.phases import NEED_DATA
from protocol.conversation.replica_side import Connection
from protocol.errors import (
    ConfigurationError,
    MissingExtraError,
    ProtocolError,
    ServerError,
    SourceConfigurationError,
)
from replica.config.options import Options
from tests.support.fake_source import MARIADB_CAPABILITIES, MYSQL_CAPABILITIES, FakeSource, connect
from tests.support.feeding import all_cuts, check_parser
from tests.support.packed_packets import ALGORITHMS, codec_of, frame, packed, packet, stream_of

# page_protocol_basic_compression_packet: one frame, several frames in one packet, and an uncompressed packet.
DOCUMENTED_QUERY = bytes.fromhex(
    "220000003200 00789cd3636060602e4ecd494d2e51503230343236313533b7b0c4cd520200 0cd10a6c".replace(" ", "")
)
DOCUMENTED_ROWS = bytes.fromhex(
    "4a0000017700 00789c636460606454656060624e494d636060e02f4a2d484d2cd1504a54d2513035d064e0e16030028aff656490"
    "676060656060fe0754cc60ccc0c06294483200ea6705eb07008df91c64".replace(" ", "")
)
DOCUMENTED_PLAIN = bytes.fromhex("0d000000000000090000000353454c4543542031")


def read_all(stream: FrameStream) -> list[bytes]:
    payloads = []
    while (payload := stream.read()) is not None:
        payloads.append(payload)
    return payloads


def test_the_documented_packets() -> None:
    stream = stream_of("zlib")
    stream.receive(DOCUMENTED_QUERY)
    assert stream.read() == b'\x03select "012345678901234567890123456789012345"'
    assert stream.buffered == 0
    stream = stream_of("zlib")
    stream.start_command()
    stream.encode(b"\x03...")
    stream.receive(DOCUMENTED_ROWS)
    rows = read_all(stream)
    assert rows[0] == b"\x01"
    assert rows[3:] == [b"2" + b"a" * 50, b"\xfe\0\0\2\0"]
    stream = stream_of("zlib")
    assert stream.encode(b"\x03SELECT 1") == DOCUMENTED_PLAIN


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_is_sent_is_read(name: CompressionName) -> None:
    sizes = (0, 1, 45, 46, 47, 1000, 70_000, MAX_FRAME_PAYLOAD - 5, MAX_FRAME_PAYLOAD, 2 * MAX_FRAME_PAYLOAD)
    for size in sizes:
        writer, reader = stream_of(name), stream_of(name)
        # One half compresses, the other does not.
        payload = bytes(size // 2) + random.Random(size).randbytes(size - size // 2)
        wire = writer.encode(payload)
        reader.receive(wire)
        assert reader.read() == payload
        assert reader.buffered == 0
        # The answer takes the number of the next packet, even if fewer frames than packets were sent.
        reader.sequence = reader._packets.sequence
        writer.receive(reader.encode(b"answer" * 20))
        assert writer.read() == b"answer" * 20


def test_what_does_not_become_smaller_is_sent_as_it_is() -> None:
    noise = random.Random(1).randbytes(1000)
    for name in ALGORITHMS:
        assert stream_of(name).encode(noise) == packet(frame(noise, 0), 0)
        assert len(stream_of(name).encode(bytes(1000))) < 100


def as_a_server(name: CompressionName, payloads: list[bytes], seed: int) -> bytes:
    """Frames as net_serv.cc sends them: flushes at random, and packets cut where a buffer was full."""
    generator = random.Random(seed)
    wire, buffer = [], b""
    number = frame_number = 1

    def write(data: bytes) -> None:
        nonlocal number
        as_is = generator.random() < 0.3
        wire.append(packet(data, number) if as_is else packed(name, data, number))
        number = (number + 1) & 0xFF

    for payload in payloads:
        buffer += frame(payload, frame_number)
        frame_number = (frame_number + 1) & 0xFF
        while len(buffer) > 64:
            write(buffer[:64])
            buffer = buffer[64:]
        if generator.random() < 0.3:
            if buffer:
                write(buffer)
            buffer, frame_number = b"", number
    if buffer:
        write(buffer)
    return b"".join(wire)


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_any_cut_gives_the_same_payloads(name: CompressionName, bulk: bool) -> None:
    payloads = [b"\0" + bytes([index]) * (index * 7 % 200) for index in range(60)]
    wire = as_a_server(name, payloads, seed=7)
    for pieces in all_cuts(wire, seed=21):
        stream = stream_of(name)
        stream.encode(b"the command")
        got = []
        for piece in pieces:
            stream.receive(piece)
            if not bulk:
                got += read_all(stream)
                continue
            while run := stream.read_prefixed(b"\0"):
                got += [b"\0" + rest for rest in run]
        assert got == payloads
        assert stream.buffered == 0


@given(st.lists(st.binary(max_size=80), max_size=40), st.integers(0, 1 << 32))
def test_bulk_and_single_reads_agree(payloads: list[bytes], seed: int) -> None:
    wire = as_a_server("zlib", payloads, seed)
    stream = stream_of("zlib")
    stream.encode(b"")
    cut = seed % (len(wire) + 1)
    got = []
    for piece in (wire[:cut], wire[cut:]):
        stream.receive(piece)
        while True:
            prefixed = stream.read_prefixed(b"\0")
            got += [b"\0" + rest for rest in prefixed]
            if prefixed:
                continue
            other = stream.read()
            if other is None:
                break
            assert not other.startswith(b"\0")
            got.append(other)
    assert got == payloads


def test_frames_are_numbered_on_or_as_their_packet() -> None:
    def read(*packets: bytes) -> list[bytes]:
        stream = stream_of("zlib")
        stream.receive(b"".join(packets))
        return read_all(stream)

    two = frame(b"a", 0) + frame(b"b", 1)
    assert read(packet(two, 0), packet(frame(b"c", 2), 1)) == [b"a", b"b", b"c"]
    assert read(packet(two, 0), packet(frame(b"c", 1), 1)) == [b"a", b"b", b"c"]
    with pytest.raises(ProtocolError, match="frame number 3 came where 2 was due"):
        read(packet(two, 0), packet(frame(b"c", 3), 1))
    # No peer flushes within a packet or in the middle of a frame.
    with pytest.raises(ProtocolError, match="frame number 1 came where 3 was due"):
        read(packet(two, 0), packet(frame(b"c", 2) + frame(b"d", 1), 1))
    with pytest.raises(ProtocolError, match="frame number 1 came where 2 was due"):
        read(packet(two + frame(b"c", 1)[:2], 0), packet(frame(b"c", 1)[2:], 1))


@pytest.mark.parametrize("number", [0, 2, 255])
def test_a_gap_in_the_packets_numbers_is_an_error(number: int) -> None:
    stream = stream_of("zlib")
    stream.receive(packet(frame(b"a", 0), 0) + packet(frame(b"b", 1), number))
    assert stream.read() == b"a"
    with pytest.raises(ProtocolError, match=f"packet number {number} came where 1 was due"):
        stream.read()


@pytest.mark.parametrize("number", [0, 1])
def test_a_restart_is_allowed_once(number: int) -> None:
    stream = stream_of("zlib")
    stream.receive(packet(frame(b"a", 0) + frame(b"b", 1) + frame(b"c", 2), 0))
    assert len(read_all(stream)) == 3
    stream.encode(bytes(100))
    stream.allow_restart(1)
    stream.receive(packet(frame(b"d", 1), number) + packet(frame(b"e", 2), number + 1))
    assert read_all(stream) == [b"d", b"e"]
    stream.receive(packet(frame(b"f", 1), number))
    with pytest.raises(ProtocolError):
        stream.read()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_does_not_hold_what_it_says(name: CompressionName) -> None:
    data = frame(b"x" * 1000, 0)
    for size in (1, 500, len(data) - 1, len(data) + 1, MAX_FRAME_PAYLOAD):
        stream = stream_of(name)
        stream.receive(packed(name, data, 0, size))
        with pytest.raises(ProtocolError, match=f"does not hold the {size} bytes"):
            stream.read()
    compressed = codec_of(name).compress(data)

    def parse(body: bytes) -> bytes | None:
        stream = stream_of(name)
        stream.receive(packet(body, 0, len(data)))
        return stream.read()

    check_parser(parse, compressed)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_bomb_takes_no_memory(name: CompressionName) -> None:
    """50 MB compressed to some kilobytes, in packets that announce 1,000 bytes or 16 MB, the most possible."""
    bomb = codec_of(name).compress(bytes(50 << 20))
    for size, limit in ((1000, 4 << 20), (MAX_FRAME_PAYLOAD, 3 * MAX_FRAME_PAYLOAD)):
        stream = stream_of(name)
        stream.receive(packet(bomb, 0, size))
        tracemalloc.start()
        try:
            with pytest.raises(ProtocolError, match="does not hold"):
                stream.read()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < limit


def test_many_packets_are_uncompressed_one_at_a_time() -> None:
    """However much the packets hold: the events of one packet are returned before the next is decompressed."""
    payload = b"\0" + bytes(MAX_FRAME_PAYLOAD - 10)
    wire = b"".join(packed("zlib", frame(payload, index), index) for index in range(8))
    assert len(wire) < 1 << 20
    stream = stream_of("zlib")
    stream.receive(wire)
    tracemalloc.start()
    try:
        count = 0
        while events := stream.read_prefixed(b"\0"):
            count += len(events)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 8
    assert peak < 6 * MAX_FRAME_PAYLOAD


@pytest.mark.parametrize("bulk", [False, True])
def test_empty_packets_add_up_to_nothing(bulk: bool) -> None:
    """The number of each was allowed to the next frame: a million of them took quadratic time and memory."""
    stream = stream_of("zlib")
    stream.receive(b"".join(packet(b"", number & 0xFF) for number in range(5000)))
    assert not (stream.read_prefixed(b"\0") or stream.read()) if bulk else stream.read() is None
    assert len(stream._restarts) <= 1


def test_a_window_of_more_than_a_packet_is_refused() -> None:
    zstd = sys.modules["backports.zstd" if sys.version_info < (3, 14) else "compression.zstd"]
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    data = compressor.compress(frame(b"x" * 100, 0)) + compressor.flush()
    stream = stream_of("zstd")
    stream.receive(packet(data, 0, 104))
    with pytest.raises(ProtocolError, match="damaged"):
        stream.read()


def test_a_payload_over_the_limit_is_refused_from_its_header_on() -> None:
    stream = stream_of("zlib", 1000)
    stream.receive(packet(frame(bytes(1001), 0)[:10], 0))
    with pytest.raises(ProtocolError, match="1001 bytes or more"):
        stream.read()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_flipped_bits_end_in_typed_errors(name: CompressionName) -> None:
    """zlib data has a checksum; MySQL's zstd data has none, so a byte may be decompressed wrong."""
    payloads = [b"\0event %d " % index + bytes(100) for index in range(5)]
    wire = b"".join(packed(name, frame(payload, index), index) for index, payload in enumerate(payloads))
    errors = 0
    for position in range(len(wire)):
        for bit in (1, 16, 128):
            damaged = bytearray(wire)
            damaged[position] ^= bit
            stream = stream_of(name)
            stream.receive(bytes(damaged))
            got = []
            try:
                got = read_all(stream)
            except ProtocolError:
                errors += 1
            if name == "zlib":
                assert got == payloads[: len(got)]
            assert stream.buffered <= len(wire) + MAX_FRAME_PAYLOAD
    assert errors > len(wire)


# In the conversation.


def log_in(
    name: CompressionName, behind: bytes = b"", **options: object
) -> tuple[Connection, FakeSource, HandshakeResponse]:
    """A connection that has logged in; ``behind`` arrives in one piece with the OK."""
    client, source = connect(compression=[name], **options)
    source.greet()
    assert isinstance(client.next_event(), Handshake)
    response = source.read_login()
    ok = source.frames.encode(Ok().encode())
    client.receive_data(ok + behind)
    assert client.next_event() == Authenticated(Ok())
    assert client.compression == name
    source.frames = stream_of(name)
    return client, source, response


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_compressed_conversation(name: CompressionName) -> None:
    client, source, response = log_in(name)
    assert (Capability.COMPRESS in response.capabilities) == (name == "zlib")
    assert (Capability.ZSTD_COMPRESSION in response.capabilities) == (name == "zstd")
    assert response.zstd_level == (ZSTD_LEVEL if name == "zstd" else 0)
    for _ in range(2):
        client.send_query("SELECT 1" + " " * 1000)
        sent = client.data_to_send()
        assert len(sent) < 200
        source.frames.start_command()
        source.frames.receive(sent)
        assert Query.parse(source.frames.read() or b"").sql.strip() == "SELECT 1"
        source.send(Ok(info="x" * 500))
        assert client.next_event() == Ok(info="x" * 500)
        assert client.next_event() is NEED_DATA
    client.send_dump("binlog.000001", 4, 4711, 2)
    source.frames.start_command()
    source.frames.receive(client.data_to_send())
    assert BinlogDump.parse(source.frames.read() or b"").file == "binlog.000001"
    events = [bytes([index & 255]) * 300 for index in range(600)]
    source.send(*(b"\0" + event for event in events))
    got: list[bytes] = []
    while run := client.next_events():
        got += run
    assert got == events
    client.send_quit()
    frames = stream_of(name)
    frames.receive(client.data_to_send())
    assert Quit.parse(frames.read() or b"") == Quit()


def test_a_packet_in_one_piece_with_the_ok() -> None:
    """init_connect failed: the server's ERR packet has the number after the client's last packet."""
    refusal = Err(1184, "08S01", "Aborted connection: init_connect command failed")
    for number in (0, 2):
        behind = packet(frame(refusal.encode(), 3 if number else 0), number)
        client, _, _ = log_in("zlib", behind)
        with pytest.raises(ServerError, match="init_connect"):
            client.next_event()


def test_acknowledgements_are_packets_of_their_own() -> None:
    client, source, _ = log_in("zlib")
    client.semi_sync = True
    client.send_dump("binlog.000001", 4, 4711, 2)
    client.data_to_send()
    source.frames.sequence = 1
    one, two, three, four = (bytes([number]) * 19 for number in (1, 2, 3, 4))
    client.receive_data(packet(frame(b"\0\xef\0" + one, 1) + frame(b"\0\xef\1" + two, 2), 1))
    assert client.next_events() == [one]
    assert client.next_events() == [two]
    assert client.ack_requested
    client.send_semi_sync_ack("binlog.000001", 400)
    frames = stream_of("zlib")
    frames.receive(client.data_to_send())
    assert SemiSyncAck.parse(frames.read() or b"") == SemiSyncAck("binlog.000001", 400)
    # MySQL's source clears both counters and then sets the frame counter to 1.
    client.receive_data(packet(frame(b"\0\xef\0" + three, 1), 0) + packet(frame(b"\0\xef\0" + four, 1), 1))
    got: list[bytes] = []
    while run := client.next_events():
        got += run
    assert got == [three, four]


def test_damage_ends_the_conversation() -> None:
    client, _, _ = log_in("zlib")
    client.send_query("SELECT 1")
    client.receive_data(packet(b"nothing that zlib knows", 1, 100))
    for _ in range(2):
        with pytest.raises(ProtocolError, match="damaged"):
            client.next_event()


def test_the_first_choice_that_the_server_has() -> None:
    both, zlib_only, none = MYSQL_CAPABILITIES, MARIADB_CAPABILITIES, Capability.PROTOCOL_41
    assert choose_compression([], both) == "uncompressed"
    assert choose_compression(["zstd", "zlib"], both) == "zstd"
    assert choose_compression(["zlib", "zstd"], both) == "zlib"
    assert choose_compression(["zstd", "zlib"], zlib_only) == "zlib"
    assert choose_compression(["uncompressed", "zlib"], both) == "uncompressed"
    assert choose_compression(["zstd", "uncompressed"], none) == "uncompressed"
    with pytest.raises(SourceConfigurationError, match=r"with zstd, but with zlib: give 'uncompressed'"):
        choose_compression(["zstd"], zlib_only)
    with pytest.raises(SourceConfigurationError, match=r"with zstd or zlib: give"):
        choose_compression(["zstd", "zlib"], none)


def test_a_refused_server_is_told_nothing() -> None:
    client, source = connect(compression=["zstd"])
    source.greet(capabilities=MARIADB_CAPABILITIES)
    with pytest.raises(SourceConfigurationError, match="does not compress"):
        client.next_event()
    assert source.is_quiet()


def test_the_level_is_the_end_of_a_login() -> None:
    capabilities = Capability.PROTOCOL_41 | Capability.SECURE_CONNECTION | Capability.ZSTD_COMPRESSION
    response = HandshakeResponse(capabilities, "repl", b"proof", zstd_level=7)
    assert response.encode()[-1] == 7
    assert check_parser(HandshakeResponse.parse, response.encode()) == response


# As an option.


def build(**given: object) -> Options:
    return Options.build("mysql://repl@db", given)


def test_compression_as_an_option() -> None:
    assert build().compression == ()
    assert build(compression="zlib").compression == ("zlib",)
    assert build(compression="zstd, zlib").compression == ("zstd", "zlib")
    assert build(compression=["zstd", "uncompressed"]).compression == ("zstd", "uncompressed")
    assert (
        Options.build("mysql://repl@db/?compression=zlib,uncompressed", {}).compression == COMPRESSIONS[::2]
    )
    for wrong in ("gzip", "", "zlib,", True, 5, [None]):
        with pytest.raises(ConfigurationError, match=r"^compression: of zlib, zstd, uncompressed"):
            build(compression=wrong)


def test_zstd_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def without_zstd(name: str, *rest: object) -> object:
        if name.startswith(("backports", "compression")):
            raise ImportError(name)
        return real_import(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without_zstd)
    with pytest.raises(MissingExtraError, match=r"Protocol compression with zstd needs the extra \[zstd\]"):
        build(compression=["zlib", "zstd"])
    with pytest.raises(MissingExtraError, match=r"\[zstd\]"):
        Connection("repl", compression=["zstd"])
    assert build(compression="zlib").compression == ("zlib",)


def test_zlib_is_what_uncompress_reads() -> None:
    """The documented function: a stream with the header and the checksum of zlib."""
    wire = stream_of("zlib").encode(bytes(1000))
    assert zlib.decompress(wire[7:]) == frame(bytes(1000), 0)


def leave_all(
    items: list[bytes], data: bytes, position: int, limit: int, sequence: int, largest: int
) -> tuple[int, int, int]:
    """Leaves every frame to be read on its own."""
    return position, sequence, position


@pytest.mark.parametrize("name", ALGORITHMS)
def test_payloads_are_made_into_items_across_packets(name: CompressionName) -> None:
    """Nothing readable is left when none is returned, although packets have still to be unpacked."""
    stream = stream_of(name)
    frames = b"".join(frame(b"\0" + b"%d" % number * 9, number) for number in range(20))
    for number, begin in enumerate(range(0, len(frames), 7)):
        stream.receive(packed(name, frames[begin : begin + 7], number))
    items: list[bytes] = []
    while (found := stream.read_walked(b"\0", leave_all, list))[0]:
        items += found[0]
    assert items == [b"%d" % number * 9 for number in range(20)]
    assert stream.read() is None
