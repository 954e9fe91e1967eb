"""A source that has told an end of its log, and goes idle before it: as after RESET, or behind a proxy."""

from __future__ import annotations

from typing import Any, cast

import pytest

from protocol.binlog.events import Event, HeartbeatEvent
from replica import BinlogPosition
from replica.snapshot.marks import LOWEST, FileMark, Place
from replica.snapshot.snapshot_copy import SnapshotCopy
from replica.snapshot.transaction_touches import KeyColumns
from replica.source.dump import Dump
from replica.source.open_dump import FirstOpening
from replica.source.resolve_start import StartPoint
from replica.stream.batch import Account
from replica.stream.bounds import Bounds
from replica.transactions.boundary import Progress
from replica.transactions.stop_point import StopPoint
from tests.support.grouped_events import AT

FILE = "binlog.000001"
END = BinlogPosition(FILE, 1000)


def bounds_of(stop: StopPoint | None, copy: SnapshotCopy | None = None) -> Bounds:
    account = Account((Event,))
    account.copy = copy
    bounds = Bounds(account)
    dump, progress = cast("Dump", None), Progress(FILE, 4, None, has_gtids=False)
    bounds.begin(FirstOpening(dump, StartPoint(), stop, progress))
    return bounds


def told(bounds: Bounds, caplog: pytest.LogCaptureFixture, *positions: int) -> list[dict[str, Any]]:
    caplog.clear()
    for position in positions:
        bounds.follow(HeartbeatEvent(*AT, FILE, position), "db1:3306")
    return [vars(record) for record in caplog.records if vars(record).get("event") == "end-unreached"]


def test_the_end_that_a_stream_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    """It waited for ever, and nothing said for what."""
    bounds = bounds_of(StopPoint(END, is_told=True))
    assert not told(bounds, caplog, 400, 400, 500, 500)
    [facts] = told(bounds, caplog, 500, 500, 500)
    assert (facts["end"], facts["sent"], facts["source"]) == (str(END), f"{FILE}:500", "db1:3306")
    assert not told(bounds_of(StopPoint(END, is_told=True)), caplog, 1000, 1000, 1000, 1000)
    # The user's own place may be one of the future.
    assert not told(bounds_of(StopPoint(END)), caplog, 500, 500, 500, 500)
    assert not told(bounds_of(None), caplog, 500, 500, 500, 500)


def test_the_end_that_a_chunk_of_a_copy_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    copy, place = SnapshotCopy(), Place(FILE, 500)
    copy.add(("s", "t"), KeyColumns(("id",), (0,)), LOWEST)
    [(_, window)] = copy.windows(place, 1)
    assert window.take_low(FileMark(FILE))
    window.take_view()
    assert not told(bounds_of(None, copy), caplog, 500, 500, 500)
    window.take_high(Place(FILE, 1000))
    [facts] = told(bounds_of(None, copy), caplog, 500, 500, 500)
    assert facts["end"] == str(END)
