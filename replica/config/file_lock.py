"""Locks of the stores' files: two streams that save to one file would each write over the other's place.

A lock is a file of its own, ``.NAME.lock`` beside the store's file, which is replaced at each save. It says who holds
it. The system releases it when the process ends, however it ends; a lock file that a kill leaves is taken over.
Reading a store needs no lock.
"""

import contextlib
import errno
import fcntl
import logging
import os
from typing import BinaryIO, Final

from protocol.errors import CheckpointError

from .checkpoint import CheckpointStore, FileCheckpointStore
from .private_files import opener
from .schema_store import FileSchemaStore, SchemaStore

_LOGGER: Final = logging.getLogger(__name__)
# Errors of file systems without locks, such as NFS without its lock service.
_CANNOT_LOCK: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})


class FileLock:
    """The lock of the file ``path``; ``what`` is how messages call it, such as "checkpoint file"."""

    def __init__(self, what: str, path: str) -> None:
        self._name = f"the {what} {path}"
        folder, name = os.path.split(os.path.realpath(path))
        self._path = os.path.join(folder, f".{name}.lock")
        self._file: BinaryIO | None = None
        self._owner = 0

    def take(self) -> None:
        """Take the lock, or raise ``CheckpointError``, which says who holds it."""
        try:
            while self._file is None:
                self._file = self._try()
        except BlockingIOError:
            raise CheckpointError(
                f"{self._name} is in use by {self._holder()}: give each stream a file of its own, or end the "
                "other one"
            ) from None
        except OSError as error:
            if error.errno not in _CANNOT_LOCK:
                raise CheckpointError(
                    f"{self._name} cannot be written: {error.strerror or error}; check the disk and the permissions, "
                    "and start again"
                ) from error
            _LOGGER.warning(
                "%s cannot be locked (%s): only one stream may use it", self._name, error.strerror
            )

    def _try(self) -> BinaryIO | None:
        """The locked file; None if its holder has removed it meanwhile: then another one is there, or none."""
        file = open(self._path, "a+b", buffering=0, opener=opener)  # noqa: SIM115 -- the lock lives as long as it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._is_in_place(file):
                file.close()
                return None
        except BaseException:
            file.close()
            raise
        # Who holds it is for the message alone: a full disk is no reason to end here.
        with contextlib.suppress(OSError):
            file.truncate(0)
            file.write(_this_process().encode())
        self._owner = os.getpid()
        return file

    def _is_in_place(self, file: BinaryIO) -> bool:
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _holder(self) -> str:
        with contextlib.suppress(OSError), open(self._path, encoding="utf-8", errors="replace") as file:
            holder = file.read(256)
            return (
                "another stream of this process" if holder == _this_process() else holder or "another process"
            )
        return "another process"

    def release(self) -> None:
        """Release the lock, and remove its file. Does nothing without it."""
        file, self._file = self._file, None
        if file is None:
            return
        with file:
            # A forked process has the open file, too, but not the lock.
            if self._owner != os.getpid():
                return
            with contextlib.suppress(OSError):
                # While it is locked: whoever has opened the file meanwhile finds that it is gone.
                os.unlink(self._path)
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)


def locks_of(checkpoints: CheckpointStore | None, schemas: SchemaStore | None) -> list[FileLock]:
    """The locks of a stream's stores; stores other than files bring none."""
    locks = []
    if isinstance(checkpoints, FileCheckpointStore):
        locks.append(FileLock("checkpoint file", checkpoints.path))
    if isinstance(schemas, FileSchemaStore):
        locks.append(FileLock("schema store", schemas.path))
    return locks


def _this_process() -> str:
    return f"process {os.getpid()} on {os.uname().nodename}"
