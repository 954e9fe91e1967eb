"""Raw events made by hand, for tests of what stands around the bodies."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from protocol.constants import EventType


def raw_event(
    event_type: int,
    body: bytes,
    *,
    next_position: int = 0,
    flags: int = 0,
    checksum: bool = False,
    timestamp: int = 1,
) -> bytes:
    """One event with its header, and a CRC32 behind it if asked for."""
    size = 19 + len(body) + (4 if checksum else 0)
    event = struct.pack("<IBIIIH", timestamp, event_type, 1, size, next_position, flags) + body
    return event + zlib.crc32(event).to_bytes(4, "little") if checksum else event


def format_description(
    version: str = "9.7.4", algorithm: int | None = 1, *, next_position: int = 0, flags: int = 0
) -> bytes:
    """A format description; ``algorithm`` None stands for a server before checksums."""
    body = struct.pack("<H50sIB", 4, version.encode(), 0, 19) + bytes(27 if algorithm is None else 40)
    if algorithm is None:
        return raw_event(EventType.FORMAT_DESCRIPTION, body, next_position=next_position, flags=flags)
    body += bytes([algorithm])
    return raw_event(
        EventType.FORMAT_DESCRIPTION, body, next_position=next_position, flags=flags, checksum=True
    )


def rotate(
    file: str, position: int = 4, *, next_position: int = 0, flags: int = 0, checksum: bool = False
) -> bytes:
    """A ROTATE event."""
    body = struct.pack("<Q", position) + file.encode()
    return raw_event(EventType.ROTATE, body, next_position=next_position, flags=flags, checksum=checksum)


def query(sql: str, *, next_position: int = 0, checksum: bool = False, schema: str = "") -> bytes:
    """A QUERY event without status variables."""
    body = struct.pack("<IIBHH", 1, 0, len(schema), 0, 0) + schema.encode() + b"\0" + sql.encode()
    return raw_event(EventType.QUERY, body, next_position=next_position, checksum=checksum)


def int_table_map(
    table_id: int = 7, columns: int = 1, *, schema: str = "s", name: str = "t", **kwargs: Any
) -> bytes:
    """A table map of INT columns without optional metadata."""
    body = table_id.to_bytes(6, "little") + b"\1\0"
    for text in (schema.encode(), name.encode()):
        body += bytes([len(text)]) + text + b"\0"
    body += bytes([columns]) + b"\3" * columns + b"\0" + b"\xff" * ((columns + 7) // 8)
    return raw_event(EventType.TABLE_MAP, body, **kwargs)


def int_rows(values: list[int], table_id: int = 7, *, flags: int = 1, columns: int = 1) -> bytes:
    """A WRITE_ROWS event of rows with one INT each."""
    body = table_id.to_bytes(6, "little") + struct.pack("<HH", flags, 2) + bytes([columns]) + b"\xff"
    body += b"".join(b"\0" + struct.pack("<i", value) for value in values)
    return raw_event(EventType.WRITE_ROWS, body)
