"""Where checkpoints are kept: the interface of a store, one that is a file, and when a stream saves.

What a checkpoint is, ``protocol.position`` says; when one is reached, the stream does. Nothing here reads a log.
"""

import contextlib
import errno
import inspect
import json
import os
import re
import stat
import tempfile
from collections.abc import Awaitable
from typing import Final, Protocol, TypeVar

from protocol.errors import CheckpointError, ConfigurationError
from protocol.position import CHECKPOINT_VERSION, Checkpoint

_Result = TypeVar("_Result")

# What a file system says that knows no fsync of directories; the rename is as durable there as it can be.
_CANNOT_SYNC_DIRECTORY: Final = frozenset({errno.EINVAL, errno.ENOTSUP})


class CheckpointStore(Protocol):
    """Keeps the one checkpoint of a stream, as in ``replica.connect(dsn, checkpoints=store)``.

    Both methods may be coroutine functions. Plain ones run in the event loop, and may block it for as long as a small
    write takes. What they raise ends the stream; ``CheckpointError`` is there for them. A checkpoint that was
    saved must outlive the process; a failed or killed ``save`` must leave the one before.
    """

    def load(self) -> Checkpoint | Awaitable[Checkpoint | None] | None:
        """The checkpoint that was saved last; None if there is none yet."""

    def save(self, checkpoint: Checkpoint) -> Awaitable[None] | None:
        """Keep a checkpoint in place of the one before."""


class FileCheckpointStore:
    """A checkpoint as a small JSON file, replaced as a whole; one file for each stream.

    The new content is written and synced under another name in the same directory and renamed over the old one, then
    the directory is synced: at any moment the file holds one checkpoint or the other, whole. Where the process is
    killed in between, the next ``load`` removes what is left. A new file has the mode 0600; an existing one keeps its
    mode, and a symbolic link stays one. ``save`` takes as long as the disk needs for two syncs.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(path)

    def __repr__(self) -> str:
        return f"FileCheckpointStore({self._path!r})"

    def load(self) -> Checkpoint | None:
        """The checkpoint, or None where there is no file.

        Raises ``CheckpointError``, which names the path, for a file that cannot be read or holds something else.
        """
        self._remove_leftovers()
        try:
            with open(self._path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error("cannot be read", error) from error
        return self._parse(content)

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the file; ``CheckpointError`` where that fails, and the old one stays as it is."""
        content = json.dumps(checkpoint.to_dict(), indent=2).encode() + b"\n"
        try:
            replace_file(os.path.realpath(self._path), content)
        except OSError as error:
            raise self._error("cannot be written", error) from error

    def _remove_leftovers(self) -> None:
        folder, name = os.path.split(os.path.realpath(self._path))
        leftover = re.compile(rf"{re.escape(_prefix(name))}[^.]+{re.escape(_SUFFIX)}")
        with contextlib.suppress(OSError):
            for found in os.listdir(folder):
                if leftover.fullmatch(found):
                    os.unlink(os.path.join(folder, found))

    def _parse(self, content: bytes) -> Checkpoint:
        try:
            data = json.loads(content)
        # Of the decoder: a ValueError for what is no JSON, no UTF-8, or a number of thousands of digits.
        except (ValueError, RecursionError) as error:
            raise self._unusable("it holds no JSON") from error
        if not isinstance(data, dict):
            raise self._unusable("it holds no JSON object")
        version = data.get("version")
        if type(version) is int and version > CHECKPOINT_VERSION:
            raise CheckpointError(
                f"the checkpoint file {self._path} has version {version}, of a later mysql-replica; "
                f"{CHECKPOINT_VERSION} is known here: upgrade, or start from another file"
            )
        try:
            return Checkpoint.from_dict(data)
        except ConfigurationError as error:
            raise self._unusable(str(error)) from error

    def _unusable(self, reason: str) -> CheckpointError:
        return CheckpointError(
            f"{self._path} is no checkpoint file: {reason}; restore it from a copy, or remove it to begin where "
            "start= says"
        )

    def _error(self, problem: str, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint file {self._path} {problem}: {error.strerror or error}; see to the disk and the "
            "permissions, and start again"
        )


_SUFFIX: Final = ".tmp"


def _prefix(name: str) -> str:
    return f".{name}."


def replace_file(path: str, content: bytes) -> None:
    """Put a whole file in a file's place. Each name is of this save alone: two processes cannot mix their bytes."""
    folder, name = os.path.split(path)
    mode = _mode(path)
    handle, temporary = tempfile.mkstemp(_SUFFIX, _prefix(name), folder)
    try:
        with open(handle, "wb") as file:
            if mode is not None:
                os.fchmod(handle, mode)
            file.write(content)
            file.flush()
            os.fsync(handle)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_directory(folder)


def _mode(path: str) -> int | None:
    """The permissions of the file that is there; anything but a file is not to be replaced."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    return stat.S_IMODE(found.st_mode)


def _sync_directory(folder: str) -> None:
    """Without it a machine that loses power may come up with the old name."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC_DIRECTORY:
            raise
    finally:
        os.close(handle)


async def _settle(result: _Result | Awaitable[_Result]) -> _Result:
    """What a store's method returns, be it a coroutine function or a plain one."""
    return await result if inspect.isawaitable(result) else result


class CheckpointKeeper:
    """Saves a stream's checkpoint to its store, not more often than ``interval`` seconds allow (0: each one).

    It reads no clock: ``now`` is of any clock that only goes forward, in seconds.
    """

    def __init__(self, store: CheckpointStore, interval: float) -> None:
        self._store = store
        self._interval = interval
        self._saved: Checkpoint | None = None
        self._saved_at = float("-inf")

    async def load(self) -> Checkpoint | None:
        """What the store holds."""
        self._saved = await _settle(self._store.load())
        if not isinstance(self._saved, Checkpoint | None):
            raise CheckpointError(f"load() of {self._store!r} is to return a Checkpoint or None")
        return self._saved

    def should_save(self, now: float) -> bool:
        """Whether the time has come to save a checkpoint that has moved."""
        return now - self._saved_at >= self._interval

    async def save(self, checkpoint: Checkpoint, now: float) -> None:
        """Save it, whatever the time, unless the store already has it."""
        if checkpoint != self._saved:
            await _settle(self._store.save(checkpoint))
            self._saved, self._saved_at = checkpoint, now
