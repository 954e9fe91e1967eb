"""The memory of reading does not grow with the log: each reader is a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.large_log import write_large_log
from tests.support.log_builder import LogBuilder
from tests.support.places import ROOT

MORE_KIB = 10 << 10


def peak_kib(reader: str, path: Path, rows: int) -> int:
    setting = json.dumps({"path": str(path), "tables": ["s.t"]})
    command = [sys.executable, "-m", "tests.benchmarks.readers", reader, setting]
    found = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    assert found["rows"] == rows
    return int(found["peak_kib"])


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    ("small", "large"),
    [(20_000_000, 80_000_000), pytest.param(100_000_000, 10_000_000_000, marks=pytest.mark.long)],
)
@pytest.mark.parametrize(
    "reader", ["ours_from_file", pytest.param("ours_in_columns", marks=pytest.mark.thorough)]
)
def test_memory_is_flat(tmp_path: Path, reader: str, small: int, large: int) -> None:
    """Four times the log, or a hundred times, takes 10 MB more at most."""
    log = LogBuilder(checksum=True)
    for first in range(0, 160_000, 1600):
        log.transaction(list(range(first, first + 1600)))
    source = tmp_path / "source"
    source.write_bytes(bytes(log.data))
    peaks = []
    for size in (small, large):
        path = tmp_path / "bin.000001"
        times = write_large_log(source, path, size)
        peaks.append(peak_kib(reader, path, 160_000 * times))
        path.unlink()
    assert peaks[1] < peaks[0] + MORE_KIB
