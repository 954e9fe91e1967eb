"""Gives pieces of a log their bytes, for executors that do not see the driver's files.

    up to 16 MB        with the piece itself, which Spark sends to the task
    more               as immutable objects in ``spoolDir``, if that is a URI (``file:///mnt/shared/...``, ``s3://...``)

An object has the bytes of one piece; its name says of which run, and where in the log. Objects are deleted when Spark
has committed the offset at their end. They can be made again from the driver's own spool, which can be fetched again
from the source: so a run deletes all objects that an earlier one has left. This module knows no Spark.
"""

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyarrow.fs import FileSelector

from protocol.errors import CheckpointError, ConfigurationError
from protocol.records import replace

from .offsets import Key
from .pieces import LogPiece
from .storage import file_system, make_folder, write_whole

#: So many bytes travel with the pieces of a batch, and so large may a piece be.
SHIPPED_BYTES: Final = 16 << 20
# Without a place for objects a batch may be so large: the driver's JVM holds it.
_MOST_BYTES: Final = 64 << 20
_COPIED_BYTES: Final = 4 << 20
# The run stands first; earlier objects have none. On a disk an object begins with a dot until it is whole.
_NAME: Final = re.compile(r"\.?(?:[0-9a-f]{16}-)?(\d{5})-(\d{10})-(\d{13})-(\d{13})\.piece")


class ObjectFolder:
    """The objects of one query in a folder that driver and executors see. Each query needs a folder of its own."""

    def __init__(self, uri: str, storage: Mapping[str, str]) -> None:
        """Deletes the objects of an earlier run. Raises ``CheckpointError`` if the folder cannot be read or made."""
        self.uri = uri.rstrip("/")
        # Another query with the same folder, of another source, must not replace an object that a task will read.
        self._run = secrets.token_hex(8)
        self._system, self._path = file_system(self.uri, storage)
        try:
            make_folder(self._system, self._path)
            found = self._system.get_file_info(FileSelector(self._path, allow_not_found=True))
        except OSError as error:
            raise CheckpointError(f"spoolDir {self.uri}: {error}") from error
        # Their names do not tell of which server's log they are, so they are not used again.
        self._sizes = {info.base_name: 0 for info in found if _NAME.fullmatch(info.base_name)}
        self._delete(list(self._sizes))

    @property
    def size(self) -> int:
        """Bytes of all objects."""
        return sum(self._sizes.values())

    def put(self, piece: LogPiece) -> LogPiece:
        """The piece with its bytes in an object. Raises ``CheckpointError`` if the object cannot be written."""
        name = f"{self._run}-{_name(piece)}"
        if self._sizes.get(name) != piece.size:
            try:
                self._write(name, piece)
            except OSError as error:
                raise CheckpointError(f"spoolDir {self.uri}: {error}") from error
            self._sizes[name] = piece.size
        return replace(piece, uri=f"{self.uri}/{name}")

    def delete_up_to(self, end: Key) -> None:
        """Delete the objects that end at this place of the log or before it."""
        self._delete([name for name in self._sizes if _end(name) <= end])

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            del self._sizes[name]
            try:
                self._system.delete_file(f"{self._path}/{name}")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise CheckpointError(f"spoolDir {self.uri}: {error}") from error

    def _write(self, name: str, piece: LogPiece) -> None:
        def copy(target: pa.NativeFile) -> None:
            left = piece.size
            while left:
                data = file.read(min(left, _COPIED_BYTES))
                if not data:
                    raise CheckpointError(f"{piece.path} has lost its last {left} bytes")
                target.write(data)
                left -= len(data)

        with open(piece.path, "rb", buffering=0) as file:
            file.seek(piece.start)
            write_whole(self._system, f"{self._path}/{name}", copy)


def ship(pieces: Sequence[LogPiece], objects: ObjectFolder | None) -> list[LogPiece]:
    """The pieces with their bytes: with themselves, or in ``objects`` if they are too many.

    Raises ``ConfigurationError`` for too many bytes without ``objects``.
    """
    size = shipped_size(pieces)
    if objects is not None and size > SHIPPED_BYTES:
        return [objects.put(piece) if _has_bytes(piece) else piece for piece in pieces]
    if size > _MOST_BYTES:
        raise ConfigurationError(
            f"spoolDir: {size >> 20} MB of the log must get to executors that do not see the driver's files: give a "
            "folder that all machines see, as a URI such as file:///mnt/shared/spool or s3://bucket/spool; or put "
            "the files where all machines see them, and set sharedFolders=true"
        )
    return [replace(piece, data=_read(piece)) if _has_bytes(piece) else piece for piece in pieces]


def shipped_size(pieces: Iterable[LogPiece]) -> int:
    """The bytes that executors need."""
    return sum(piece.size for piece in pieces if _has_bytes(piece))


def _has_bytes(piece: LogPiece) -> bool:
    return piece.size > 0 and not piece.gap


def _read(piece: LogPiece) -> bytes:
    with open(piece.path, "rb") as file:
        file.seek(piece.start)
        return file.read(piece.size)


def _name(piece: LogPiece) -> str:
    end = piece.position + piece.size
    return f"{piece.epoch:05d}-{piece.number:010d}-{piece.position:013d}-{end:013d}.piece"


def _end(name: str) -> Key:
    epoch, number, _, end = map(int, _NAME.fullmatch(name).groups())  # type: ignore[union-attr]
    return epoch, number, end
