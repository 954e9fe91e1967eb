"""Errors of an export's folder: of SQLite, which has its state, and of the system, where a file was written."""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from typing import Final

from protocol.errors import CheckpointError, ConfigurationError

_SYSTEM_ERRORS: Final = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
}


@contextlib.contextmanager
def disk_errors(folder: str) -> Iterator[None]:
    """Errors of SQLite become ``OSError`` (a full disk, a failed write), ``ConfigurationError`` (another process has
    the database) or ``CheckpointError`` (the database is damaged). An ``OSError`` without a file gets the folder.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        # The lowest byte; those above it say more of the same error.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _SYSTEM_ERRORS:
            number = _SYSTEM_ERRORS[code]
            raise OSError(number, os.strerror(number), folder) from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise ConfigurationError(f"{folder}: another process writes this export ({error})") from error
        raise CheckpointError(
            f"{folder}: the state of the unfinished export is damaged ({error}): remove the folder, and copy again"
        ) from error
    except OSError as error:
        if error.filename is None and error.errno is not None:
            # A write to an open file does not say which one.
            raise OSError(error.errno, error.strerror, folder) from error
        raise
