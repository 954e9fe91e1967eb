"""A file that is cut off while it is read does not seem to end there."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import TruncatedError
from replica import open_binlog
from tests.support.log_builder import numbered_log

TRANSACTIONS = 5_000


@pytest.mark.parametrize("share", [0, 0.01, 0.7], ids=["emptied", "before the place", "behind the place"])
@pytest.mark.parametrize("options", [{}, {"start": 4, "torn": "raise"}], ids=["batches", "range"])
def test_between_two_events(tmp_path: Path, share: float, options: dict[str, Any]) -> None:
    """The log ended without an error; only one that several processes read was said to be cut off."""
    log, path = numbered_log(TRANSACTIONS), tmp_path / "bin.000001"
    path.write_bytes(bytes(log.data))
    with open_binlog(path, **options) as opened:
        events = iter(opened)
        for _ in range(1000):
            next(events)
        os.truncate(path, log.offsets[int(share * len(log.offsets))] if share else 0)
        for _ in range(2):
            with pytest.raises(TruncatedError, match=r"cut off while it was read.*bin\.000001"):
                for _ in events:
                    pass


def test_in_gzip(tmp_path: Path) -> None:
    """That looks like a file that is still being written."""
    path = tmp_path / "bin.000001.gz"
    path.write_bytes(gzip.compress(bytes(numbered_log(TRANSACTIONS * 2).data)))
    with open_binlog(path) as opened:
        next(opened)
        os.truncate(path, 70_000)
        with pytest.raises(TruncatedError, match="cut off while it was read"):
            for _ in opened:
                pass


def test_a_file_that_grows_or_is_purged_meanwhile(tmp_path: Path) -> None:
    data, path = bytes(numbered_log(TRANSACTIONS).data), tmp_path / "bin.000001"
    path.write_bytes(data[:150_000])
    with open_binlog(path) as opened:
        next(opened)
        with path.open("ab") as file:
            file.write(data[150_000:])
        path.unlink()
        assert sum(1 for _ in opened) == TRANSACTIONS * 5
