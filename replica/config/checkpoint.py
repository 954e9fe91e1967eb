"""Storage of checkpoints: the interface of a store, a store in a JSON file, and the save interval of a stream.

``protocol.position`` defines ``Checkpoint``; the stream says when one is reached. Nothing here reads a log.

A checkpoint file has a checksum (``checked_json``): without it a changed digit of a position or GTID set is another
valid place, and events are missing or come twice. Files of earlier releases have none.
"""

import contextlib
import errno
import fcntl
import inspect
import json
import os
import re
import stat
from collections.abc import Awaitable, Mapping
from typing import Any, Final, Protocol, TypeVar

from protocol.errors import CheckpointError, ConfigurationError
from protocol.position import CHECKPOINT_VERSION, Checkpoint

from .checked_json import CHECKSUM, checked, with_checksum
from .selection import read_path

_Result = TypeVar("_Result")

# Errors of file systems without fsync for directories. On those the rename is as durable as it can be.
_CANNOT_SYNC_DIRECTORY: Final = frozenset({errno.EINVAL, errno.ENOTSUP})


class CheckpointStore(Protocol):
    """Keeps the one checkpoint of a stream, as in ``replica.connect(dsn, checkpoints=store)``.

    The stream saves the place after events that are done: those before the one that you asked for last. If you
    collect changes over several transactions before you write them, a kill loses what is collected, as the stored
    checkpoint is behind it. ``stream.batches()`` collects transactions with a checkpoint that waits for them.

    Both methods may be coroutine functions. Plain functions run in the event loop, and may block it for as long as a
    small write takes. An exception ends the stream; a store raises ``CheckpointError``. A saved checkpoint must
    outlive the process; a failed or killed ``save`` must leave the previous checkpoint intact.
    """

    def load(self) -> Checkpoint | Awaitable[Checkpoint | None] | None:
        """The checkpoint that was saved last; None if nothing has been saved."""

    def save(self, checkpoint: Checkpoint) -> Awaitable[None] | None:
        """Replace the stored checkpoint."""


class FileCheckpointStore:
    """Keeps a checkpoint in a small JSON file, replaced as a whole; one file for each stream, which locks it.

    The new content is written and synced under another name in the same directory and renamed over the old file, then
    the directory is synced: at any moment the file holds the old or the new checkpoint, whole. If the process is
    killed in between, the next ``load`` removes the temporary file. Other processes may ``load`` at any time. A new
    file has the mode 0600; an existing file keeps its mode, and a symbolic link stays a link. ``save`` takes as long
    as the disk needs for two syncs.

    The file has what ``Checkpoint.to_dict()`` returns, and a checksum of it. To edit the file, remove the line
    ``"checksum"``: it is not looked for then, as in files of earlier releases and of other programs.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(read_path("FileCheckpointStore", path))

    def __repr__(self) -> str:
        return f"FileCheckpointStore({self._path!r})"

    @property
    def path(self) -> str:
        """The file's absolute path."""
        return self._path

    def load(self) -> Checkpoint | None:
        """The checkpoint; None if the file does not exist.

        Raises ``CheckpointError``, naming the path, for a file that cannot be read or holds no checkpoint.
        """
        remove_leftovers(self._path)
        try:
            with open(self._path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error("cannot be read", error) from error
        return self._parse(content)

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the file. Raises ``CheckpointError`` if that fails; the old file then stays as it was."""
        content = json.dumps(with_checksum(checkpoint.to_dict()), indent=2).encode() + b"\n"
        try:
            replace_file(os.path.realpath(self._path), content)
        except OSError as error:
            raise self._error("cannot be written", error) from error

    def _parse(self, content: bytes) -> Checkpoint:
        try:
            data = json.loads(content)
        # json.loads raises ValueError for invalid JSON, invalid UTF-8, and numbers of thousands of digits.
        except (ValueError, RecursionError) as error:
            raise self._unusable("it holds no valid JSON") from error
        if not isinstance(data, dict):
            raise self._unusable("it holds no JSON object")
        data = self._checked(data)
        version = data.get("version")
        if type(version) is int and version > CHECKPOINT_VERSION:
            raise CheckpointError(
                f"the checkpoint file {self._path} has version {version}, written by a later mysql-replica; this one "
                f"reads up to version {CHECKPOINT_VERSION}: upgrade, or start from another file"
            )
        try:
            return Checkpoint.from_dict(data)
        except ConfigurationError as error:
            raise self._unusable(str(error)) from error

    def _checked(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return checked(data)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(
                f"the checkpoint file {self._path} is damaged, or was changed by hand: {error}; restore it from a "
                "backup, or remove it to begin at start=, or, to go on from the place that it names now, remove its "
                f'line "{CHECKSUM}"'
            ) from None

    def _unusable(self, reason: str) -> CheckpointError:
        return CheckpointError(
            f"{self._path} is not a checkpoint file: {reason}; restore it from a backup, or remove it to begin at "
            "start="
        )

    def _error(self, problem: str, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint file {self._path} {problem}: {error.strerror or error}; check the disk and the "
            "permissions, and start again"
        )


#: What an interrupted ``replace_file`` leaves ends so.
TEMPORARY_SUFFIX: Final = ".tmp"


def _prefix(name: str) -> str:
    return f".{name}."


def replace_file(path: str, content: bytes) -> None:
    """Replace a file as a whole. Each save uses a temporary name of its own: two processes cannot mix their bytes."""
    folder, name = os.path.split(path)
    mode = _mode(path)
    handle, temporary = _make_temporary(folder, name)
    try:
        with open(handle, "wb") as file:
            if mode is not None:
                os.fchmod(handle, mode)
            file.write(content)
            file.flush()
            os.fsync(handle)
            # Before the file is closed, which releases its lock.
            os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            # The error of a file descriptor does not name the file.
            raise OSError(error.errno, error.strerror, path) from error
        raise
    sync_directory(folder)


def _make_temporary(folder: str, name: str) -> tuple[int, str]:
    """A new file, as a descriptor and a path. It is locked, which tells it from one that a kill has left."""
    # It takes 2 ms to import, and most streams write no file.
    import tempfile

    while True:
        handle, path = tempfile.mkstemp(TEMPORARY_SUFFIX, _prefix(name), folder)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(path):
            return handle, path
        # ``remove_leftovers`` has found it before it was locked.
        os.close(handle)


def remove_leftovers(path: str) -> None:
    """Remove temporary files of this file that kills have left, but none that a process is writing."""
    folder, name = os.path.split(os.path.realpath(path))
    leftover = re.compile(rf"{re.escape(_prefix(name))}[^.]+{re.escape(TEMPORARY_SUFFIX)}")
    with contextlib.suppress(OSError):
        for found in os.listdir(folder):
            if leftover.fullmatch(found):
                _remove_unlocked(os.path.join(folder, found))


def _remove_unlocked(path: str) -> None:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)


def _mode(path: str) -> int | None:
    """The permissions of the existing file; None if there is none. ``OSError`` for anything but a regular file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    return stat.S_IMODE(found.st_mode)


def sync_directory(folder: str) -> None:
    """Make renames and new files in a folder durable: a machine that loses power may come up without them."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC_DIRECTORY:
            raise
    finally:
        os.close(handle)


async def settled(result: _Result | Awaitable[_Result]) -> _Result:
    """The result of a store's method, awaited if the method is a coroutine function."""
    return await result if inspect.isawaitable(result) else result


class CheckpointKeeper:
    """Saves a stream's checkpoint to its store, at most every ``interval`` seconds (0: every checkpoint).

    It reads no clock: ``now`` is the time of any monotonic clock, in seconds.
    """

    def __init__(self, store: CheckpointStore, interval: float) -> None:
        self._store = store
        self._interval = interval
        self._saved: Checkpoint | None = None
        self._saved_at = float("-inf")

    async def load(self) -> Checkpoint | None:
        """Load the stored checkpoint; None if nothing is stored."""
        self._saved = await settled(self._store.load())
        if not isinstance(self._saved, Checkpoint | None):
            raise CheckpointError(f"load() of {self._store!r} must return a Checkpoint or None")
        if self._saved is not None:
            try:
                Checkpoint.from_dict(self._saved.to_dict())
            except ConfigurationError as error:
                raise CheckpointError(f"load() of {self._store!r}: {error}") from None
        return self._saved

    def should_save(self, now: float) -> bool:
        """Whether the interval since the last save is over."""
        return now - self._saved_at >= self._interval

    async def save(self, checkpoint: Checkpoint, now: float) -> None:
        """Save a checkpoint now, unless the store already has it."""
        if checkpoint != self._saved:
            await settled(self._store.save(checkpoint))
            self._saved, self._saved_at = checkpoint, now
