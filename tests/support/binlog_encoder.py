"""Writes binlog events for tests: framing, format description, table maps and rows events.

What is written is what a server could write, as far as the caller's bytes are; nothing is checked here.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

from protocol.constants import EventType
from protocol.wire import encode_lenenc_bytes, encode_lenenc_int

# Sizes of the fixed parts of event types 1 to 42, as MySQL 8.3 and later announce them.
POST_HEADER_SIZES = bytes.fromhex(
    "000d0008000000000400040000006300041a08000000000000020000000a0a0a2a2a001234000a280000"
)


def event(kind: int, body: bytes, *, checksum: bool, flags: int = 0, next_position: int = 0) -> bytes:
    """A whole event. A corrupted body gets a right checksum, so that it is the body that is tested."""
    size = 19 + len(body) + (4 if checksum else 0)
    raw = struct.pack("<IBIIIH", 1_700_000_000, kind, 1, size, next_position, flags) + body
    return raw + struct.pack("<I", zlib.crc32(raw)) if checksum else raw


def format_description(server_version: str, *, checksum: bool) -> bytes:
    """The FORMAT_DESCRIPTION event that must precede all others."""
    body = struct.pack("<H50sIB", 4, server_version.encode(), 0, 19) + POST_HEADER_SIZES + bytes([checksum])
    return event(EventType.FORMAT_DESCRIPTION, body, checksum=True)


def bitmap(bits: Sequence[bool]) -> bytes:
    """The first bit is the lowest of the first byte."""
    number = sum(1 << index for index, bit in enumerate(bits) if bit)
    return number.to_bytes((len(bits) + 7) // 8, "little")


def high_bitmap(bits: Sequence[bool]) -> bytes:
    """The first bit is the highest of the first byte."""
    whole = len(bits) + -len(bits) % 8
    number = sum(1 << whole - 1 - index for index, bit in enumerate(bits) if bit)
    return number.to_bytes(whole // 8, "big")


def lenenc_list(numbers: Iterable[int]) -> bytes:
    return b"".join(map(encode_lenenc_int, numbers))


def name_list(names: Iterable[bytes]) -> bytes:
    return b"".join(map(encode_lenenc_bytes, names))


def label_lists(lists: Iterable[Sequence[bytes]]) -> bytes:
    return b"".join(encode_lenenc_int(len(labels)) + name_list(labels) for labels in lists)


def optional_fields(fields: dict[int, bytes]) -> bytes:
    """Type, length, value: what stands behind the NULL bits of a table map."""
    return b"".join(bytes([code]) + encode_lenenc_bytes(value) for code, value in fields.items())


def table_map(
    table_id: int,
    schema: bytes,
    name: bytes,
    types: bytes,
    metadata: bytes,
    nullable: Sequence[bool],
    optional: dict[int, bytes],
) -> bytes:
    """The body of a TABLE_MAP event."""
    return b"".join(
        [
            table_id.to_bytes(6, "little"),
            b"\x01\x00",
            bytes([len(schema)]) + schema + b"\0",
            bytes([len(name)]) + name + b"\0",
            encode_lenenc_bytes(types),
            encode_lenenc_bytes(metadata),
            bitmap(nullable),
            optional_fields(optional),
        ]
    )


def rows_event(
    kind: int, table_id: int, width: int, images: Sequence[Sequence[bool]], rows: bytes, extra: bytes = b""
) -> bytes:
    """The body of a rows event; ``extra`` is written for version 2 only."""
    has_extra = kind in (EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS)
    return b"".join(
        [
            table_id.to_bytes(6, "little"),
            b"\0\0",
            struct.pack("<H", len(extra) + 2) + extra if has_extra else b"",
            encode_lenenc_int(width),
            *map(bitmap, images),
            rows,
        ]
    )


def row_image(present: Sequence[bool], values: Sequence[bytes | None]) -> bytes:
    """NULL bits and values of the columns that are present; None is NULL."""
    held = [value for value, is_held in zip(values, present, strict=True) if is_held]
    return bitmap([value is None for value in held]) + b"".join(value for value in held if value is not None)
