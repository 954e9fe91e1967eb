"""For all tests of exports: databases that a failed export leaves open are closed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def databases_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests whose export fails leave its database open, and Python 3.13 warns of that."""
    connect = sqlite3.connect
    with contextlib.ExitStack() as stack:

        def closed_later(*arguments: Any, **options: Any) -> sqlite3.Connection:
            database: sqlite3.Connection = connect(*arguments, **options)
            stack.callback(database.close)
            return database

        monkeypatch.setattr(sqlite3, "connect", closed_later)
        yield
