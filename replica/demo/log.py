"""The recorded log of the demo: 224 transactions in ``shop.customers``, ``shop.orders`` and ``shop.order_items``.

``tests/tools/record_demo.py`` recorded it. It has GTIDs, full metadata and full row images; JSON, ENUM, DECIMAL and
DATETIME columns; inserts, updates, deletes, and an ALTER TABLE in the middle that adds a column.
"""

from contextlib import AbstractContextManager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

LOG_NAME: Final = "shop.binlog"


def recorded_log() -> AbstractContextManager[Path]:
    """The path of the log, as a context manager: from a zipped package it is a temporary copy."""
    return as_file(files(__package__) / LOG_NAME)


def installed_log() -> Path | None:
    """The path of the installed log; None if the package is zipped."""
    path = files(__package__) / LOG_NAME
    return path if isinstance(path, Path) else None


def read_log() -> bytes:
    """The log's content, about 130 KB."""
    return (files(__package__) / LOG_NAME).read_bytes()
