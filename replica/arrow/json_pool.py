"""``JsonPool``: a ``TextPool`` for the texts of JSON documents, with escaped strings, numbers and literals."""

from json.encoder import encode_basestring
from typing import Final

import numpy as np
import numpy.typing as npt

from protocol.records import record

from .arrays import different
from .buffer import Positions, RowBuffer
from .json_numbers import double_texts, integer_texts
from .text_pieces import Joined, Pieces, TextPool, taken, to_escape

WORDS: Final = (b"null", b"true", b"false")


@record(frozen=True, slots=True, eq=False)
class Texts:
    """The texts of the documents ``rows``. UTF-8 is not checked."""

    rows: Positions
    texts: Joined


class JsonPool(TextPool):
    """``escapes``: whether to look for what needs an escape in strings. ``has_escaped``: whether there was any."""

    __slots__ = ("_buffer", "_escapes", "has_escaped")

    def __init__(self, buffer: RowBuffer, *, escapes: bool) -> None:
        super().__init__(buffer.data)
        self.has_escaped = False
        self._buffer = buffer
        self._escapes = escapes

    def escaped(self, pieces: Pieces) -> Pieces:
        """Strings of the buffer with JSON's escapes."""
        if not self._escapes:
            return pieces
        wanted = to_escape(taken(self._buffer.data, pieces))
        if not len(wanted):
            return pieces
        self.has_escaped = True
        ends = np.cumsum(pieces.end - pieces.start)
        rows = different(np.searchsorted(ends, wanted, "right"))
        places = zip(pieces.start[rows].tolist(), pieces.end[rows].tolist(), strict=True)
        return self.replaced(pieces, rows, [_escaped(self._buffer.data[at:stop]) for at, stop in places])

    def integers(self, numbers: npt.NDArray[np.int64] | npt.NDArray[np.uint64]) -> Pieces:
        """Add whole numbers."""
        return self.add_array(integer_texts(numbers))

    def doubles(self, numbers: npt.NDArray[np.float64]) -> Pieces:
        """Add doubles."""
        return self.add_arrays(double_texts(numbers), len(numbers))

    def words(self, chosen: npt.NDArray[np.integer]) -> Pieces | bytes:
        """The literals with these numbers."""
        if (chosen == chosen[0]).all():
            return WORDS[int(chosen[0])]
        return self.literals(WORDS, chosen)


def _escaped(data: bytes) -> bytes:
    """A string's bytes as they are written in quotes; bytes that are no UTF-8 stay."""
    return encode_basestring(data.decode("utf-8", "surrogateescape"))[1:-1].encode("utf-8", "surrogateescape")
