"""Keeps pieces of text in a temporary file, and writes them out in reverse order. They need not fit in memory."""

import os
from tempfile import TemporaryFile
from typing import BinaryIO

_LENGTH_SIZE = 8


class BackwardSpool:
    """Keeps pieces of bytes, and writes them out in reverse order. Only one piece is in memory at a time.

    ``size`` is the size of the file; ``truncate`` takes it back to an earlier value.
    """

    def __init__(self) -> None:
        self.size = 0
        self._file = TemporaryFile()  # noqa: SIM115

    def append(self, piece: bytes) -> None:
        """Keep a piece. Its length is written after it, where reading backwards finds it."""
        self._file.write(piece)
        self._file.write(len(piece).to_bytes(_LENGTH_SIZE, "little"))
        self.size += len(piece) + _LENGTH_SIZE

    def truncate(self, size: int) -> None:
        """Forget the pieces that were added since ``size`` had this value."""
        self._file.seek(size)
        self._file.truncate()
        self.size = size

    def write_backwards(self, output: BinaryIO) -> None:
        """Write all pieces to ``output``, the last one first, and close the file."""
        with self._file as file:
            file.flush()
            descriptor, end = file.fileno(), self.size
            while end:
                end -= _LENGTH_SIZE
                length = int.from_bytes(os.pread(descriptor, _LENGTH_SIZE, end), "little")
                end -= length
                file.seek(end)
                output.write(file.read(length))
        self.size = 0

    def close(self) -> None:
        """Forget all pieces."""
        self._file.close()
