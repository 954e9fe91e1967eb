"""A fuzzer of whole log files, of raw events and of what grows when it is decoded, for ``limited_steps``.

Each step makes one file or one event sequence from the seed and reads it to its end, with ``max_event_bytes`` of
64 MB. Only errors of the tree may come out. The harness limits the CPU of a step and the memory of the process.
"""

from __future__ import annotations

import contextlib
import io
import logging
import random
import struct
import zlib
from collections.abc import Callable, Iterator

import replica
from protocol.binlog.batch_decoder import BatchDecoder
from protocol.binlog.events import TransactionPayloadEvent
from protocol.constants import BINLOG_MAGIC, EVENT_HEADER_SIZE, EventType
from protocol.errors import ReplicaError
from protocol.zstd import load_zstd
from tests.support import binlog_encoder as encoder
from tests.support.damaged_events import Sample, changed, pick_from_demo, small_log, with_checksum
from tests.support.limited_steps import Step, chosen
from tests.support.random_logs import KINDS, random_log
from tests.support.raw_events import format_description, raw_event

MAX_EVENT_BYTES = 64 << 20
#: The most events that a step reads from one file; a payload of zeros could hold millions.
_EVENTS = 20_000


def steps(seed: int) -> Iterator[Step]:
    """Endless; a step depends on the seed and on its number only."""
    # A warning for each place that is skipped would be most of the work.
    logging.disable()
    samples = [sample for sample in pick_from_demo() if len(sample.raw) > EVENT_HEADER_SIZE + 2]
    makers: list[tuple[str, Callable[[random.Random], object]]] = [
        ("damaged file", _damaged_file),
        ("damaged file, skipping", lambda rng: _damaged_file(rng, skip=True)),
        ("damaged rows", _damaged_rows),
        ("damaged table map", _damaged_table_map),
        ("announced sizes", lambda rng: _announced_sizes(rng, samples)),
        ("payload", _payload),
        ("compressed by MariaDB", _compressed),
        ("large event", _large_event),
        ("fragments", _fragments),
    ]
    yield from chosen(seed, makers)


def _read(data: bytes, skip: bool = False) -> None:
    with contextlib.suppress(ReplicaError):
        log = replica.open_binlog(
            io.BytesIO(data), max_event_bytes=MAX_EVENT_BYTES, on_error="skip" if skip else "raise"
        )
        for number, _ in enumerate(log):
            if number > _EVENTS:
                return


def _decode(*raws: bytes, version: str = "9.7.4") -> None:
    decoder = BatchDecoder(max_event_bytes=MAX_EVENT_BYTES)
    decoder.decode(format_description(version, 0))
    for raw in raws:
        with contextlib.suppress(ReplicaError):
            event = decoder.decode(raw)
            if isinstance(event, TransactionPayloadEvent):
                for number, _ in enumerate(decoder.payload_events(event)):
                    if number > _EVENTS:
                        break


def _damaged_file(rng: random.Random, skip: bool = False) -> None:
    data = bytearray(small_log(checksum=rng.random() < 0.5))
    for _ in range(rng.choice((1, 2, 8, 64))):
        kind = rng.randrange(4)
        place = rng.randrange(len(data))
        if kind == 0:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[place : place + 4] = rng.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x3f"))
        elif kind == 2:
            del data[place : place + rng.randrange(64)]
        else:
            data[place:place] = data[rng.randrange(len(data)) :][: rng.randrange(300)]
    _read(bytes(data), skip)


def _damaged_rows(rng: random.Random) -> None:
    log = random_log(rng, rng.choices(sorted(KINDS), k=rng.randrange(1, 30)))
    version = "11.8.6-MariaDB-log" if log.mariadb else "9.7.4"
    table_map = encoder.event(EventType.TABLE_MAP, log.table_map, checksum=False)
    rows = encoder.event(log.kind, log.rows, checksum=False)
    damaged = [changed(rows, rng) for _ in range(30)]
    _decode(*(raw for one in damaged for raw in (table_map, one)), version=version)


def _damaged_table_map(rng: random.Random) -> None:
    log = random_log(rng, rng.choices(sorted(KINDS), k=rng.randrange(1, 30)))
    version = "11.8.6-MariaDB-log" if log.mariadb else "9.7.4"
    table_map = encoder.event(EventType.TABLE_MAP, log.table_map, checksum=False)
    rows = encoder.event(log.kind, log.rows, checksum=False)
    _decode(*(raw for _ in range(30) for raw in (changed(table_map, rng), rows)), version=version)


def _announced_sizes(rng: random.Random, samples: list[Sample]) -> None:
    """Real events in which a number became a very large one."""
    sample = rng.choice(samples)
    raws = []
    for _ in range(30):
        raw = bytearray(sample.raw)
        place = rng.randrange(EVENT_HEADER_SIZE, len(raw))
        number = rng.choice(
            (b"\xff", b"\xfd\xff\xff\xff", b"\xfe" + b"\xff" * 7 + b"\x7f", b"\xff\xff\xff\x7f")
        )
        raw[place : place + len(number)] = number
        raws.append(bytes(raw[:9]) + struct.pack("<I", len(raw)) + bytes(raw[13:]))
    _decode(*sample.context, *raws)


def _zeros(rng: random.Random) -> int:
    return 1 << rng.randrange(10, 28)


def _payload(rng: random.Random) -> None:
    """A transaction whose content is another size than it says, of large events, of many events, or of zeros."""
    size = _zeros(rng)
    event_size = rng.choice((EVENT_HEADER_SIZE, 100, size, 1 << 31, 0))
    event_type = rng.choice(list(EventType))
    head = struct.pack("<IBIIIH", 1, event_type, 1, event_size, 0, 0)
    compressor = load_zstd("the fuzzer").ZstdCompressor()
    parts = [compressor.compress(head)]
    piece = head.ljust(max(event_size, EVENT_HEADER_SIZE), b"\0") if event_size <= 100 else bytes(1 << 16)
    for _ in range(min(size // len(piece), 4000)):
        parts.append(compressor.compress(piece))
    content = b"".join(parts) + compressor.flush()
    fields = b"\2\1\0\3\x09\xfe" + struct.pack("<Q", rng.choice((size, 1, 1 << 62)))
    fields += b"\1\x09\xfe" + struct.pack("<Q", len(content)) + b"\0"
    _decode(raw_event(EventType.TRANSACTION_PAYLOAD, fields + content))


def _compressed(rng: random.Random) -> None:
    size = _zeros(rng)
    announced = rng.choice((size, size, 1 << 31, 5))
    compressor = zlib.compressobj(1)
    stream = b"".join(compressor.compress(bytes(1 << 10)) for _ in range(size >> 10)) + compressor.flush()
    content = b"\x84" + struct.pack(">I", announced & 0xFFFFFFFF) + stream
    types = bytes([rng.choice((1, 3, 140))])
    metadata = b"\4" if types == b"\x8c" else b""
    table_map = raw_event(EventType.TABLE_MAP, encoder.table_map(7, b"s", b"t", types, metadata, [True], {}))
    head = (7).to_bytes(6, "little") + b"\1\0" + b"\1\xff"
    if types == b"\x8c":
        row = b"\0" + struct.pack("<I", len(content)) + content
        body = head + row * min(rng.choice((1, 20)), 1 + (1 << 22) // len(row))
        _decode(table_map, raw_event(EventType.WRITE_ROWS_V1, body), version="11.8.6-MariaDB")
    elif size <= 1 << 20 or types == b"\1":
        # Rows of zeros: two bytes make a row, so more than a megabyte takes its time honestly.
        size = min(size, 1 << 20)
        small = zlib.compress(bytes(size))
        part = b"\x84" + struct.pack(">I", size) + small
        raw = raw_event(EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1, head + part)
        _decode(table_map, raw, version="11.8.6-MariaDB")
    else:
        query = struct.pack("<IIBHH", 1, 0, 0, 0, 0) + b"\0" + content
        _decode(raw_event(EventType.MARIADB_QUERY_COMPRESSED, query), version="11.8.6-MariaDB")


def _large_event(rng: random.Random) -> None:
    """A file whose last event is large, or says so."""
    body = bytes(_zeros(rng) % (MAX_EVENT_BYTES // 2))
    raw = raw_event(rng.choice(list(EventType)), body)
    if rng.random() < 0.5:
        raw = raw[:9] + struct.pack("<I", rng.choice((1 << 26, 1 << 30, (1 << 32) - 1))) + raw[13:]
    elif rng.random() < 0.5:
        raw = with_checksum(raw)
    checksums = rng.random() < 0.5
    _read(BINLOG_MAGIC + format_description("9.7.4", int(checksums)) + raw)


def _fragments(rng: random.Random) -> None:
    count, size = rng.choice((2, 40)), 1 << rng.randrange(4, 23)
    raws = []
    for number in range(1, count + 1):
        flags = int(number == 1 and rng.random() < 0.5)
        head = struct.pack("<IIB", count, number, flags) + struct.pack("<Q", count * size) * flags
        raws.append(raw_event(EventType.MARIADB_PARTIAL_ROW_DATA, head + bytes(size)))
    _decode(*raws, version="12.3.1-MariaDB")
