"""Folders and files that only their owner can read: copies of a log hold all data of its tables.

``opener`` is for ``open(path, mode, opener=opener)``. An existing file or folder keeps its permissions.
"""

import os
from typing import Final

FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700


def make_folder(path: str) -> None:
    """Make a folder, and missing folders above it with the usual permissions. Does nothing if it exists."""
    os.makedirs(path, mode=_FOLDER_MODE, exist_ok=True)


def opener(path: str, flags: int) -> int:
    """A new file gets the mode 0600, whatever the umask allows."""
    return os.open(path, flags, FILE_MODE)
