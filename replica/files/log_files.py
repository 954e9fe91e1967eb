"""Finds and opens binlog files: paths, index files, patterns, standard input and file objects, compressed or not.

Hands out the bytes of one open file; it does not know events.
"""

import glob
import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal, Protocol, runtime_checkable

from protocol.binlog.freed_blocks import keep_freed_blocks
from protocol.constants import BINLOG_MAGIC
from protocol.errors import ConfigurationError, DecodeError, TruncatedError
from protocol.position import file_with_number, split_file_name
from protocol.records import record
from protocol.wire import ReadBytes, utf8_text

STANDARD_INPUT: Final = "-"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
_CHUNK_SIZE: Final = 1 << 16
# A longer line of an index file is no path (PATH_MAX).
_LONGEST_PATH: Final = 4096
# What a server has beside its log files. MariaDB: an index of the GTIDs of each file (11.4), and their last numbers.
_NO_LOGS: Final = (".index", ".idx", ".state")


@runtime_checkable
class Readable(Protocol):
    """A file object opened for reading bytes."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; none at the end."""


LogSource = str | os.PathLike[str] | Readable


@record(slots=True, frozen=True)
class Section:
    """A part of a plain file, from ``start`` to ``end``, that begins and ends between transactions.

    ``description`` is the FORMAT_DESCRIPTION that holds there; empty at the beginning of the file. ``identity`` is
    the device and inode of the file that was cut: another file may get its name meanwhile.
    """

    start: int
    end: int
    description: bytes
    identity: tuple[int, int]


@record(slots=True, frozen=True)
class LogFile:
    """One file: its binlog name (without ``.gz``), and its path or the object to read from.

    ``section`` is the part to read; None: the whole file.
    """

    name: str
    path: str | None = None
    stream: Readable | None = None
    section: Section | None = None

    @property
    def size(self) -> int | None:
        """The file's size on disk in bytes; None if unknown."""
        try:
            return None if self.path is None else os.stat(self.path).st_size
        except (OSError, ValueError):
            return None


class OpenLogFile:
    """An open ``LogFile``; ``bytes_read`` counts bytes as stored. ``ConfigurationError`` if it cannot be opened."""

    def __init__(self, file: LogFile, torn: Literal["stop", "raise"]) -> None:
        keep_freed_blocks()
        self.bytes_read = 0
        self._file = file
        self._descriptor = None if file.path is None else _open(file.path)
        self._stream: Readable = self._descriptor or file.stream or _standard_input()
        if file.section is not None and self._descriptor is not None:
            self.read: ReadBytes = self._section(self._descriptor, file.section)
            return
        head = self._read(_CHUNK_SIZE)
        if head.startswith(_GZIP_MAGIC):
            self.read = _Gunzip(self._read, head, file.name, torn == "raise").read
        else:
            self.read = behind(head, self._read)

    def _section(self, descriptor: "_Descriptor", section: Section) -> ReadBytes:
        if descriptor.identity != section.identity:
            raise ConfigurationError(
                f"{self._file.path}: another file has got this name while the log was read"
            )
        descriptor.seek(section.start)

        def read(size: int) -> bytes:
            left = section.end - section.start - self.bytes_read
            data = self._read(min(size, left))
            if left and not data:
                raise TruncatedError("the file was cut off while it was read", self._file.name)
            return data

        return behind(BINLOG_MAGIC, read) if section.start else read

    def close(self) -> None:
        """Close the file if this object opened it."""
        if self._descriptor is not None:
            self._descriptor.close()

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if not isinstance(data, bytes):
            raise ConfigurationError(
                f"{self._file.name}: the file object reads {type(data).__name__}, not bytes: open it with mode 'rb'"
            )
        self.bytes_read += len(data)
        return data


def find_log_files(source: LogSource | Iterable[LogSource]) -> list[LogFile]:
    """The files that ``source`` names, in order.

    A path that ends in ``.index`` stands for the files listed in it, a pattern for the files that match, in the order
    of their numbers; a folder for its index file, else for the binlog files in it. Raises ``ConfigurationError`` if
    there are none.
    """
    if isinstance(source, str | os.PathLike):
        files = _find(os.fspath(source))
    elif isinstance(source, Readable):
        name = getattr(source, "name", None)
        files = [LogFile(base_name(name) if isinstance(name, str) else STANDARD_INPUT, stream=source)]
    elif isinstance(source, Iterable) and not isinstance(source, bytes | bytearray):
        files = [file for one in source for file in find_log_files(one)]
    else:
        raise ConfigurationError(f"{source!r} is neither a path nor a file object nor a list of these")
    if not files:
        raise ConfigurationError(f"no binlog files: {source!r} names none")
    return files


def read_whole(path: str) -> bytes:
    """The content of a small file. Raises ``ConfigurationError`` if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def _find(path: str) -> list[LogFile]:
    if path == STANDARD_INPUT:
        return [LogFile(STANDARD_INPUT)]
    path = in_directory(path)
    if path.endswith(".index"):
        paths: Sequence[str] = _read_index(path)
    elif glob.has_magic(path) and not os.path.exists(path):
        paths = sorted((found for found in glob.glob(path) if not found.endswith(_NO_LOGS)), key=log_order)
        tell_gaps(path, paths)
    else:
        paths = [path]
    return [LogFile(base_name(one), path=one) for one in paths]


def in_directory(path: str) -> str:
    """The index file of a directory, or a pattern for its binlog files; any other path as it is."""
    if not os.path.isdir(path):
        return path
    found = glob.glob(os.path.join(glob.escape(path), "*.index"))
    if len(found) > 1:
        raise ConfigurationError(f"{path} has several index files: give the path of one of them")
    return found[0] if found else os.path.join(glob.escape(path), "*.[0-9]*[0-9]")


def _read_index(path: str) -> list[str]:
    """The files listed in an index file. A path that does not exist here is looked for beside the index file."""
    text = utf8_text(read_whole(path))
    lines = text.splitlines()
    if "\0" in text or any(len(line) > _LONGEST_PATH for line in lines):
        raise damaged_index(path)
    folder = os.path.dirname(path)
    paths = [os.path.join(folder, line.strip()) for line in lines if line.strip()]
    paths = [one if os.path.exists(one) else os.path.join(folder, os.path.basename(one)) for one in paths]
    check_order(path, paths)
    return paths


def check_order(index: str, files: Sequence[str]) -> None:
    """Check that an index file has each file once, in order. Raises ``ConfigurationError`` if it has lost a line.

    A gap is a warning if the folder lacks the file, too: somebody may have deleted it.
    """
    for before, file in pairwise(files):
        (base, digits), (other, number) = map(split_file_name, map(base_name, (before, file)))
        if base != other or not (digits and number) or int(number) == int(digits) + 1:
            # Another base name: log_bin was changed, and the log goes on.
            continue
        missing = os.path.join(os.path.dirname(before), file_with_number(base, digits, int(digits) + 1))
        if int(number) <= int(digits) or any(map(os.path.exists, (missing, f"{missing}.gz"))):
            raise ConfigurationError(
                f"{index} is damaged, {base_name(file)} follows {base_name(before)} in it: write the files' names "
                "into it, a line each, the oldest first"
            )
        _tell_gap(index, before, file)


def tell_gaps(where: str, names: Sequence[str]) -> None:
    """Warn of files that are missing between these, which a pattern or folder has: somebody may have deleted them."""
    for before, name in gaps(names):
        _tell_gap(where, before, name)


def _tell_gap(where: str, before: str, name: str) -> None:
    # The import takes 2 ms, and hardly any log needs it.
    import logging

    logging.getLogger(__name__).warning(
        "%s: %s follows %s; files between them are missing, and changes in them do not come",
        where,
        base_name(name),
        base_name(before),
    )


def damaged_index(path: str) -> ConfigurationError:
    """What a power failure can leave: zeros, or a part of a name. Or the file is no index at all."""
    return ConfigurationError(
        f"{path} is damaged, it holds what is no name of a binlog file: write the files' names into it, a line each, "
        "the oldest first"
    )


def log_order(path: str) -> tuple[str, int]:
    """A sort key for the names of binlog files: by name and number."""
    base, number = split_file_name(path.removesuffix(".gz"))
    return base, int(number or 0)


def gaps(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pairs of names that follow each other, between whose numbers files are missing."""
    for before, name in pairwise(names):
        (base, number), (other, following) = log_order(before), log_order(name)
        # Another base name: log_bin was changed, and the log goes on.
        if base == other and following > number + 1:
            yield before, name


def base_name(path: str) -> str:
    """The name of the binlog file at a path, without ``.gz``."""
    return os.path.basename(path).removesuffix(".gz")


class _Descriptor:
    """A file opened by path; unbuffered, because it is read in large pieces."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        self._process = os.getpid()
        # A file only grows. 0: this is none, but a pipe, or it is empty.
        found = os.fstat(self._file.fileno())
        self._size = found.st_size if stat.S_ISREG(found.st_mode) else 0

    def read(self, size: int, /) -> bytes:
        if os.getpid() != self._process:
            # Both processes share one place in the file: each would miss the bytes that the other one reads.
            raise ConfigurationError(
                f"{self._file.name} was opened in another process: open it after the fork"
            )
        data = self._file.read(size) or b""
        if not data and self._size:
            now = os.fstat(self._file.fileno()).st_size
            if size and now < max(self._size, self._file.tell()):
                raise TruncatedError("the file was cut off while it was read", base_name(self._file.name))
        return data

    @property
    def identity(self) -> tuple[int, int]:
        return identity_of(self._file.fileno())

    def seek(self, place: int) -> None:
        self._file.seek(place)

    def close(self) -> None:
        self._file.close()


def identity_of(descriptor: int) -> tuple[int, int]:
    """The device and inode of an open file."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _open(path: str) -> _Descriptor:
    try:
        return _Descriptor(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def _standard_input() -> Readable:
    if sys.stdin is None:
        raise ConfigurationError("-: standard input is closed")
    return sys.stdin.buffer


def unreadable(path: str, error: OSError | ValueError) -> ConfigurationError:
    """The error for a file that cannot be read."""
    if "://" in path:
        # A DSN may hold a password, so it is not shown: neither here, nor by the traceback of the error before.
        if isinstance(error, OSError):
            error.filename = None
        return ConfigurationError(
            f"{path.partition('://')[0]}://... is not a file: give the path of a binlog file"
        )
    return ConfigurationError(f"{path}: {getattr(error, 'strerror', None) or error}")


def behind(head: bytes, read: ReadBytes) -> ReadBytes:
    def read_on(size: int) -> bytes:
        nonlocal head
        chunk, head = head, b""
        return chunk or read(size)

    return read_on


class _Gunzip:
    """Decompresses gzip in bounded memory; several gzip files may follow one another, as ``cat`` joins them."""

    def __init__(self, read: ReadBytes, head: bytes, name: str, raises: bool) -> None:
        self._read = read
        self._name = name
        self._data = head
        self._raises = raises
        self._inflate = zlib.decompressobj(_GZIP_WINDOW)

    def read(self, size: int) -> bytes:
        while True:
            if self._inflate.eof:
                self._data = self._inflate.unused_data.lstrip(b"\0") or self._read(_CHUNK_SIZE).lstrip(b"\0")
                if not self._data:
                    return b""
                self._inflate = zlib.decompressobj(_GZIP_WINDOW)
            self._data = self._data or self._read(_CHUNK_SIZE)
            if not self._data:
                if self._raises:
                    raise TruncatedError("the gzip file is cut short", self._name)
                return b""
            try:
                plain = self._inflate.decompress(self._data, size)
            except zlib.error as error:
                raise DecodeError(f"the gzip file is damaged: {error}", self._name) from None
            self._data = self._inflate.unconsumed_tail
            if plain:
                return plain
