"""The served binlog files: their names, what their first events say, and their raw events from a position on.

Files may grow and new files may appear while they are served. Nothing is locked and nothing is written. A read blocks
the event loop for 256 KB at a time, mostly from the page cache.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import dropwhile
from typing import Final
from zlib import crc32

from protocol.binlog.checksum import (
    CRC32_ALGORITHM,
    CRC32_RESIDUE,
    algorithm_of,
    crc32_matches,
    is_mariadb_version,
    server_version_of,
    version_numbers,
)
from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import MariadbGtidListEvent, PreviousGtidsEvent
from protocol.constants import (
    BINLOG_MAGIC,
    ENCRYPTED_BINLOG_MAGIC,
    EVENT_HEADER_SIZE,
    EVENT_SIZE_OFFSET,
    EVENT_TYPE_OFFSET,
    MAX_EVENT_SIZE,
    EventType,
)
from protocol.errors import ConfigurationError, DecodeError
from protocol.gtid import GtidSet, MariadbGtid
from protocol.position import FIRST_POSITION, file_number, split_file_name
from protocol.records import record, replace
from protocol.wire import unpack_event_header, unpack_u32

from ..files.log_files import LogFile, LogSource, Readable, find_log_files, in_directory, unreadable

_CHUNK_SIZE: Final = 1 << 18
# Since these versions each file starts with the GTIDs of the files before it.
_MYSQL_LISTS_SINCE: Final = (5, 6, 5)
_MARIADB_LISTS_SINCE: Final = (10, 0, 2)
_GTID_LISTS: Final = frozenset({EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST})


@record(slots=True, frozen=True)
class FileHead:
    """What a file's first events say. ``previous`` are the GTIDs of the files before it, None if it names none."""

    description: bytes
    version: str
    server_id: int
    has_checksums: bool
    previous: GtidSet | tuple[MariadbGtid, ...] | None

    @property
    def is_mariadb(self) -> bool:
        """Whether MariaDB wrote the file."""
        return is_mariadb_version(self.version)

    @property
    def first_event(self) -> int:
        """The position of the first event after the format description."""
        return FIRST_POSITION + len(self.description)

    def decoder(self, file: str, position: int) -> EventDecoder:
        """A decoder for single events of this file, at ``position``; it does not verify checksums."""
        decoder = EventDecoder(file=file, position=FIRST_POSITION, verify_checksum=False)
        decoder.decode(self.description)
        decoder.position = position
        return decoder


class FileEvents:
    """Reads the complete raw events of one file. ``position`` is that of the next event.

    Raises ``DecodeError`` for a size that no event can have. Must be closed.
    """

    def __init__(self, path: str, position: int = FIRST_POSITION) -> None:
        self._handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self._name = os.path.basename(path)
        self.position = position

    def __enter__(self) -> "FileEvents":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    @property
    def size(self) -> int:
        """The size of the file now, in bytes."""
        return os.fstat(self._handle).st_size

    def read(self) -> list[bytes]:
        """The next events: at most 256 KB together, or one larger event; none if the next is not complete yet."""
        data = os.pread(self._handle, _CHUNK_SIZE, self.position)
        events: list[bytes] = []
        start, size = 0, len(data)
        while start + EVENT_HEADER_SIZE <= size:
            (length,) = unpack_u32(data, start + EVENT_SIZE_OFFSET)
            end = start + length
            if end > size or length < EVENT_HEADER_SIZE:
                break
            events.append(data[start:end])
            start = end
        if not events and size >= EVENT_HEADER_SIZE:
            events, start = self._read_large(data)
        self.position += start
        return events

    def _read_large(self, data: bytes) -> tuple[list[bytes], int]:
        (length,) = unpack_u32(data, EVENT_SIZE_OFFSET)
        if not EVENT_HEADER_SIZE <= length <= MAX_EVENT_SIZE:
            raise DecodeError(
                f"the event's size is {length} bytes", self._name, self.position, data[EVENT_TYPE_OFFSET]
            )
        if self.position + length > self.size:
            return [], 0
        raw = os.pread(self._handle, length, self.position)
        return ([raw], length) if len(raw) == length else ([], 0)

    def large_event(self) -> bytes:
        """The header of the next event if that is complete and larger than 256 KB; else no bytes."""
        data = os.pread(self._handle, EVENT_HEADER_SIZE, self.position)
        if len(data) < EVENT_HEADER_SIZE:
            return b""
        (length,) = unpack_u32(data, EVENT_SIZE_OFFSET)
        is_large = _CHUNK_SIZE < length <= MAX_EVENT_SIZE
        return data if is_large and self.position + length <= self.size else b""

    def pieces(self, size: int) -> Iterator[bytes]:
        """The next ``size`` bytes in pieces of 256 KB, without moving ``position``.

        Raises ``DecodeError`` if the file has become shorter.
        """
        end = self.position + size
        start = self.position
        while start < end:
            piece = os.pread(self._handle, min(_CHUNK_SIZE, end - start), start)
            if not piece:
                raise DecodeError("the file has become shorter", self._name, start)
            start += len(piece)
            yield piece

    def checksum_matches(self, size: int) -> bool:
        """Whether the next event, of ``size`` bytes, ends with the CRC32 of its bytes."""
        if size <= _CHUNK_SIZE:
            return crc32_matches(b"".join(self.pieces(size)))
        found = 0
        for piece in self.pieces(size):
            found = crc32(piece, found)
        return found == CRC32_RESIDUE

    def magic(self) -> bytes:
        """The magic bytes at the start of the file; fewer if they are not written yet."""
        return os.pread(self._handle, len(BINLOG_MAGIC), 0)

    def header(self) -> tuple[int, ...] | None:
        """The six fields of the next event's header; None if it is not complete yet."""
        data = os.pread(self._handle, EVENT_HEADER_SIZE, self.position)
        return unpack_event_header(data) if len(data) == EVENT_HEADER_SIZE else None


class ServedLog:
    """The files in order. ``source`` is what ``replica.open_binlog`` takes, or a directory of binlog files.

    Raises ``ConfigurationError`` if there are no files.
    """

    def __init__(self, source: LogSource | Iterable[LogSource]) -> None:
        is_one = isinstance(source, str | os.PathLike | Readable)
        self._source = source if is_one else list(source)  # type: ignore[arg-type]
        self._paths: dict[str, str] = {}
        self._names: list[str] = []
        self._heads: dict[str, FileHead] = {}
        self._resolved = ""  # the index file or pattern that a directory was resolved to
        self._seen: tuple[object, ...] | None = None
        self.refresh()

    @property
    def names(self) -> list[str]:
        """The names of the files, oldest first, as of the last ``refresh``."""
        return self._names

    def refresh(self) -> None:
        """List the files again. If that fails at the moment, the known files are kept."""
        source = self._source
        if not isinstance(source, str | os.PathLike):
            state: tuple[object, ...] = ()
        else:
            source = self._resolved = self._resolve(os.fspath(source))
            # Deleting a file changes its directory, not the index.
            state = (source, *_state_of(source), *_state_of(os.path.dirname(source) or "."))
        if state == self._seen:
            return
        try:
            files = find_log_files(source)
        except ConfigurationError:
            if self._names:
                return
            raise
        self._use(files)
        self._seen = state

    def _resolve(self, path: str) -> str:
        """An index file or a pattern. If a second index appears in the directory later, the first one is kept."""
        try:
            return in_directory(path)
        except ConfigurationError:
            if not self._resolved:
                raise
            return self._resolved

    def _use(self, files: list[LogFile]) -> None:
        for file in files:
            if file.path is None:
                raise ConfigurationError(f"{file.name}: open files cannot be served; give their paths")
        paths = {file.name: file.path for file in files if file.path is not None}
        if len(paths) < len(files):
            raise ConfigurationError("files: two files have the same name")
        # The index still names the oldest files if they were deleted by hand.
        there = dict(dropwhile(lambda item: not os.path.exists(item[1]), paths.items()))
        self._paths = there or paths
        self._names = list(self._paths)
        self._heads = {name: head for name, head in self._heads.items() if name in self._paths}

    def beside(self, name: str) -> str | None:
        """The path of this name in the folder of the files; None if the files lie in several folders."""
        folders = {os.path.dirname(path) for path in self._paths.values()}
        return os.path.join(*folders, name) if len(folders) == 1 else None

    def next_file(self, name: str) -> str | None:
        """The file after this one, which itself may have been removed meanwhile; None if it is the last one.

        Raises ``LookupError`` if the file after it was removed as well: there would be a gap.
        """
        names = self._names
        if name in names:
            index = names.index(name) + 1
            return names[index] if index < len(names) else None
        base, number = split_file_name(name)
        if names and split_file_name(names[0])[0] == base and file_number(names[0]) == int(number or 0) + 1:
            return names[0]
        raise LookupError(name)

    def open(self, name: str, position: int = FIRST_POSITION) -> FileEvents:
        """Open a file, to read its events from a position on. Raises ``KeyError`` and ``OSError``."""
        return FileEvents(self._paths[name], position)

    def path(self, name: str) -> str:
        """The path of a file."""
        return self._paths[name]

    def size(self, name: str) -> int:
        """The size of a file now, in bytes; 0 if it was removed."""
        try:
            return os.stat(self._paths[name]).st_size
        except OSError:
            return 0

    def head(self, name: str) -> FileHead | None:
        """A file's first events; None if they are not written yet. Raises ``ConfigurationError`` if it is no log."""
        if name not in self._heads:
            if name not in self._paths:
                raise ConfigurationError(f"{name}: the file was removed")
            head = _read_head(self._paths[name])
            if head is None:
                return None
            self._heads[name] = head
        return self._heads[name]

    def newest_head(self) -> FileHead:
        """The first events of the newest file that has any. Raises ``ConfigurationError`` if no file has."""
        for name in reversed(self._names):
            if (head := self.head(name)) is not None:
                return head
        raise ConfigurationError(
            f"{self._paths[self._names[-1]]} holds no event yet: wait until its server has written one"
        )


def _state_of(path: str) -> tuple[object, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read_head(path: str) -> FileHead | None:
    try:
        events = FileEvents(path)
    except OSError as error:
        raise unreadable(path, error) from error
    with events:
        _check_magic(path, events.magic())
        try:
            first = events.read()
            if len(first) == 1:
                # The next event may be larger than one chunk.
                first += events.read()
        except DecodeError as error:
            raise ConfigurationError(f"{path} is no binary log: {error.reason}") from error
    if not first:
        return None
    description = first[0]
    # A format description has a checksum even if checksums are off; that of an older server has none.
    if description[EVENT_TYPE_OFFSET] != EventType.FORMAT_DESCRIPTION:
        raise ConfigurationError(f"{path} does not begin with a FORMAT_DESCRIPTION event")
    version = server_version_of(description)
    head = FileHead(
        description,
        version,
        unpack_event_header(description)[2],
        algorithm_of(description) == CRC32_ALGORITHM,
        None,
    )
    return _with_previous(head, first[1:3])


def _with_previous(head: FileHead, events: list[bytes]) -> FileHead | None:
    """The head with the GTIDs in the next events; None if that event is not written yet."""
    if not events:
        since = _MARIADB_LISTS_SINCE if head.is_mariadb else _MYSQL_LISTS_SINCE
        return None if version_numbers(head.version) >= since else head
    for raw in events:
        if raw[EVENT_TYPE_OFFSET] == EventType.MARIADB_START_ENCRYPTION:
            raise ConfigurationError("the binary log is encrypted: decrypt it before it is served")
        if raw[EVENT_TYPE_OFFSET] in _GTID_LISTS:
            event = head.decoder("", head.first_event).decode(raw)
            if isinstance(event, PreviousGtidsEvent):
                return replace(head, previous=event.gtid_set)
            if isinstance(event, MariadbGtidListEvent):
                return replace(head, previous=event.gtids)
    return head


def _check_magic(path: str, magic: bytes) -> None:
    if magic == ENCRYPTED_BINLOG_MAGIC:
        raise ConfigurationError(f"{path} is encrypted: decrypt it before it is served")
    if not BINLOG_MAGIC.startswith(magic):
        raise ConfigurationError(f"{path} is no binary log: it starts with the bytes {magic.hex(' ')}")
