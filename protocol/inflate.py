"""Decompresses what servers compress inside events: transaction payloads (zstd), MariaDB's events and columns (zlib).

Bytes in, bytes out: callers parse the result. Layouts: MySQL's ``payload_event.h`` and WL#3549,
MariaDB's ``sql/log_event.cc`` (binlog_buf_uncompress) and ``sql/field.cc`` (uncompress_zlib).
"""

import zlib
from collections.abc import Iterator
from io import BytesIO

from .constants import (
    ALONE,
    EVENT_HEADER_SIZE,
    EVENT_SIZE_OFFSET,
    EVENT_TYPE_OFFSET,
    MAX_EVENT_SIZE,
    EventType,
)
from .errors import DecodeError, TruncatedError
from .wire import check_size
from .zstd import load_zstd

ZSTD = 0
NONE = 255

# Events between transactions, or at the beginning of one. Nothing would follow them inside a compressed transaction.
_OUTSIDE = ALONE | {
    EventType.GTID,
    EventType.ANONYMOUS_GTID,
    EventType.GTID_TAGGED,
    EventType.MARIADB_GTID,
}
# Bytes decompressed at a time, so that a payload of any size takes little memory.
_STEP = 256 * 1024
# Bytes of a zstd frame that are given to its decompressor at first.
_FIRST_INPUT = 8 * 1024


def _zstd_chunks(payload: bytes) -> Iterator[bytes]:
    """The decompressed payload in pieces; a payload may consist of several zstd frames.

    What follows a frame is copied out of its decompressor, so it gets pieces, which are small at first: to give it
    the whole rest took quadratic time for many small frames.
    """
    zstd = load_zstd("A compressed transaction (zstd)")
    view = memoryview(payload)
    position = 0
    rest: bytes | memoryview = b""
    while rest or position < len(view):
        decompressor = zstd.ZstdDecompressor()
        size = _FIRST_INPUT
        try:
            while not decompressor.eof:
                if decompressor.needs_input and not rest:
                    rest = view[position : position + size]
                    if not rest:
                        raise TruncatedError("a compressed transaction is cut short")
                    position += len(rest)
                    size = min(2 * size, _STEP)
                data, rest = rest, b""
                if chunk := decompressor.decompress(data, _STEP):
                    yield chunk
        except zstd.ZstdError as error:
            raise DecodeError(f"a compressed transaction is damaged: {error}") from error
        rest = decompressor.unused_data


def payload_events(
    payload: bytes, compression_type: int, size: int | None = None, max_event_bytes: int = MAX_EVENT_SIZE
) -> Iterator[bytes]:
    """The raw events inside a transaction payload; they carry no checksums.

    ``size`` is the uncompressed size that the log announces (None: unknown). Memory grows with the largest event
    only. Raises ``DecodeError`` for damaged data, an unknown compression, more or fewer bytes than ``size``, an event
    of more than ``max_event_bytes`` and an event that no transaction holds, and ``MissingExtraError`` without zstd.
    """
    if compression_type not in (ZSTD, NONE):
        raise DecodeError(f"a compressed transaction has the unknown compression type {compression_type}")
    chunks = iter((payload,)) if compression_type == NONE else _zstd_chunks(payload)
    total = 0
    rest = b""
    # An event that began in an earlier chunk, and how many bytes of it are missing. Its buffer becomes the event.
    begun, missing = BytesIO(), 0
    for piece in chunks:
        total += len(piece)
        if size is not None and total > size:
            raise DecodeError(f"a compressed transaction holds more than the {size} bytes that it announces")
        start = min(missing, len(piece))
        if missing:
            begun.write(memoryview(piece)[:start])
            missing -= start
            if missing:
                continue
            yield begun.getvalue()
            begun = BytesIO()
        chunk = rest + piece[start:] if rest or start else piece
        start = 0
        while len(chunk) - start >= EVENT_HEADER_SIZE:
            end = start + _inner_size(chunk, start, max_event_bytes)
            if end > len(chunk):
                missing = end - len(chunk)
                begun.write(memoryview(chunk)[start:])
                start = len(chunk)
                break
            yield chunk[start:end]
            start = end
        rest = chunk[start:]
    if rest or missing:
        raise TruncatedError("a compressed transaction ends inside an event")
    if size is not None and total < size:
        raise TruncatedError(f"a compressed transaction holds {total} bytes of the {size} that it announces")


def _inner_size(data: bytes, start: int, max_event_bytes: int) -> int:
    """The size of the event at ``start``. Raises ``DecodeError`` if no transaction holds such an event."""
    size = int.from_bytes(data[start + EVENT_SIZE_OFFSET : start + EVENT_SIZE_OFFSET + 4], "little")
    if size < EVENT_HEADER_SIZE:
        raise DecodeError(
            f"a compressed transaction holds an event of {size} bytes, less than an event header"
        )
    check_size("an event inside a compressed transaction", size, max_event_bytes)
    event_type = data[start + EVENT_TYPE_OFFSET]
    if event_type in _OUTSIDE:
        raise DecodeError(
            f"a compressed transaction holds an event of type {event_type}, which no transaction holds"
        )
    return size


def _inflate(data: bytes, length: int, window: int) -> bytes:
    """Exactly ``length`` bytes of a zlib stream; more or less is damage, as are bytes behind the stream."""
    decompressor = zlib.decompressobj(window)
    try:
        result = decompressor.decompress(data, length + 1)
    except zlib.error as error:
        raise DecodeError(f"compressed data is damaged: {error}") from error
    if len(result) != length or not decompressor.eof:
        raise DecodeError(f"compressed data does not hold exactly the {length} bytes that it announces")
    if decompressor.unused_data:
        raise DecodeError(f"{len(decompressor.unused_data)} bytes are left over behind compressed data")
    return result


def uncompress_event_part(data: bytes, max_event_bytes: int = MAX_EVENT_SIZE) -> bytes:
    """The compressed part of a MariaDB event (log_bin_compress): the statement, or the rows.

    Layout: a byte with bit 7 set, the algorithm (0: zlib) in bits 4 to 6 and the size of the length in bits 0 to 2;
    the uncompressed length, big-endian; the zlib stream.
    """
    if not data:
        raise TruncatedError("compressed data is missing")
    length_size = data[0] & 0x07
    if data[0] & 0xF0 != 0x80 or not 1 <= length_size <= 4 or len(data) <= length_size:
        raise DecodeError(f"compressed data has an invalid header that starts with 0x{data[0]:02x}")
    length = int.from_bytes(data[1 : 1 + length_size], "big")
    check_size("the uncompressed content of an event", length, max_event_bytes)
    return _inflate(data[1 + length_size :], length, zlib.MAX_WBITS)


def uncompress_column(data: bytes, max_event_bytes: int = MAX_EVENT_SIZE, before: int = 0) -> bytes:
    """The value of a MariaDB ``COMPRESSED`` column: uncompressed bytes after 0x00, or a zlib stream after 0x8_.

    Bits 0 to 2 of the first byte are the size of the big-endian length that follows; bit 3 says that the stream has
    no zlib header. ``before`` is the number of bytes that other columns of the same event have; with this column they
    may have ``max_event_bytes``.
    """
    if not data:
        return b""
    if not data[0]:
        return data[1:]
    length_size = data[0] & 0x07
    if data[0] & 0xF0 != 0x80 or len(data) <= length_size:
        raise DecodeError(f"a compressed column has an invalid header that starts with 0x{data[0]:02x}")
    length = int.from_bytes(data[1 : 1 + length_size], "big")
    check_size("the uncompressed columns of an event", before + length, max_event_bytes)
    window = -zlib.MAX_WBITS if data[0] & 0x08 else zlib.MAX_WBITS
    return _inflate(data[1 + length_size :], length, window)


class ColumnInflation:
    """Decompresses the ``COMPRESSED`` columns of one event after another: of each at most ``limit`` bytes."""

    def __init__(self) -> None:
        self.limit = MAX_EVENT_SIZE
        self._used = 0

    def begin(self) -> None:
        """The columns that follow are of another event."""
        self._used = 0

    def column(self, data: bytes) -> bytes:
        """The value of one column. Raises ``DecodeError`` for damage, and above the limit of its event."""
        value = uncompress_column(data, self.limit, self._used)
        self._used += len(value)
        return value
