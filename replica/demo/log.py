"""The recorded log of the demo: 224 transactions in ``shop.customers``, ``shop.orders`` and ``shop.order_items``.

``tests/tools/record_demo.py`` recorded it. It has GTIDs, full metadata and full row images; columns of JSON, ENUM,
DECIMAL and DATETIME; inserts, updates, deletes, and a column that is added in the middle.
"""

from contextlib import AbstractContextManager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

LOG_NAME: Final = "shop.binlog"


def recorded_log() -> AbstractContextManager[Path]:
    """The path of the log, for a ``with``: out of a zipped package it is a copy that is gone afterwards."""
    return as_file(files(__package__) / LOG_NAME)


def installed_log() -> Path | None:
    """Where the log is for good; None in a zipped package, in which it is nowhere."""
    path = files(__package__) / LOG_NAME
    return path if isinstance(path, Path) else None


def read_log() -> bytes:
    """The log's content, some 130 KB."""
    return (files(__package__) / LOG_NAME).read_bytes()
