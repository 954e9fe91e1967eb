"""``max_event_bytes``: sizes that a log announces and does not have, or that grow when they are uncompressed.

Each test counts bytes of memory (``tracemalloc``) where a wrong size would take many.
"""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import replica
from protocol.binlog.batch_decoder import BatchDecoder
from protocol.binlog.events import TransactionPayloadEvent
from protocol.binlog.raw_reader import RawEventReader
from protocol.constants import BINLOG_MAGIC, ColumnType, EventType
from protocol.conversation.packets import FrameStream
from protocol.errors import DecodeError
from protocol.rows.table import parse_names, parse_shape
from protocol.wire import Reader
from protocol.zstd import load_zstd
from replica.config.options import Options
from tests.support import binlog_encoder as encoder
from tests.support.log_builder import numbered_log
from tests.support.raw_events import format_description, int_rows, int_table_map, query, raw_event

LIMIT = 1 << 20
#: How often the limit fits into the memory that the decoder may take on the way to its error.
MULTIPLE = 4


def refused(run: Callable[[], object], match: str = "max_event_bytes") -> None:
    """``run`` raises ``DecodeError`` that names the limit, and takes little memory before."""
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=match):
            run()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"{peak} bytes")
    assert peak < MULTIPLE * LIMIT


def decoder(version: str = "9.7.4") -> BatchDecoder:
    made = BatchDecoder(max_event_bytes=LIMIT)
    made.decode(format_description(version, 0))
    return made


# The event itself


def file_with(size: int, body: bytes) -> bytes:
    """A file whose second event announces ``size`` bytes."""
    raw = raw_event(EventType.ROWS_QUERY, body)
    return BINLOG_MAGIC + format_description("9.7.4", 0) + raw[:9] + struct.pack("<I", size) + raw[13:]


def read_all(data: bytes, limit: int) -> int:
    reader = RawEventReader(io.BytesIO(data).read, max_event_bytes=limit)
    count = 0
    while (batch := reader.read_batch()) or (reader.read_event() is not None):
        count += len(batch) or 1
    return count


def test_an_event_in_a_file() -> None:
    data = bytes(8 * LIMIT)
    log = file_with(len(data) + 19, data)
    refused(lambda: read_all(log, LIMIT))


def test_the_largest_event_of_a_batch() -> None:
    """An event that is in the buffer already counts, too; one byte less is read."""
    data = file_with(19 + 6000, bytes(6000))
    assert read_all(data, 6019) == 2
    refused(lambda: read_all(data, 6018))


def test_an_event_on_the_wire() -> None:
    for prefix in (b"\0", b"\0\xef\0"):
        frames = FrameStream()
        frames.limit_events(LIMIT)
        frames.receive(struct.pack("<I", LIMIT + 4) + prefix)
        refused(lambda: frames.read_prefixed(prefix))  # noqa: B023
        whole = FrameStream()
        whole.limit_events(LIMIT)
        whole.receive(struct.pack("<I", LIMIT + len(prefix)) + prefix + bytes(LIMIT))
        assert list(map(len, whole.read_prefixed(prefix))) == [LIMIT]


# Inside of an event


def payload(content: bytes, announced: int, compression: int = 0) -> bytes:
    fields = b"\2\1" + bytes([compression]) if compression < 251 else b"\2\3\xfc\xff\0"
    fields += b"\3\x09\xfe" + struct.pack("<Q", announced) + b"\1\x09\xfe" + struct.pack("<Q", len(content))
    return raw_event(EventType.TRANSACTION_PAYLOAD, fields + b"\0" + content)


def inside(raw: bytes) -> int:
    made = decoder()
    event = made.decode(raw)
    assert isinstance(event, TransactionPayloadEvent)
    return sum(1 for _ in made.payload_events(event))


def zeros(size: int) -> Iterator[bytes]:
    piece = bytes(1 << 16)
    return (piece for _ in range(size >> 16))


def test_a_large_event_inside_a_compressed_transaction() -> None:
    size = 256 << 20
    compressor = load_zstd("the test").ZstdCompressor()
    head = raw_event(EventType.ROWS_QUERY, b"")
    content = compressor.compress(head[:9] + struct.pack("<I", size + 19) + head[13:])
    content += b"".join(map(compressor.compress, zeros(size))) + compressor.flush()
    assert len(content) < 64 << 10
    refused(lambda: inside(payload(content, size + 19)))


@pytest.mark.parametrize("fields", [b"\2\1\0" * 2, bytes(range(4, 70))])
def test_fields_of_a_compressed_transaction(fields: bytes) -> None:
    """Each of them was kept: 2 million took 170 MB."""
    body = fields if len(fields) < 10 else b"".join(bytes([field, 1, 0]) for field in fields)
    with pytest.raises(DecodeError, match="a field twice, or more fields than there are"):
        decoder().decode(raw_event(EventType.TRANSACTION_PAYLOAD, body + b"\0"))


def test_a_compressed_transaction_with_more_than_it_announces() -> None:
    events = query("SELECT 1") * 10_000
    content = load_zstd("the test").compress(events)
    assert inside(payload(content, len(events))) == 10_000
    refused(lambda: inside(payload(content, len(events) - 1)), r"more than the \d+ bytes that it announces")


def compressed_part(size: int) -> bytes:
    """What MariaDB's log_bin_compress makes of so many zeros."""
    compressor = zlib.compressobj()
    stream = b"".join(map(compressor.compress, zeros(size))) + compressor.flush()
    return b"\x84" + struct.pack(">I", size) + stream


def test_a_compressed_statement() -> None:
    body = query("")[19:]
    raw = raw_event(EventType.MARIADB_QUERY_COMPRESSED, body + compressed_part(64 << 20))
    refused(lambda: decoder("11.8.6-MariaDB").decode(raw))


def test_compressed_rows() -> None:
    made = decoder("11.8.6-MariaDB")
    made.decode(int_table_map())
    head = (7).to_bytes(6, "little") + b"\1\0" + b"\1\xff"
    raw = raw_event(EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1, head + compressed_part(64 << 20))
    refused(lambda: made.decode(raw))


def test_the_compressed_columns_of_an_event_have_one_limit() -> None:
    """Each column is below the limit; all together are not. The next event counts anew."""
    made = decoder("11.8.6-MariaDB")
    types = bytes([ColumnType.MARIADB_BLOB_COMPRESSED])
    made.decode(raw_event(EventType.TABLE_MAP, encoder.table_map(7, b"s", b"t", types, b"\4", [False], {})))
    value = compressed_part(LIMIT // 2)
    row = b"\0" + struct.pack("<I", len(value)) + value

    def rows(count: int) -> bytes:
        body = encoder.rows_event(EventType.WRITE_ROWS_V1, 7, 1, [[True]], row * count)
        return raw_event(EventType.WRITE_ROWS_V1, body)

    for _ in range(5):
        event = made.decode(rows(2))
        assert [len(row[0]) for row in event.rows] == [LIMIT // 2] * 2  # type: ignore[union-attr]
    many = rows(40)
    refused(lambda: made.decode(many))


@pytest.mark.parametrize("announces", [True, False])
def test_fragments_of_a_rows_event(announces: bool) -> None:
    """The parts are counted, and the size that the first of them announces."""
    count, size = 40, LIMIT // 4

    def fragment(number: int) -> bytes:
        has_size = announces and number == 1
        head = struct.pack("<IIB", count, number, has_size) + struct.pack("<Q", count * size) * has_size
        return raw_event(EventType.MARIADB_PARTIAL_ROW_DATA, head + bytes(size))

    def run() -> None:
        made = decoder("12.3.1-MariaDB")
        for number in range(1, count + 1):
            made.decode(fragment(number))
            assert number < (1 if announces else 5)

    refused(run)


def test_fragments_of_no_bytes() -> None:
    """Each of 2^32 took eight bytes."""
    made = decoder("12.3.1-MariaDB")
    raws = [
        raw_event(EventType.MARIADB_PARTIAL_ROW_DATA, struct.pack("<IIB", 1 << 31, number, 0))
        for number in range(1, 20_001)
    ]
    tracemalloc.start()
    try:
        for raw in raws:
            made.decode(raw)
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()


def test_fragments_in_fragments() -> None:
    """Each level took six frames of the interpreter's stack: an event of 20 KB ended in a RecursionError."""
    raw = int_rows([1])
    for _ in range(500):
        raw = raw_event(EventType.MARIADB_PARTIAL_ROW_DATA, struct.pack("<IIB", 1, 1, 0) + raw)
    made = decoder("12.3.1-MariaDB")
    made.decode(int_table_map())
    refused(lambda: made.decode(raw), "no rows event")
    whole = raw_event(EventType.MARIADB_PARTIAL_ROW_DATA, struct.pack("<IIB", 1, 1, 0) + int_rows([1, 2]))
    assert isinstance(event := made.decode(whole), replica.WriteRowsEvent)
    assert event.rows == [(1,), (2,)]


# Table maps


def body_of(types: bytes, optional: dict[int, bytes], metadata: bytes = b"") -> bytes:
    return encoder.table_map(7, b"s", b"t", types, metadata, [False] * len(types), optional)[8:]


def parsed(body: bytes) -> None:
    reader = Reader(body)
    parse_names(reader)
    parse_shape(reader, mariadb=False, max_event_bytes=LIMIT)


def test_more_columns_than_a_table_can_have() -> None:
    parsed(body_of(bytes([ColumnType.LONG]) * 4096, {}))
    for count in (4097, 1 << 20):
        body = body_of(bytes([ColumnType.LONG]) * count, {})
        refused(lambda: parsed(body), f"{count} columns; a table has at most 4096")  # noqa: B023


@pytest.mark.parametrize(
    ("code", "value", "match"),
    [
        (2, b"\1" * 500_000, "too many numbers"),
        (3, b"\1" * 500_000, "too many numbers"),
        (4, b"\0" * 500_000, "more column names than its 2 columns"),
        (5, b"\0" * 500_000, "more lists of labels than its 2 columns"),
        (5, b"\xfc\xff\xff" + b"\1x" * 65_535, "max_event_bytes"),
        (6, b"\xfd\0\0\1" + b"\0" * 70_000, "announces 65536 labels"),
        (7, b"\1" * 500_000, "too many numbers"),
        (8, b"\1" * 500_000, "too many numbers"),
        (9, b"\1" * 500_000, "too many numbers"),
        (11, b"\1" * 500_000, "too many numbers"),
        (13, b"\1" * 500_000, "too many numbers"),
    ],
)
def test_optional_metadata_for_more_columns_than_there_are(code: int, value: bytes, match: str) -> None:
    body = body_of(bytes([ColumnType.LONG]) * 2, {code: value})
    refused(lambda: parsed(body), match)


@pytest.mark.parametrize("code", [1, 12])
def test_bits_for_more_columns_than_there_are(code: int) -> None:
    """Servers read as many bits as they need, and pass over the others."""
    body = body_of(bytes([ColumnType.LONG]) * 2, {code: b"\xff" * 500_000})
    tracemalloc.start()
    parsed(body)
    assert tracemalloc.get_traced_memory()[1] < MULTIPLE * LIMIT
    tracemalloc.stop()


def test_an_array_of_arrays() -> None:
    """JSON arrays of functional indexes have one element type, so no depth takes the interpreter's stack."""
    array = bytes([ColumnType.TYPED_ARRAY])
    parsed(body_of(array, {}, bytes([ColumnType.LONG])))
    nested = body_of(array, {}, array * 10_000 + bytes([ColumnType.LONG]))
    refused(lambda: parsed(nested), "array of arrays")


# The option


def test_the_option(tmp_path: Path) -> None:
    path = tmp_path / "binlog.000001"
    log = numbered_log(2)
    log.add(EventType.ROWS_QUERY, b"\0" + b"x" * 5000)
    path.write_bytes(log.data)
    with replica.open_binlog(path) as whole:
        assert type(list(whole)[-1]) is replica.RowsQueryEvent
    with (
        replica.open_binlog(path, max_event_bytes=5000) as limited,
        pytest.raises(DecodeError, match=r"an event of 5024 bytes is larger than max_event_bytes \(5000\)"),
    ):
        list(limited)
    options = Options.build("mysql://repl@127.0.0.1/?max_event_bytes=70000", {})
    assert options.max_event_bytes == 70_000
    assert Options.build("mysql://repl@127.0.0.1", {}).max_event_bytes == (1 << 30) + (1 << 20)
    for wrong in (1, 1 << 32, "many"):
        with pytest.raises(replica.ConfigurationError, match="max_event_bytes"):
            replica.open_binlog(path, max_event_bytes=wrong)  # type: ignore[arg-type]
