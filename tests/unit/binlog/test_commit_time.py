"""Commit times from GTID events, and from the header if there is none."""

from __future__ import annotations

import pytest

from protocol.binlog.commit_time import commit_microseconds, is_commit_time
from protocol.binlog.events import AnonymousGtidEvent, EventHeader
from protocol.constants import EventType

HEADER = EventHeader(1_700_000_000, EventType.ANONYMOUS_GTID, 1, 80, 200, 0)


@pytest.mark.parametrize("time", [None, 0, 1 << 55, 1 << 62])
def test_what_is_no_commit_time_is_not_taken(time: int | None) -> None:
    assert not is_commit_time(time)
    begin = AnonymousGtidEvent(HEADER, "", 4, 0, original_commit_timestamp=time)
    assert commit_microseconds(begin) == 1_700_000_000_000_000


def test_the_original_source_says_when() -> None:
    begin = AnonymousGtidEvent(HEADER, "", 4, 0, original_commit_timestamp=5, immediate_commit_timestamp=6)
    assert commit_microseconds(begin) == 5
    assert is_commit_time((1 << 55) - 1)
