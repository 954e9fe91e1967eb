"""Annotated hex dumps of raw events, as ``mysqlbinlog --hexdump`` and ``mariadb-binlog --hexdump`` lay them out.

Turns raw events into comment lines; ``mysql`` and ``mariadb`` place them in the text. Layouts:
``Log_event::print_header`` of MySQL's ``sql/log_event.cc`` and of MariaDB's ``sql/log_event_client.cc``.
"""

import string
from collections.abc import Iterator

from protocol.constants import EVENT_HEADER_SIZE

_LINE = 16
_HALF = 8

_ALPHANUMERIC = (string.ascii_letters + string.digits).encode()
_PRINTABLE = bytes(range(0x20, 0x7F))


def _visible(shown: bytes) -> bytes:
    """A translation table that turns every byte not in ``shown`` into a dot."""
    return bytes(byte if byte in shown else ord(".") for byte in range(256))


_MYSQL_VISIBLE = _visible(_ALPHANUMERIC)
_MARIADB_VISIBLE = _visible(_PRINTABLE)


def _hex(data: bytes) -> str:
    """Two groups of eight bytes, padded to the width of a full line."""
    return f"{data[:_HALF].hex(' ')}  {data[_HALF:].hex(' ')}".ljust(_LINE * 3)


def _lines(data: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    for offset in range(start, len(data), _LINE):
        yield offset, data[offset : offset + _LINE]


def _fields(header: bytes) -> list[str]:
    """Timestamp, type, server id, size, position and flags of an event's header."""
    ends = (4, 5, 9, 13, 17, 19)
    return [header[start:end].hex(" ") for start, end in zip((0, *ends), ends, strict=False)]


def mysql_hexdump(raw: bytes, position: int, header_size: int = EVENT_HEADER_SIZE) -> bytes:
    """The dump of an event that starts at ``position``. Only headers of 19 bytes are split into fields."""
    start = 0
    lines: list[bytes] = []
    if header_size == EVENT_HEADER_SIZE:
        start = EVENT_HEADER_SIZE
        lines.append(b"# Position  Timestamp   Type   Source ID        Size      Source Pos    Flags \n")
        lines.append(f"# {position:08x} {'   '.join(_fields(raw))}\n".encode())
    end = len(raw) - EVENT_HEADER_SIZE + start
    for offset, data in _lines(raw[:end], start):
        text = data.translate(_MYSQL_VISIBLE)
        lines.append(f"# {position + offset:08x} {_hex(data)} |{text.decode()}|\n".encode())
    return b"".join(lines)


def mariadb_hexdump(raw: bytes, position: int, header_size: int = EVENT_HEADER_SIZE) -> bytes:
    """The dump of an event that starts at ``position``. Of longer headers (Google's) only 19 bytes are shown."""
    lines = [
        b"# Position\n",
        b"#           |Timestamp   |Type |Master ID   |Size        |Master Pos  |Flags\n",
        _mariadb_header(raw, position),
        b"#\n",
    ]
    for offset, data in _lines(raw, header_size):
        text = data.translate(_MARIADB_VISIBLE)
        lines.append(f"# {position + offset:8x}  {_hex(data)}  |{text.decode()}|\n".encode())
    if len(raw) > header_size:
        lines.append(b"#\n")
    return b"".join(lines)


def _mariadb_header(raw: bytes, position: int) -> bytes:
    timestamp, event_type, server_id, size, next_position, flags = _fields(raw)
    return f"# {position:8x}  |{timestamp} |{event_type}   |{server_id} |{size} |{next_position} |{flags}\n".encode()
