"""Where a micro-batch may end, from the events of a live log: fed by hand, without a source."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from protocol.binlog.decoder import EventDecoder
from protocol.constants import EventType
from protocol.errors import ProtocolError, ReplicaError
from protocol.gtid import GtidSet
from replica.spool.follower import Follower
from replica.spool.offsets import Offset
from replica.spool.spool import Spool
from replica.transactions.boundary import Progress
from tests.support.log_builder import SOURCE_ID, LogBuilder
from tests.support.raw_events import rotate

SERVER = (str(SOURCE_ID), 1)


def test_the_beginning_of_a_file_is_no_place_in_a_log_that_is_read_by_gtids(tmp_path: Path) -> None:
    """Behind it are transactions that the set has; a position there would bring them again."""
    known = GtidSet(f"{SOURCE_ID}:1-9")
    log = LogBuilder()
    log.add(EventType.PREVIOUS_GTIDS, GtidSet(f"{SOURCE_ID}:1-5").encode())
    log.transaction([1], sequence=10)
    start = Offset("", 4, str(known), *SERVER)
    spool = Spool(str(tmp_path))
    try:
        follower = Follower(spool, start, look=lambda event: None)
        decoder = EventDecoder(file="binlog.000003")
        follower.open(decoder, Progress("", 4, known, has_gtids=True), SERVER, 0, has_gtids=True)
        for index in range(2):
            assert not follower.feed(log.event(index))
        assert follower.boundary == start
        for index in range(2, len(log.offsets)):
            is_between = follower.feed(log.event(index))
        assert is_between
        assert follower.boundary == Offset("binlog.000003", len(log.data), f"{SOURCE_ID}:1-10", *SERVER)
    finally:
        spool.close()


@pytest.mark.parametrize("is_by_gtid", [False, True])
def test_a_gap_between_transactions(tmp_path: Path, is_by_gtid: bool) -> None:
    """By position it is a loss, which went into the spool as a further segment without a word."""
    log = LogBuilder()
    log.transaction([1])
    begin = len(log.offsets)
    log.transaction([2])
    end = len(log.offsets)
    log.transaction([3])
    spool = Spool(str(tmp_path))
    try:
        follower = Follower(spool, Offset("binlog.000003", 4, None, *SERVER), look=lambda event: None)
        follower.open(
            EventDecoder(file="binlog.000003"),
            Progress("binlog.000003", 4, None, has_gtids=False),
            SERVER,
            0,
            has_gtids=False,
            is_by_gtid=is_by_gtid,
        )
        for index in range(begin):
            follower.feed(log.event(index))
        if is_by_gtid:
            for index in range(end, len(log.offsets)):
                follower.feed(log.event(index))
            assert follower.boundary.position == len(log.data)
            assert len(spool.segments) == 2
        else:
            with pytest.raises(ProtocolError, match="left out events"):
                follower.feed(log.event(end))
    finally:
        spool.close()


def test_a_rotate_that_leads_back(tmp_path: Path) -> None:
    """What came again went into the spool once more."""
    file = "binlog.000003"
    log = LogBuilder(checksum=False)
    log.transaction([1])
    spool = Spool(str(tmp_path))
    try:
        follower = Follower(spool, Offset(file, 4, None, *SERVER), look=lambda event: None)
        progress = Progress(file, 4, None, has_gtids=False)
        follower.open(EventDecoder(file=file), progress, SERVER, 0, has_gtids=False)
        for raw in (rotate(file, flags=0x20), *map(log.event, range(len(log.offsets)))):
            follower.feed(raw)
        with pytest.raises(ReplicaError, match=r"goes back from|goes on at"):
            follower.feed(rotate(file, flags=0x20))
    finally:
        spool.close()
