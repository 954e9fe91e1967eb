"""The basic fields of all messages and events: integers, length-encoded strings, text, bitmaps.

``Reader`` is a checked cursor for everything that is not a hot path; ``unpack_*`` are bound struct readers
for hot paths. Integers are little-endian unless named otherwise. This module knows no message and no event.
"""

import struct
from collections.abc import Callable

from .errors import DecodeError, ReplicaError, TruncatedError

unpack_u32 = struct.Struct("<I").unpack_from
unpack_u32_pair = struct.Struct("<II").unpack_from
unpack_u64 = struct.Struct("<Q").unpack_from
unpack_f64 = struct.Struct("<d").unpack_from
unpack_event_header = struct.Struct("<IBIIIH").unpack_from

NULL_LENGTH = 0xFB

# An event's header: timestamp, type, server id, size, next position, flags.
HeaderFields = tuple[int, int, int, int, int, int]
# A raw event, its offset in the file, and its header fields.
LocatedEvent = tuple[bytes, int, HeaderFields]

# Reads at most the given number of bytes; returns no bytes at the end of the data.
ReadBytes = Callable[[int], bytes]


def encode_lenenc_int(value: int) -> bytes:
    """Length-encoded integer (1, 3, 4 or 9 bytes)."""
    if value < 0xFB:
        return value.to_bytes(1, "little")
    if value < 1 << 16:
        return b"\xfc" + value.to_bytes(2, "little")
    if value < 1 << 24:
        return b"\xfd" + value.to_bytes(3, "little")
    return b"\xfe" + value.to_bytes(8, "little")


def encode_lenenc_bytes(value: bytes) -> bytes:
    """The length as a length-encoded integer, then the bytes."""
    return encode_lenenc_int(len(value)) + value


def utf8_text(data: bytes) -> str:
    """The server's UTF-8 text; invalid bytes survive as surrogate escapes."""
    return data.decode("utf-8", "surrogateescape")


def utf8_bytes(text: str) -> bytes:
    """The reverse of ``utf8_text``."""
    return text.encode("utf-8", "surrogateescape")


def is_characters(text: str) -> bool:
    """Whether a text has no surrogates: it comes from valid bytes."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def too_large(what: str, size: int, limit: int) -> str:
    """The reason of the error for something larger than ``max_event_bytes``, which is ``limit``."""
    return (
        f"{what} of {size} bytes is larger than max_event_bytes ({limit}) -- the log is damaged, or "
        "max_event_bytes must be set higher"
    )


def check_size(what: str, size: int, limit: int) -> None:
    """Raise ``DecodeError`` if ``size``, in bytes, is above ``max_event_bytes``, which is ``limit``."""
    if size > limit:
        raise DecodeError(too_large(what, size, limit))


def bitmap_size(bits: int) -> int:
    """Size in bytes of a bitmap of ``bits`` bits."""
    return (bits + 7) >> 3


def bits_set(bitmap: bytes, count: int) -> tuple[bool, ...]:
    """The first ``count`` bits, least significant bit of the first byte first."""
    value = int.from_bytes(bitmap, "little")
    return tuple(bool(value >> index & 1) for index in range(count))


class Reader:
    """A cursor over ``data[position:end]`` that never reads past its end.

    A read past the end raises ``truncated(reason)``: ``TruncatedError`` for the binary log (the default);
    messages of the conversation pass ``ProtocolError``.
    """

    __slots__ = ("data", "end", "position", "truncated")

    def __init__(
        self,
        data: bytes,
        position: int = 0,
        end: int | None = None,
        truncated: Callable[[str], ReplicaError] = TruncatedError,
    ) -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end
        self.truncated = truncated

    @property
    def remaining(self) -> int:
        """Bytes not yet read."""
        return self.end - self.position

    def skip(self, count: int) -> int:
        """Move past ``count`` bytes; returns the offset of the first of them."""
        start = self.position
        if count < 0 or count > self.end - start:
            raise self.truncated(f"{count} bytes wanted, {self.end - start} left")
        self.position = start + count
        return start

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        start = self.skip(count)
        return self.data[start : start + count]

    def rest(self) -> bytes:
        """Everything up to the end."""
        return self.take(self.end - self.position)

    def peek(self) -> int | None:
        """The next byte without moving, or None at the end."""
        return self.data[self.position] if self.position < self.end else None

    def uint(self, size: int) -> int:
        """Unsigned little-endian integer of ``size`` bytes."""
        start = self.skip(size)
        return int.from_bytes(self.data[start : start + size], "little")

    def uint_be(self, size: int) -> int:
        """Unsigned big-endian integer of ``size`` bytes."""
        start = self.skip(size)
        return int.from_bytes(self.data[start : start + size], "big")

    def u8(self) -> int:
        """One byte."""
        return self.data[self.skip(1)]

    def lenenc_int(self) -> int:
        """Length-encoded integer; 0xFB (NULL) and 0xFF are errors here."""
        first = self.u8()
        if first < NULL_LENGTH:
            return first
        if first == 0xFC:
            return self.uint(2)
        if first == 0xFD:
            return self.uint(3)
        if first == 0xFE:
            return self.uint(8)
        raise self.truncated(f"0x{first:02x} does not start a length-encoded integer")

    def lenenc_bytes(self) -> bytes:
        """The bytes after a length-encoded length."""
        return self.take(self.lenenc_int())

    def lenenc_bytes_or_null(self) -> bytes | None:
        """A text-protocol value: bytes, or None for 0xFB."""
        if self.peek() == NULL_LENGTH:
            self.position += 1
            return None
        return self.lenenc_bytes()

    def short_bytes(self) -> bytes:
        """The bytes after a one-byte length."""
        return self.take(self.u8())

    def nul_terminated(self) -> bytes:
        """Bytes up to a zero byte, which is consumed."""
        stop = self.data.find(0, self.position, self.end)
        if stop < 0:
            raise self.truncated("a zero-terminated string does not end")
        start, self.position = self.position, stop + 1
        return self.data[start:stop]

    def expect_end(self) -> None:
        """Raise ``DecodeError`` (or the reader's own error) when bytes are left over."""
        if self.position != self.end:
            error = DecodeError if self.truncated is TruncatedError else self.truncated
            raise error(f"{self.end - self.position} bytes are left over")
