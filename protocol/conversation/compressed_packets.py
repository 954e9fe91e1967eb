"""Protocol compression: after the login, frames travel inside packets that are compressed with zlib or zstd.

A compressed packet is a 3-byte length, a packet number, the 3-byte length of its uncompressed content (0: the content
is not compressed), and the content: a piece of the stream of frames, cut anywhere
(MySQL's ``page_protocol_basic_compression``). After a flush the next frame takes the number of the next packet
(``net_serv.cc``: net_flush), so frame numbers have gaps. The login settles the algorithm.

Packets are decompressed one at a time, when the frames of the previous packet have been read: however well data
compresses, at most 16 MB of it is in memory besides the payload that it belongs to.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

from ..constants import MAX_FRAME_PAYLOAD, Capability
from ..errors import MissingExtraError, ProtocolError, SourceConfigurationError
from ..records import record
from ..zstd import load_zstd
from .packets import BULK_SIZE, HEADER_SIZE, MAX_PAYLOAD, FrameStream, Item, Read, Walk

CompressionName = Literal["zlib", "zstd", "uncompressed"]

#: The compression level that the client sends in its login; zlib ignores it.
ZSTD_LEVEL: Final = 3
_PACKET_HEADER_SIZE: Final = 7
# Shorter packets are not compressed (my_compress.cc: MIN_COMPRESS_LENGTH).
_SHORTEST: Final = 50
# A packet holds 16 MB at most; a zstd stream with a larger window could only waste memory.
_ZSTD_WINDOW_LOG: Final = 24


@record(frozen=True, slots=True)
class Codec:
    """A compression algorithm: at most 16 MB of bytes in, bytes out.

    ``decompress`` takes the compressed bytes and the maximum size of the result. It returns the result and whether
    the compressed data ended with it. For damaged data it raises ``damage``.
    """

    name: CompressionName
    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes, int], tuple[bytes, bool]]
    damage: type[Exception]


def _zlib() -> Codec:
    def decompress(data: bytes, limit: int) -> tuple[bytes, bool]:
        decompressor = zlib.decompressobj()
        result = decompressor.decompress(data, limit)
        return result, decompressor.eof and not decompressor.unused_data

    return Codec("zlib", zlib.compress, decompress, zlib.error)


def _zstd() -> Codec:
    zstd = load_zstd("Protocol compression with zstd")
    options = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}

    def compress(data: bytes) -> bytes:
        compressed: bytes = zstd.compress(data, level=ZSTD_LEVEL)
        return compressed

    def decompress(data: bytes, limit: int) -> tuple[bytes, bool]:
        decompressor = zstd.ZstdDecompressor(options=options)
        result = decompressor.decompress(data, limit)
        return result, decompressor.eof and not decompressor.unused_data

    return Codec("zstd", compress, decompress, zstd.ZstdError)


_CODECS: Final[Mapping[str, Callable[[], Codec]]] = MappingProxyType({"zlib": _zlib, "zstd": _zstd})
_CAPABILITIES: Final[Mapping[CompressionName, Capability]] = MappingProxyType(
    {
        "zlib": Capability.COMPRESS,
        "zstd": Capability.ZSTD_COMPRESSION,
        "uncompressed": Capability(0),
    }
)
#: The names that a client can ask for; every server offers ``uncompressed``.
COMPRESSIONS: Final[tuple[CompressionName, ...]] = tuple(_CAPABILITIES)
ALL_COMPRESSIONS: Final = Capability.COMPRESS | Capability.ZSTD_COMPRESSION


def create_codec(name: CompressionName) -> Codec | None:
    """The codec of this name; None for ``uncompressed``. Raises ``MissingExtraError`` if zstd is not installed."""
    return _CODECS[name]() if name in _CODECS else None


def choose_compression(wanted: Sequence[CompressionName], offered: Capability) -> CompressionName:
    """The first ``wanted`` algorithm that a server with these capabilities offers; uncompressed if none is wanted.

    Raises ``SourceConfigurationError`` if the server offers none of them.
    """
    for name in wanted or ("uncompressed",):
        if _CAPABILITIES[name] in offered:
            return name
    able = [name for name, capability in _CAPABILITIES.items() if capability and capability in offered]
    raise SourceConfigurationError(
        f"the server does not compress with {' or '.join(wanted)}{f', but with {able[0]}' if able else ''}: give "
        "'uncompressed' as the last choice of compression (MySQL 8.0.18 and later: protocol_compression_algorithms; "
        "zstd: never MariaDB)"
    )


def compression_capability(name: CompressionName) -> Capability:
    """The capability with which the client asks for this algorithm in its login."""
    return _CAPABILITIES[name]


def available_compressions() -> Capability:
    """The capabilities that a server can offer here: zlib, and zstd if it is installed."""
    try:
        create_codec("zstd")
    except MissingExtraError:
        return Capability.COMPRESS
    return ALL_COMPRESSIONS


def agreed_codec(capabilities: Capability) -> Codec | None:
    """The codec that a client with these capabilities asked for; None if it asked for none."""
    for name, capability in _CAPABILITIES.items():
        if capability and capability in capabilities:
            return create_codec(name)
    return None


class CompressedPackets:
    """The compressed packets of one connection; ``sequence`` is the number of the next packet in either direction.

    Raises ``ProtocolError`` if a packet's content is damaged or has another length than the packet says.
    """

    def __init__(self, codec: Codec) -> None:
        self.sequence = 0
        self._codec = codec
        self._received = bytearray()

    @property
    def buffered(self) -> int:
        """Number of bytes that were received and not yet unpacked."""
        return len(self._received)

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer, cut anywhere."""
        self._received += data

    def pack(self, data: bytes) -> bytes:
        """The packets that hold these bytes; each is compressed if that makes it smaller."""
        starts = range(0, len(data), MAX_FRAME_PAYLOAD)
        return b"".join([self._pack_one(data[start : start + MAX_FRAME_PAYLOAD]) for start in starts])

    def unpack(self, restarts: Sequence[int] = ()) -> tuple[int, bytes] | None:
        """Number and content of the next packet; None until the packet is complete.

        ``restarts`` are numbers that the packet may have besides the number that is due.
        """
        received = self._received
        if len(received) < HEADER_SIZE:
            return None
        number = received[3]
        if number != self.sequence and number not in restarts:
            raise ProtocolError(
                f"packets out of order: compressed packet number {number} came where {self.sequence} was due"
            )
        end = _PACKET_HEADER_SIZE + int.from_bytes(received[:3], "little")
        if len(received) < end:
            return None
        size = int.from_bytes(received[4:_PACKET_HEADER_SIZE], "little")
        data = bytes(received[_PACKET_HEADER_SIZE:end])
        del received[:end]
        self.sequence = (number + 1) & 0xFF
        return number, self._uncompressed(data, size) if size else data

    def _pack_one(self, data: bytes) -> bytes:
        packed = data if len(data) < _SHORTEST else self._codec.compress(data)
        size = len(data)
        if len(packed) >= len(data):
            packed, size = data, 0
        word = len(packed) | self.sequence << 24 | size << 32
        self.sequence = (self.sequence + 1) & 0xFF
        return word.to_bytes(_PACKET_HEADER_SIZE, "little") + packed

    def _uncompressed(self, data: bytes, size: int) -> bytes:
        try:
            # One byte more than announced, so that a longer content is noticed.
            result, has_ended = self._codec.decompress(data, size + 1)
        except self._codec.damage as error:
            raise ProtocolError(f"a compressed packet ({self._codec.name}) is damaged: {error}") from error
        if len(result) != size or not has_ended:
            raise ProtocolError(
                f"a compressed packet ({self._codec.name}) does not hold the {size} bytes that it announces"
            )
        return result


class CompressedFrameStream(FrameStream):
    """The frames of one connection in both directions, inside compressed packets."""

    def __init__(self, codec: Codec, max_payload: int = MAX_PAYLOAD) -> None:
        super().__init__(max_payload)
        self._packets = CompressedPackets(codec)
        self._packet_restarts: tuple[int, ...] = ()

    @property
    def buffered(self) -> int:
        return super().buffered + self._packets.buffered

    def receive(self, data: bytes) -> None:
        self._packets.receive(data)

    def go_on_from(self, other: FrameStream) -> None:
        super().go_on_from(other)
        # A server's packet number follows the client's last packet (net_read_packet); its OK was a plain frame.
        self._packets.sequence = (self.sequence - 1) & 0xFF

    def start_command(self) -> None:
        super().start_command()
        self._packets.sequence = 0

    def allow_restart(self, sequence: int) -> None:
        super().allow_restart(sequence)
        # MySQL's semisync_source.cc restarts frames at 1 and packets at 0, MariaDB restarts both at 1.
        self._packet_restarts = (0, sequence)

    def encode(self, payload: bytes) -> bytes:
        """The packets with the frames of one payload, flushed at its end."""
        packets = self._packets.pack(super().encode(payload))
        self.sequence = self._packets.sequence
        return packets

    def read(self) -> bytes | None:
        while (payload := super().read()) is None and self._unpack():
            pass
        return payload

    def read_prefixed(self, prefix: bytes, bulk_size: int = BULK_SIZE) -> list[bytes]:
        while True:
            payloads = super().read_prefixed(prefix, bulk_size)
            if payloads or self._unread is not None or not self._unpack():
                return payloads

    def read_walked(self, prefix: bytes, walk: Walk[Item], read: Read[Item]) -> tuple[list[Item], int, bytes]:
        while True:
            found = super().read_walked(prefix, walk, read)
            if found[0] or self._unread is not None or not self._unpack():
                return found

    def _unpack(self) -> bool:
        """Make the next packet's frames readable; False while the packet is incomplete."""
        packet = self._packets.unpack(self._packet_restarts)
        if packet is None:
            return False
        number, frames = packet
        self._packet_restarts = ()
        if not frames:
            # No frame begins in it. If each one allowed a further number, a million would take quadratic time.
            return True
        if number != self.sequence and not super().buffered:
            super().allow_restart(number)
        super().receive(frames)
        return True
