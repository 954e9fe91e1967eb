"""Compressed packets built byte by byte, to compare codecs with."""

from __future__ import annotations

from protocol.conversation.compressed_packets import (
    Codec,
    CompressedFrameStream,
    CompressionName,
    create_codec,
)
from protocol.conversation.packets import MAX_PAYLOAD

ALGORITHMS: list[CompressionName] = ["zlib", "zstd"]


def codec_of(name: CompressionName) -> Codec:
    codec = create_codec(name)
    assert codec is not None
    return codec


def stream_of(name: CompressionName, max_payload: int = MAX_PAYLOAD) -> CompressedFrameStream:
    return CompressedFrameStream(codec_of(name), max_payload)


def packet(data: bytes, number: int, size: int | None = None) -> bytes:
    """A packet of bytes as they are, or of compressed ones that claim a size."""
    return len(data).to_bytes(3, "little") + bytes([number]) + (size or 0).to_bytes(3, "little") + data


def packed(name: CompressionName, data: bytes, number: int, size: int | None = None) -> bytes:
    return packet(codec_of(name).compress(data), number, len(data) if size is None else size)


def frame(payload: bytes, number: int) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload
