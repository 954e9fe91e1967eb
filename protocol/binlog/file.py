"""One binlog file's bytes to raw events, with their offsets, in bounded memory.

It stands on a ``read(size) -> bytes`` function and opens nothing itself. It knows the magic bytes and an event's
header, and nothing of an event's content: that is the decoder's. The header's layout is MySQL's ``binlog_event.h``.
"""

from collections.abc import Callable
from typing import Literal

from ..constants import BINLOG_MAGIC, EVENT_HEADER_SIZE, EventType
from ..errors import DecodeError, TruncatedError, UnsupportedEventError
from ..wire import unpack_event_header

ReadBytes = Callable[[int], bytes]
TornTail = Literal["stop", "raise"]

CHUNK_SIZE = 1 << 20
# max_allowed_packet ends at 1 GiB; what a rows event adds to its row stays far below 1 MiB.
MAX_EVENT_SIZE = (1 << 30) + (1 << 20)

_TYPE_OFFSET = 4


class RawEventReader:
    """The raw events of one binlog or relay log file, one at a time.

    ``position`` is the offset of the next event, ``event_position`` that of the last one read. With ``torn="stop"``
    a file whose last event is cut short ends before it, and ``torn_bytes`` counts what was left over;
    ``"raise"`` makes it a ``TruncatedError``.
    """

    def __init__(self, read: ReadBytes, *, file: str = "", torn: TornTail = "stop") -> None:
        self.file = file
        self.event_position = 0
        self.torn_bytes = 0
        self._read = read
        self._torn = torn
        self._buffer = b""
        self._base = 0  # the file's offset of the buffer's first byte
        self._start = 0  # of the last event, in the buffer
        self._next = 0  # of the next event, in the buffer
        self._read_head()

    @property
    def position(self) -> int:
        """Offset of the next event in the file."""
        return self._base + self._next

    def read_event(self) -> bytes | None:
        """The next raw event, header and checksum included; None at the end of the file.

        Raises ``DecodeError`` where no event's header stands.
        """
        start = self._start = self._next
        self.event_position = self._base + start
        if len(self._buffer) - start < EVENT_HEADER_SIZE:
            if not self._fill(EVENT_HEADER_SIZE):
                self._end()
                return None
            start = self._next
        header = unpack_event_header(self._buffer, start)
        size = header[3]
        if not EVENT_HEADER_SIZE <= size <= MAX_EVENT_SIZE:
            raise DecodeError(f"an event of {size} bytes", self.file, self.position, header[1])
        if len(self._buffer) - start < size:
            if not self._fill(size):
                self._end()
                return None
            start = self._next
        self._next = start + size
        return self._buffer[start : start + size]

    def _end(self) -> None:
        left = len(self._buffer) - self._next
        if not left:
            return
        if self._torn == "raise":
            raise TruncatedError(
                f"the file ends inside of an event, after {left} bytes", self.file, self.position
            )
        self.torn_bytes = left

    def _fill(self, size: int) -> bool:
        """Have ``size`` bytes behind the next event's start; False when the file ends before them."""
        parts = [self._buffer[self._start :]]
        self._base += self._start
        self._next -= self._start
        self._start = 0
        missing = self._next + size - len(parts[0])
        while missing > 0:
            part = self._read(CHUNK_SIZE)
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        self._buffer = b"".join(parts)
        return missing <= 0

    def _read_head(self) -> None:
        magic_size = len(BINLOG_MAGIC)
        if not self._fill(magic_size) and BINLOG_MAGIC.startswith(self._buffer):
            self._end()
            return
        if self._buffer[:magic_size] != BINLOG_MAGIC:
            raise DecodeError(
                f"no binary log: it starts with {self._buffer[:magic_size].hex(' ')}", self.file, 0
            )
        self._next = magic_size
        if self._fill(_TYPE_OFFSET + 1) and self._buffer[self._next + _TYPE_OFFSET] == EventType.START_V3:
            raise UnsupportedEventError(self._old_version(), self.file, self.position, EventType.START_V3)

    def _old_version(self) -> str:
        body = self._buffer[self._next + EVENT_HEADER_SIZE :][:52]
        server = body[2:].split(b"\0", 1)[0].decode("ascii", "replace")
        number = int.from_bytes(body[:2], "little")
        return f"binlog version {number} of server {server}: only version 4 (MySQL 5.0 and later) can be read"
