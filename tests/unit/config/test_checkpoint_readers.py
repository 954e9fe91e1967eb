"""Temporary files of stores: those of a kill are removed, those of a running stream are left alone."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import IO

import pytest

from replica.config.checkpoint import FileCheckpointStore
from replica.config.schema_store import FileSchemaStore
from tests.support.checkpoints import FIRST, SECOND


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.ckpt"


def only_file(path: Path) -> bool:
    return os.listdir(path.parent) == [path.name]


def test_a_load_leaves_the_file_alone_that_another_process_is_writing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the checkpoint of a running stream, as by the doctor, ended that stream."""
    FileCheckpointStore(path).save(FIRST)
    renaming = os.replace

    def look_before(temporary: str, target: str) -> None:
        assert FileCheckpointStore(path).load() == FIRST
        renaming(temporary, target)

    monkeypatch.setattr(os, "replace", look_before)
    FileCheckpointStore(path).save(SECOND)
    assert FileCheckpointStore(path).load() == SECOND
    assert only_file(path)


def test_what_a_kill_has_left_of_a_schema_store_is_removed(path: Path) -> None:
    """Each kill in the middle of a save left a file of the store's size."""
    store = FileSchemaStore(path)
    store.save(["a line"])
    _, leftover = tempfile.mkstemp(".tmp", ".shop.ckpt.", path.parent)
    assert store.load() == ["a line"]
    assert not os.path.exists(leftover)


def test_a_temporary_file_that_is_removed_before_it_is_locked_is_made_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = []
    lock = fcntl.flock

    def look_before(file: IO[bytes] | int, operation: int) -> None:
        locks.append(operation)
        if len(locks) == 1:
            FileCheckpointStore(path).load()
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", look_before)
    FileCheckpointStore(path).save(FIRST)
    assert locks == [fcntl.LOCK_EX, fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_EX]
    assert FileCheckpointStore(path).load() == FIRST
    assert only_file(path)
