"""What a commit and the checkpoint name is on the disk before them: files, and their entries in folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.small_export import IDENTITY, PLACE, TABLE, opened


def test_folders_come_to_the_disk_before_what_names_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure the checkpoint could be there, and the files of the tables not."""
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_dir():
            steps.append(f"sync {path.relative_to(tmp_path)}")
        fsync(descriptor)

    def replaced(source: str, target: str) -> None:
        replace(source, target)
        steps.append(f"move {Path(target).relative_to(tmp_path)}")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    work = opened(tmp_path, "jsonl")
    work.add_rows(IDENTITY, TABLE, [(1, "a")])
    work.complete(IDENTITY, TABLE, is_dropped=False)
    work.commit(PLACE, is_copied=True)
    assert steps[-1] == "sync .copy"
    steps.clear()
    assert list(work.finish()) == [("shop.t", 1)]
    assert steps == [
        "move shop.t/part-00000.jsonl",
        "sync shop.t",
        "sync .",
        "move checkpoint.json",
        "sync .",
    ]
