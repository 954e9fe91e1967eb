"""Makes errors of the tree from the errors that reading damaged bytes causes in Python."""

import struct
from traceback import clear_frames
from typing import Final

from ..errors import DecodeError

WRONG_CHECKSUM: Final = "the checksum does not match the event"
#: What parsers and row readers raise for damaged bytes, besides the errors of the tree.
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
        # Frees what was read of the event, which the frames of the traceback hold.
        clear_frames(error.__traceback__)
        return DecodeError(
            "to decode the event takes more memory than the process can have -- set a lower max_event_bytes"
        )
    return DecodeError(f"the event's content is damaged: {error}")
