"""Where a micro-batch may end, from the events of a live log: fed by hand, without a source."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from protocol.binlog.decoder import EventDecoder
from protocol.constants import EventType
from protocol.errors import ProtocolError
from protocol.gtid import GtidSet
from replica.spool.follower import Follower
from replica.spool.offsets import Offset
from replica.spool.spool import Spool
from replica.transactions.boundary import Progress
from tests.support.log_builder import SOURCE_ID, LogBuilder

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
