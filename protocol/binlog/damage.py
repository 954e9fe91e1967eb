"""Turns the Python errors that damaged bytes cause into errors of the tree in ``protocol.errors``."""

import struct
from contextlib import suppress
from types import TracebackType
from typing import Final
from zlib import crc32

from ..errors import ChecksumError, DecodeError

#: Python errors that parsers and row readers raise for damaged bytes; they also raise errors of the tree.
DAMAGE: Final = (
    IndexError,
    struct.error,
    ValueError,
    OverflowError,
    UnicodeError,
    ArithmeticError,
    MemoryError,
)


def damaged(error: Exception) -> DecodeError:
    """The error of the tree for an error of ``DAMAGE``."""
    if isinstance(error, MemoryError):
        # Frees the part of the event that was read, which the frames of the traceback hold.
        _clear_frames(error.__traceback__)
        return DecodeError(
            "to decode the event takes more memory than the process can have -- set a lower max_event_bytes"
        )
    return DecodeError(f"the event's content is damaged: {error}")


def wrong_checksum(raw: bytes, file: str | None = None, position: int | None = None) -> ChecksumError:
    """The error for an event whose checksum is wrong; a decoder adds its place itself."""
    error = ChecksumError("the checksum does not match the event", file, position)
    error.damage = crc32(raw)
    return error


def _clear_frames(place: TracebackType | None) -> None:
    """Do ``traceback.clear_frames``. Importing that module takes 6 ms, and memory that may be used up."""
    while place is not None:
        # A frame that still runs cannot be cleared.
        with suppress(RuntimeError):
            place.tb_frame.clear()
        place = place.tb_next
