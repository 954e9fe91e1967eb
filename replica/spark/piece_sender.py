"""How pieces of the log get from the driver to the executors of one query.

    executors see the driver's folders (a local master)    pieces name files
    they do not                                            pieces bring their bytes or name objects: ``shipping``

Large transactions are cut (``cut_inside``) either way. This module runs on the driver only.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from typing import Final

from protocol.errors import CheckpointError

from ..spool.offsets import Key
from ..spool.pieces import LogPiece
from ..spool.shipping import SHIPPED_BYTES, ObjectFolder, ship
from ..spool.storage import StoredFile, is_uri
from .cut_inside import cut_inside
from .source_options import SourceOptions

#: The name of the copy of a schema history.
SCHEMAS: Final = "schemas"
_PRIVATE: Final = 0o700


class PieceSender:
    """Sends the pieces of one query. It may write objects below the URI ``objects``; None: nowhere."""

    def __init__(self, options: SourceOptions, *, shares_folders: bool, objects: str | None = None) -> None:
        self._options = options
        self.shares_folders = shares_folders if options.shared_folders is None else options.shared_folders
        self._uri = objects
        self._objects: ObjectFolder | None = None

    @property
    def max_bytes(self) -> int:
        """The approximate size of the pieces into which the log is cut."""
        wanted = self._options.max_partition_bytes
        return wanted if self.shares_folders else min(wanted, SHIPPED_BYTES)

    @property
    def batch_bytes(self) -> int | None:
        """The approximate largest size of a micro-batch; None: no limit."""
        return None if self.shares_folders or self._uri is not None else SHIPPED_BYTES

    @property
    def stored_bytes(self) -> int:
        """Bytes of all objects."""
        return 0 if self._objects is None else self._objects.size

    def send(self, pieces: Iterable[LogPiece]) -> list[LogPiece]:
        """The pieces as executors get them. Raises ``ConfigurationError`` or ``CheckpointError``."""
        cut = list(cut_inside(pieces, self._options.settings, self.max_bytes))
        # All machines can read files in an object store.
        if self.shares_folders or all(is_uri(piece.path) for piece in cut):
            return cut
        return ship(cut, self._folder())

    def commit(self, end: Key) -> None:
        """Delete objects of the log before ``end``, which Spark has committed."""
        if self._objects is not None:
            self._objects.delete_up_to(end)

    def prepare(self) -> None:
        """Delete what an earlier run has left. Later calls do nothing."""
        if not self.shares_folders:
            self._folder()

    def _folder(self) -> ObjectFolder | None:
        if self._objects is None and self._uri is not None:
            self._objects = ObjectFolder(self._uri, self._options.settings.storage)
        return self._objects


def spool_folder(options: SourceOptions) -> str:
    """The folder on the driver's disk in which a stream keeps the log.

    If ``spoolDir`` is a URI, it is ``spoolCache``, or a folder below the system's temporary one, with a name that
    depends on the URI only: the next run on this machine finds it again. Raises ``CheckpointError`` if that folder
    belongs to another user.
    """
    folder = options.spool_dir
    assert folder is not None
    if not is_uri(folder):
        return folder
    if options.spool_cache is not None:
        return options.spool_cache
    name = hashlib.sha256(folder.rstrip("/").encode()).hexdigest()[:24]
    path = os.path.join(tempfile.gettempdir(), f"mysql-binlog-{os.getuid()}-{name}")
    try:
        os.makedirs(path, _PRIVATE, exist_ok=True)
        found = os.lstat(path)
    except OSError as error:
        raise CheckpointError(f"spoolCache {path}: {error.strerror or error}") from error
    if found.st_uid != os.getuid():
        raise CheckpointError(f"spoolCache {path}: the folder belongs to another user -- give another one")
    return path


def schemas_copy(options: SourceOptions) -> StoredFile | None:
    """Where a stream's schema history has a copy for a driver on another machine: in ``spoolDir``, if it is a URI."""
    folder = options.spool_dir
    if folder is None or not is_uri(folder):
        return None
    return StoredFile(f"{folder.rstrip('/')}/{SCHEMAS}", options.settings.storage)
