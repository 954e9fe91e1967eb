"""Locks of the stores' files: two streams that save to one file would each write over the other's place.

A lock is a file of its own, ``.NAME.lock`` beside the store's file, which is replaced at each save. It says who holds
it. The system releases it when the process ends, however it ends; a lock file that a kill leaves is taken over. A
forked process closes its copy of the file, with which the system would keep the lock beyond the end of its parent.
Within a process the newest stream has the lock: one before it may have been left without being closed, and if it was
not, its next save is an error. Reading a store needs no lock.
"""

import contextlib
import errno
import fcntl
import logging
import os
import time
from functools import cache
from typing import BinaryIO, Final

from protocol.errors import CheckpointError

from .after_fork import forget_in_children
from .checkpoint import CheckpointStore, FileCheckpointStore
from .private_files import opener
from .schema_store import FileSchemaStore, SchemaStore

_LOGGER: Final = logging.getLogger(__name__)
#: Errors of file systems without locks, such as NFS without its lock service.
CANNOT_LOCK: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})


class FileLock:
    """The lock of the file ``path``; ``what`` is how messages call it, such as "checkpoint file"."""

    def __init__(self, what: str, path: str) -> None:
        self._name = f"the {what} {path}"
        folder, name = os.path.split(os.path.realpath(path))
        self._path = os.path.join(folder, f".{name}.lock")
        self._file: BinaryIO | None = None
        # What the file says while this lock is held: the process, and which lock of it.
        self._process, self._text = "", ""

    def take(self) -> None:
        """Take the lock. Raises ``CheckpointError``, which says who holds it, if that is another process."""
        self._process = _this_process()
        self._text = f"{self._process}\n{_token()}\n{id(self)} {time.monotonic_ns()}"
        try:
            while self._file is None:
                self._file = self._try()
            forget_in_children(self)
        except BlockingIOError:
            raise self._in_use() from None
        except OSError as error:
            if error.errno not in CANNOT_LOCK:
                raise CheckpointError(
                    f"{self._name} cannot be written: {error.strerror or error}; check the disk and the permissions, "
                    "and start again"
                ) from error
            _LOGGER.warning(
                "%s cannot be locked (%s): only one stream may use it", self._name, error.strerror
            )

    def _try(self) -> BinaryIO | None:
        """The file, locked or taken over; None if its holder has removed it meanwhile."""
        file = open(self._path, "a+b", buffering=0, opener=opener)  # noqa: SIM115 -- the lock lives as long as it
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not self._is_ours(self._read()):
                    raise
            if not self._is_in_place(file):
                file.close()
                return None
        except BaseException:
            file.close()
            raise
        try:
            file.truncate(0)
            file.write(self._text.encode())
        except OSError:
            # A full disk: the system still has the lock, so this is no reason to end here.
            self._text = self._read()
        return file

    def _is_ours(self, text: str) -> bool:
        """Whether a lock file was written by this process."""
        return text.startswith(f"{self._process}\n{_token()}\n")

    def _is_in_place(self, file: BinaryIO) -> bool:
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _read(self) -> str:
        with contextlib.suppress(OSError), open(self._path, encoding="utf-8", errors="replace") as file:
            return file.read(256)
        return ""

    def _in_use(self) -> CheckpointError:
        text = self._read()
        holder = text.partition("\n")[0] or "another process"
        if self._is_ours(text):
            holder = "another stream of this process"
        elif holder == self._process:
            holder = f"another {holder}"
        return CheckpointError(
            f"{self._name} is in use by {holder}: give each stream a file of its own, or end the other one"
        )

    def forget(self) -> None:
        """In a forked process: close the file, which leaves the lock to the parent."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def check(self) -> None:
        """Before each save: raise ``CheckpointError`` if the lock was taken over."""
        if self._file is None:
            return
        with contextlib.suppress(BlockingIOError):
            # If this lock was taken over, the holder before has let go by now, or will.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if self._read() != self._text:
            raise self._in_use()

    def release(self) -> None:
        """Release the lock, and remove its file. Does nothing without it."""
        file, self._file = self._file, None
        if file is None:
            return
        with file:
            if self._read() != self._text:
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


@cache
def _token() -> str:
    """What tells this process from one of another container: both may have the number 1, and one host's name."""
    return os.urandom(8).hex()


def _this_process() -> str:
    return f"process {os.getpid()} on {os.uname().nodename}"
