"""Whether an unfinished export's database and files belong together: a backup may have them as of different times.

A database without its journal, or beside that of another state, is damaged. A part that is shorter or longer than
when it was committed would leave rows out, or bring them twice.
"""

import os
import sqlite3
from typing import Final

from protocol.errors import CheckpointError

from .table_files import KEYS_SUFFIX

#: Exports that an earlier release began lack the sizes of some parts.
SIZES: Final = "CREATE TABLE IF NOT EXISTS sizes (path TEXT PRIMARY KEY, size INTEGER, keys INTEGER);"
_REMEDY: Final = "remove the export's folder, and copy again"


def check_database(database: sqlite3.Connection, folder: str) -> None:
    """Raises ``CheckpointError`` if SQLite finds damage. Its pages have no checksums, so it does not find any."""
    [(found,)] = database.execute("PRAGMA integrity_check(1)")
    if found != "ok":
        found = " ".join(found.split())
        raise CheckpointError(f"{folder}: the state of the unfinished export is damaged ({found}): {_REMEDY}")


def note_sizes(database: sqlite3.Connection, path: str) -> None:
    """Keep the sizes of a part and of its keys."""
    sizes = [os.path.getsize(one) for one in (path, path + KEYS_SUFFIX)]
    database.execute("INSERT OR REPLACE INTO sizes VALUES (?, ?, ?)", (os.path.basename(path), *sizes))


def check_part(database: sqlite3.Connection, path: str, moved: str | None = None) -> None:
    """Raises ``CheckpointError`` unless a part, which may have been moved, and its keys have the noted sizes."""
    folder, name = os.path.split(path)
    found = database.execute("SELECT size, keys FROM sizes WHERE path = ?", (name,)).fetchone() or (
        None,
        None,
    )
    keys = path + KEYS_SUFFIX
    for called, one, size in zip((name, os.path.basename(keys)), (moved or path, keys), found, strict=True):
        if not os.path.exists(one):
            raise CheckpointError(
                f"{folder} lacks {called}, which has rows of the unfinished export: {_REMEDY}"
            )
        if size is not None and os.path.getsize(one) != size:
            raise CheckpointError(
                f"{folder}: {called} has {os.path.getsize(one)} bytes, and had {size} when the unfinished export "
                f"wrote it: {_REMEDY}"
            )
