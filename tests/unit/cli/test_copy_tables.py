"""What `copy` says: its progress within a terminal's line, and arguments that it refuses."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from replica.cli import main
from replica.cli.console import Console
from replica.cli.copy_tables import _CopyProgress, copy_text
from replica.config.snapshot_status import SnapshotStatus

STATUS = SnapshotStatus(
    tables=5,
    tables_complete=3,
    rows=1_200_000,
    estimate=4_800_000,
    seconds_left=None,
    chunks=120,
    chunks_corrected=4,
    complete=False,
    keys={},
)


def test_progress() -> None:
    whole = "25%, 0:45 left, 3 of 5 tables, 1,200,000 of about 4,800,000 rows, 80,000/s"
    assert copy_text(STATUS, 80_000) == whole
    assert len(whole) < 80
    first = replace(STATUS, rows=2)
    assert copy_text(first, 2) == "0%, 3 of 5 tables, 2 of about 4,800,000 rows, 2/s"
    empty = replace(STATUS, rows=0, estimate=0)
    assert copy_text(empty, 0) == "0%, 3 of 5 tables, 0 of about 0 rows, 0/s"


def test_without_a_terminal_there_are_lines_now_and_then() -> None:
    errors = io.StringIO()
    progress = _CopyProgress(Console(io.BytesIO(), errors))
    progress.update(STATUS, [])
    assert errors.getvalue() == ""
    progress._last -= 60
    progress.update(STATUS, ["'x'"])
    assert errors.getvalue() == (
        "mysql-replica: all rows are read; waits for the end of the prepared XA transaction 'x'\n"
    )


@pytest.mark.parametrize("rows", ["0", "many"])
def test_file_rows_is_a_number(rows: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "export"
    assert main(["copy", "mysql://repl@127.0.0.1:1", "--to", str(folder), "--file-rows", rows]) == 2
    assert "--file-rows" in capsys.readouterr().err
    assert not folder.exists()


def test_a_folder_with_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["copy", "mysql://repl@127.0.0.1:1", "--to", str(tmp_path), "--format", "csv"]) == 2
    assert "is not empty (file)" in capsys.readouterr().err
