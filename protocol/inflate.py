"""What servers compress inside of events: transaction payloads (zstd), MariaDB's events and columns (zlib).

Bytes in, bytes out; what they mean is for the callers. Layouts: MySQL's ``payload_event.h`` and WL#3549,
MariaDB's ``sql/log_event.cc`` (binlog_buf_uncompress) and ``sql/field.cc`` (uncompress_zlib).
"""

import zlib
from collections.abc import Iterator

from .constants import EVENT_HEADER_SIZE
from .errors import DecodeError, TruncatedError
from .zstd import load_zstd

ZSTD = 0
NONE = 255

# Decompressed at a time, so that a payload of any size takes little memory.
_STEP = 256 * 1024
_SIZE_OFFSET = 9


def _zstd_chunks(payload: bytes) -> Iterator[bytes]:
    """The decompressed payload, in pieces; a payload may be several frames."""
    zstd = load_zstd("A compressed transaction (zstd)")
    rest = payload
    while rest:
        decompressor = zstd.ZstdDecompressor()
        try:
            chunk = decompressor.decompress(rest, _STEP)
            while chunk or not decompressor.eof:
                if not chunk and decompressor.needs_input:
                    raise TruncatedError("a compressed transaction is cut short")
                yield chunk
                chunk = b"" if decompressor.eof else decompressor.decompress(b"", _STEP)
        except zstd.ZstdError as error:
            raise DecodeError(f"a compressed transaction is damaged: {error}") from error
        rest = getattr(decompressor, "unused_data", b"")


def payload_events(payload: bytes, compression_type: int) -> Iterator[bytes]:
    """The raw events inside of a transaction payload; none has a checksum.

    Raises ``DecodeError`` for damaged data or an unknown compression, ``MissingExtraError`` without zstd.
    """
    if compression_type not in (ZSTD, NONE):
        raise DecodeError(f"compression type {compression_type} of a transaction is not known")
    chunks = iter((payload,)) if compression_type == NONE else _zstd_chunks(payload)
    buffer = bytearray()
    wanted = EVENT_HEADER_SIZE
    for chunk in chunks:
        buffer += chunk
        start = 0
        while len(buffer) - start >= wanted:
            size = int.from_bytes(buffer[start + _SIZE_OFFSET : start + _SIZE_OFFSET + 4], "little")
            if size < EVENT_HEADER_SIZE:
                raise DecodeError(f"an event of {size} bytes inside of a compressed transaction")
            if len(buffer) - start < size:
                wanted = size
                break
            yield bytes(buffer[start : start + size])
            start += size
            wanted = EVENT_HEADER_SIZE
        del buffer[:start]
    if buffer:
        raise TruncatedError("a compressed transaction ends inside of an event")


def _inflate(data: bytes, length: int, window: int) -> bytes:
    """Exactly ``length`` bytes of a zlib stream; more or less is damage."""
    decompressor = zlib.decompressobj(window)
    try:
        result = decompressor.decompress(data, length + 1)
    except zlib.error as error:
        raise DecodeError(f"compressed data is damaged: {error}") from error
    if len(result) != length or not decompressor.eof:
        raise DecodeError(f"compressed data of {len(result)} bytes, {length} were announced")
    return result


def uncompress_event_part(data: bytes) -> bytes:
    """The compressed part of a MariaDB event (log_bin_compress): the statement, or the rows.

    A byte with bit 7 set, the algorithm (0: zlib) in bits 4 to 6 and the size of the length in bits 0 to 2; the
    length, big-endian; the stream.
    """
    if not data:
        raise TruncatedError("compressed data is missing")
    length_size = data[0] & 0x07
    if data[0] & 0xF0 != 0x80 or not 1 <= length_size <= 4 or len(data) <= length_size:
        raise DecodeError(f"compressed data starts with 0x{data[0]:02x}")
    length = int.from_bytes(data[1 : 1 + length_size], "big")
    return _inflate(data[1 + length_size :], length, zlib.MAX_WBITS)


def uncompress_column(data: bytes) -> bytes:
    """A value of a MariaDB compressed column (``COMPRESSED``): as it is behind 0x00, or zlib behind 0x8_.

    Bits 0 to 2 of the first byte are the size of the length, big-endian; bit 3 says that the stream has no zlib
    header.
    """
    if not data:
        return b""
    if not data[0]:
        return data[1:]
    length_size = data[0] & 0x07
    if data[0] & 0xF0 != 0x80 or len(data) <= length_size:
        raise DecodeError(f"a compressed column starts with 0x{data[0]:02x}")
    length = int.from_bytes(data[1 : 1 + length_size], "big")
    window = -zlib.MAX_WBITS if data[0] & 0x08 else zlib.MAX_WBITS
    return _inflate(data[1 + length_size :], length, window)
