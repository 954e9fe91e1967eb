"""Files by URI, on object stores and shared disks, through ``pyarrow.fs``.

``storageOptions`` have the names that deltalake uses for S3 (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``...), so that
source files, spool and Delta tables take the same ones. What they leave out comes from the environment of each
process. A path without a scheme is a file of this machine, and not the business of this module.
"""

import contextlib
import fnmatch
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem, S3FileSystem, SubTreeFileSystem

from protocol.errors import CheckpointError, ConfigurationError

from ..files.log_files import LogFile, base_name, log_order, tell_gaps

#: No storage options: all come from the environment.
NO_STORAGE: Final[Mapping[str, str]] = MappingProxyType({})

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_S3: Final = frozenset({"s3", "s3a"})
# Option -> argument of S3FileSystem.
_S3_ARGUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "AWS_ACCESS_KEY_ID": "access_key",
        "AWS_SECRET_ACCESS_KEY": "secret_key",
        "AWS_SESSION_TOKEN": "session_token",
        "AWS_REGION": "region",
        "AWS_DEFAULT_REGION": "region",
    }
)
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_BUFFER: Final = 4 << 20


def is_uri(path: str) -> bool:
    """Whether a path has a scheme, such as ``s3://bucket/folder`` and ``file:///mnt/shared``."""
    return _URI.match(path) is not None


def file_system(uri: str, options: Mapping[str, str]) -> tuple[FileSystem, str]:
    """The file system of a URI, and the path within it. Raises ``ConfigurationError`` for an unknown scheme."""
    parts = urlsplit(uri)
    if parts.scheme in _S3:
        return S3FileSystem(**_s3_arguments(options)), f"{parts.netloc}{parts.path}".rstrip("/")
    try:
        found, path = FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ConfigurationError(f"{parts.scheme}://{parts.netloc}: {error}") from error
    return found, path


def system_of(path: str, options: Mapping[str, str]) -> tuple[FileSystem, str]:
    """As ``file_system``, also for a path of this machine."""
    return file_system(path, options) if is_uri(path) else (LocalFileSystem(), path)


class StoredFile:
    """A small file at a URI, which is written as a whole: a reader finds what was there before, or all of it."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self.uri = uri
        self._system, self._path = file_system(uri, options)

    def read(self) -> bytes | None:
        """All bytes; None if there is no such file. Raises ``CheckpointError`` if it cannot be read."""
        try:
            with self._system.open_input_stream(self._path, compression=None) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"{self.uri}: {error}") from error

    def write(self, data: bytes) -> None:
        """Replace the file. Raises ``CheckpointError`` if that fails."""
        try:
            write_whole(self._system, self._path, lambda target: target.write(data))
        except OSError as error:
            raise CheckpointError(f"{self.uri}: {error}") from error

    def delete(self) -> None:
        """Delete the file if it is there. Raises ``CheckpointError`` if that fails."""
        try:
            self._system.delete_file(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise CheckpointError(f"{self.uri}: {error}") from error


def make_folder(system: FileSystem, path: str) -> None:
    """Make a folder on a disk. An object store needs none; to ask for one takes rights on its whole bucket."""
    base = system.base_fs if isinstance(system, SubTreeFileSystem) else system
    if isinstance(base, LocalFileSystem):
        system.create_dir(path, recursive=True)


def write_whole(system: FileSystem, path: str, write: Callable[[pa.NativeFile], object]) -> None:
    """Write a file that nobody sees before it is whole; its folder is made if there is none. Raises ``OSError``."""
    folder, _, name = path.rpartition("/")
    # An object store shows an object when it is whole; a disk shows each byte.
    is_disk = isinstance(system, LocalFileSystem)
    written = f"{folder}/.{name}" if is_disk else path
    make_folder(system, folder)
    try:
        with system.open_output_stream(written) as target:
            write(target)
    except OSError:
        if is_disk:
            # A full disk gets its room back.
            with contextlib.suppress(OSError):
                system.delete_file(written)
        raise
    if is_disk:
        system.move(written, path)


def open_input(uri: str, options: Mapping[str, str]) -> pa.NativeFile:
    """A file opened for reading from its beginning. Raises ``ConfigurationError`` if it cannot be opened."""
    system, path = file_system(uri, options)
    try:
        return system.open_input_stream(path, compression=None, buffer_size=_BUFFER)
    except OSError as error:
        raise ConfigurationError(f"{uri}: {error}") from error


def find_stored_logs(uri: str, options: Mapping[str, str]) -> list[LogFile]:
    """The binlog files that a URI names: one file, or all that match a pattern or lie in a folder, in order.

    Raises ``ConfigurationError`` if there are none.
    """
    system, path = file_system(uri, options)
    folder, _, pattern = path.rpartition("/")
    if not re.search(r"[*?[]", pattern):
        if system.get_file_info(path).type != FileType.Directory:
            return [LogFile(base_name(path), path=uri)]
        folder, pattern = path, "*.[0-9]*"
    scheme = uri.partition("://")[0]
    try:
        found = system.get_file_info(FileSelector(folder))
    except OSError as error:
        raise ConfigurationError(f"path: {uri}: {error}") from error
    names = [info.base_name for info in found if info.type == FileType.File]
    names = [name for name in names if fnmatch.fnmatchcase(name, pattern) and not name.endswith(".index")]
    if not names:
        raise ConfigurationError(f"no binlog files: {uri!r} names none")
    names.sort(key=log_order)
    tell_gaps(uri, names)
    return [LogFile(base_name(name), path=f"{scheme}://{folder}/{name}") for name in names]


def _s3_arguments(options: Mapping[str, str]) -> dict[str, str]:
    given = {name.upper(): value for name, value in options.items()}
    found = {argument: given[name] for name, argument in _S3_ARGUMENTS.items() if name in given}
    endpoint = next((given[name] for name in _ENDPOINTS if name in given), None)
    if endpoint is not None:
        scheme, _, host = endpoint.rpartition("://")
        found |= {"scheme": scheme or "https", "endpoint_override": host.rstrip("/")}
    return found
