"""A log of about 1 GB: the transactions of a small one over and over, with positions and checksums made right.

Its rows repeat, and so do its GTIDs; each event stands where its header says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from protocol.constants import BINLOG_MAGIC, EVENT_HEADER_SIZE, EventType

LARGE_BYTES = 1_000_000_000
_unpack_header = struct.Struct("<4xB4xI").unpack_from
_POSITION = struct.Struct("<I")
_AT_THE_BEGINNING = frozenset({EventType.FORMAT_DESCRIPTION, EventType.PREVIOUS_GTIDS})
_AT_THE_END = frozenset({EventType.ROTATE, EventType.STOP})


def write_large_log(source: Path, target: Path, size: int = LARGE_BYTES) -> int:
    """Write a log of at least ``size`` bytes unless it is there; how often it holds the ``source``."""
    events = list(_events(source.read_bytes()))
    head = [raw for raw in events if raw[4] in _AT_THE_BEGINNING]
    body = [raw for raw in events if raw[4] not in _AT_THE_BEGINNING | _AT_THE_END]
    head_size, body_size = (sum(map(len, part)) for part in (head, body))
    times = -(-(size - head_size) // body_size)
    if target.exists():
        return times
    # Renamed when it is whole: a run that is killed leaves no half a log.
    partial = target.with_suffix(".partial")
    with partial.open("wb") as file:
        position = file.write(BINLOG_MAGIC)
        for raw in head:
            position += file.write(_moved(raw, position))
        for _ in range(times):
            for raw in body:
                position += file.write(_moved(raw, position))
    partial.rename(target)
    return times


def _events(data: bytes) -> Iterator[bytes]:
    position = len(BINLOG_MAGIC)
    while position < len(data):
        _, size = _unpack_header(data, position)
        yield data[position : position + size]
        position += size


def _moved(raw: bytes, position: int) -> bytes:
    """The event as it stands at a position. All logs of the benchmarks have checksums."""
    moved = bytearray(raw)
    _POSITION.pack_into(moved, EVENT_HEADER_SIZE - 6, position + len(raw) & 0xFFFFFFFF)
    moved[-4:] = _POSITION.pack(crc32(memoryview(moved)[:-4]))
    return bytes(moved)
