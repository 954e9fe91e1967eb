"""The spool: segment files with the raw events of a stream, on disk until Spark has committed them.

    folder/0000000007.binlog    the magic bytes, a FORMAT_DESCRIPTION, and the log from one place on without a gap
    folder/0000000007.json      that place, and the offset of the stream just before it, with a checksum
    folder/schemas              columns of tables, for a log without names: ``live_names``
    folder/lock                 held by the one process that writes here

A segment is a binlog file, which any reader can read. A new segment begins between transactions: when the current one
is large enough, when the source's file ends, or when the source has skipped events. An offset is published only after
its events were fsynced. After a restart, events after the last boundary are cut off. The spool decodes no events and
connects to no server.
"""

import contextlib
import fcntl
import functools
import json
import mmap
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, BinaryIO, Final, ParamSpec, TypeVar

from protocol.constants import BINLOG_MAGIC, EVENT_HEADER_SIZE
from protocol.errors import CheckpointError, SourceChangedError
from protocol.position import file_number
from protocol.records import record, replace

from ..config.checked_json import checked, with_checksum
from ..config.private_files import make_folder, opener
from ..files.cuts import HeaderWalk
from .offsets import Key, Offset
from .pieces import LogPiece

_P = ParamSpec("_P")
_T = TypeVar("_T")

SEGMENT_BYTES: Final = 32 << 20
_LOCK_SECONDS: Final = 30.0
_BUFFER_SIZE: Final = 1 << 20
_DESCRIPTION_ROOM: Final = 1 << 12
_DESCRIPTION: Final = re.compile(r"[0-9]{10,}\.json")


@record(frozen=True, slots=True)
class Segment:
    """A segment of the spool: the log after the offset ``after``, from ``position`` of ``file`` on.

    ``head`` is the number of bytes before that in the segment's file. ``gap`` is the reason why events are missing
    before the segment, or empty. ``has_gtids``: all transactions of the source have GTIDs.
    """

    number: int
    path: str
    after: Offset
    file: str
    position: int
    epoch: int
    server_uuid: str | None
    server_id: int | None
    head: int
    has_gtids: bool
    gap: str = ""

    def description(self) -> bytes:
        """The FORMAT_DESCRIPTION at the beginning of the segment's file."""
        with open(self.path, "rb") as file:
            data = file.read(max(self.head, _DESCRIPTION_ROOM))[len(BINLOG_MAGIC) :]
        size = int.from_bytes(data[9:13], "little")
        return data[:size] if len(data) >= size else b""

    @property
    def begin(self) -> Key:
        """The place in the log where the segment begins: after ``after``, and after a gap."""
        return self.end(self.head)

    def end(self, size: int) -> Key:
        """The place in the log after the first ``size`` bytes of the segment's file."""
        return self.epoch, file_number(self.file), self.position + size - self.head

    def place(self, start: Offset) -> int:
        """The place in the segment's file from which to read on after an offset that the segment covers."""
        return self.head + (start.position - self.position if start.key > self.begin else 0)


def _exclusive(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let only one thread at a time run the method, which raises ``CheckpointError`` for a full disk and the like."""

    @functools.wraps(method)
    def run(*arguments: _P.args, **named: _P.kwargs) -> _T:
        spool = arguments[0]
        assert isinstance(spool, Spool)
        with spool._access:
            try:
                return method(*arguments, **named)
            except OSError as error:
                raise CheckpointError(f"spoolDir {spool._folder}: {error.strerror or error}") from error

    return run


class Spool:
    """The segments in one folder, in order.

    One thread writes (``begin``, ``append``, ``mark``); any thread may call the other methods.
    """

    def __init__(self, folder: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Raises ``CheckpointError`` if the folder cannot be used, or another process uses it."""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._file: BinaryIO | None = None
        # The thread that reads the log writes; Spark's thread syncs, reads and trims.
        self._access = threading.RLock()
        self._written = self._marked = self._synced = 0
        try:
            make_folder(folder)
            self._lock = open(os.path.join(folder, "lock"), "w", opener=opener)  # noqa: SIM115
            self._take_lock()
            self.segments = self._load()
        except OSError as error:
            raise CheckpointError(f"spoolDir {folder}: {error.strerror or error}") from error
        except CheckpointError:
            self._lock.close()
            raise

    @_exclusive
    def close(self) -> None:
        """Close the files and release the lock. What could not be written since the last ``sync`` is given up."""
        if self._file is not None:
            # On a full disk. No offset that was published needs these events, and the next query fetches them anew.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        self._lock.close()

    # Writing.

    def continues(self, file: str, position: int, epoch: int) -> bool:
        """Whether an event at this place may go into the current segment."""
        return self._written < self._segment_bytes and self.end_in(file, epoch) == position

    def end_in(self, file: str, epoch: int) -> int | None:
        """The position where the current segment ends so far; None if it is of another file."""
        if self._file is None:
            return None
        current = self.segments[-1]
        is_same = (current.epoch, current.file) == (epoch, file)
        return current.position + self._written - current.head if is_same else None

    @_exclusive
    def begin(self, segment: Segment, description: bytes) -> None:
        """Begin a segment; this fills in ``number``, ``path`` and ``head``."""
        self.sync()
        if self._file is not None:
            self._file.close()
        number = self.segments[-1].number + 1 if self.segments else 1
        path = os.path.join(self._folder, f"{number:010d}.binlog")
        # At the beginning of a binlog file the FORMAT_DESCRIPTION comes as an event of the log.
        head = BINLOG_MAGIC + (b"" if segment.position == len(BINLOG_MAGIC) else description)
        segment = replace(segment, number=number, path=path, head=len(head))
        self._file = open(path, "wb", buffering=_BUFFER_SIZE, opener=opener)  # noqa: SIM115
        self._file.write(head)
        self._written = self._marked = len(head)
        self._synced = 0
        values = asdict(segment) | {"after": segment.after.to_dict()}
        _write_synced(_meta_path(path), json.dumps(with_checksum(values)).encode())
        self._sync_folder()
        self.segments.append(segment)

    def append(self, raw: bytes) -> None:
        """Append the next event."""
        with self._access:
            assert self._file is not None
            self._file.write(raw)
            self._written += len(raw)

    def mark(self) -> None:
        """Note that the events so far end between two transactions."""
        self._marked = self._written

    @_exclusive
    def roll_back(self) -> None:
        """Remove the events after the last mark."""
        if self._file is not None and self._written > self._marked:
            self._file.flush()
            self._file.seek(self._marked)
            self._file.truncate()
            self._written = self._marked
            self._synced = min(self._synced, self._marked)

    @_exclusive
    def sync(self) -> None:
        """fsync all events so far."""
        if self._file is not None and self._synced < self._written:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._synced = self._written

    # Taking up again.

    def covers(self, start: Offset) -> bool:
        """Whether the spool has the log from this offset on."""
        return self._first(start) is not None

    def resume(self, start: Offset) -> Iterator[tuple[Segment, int]]:
        """The segments from this offset on, each with the place in its file from which to read.

        Older segments are deleted. ``keep`` opens the last one for appending.
        """
        first = self._first(start)
        assert first is not None
        self._delete(self.segments[:first])
        for index, segment in enumerate(list(self.segments)):
            yield segment, segment.place(start) if index == 0 else segment.head

    @_exclusive
    def keep(self, segment: Segment, size: int) -> None:
        """Continue after the first ``size`` bytes of this segment; delete everything later."""
        kept = self.segments.index(segment) + 1
        self._delete(self.segments[kept:])
        self._file = open(segment.path, "r+b", buffering=_BUFFER_SIZE)  # noqa: SIM115
        self._file.seek(size)
        self._file.truncate()
        self._written = self._marked = size
        self._synced = 0

    @_exclusive
    def last_event(self) -> tuple[str, int, bytes]:
        """File, position and bytes of the last event; no bytes if the segment has none. After ``keep``."""
        segment = self.segments[-1]
        with open(segment.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            begin, end = segment.head, segment.head
            while end < self._written:
                begin, end = (
                    end,
                    end + max(int.from_bytes(data[end + 9 : end + 13], "little"), EVENT_HEADER_SIZE),
                )
            return segment.file, segment.position + begin - segment.head, data[begin:end]

    @_exclusive
    def clear(self) -> None:
        """Delete all segments."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._delete(self.segments)

    # Reading and trimming.

    @_exclusive
    def pieces(self, start: Offset, end: Offset, max_bytes: int) -> list[LogPiece]:
        """The pieces between two offsets, both of which the spool covers.

        Raises ``SourceChangedError`` or ``CheckpointError`` if the spool has lost them.
        """
        found: list[LogPiece] = []
        segments = list(self.segments)
        for index, segment in enumerate(segments):
            following = segments[index + 1].after.key if index + 1 < len(segments) else end.key
            if following <= start.key or segment.after.key >= end.key:
                continue
            first, last = segment.place(start), os.path.getsize(segment.path)
            if segment.gap and start.key <= segment.after.key:
                found.append(_piece(segment, segment.head, segment.head, b"", gap=segment.gap))
            if segment.epoch > end.epoch:
                raise SourceChangedError(
                    f"the batch that ends at {end.file}:{end.position} of server {end.server_uuid or end.server_id} "
                    "must be read again, but the spool has lost it and another server answers -- go back to that "
                    "server"
                )
            limit = min(following, end.key)
            if limit <= segment.begin:
                # The whole batch is missing; the segment's events belong to the next batch.
                continue
            if limit[:2] == (segment.epoch, file_number(segment.file)):
                if segment.end(last) < limit:
                    raise CheckpointError(f"spoolDir {self._folder}: {segment.path} has lost its end")
                last = segment.head + limit[2] - segment.position
            if last > first:
                found += _cut(segment, first, last, max_bytes)
        return found

    @_exclusive
    def trim(self, end: Offset) -> None:
        """Delete the segments before an offset, which Spark has committed."""
        done = 0
        while done + 1 < len(self.segments) and self.segments[done + 1].after.key <= end.key:
            done += 1
        self._delete(self.segments[:done])

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        # Another thread may delete some by ``trim``.
        with self._access:
            return sum(os.path.getsize(segment.path) for segment in self.segments)

    def _first(self, start: Offset) -> int | None:
        """The index of the last segment in which the log continues after this offset; earlier ones are empty."""
        for index in reversed(range(len(self.segments))):
            segment = self.segments[index]
            if segment.after == start or (segment.gap and segment.after.key < start.key <= segment.begin):
                return index
            same_log = (segment.epoch, segment.server_uuid, segment.server_id) == (
                start.epoch,
                *start.identity,
            )
            if same_log and segment.file == start.file and segment.position <= start.position:
                is_written = start.key <= segment.end(os.path.getsize(segment.path))
                return index if is_written else None
        return None

    def _load(self) -> list[Segment]:
        names = sorted(name for name in os.listdir(self._folder) if _DESCRIPTION.fullmatch(name))
        found = []
        for name in names:
            path = os.path.join(self._folder, name)
            try:
                with open(path) as file:
                    values: dict[str, Any] = checked(json.load(file))
                values["after"] = Offset.from_dict(values["after"])
                segment = Segment(**values)
            except (ValueError, TypeError, KeyError):
                # A crash has cut the file short, and the segment was never used; or the file was damaged later, and
                # the log is fetched again.
                continue
            if segment.number != int(name.removesuffix(".json")):
                # A backup has brought the description of another segment.
                continue
            segment = replace(segment, path=path.removesuffix(".json") + ".binlog")
            if os.path.exists(segment.path) and os.path.getsize(segment.path) >= segment.head:
                found.append(segment)
        # Segments before a missing one are useless: the log does not continue after them.
        numbers = [segment.number for segment in found]
        for index in range(len(numbers) - 1, 0, -1):
            if numbers[index] != numbers[index - 1] + 1:
                return found[index:]
        return found

    def _delete(self, segments: Sequence[Segment]) -> None:
        gone = list(segments)
        self.segments = [segment for segment in self.segments if segment not in gone]
        for segment in gone:
            # The .json file first: without it a .binlog file is not taken for a segment.
            for path in (_meta_path(segment.path), segment.path):
                if os.path.exists(path):
                    os.unlink(path)

    def _take_lock(self) -> None:
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    raise CheckpointError(
                        f"spoolDir {self._folder}: another query uses this folder -- give each query its own folder"
                    ) from None
                time.sleep(0.1)

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _meta_path(path: str) -> str:
    return path.removesuffix(".binlog") + ".json"


def _write_synced(path: str, data: bytes) -> None:
    with open(path, "wb", opener=opener) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _cut(segment: Segment, first: int, last: int, max_bytes: int) -> Iterator[LogPiece]:
    description = segment.description()
    if last - first <= max_bytes:
        yield _piece(segment, first, last, description)
        return
    with open(segment.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cuts = list(HeaderWalk(data, last, start=first, description=description).cuts(max_bytes))
    for cut, end in zip(cuts, [*(cut.position for cut in cuts[1:]), last], strict=True):
        yield _piece(segment, cut.position, end, cut.description)


def _piece(segment: Segment, first: int, last: int, description: bytes, gap: str = "") -> LogPiece:
    return LogPiece(
        segment.path,
        segment.file,
        file_number(segment.file),
        start=first,
        size=last - first,
        position=segment.position + first - segment.head,
        description=b"" if first == len(BINLOG_MAGIC) else description,
        epoch=segment.epoch,
        server_uuid=segment.server_uuid,
        gap=gap,
    )
