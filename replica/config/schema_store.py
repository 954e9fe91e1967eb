"""Storage of schema histories: the interface of a store, and a store in a file of JSON lines.

``replica.schemas.timeline`` writes and reads the lines; a store only keeps them. Nothing here reads a log.
"""

import os
from collections.abc import Awaitable, Iterable, Sequence
from typing import BinaryIO, Final, Protocol

from protocol.errors import CheckpointError

from .checkpoint import remove_leftovers, replace_file
from .selection import read_path

#: What the file beside a checkpoint file is called: the checkpoint's name with this behind it.
SUFFIX: Final = ".schemas"
#: The statement by which a ``BinlogServer`` tells the lines of that store; no database server knows it.
SHOW_HISTORY: Final = "SHOW SCHEMA HISTORY"


class SchemaStore(Protocol):
    """Keeps the schema history of one stream, as in ``replica.connect(dsn, schemas=store)``: lines of text.

    All methods may be coroutine functions. Plain functions run in the event loop. An exception ends the stream; a
    store raises ``CheckpointError``. What is saved must outlive the process; a failed or killed ``save`` must leave
    the previous lines intact, and a killed ``append`` may leave a part of its lines.
    """

    def load(self) -> Iterable[str] | Awaitable[Iterable[str] | None] | None:
        """All lines, in their order; None if nothing has been saved."""

    def save(self, lines: Sequence[str]) -> Awaitable[None] | None:
        """Replace all lines."""

    def append(self, lines: Sequence[str]) -> Awaitable[None] | None:
        """Add lines behind the others."""


class FileSchemaStore:
    """Keeps a schema history in a file, a JSON text a line; one file for each stream.

    ``save`` replaces the file as a whole, ``append`` writes behind its end; both return when the data is on the disk.
    A line that a killed ``append`` has left without its end is passed over, and the temporary file of a killed
    ``save`` is removed. A new file has the mode 0600.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(read_path("FileSchemaStore", path))

    def __repr__(self) -> str:
        return f"FileSchemaStore({self._path!r})"

    @property
    def path(self) -> str:
        """The file's absolute path."""
        return self._path

    def load(self) -> list[str] | None:
        """The lines; None if the file does not exist. Raises ``CheckpointError`` for a file that cannot be read."""
        remove_leftovers(self._path)
        try:
            with open(self._path, encoding="utf-8", newline="\n") as file:
                text = file.read()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise CheckpointError(
                f"{self._path} is no schema store: {error.reason}; restore it from a backup, or remove it"
            ) from error
        except OSError as error:
            raise self._error("cannot be read", error) from error
        # The last line has its end, or was not written whole.
        return text.split("\n")[:-1]

    def save(self, lines: Sequence[str]) -> None:
        """Replace the file. Raises ``CheckpointError`` if that fails; the old file then stays as it was."""
        try:
            replace_file(os.path.realpath(self._path), _bytes(lines))
        except OSError as error:
            raise self._error("cannot be written", error) from error

    def append(self, lines: Sequence[str]) -> None:
        """Write lines behind the others. Raises ``CheckpointError`` if that fails."""
        try:
            with open(self._path, "rb+") as file:
                file.truncate(_end_of_lines(file))
                file.seek(0, os.SEEK_END)
                file.write(_bytes(lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._error("cannot be written", error) from error

    def _error(self, problem: str, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"the schema store {self._path} {problem}: {error.strerror or error}; check the disk and the "
            "permissions, and start again"
        )


def _bytes(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _end_of_lines(file: BinaryIO) -> int:
    """The size of the file without a last line that has no end."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 1, 0))
    if file.read(1) in (b"\n", b""):
        return size
    file.seek(0)
    return file.read().rfind(b"\n") + 1
