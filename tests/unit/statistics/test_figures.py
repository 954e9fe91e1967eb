"""Numbers formatted for people, and minutes grouped for a chart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.statistics.figures import (
    length_text,
    number_of,
    seconds_text,
    short_text,
    size_text,
    steps_of,
    time_text,
)
from replica.statistics.summaries import MinuteStatistics

DAY = 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0004, "0 ms"),
        (0.85, "850 ms"),
        (0.9996, "1 s"),
        (2.5, "2.5 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (3661, "1 h 1 min"),
        (2 * DAY + 4 * 3600 + 59, "2 d 4 h"),
        (374 * DAY + 4 * 3600, "374 d"),
        (-2.5, "-2.5 s"),
    ],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_numbers() -> None:
    assert [short_text(number) for number in (0, 0.25, 999, 1000, 2500, 1.5e6, 3e9)] == [
        "0",
        "0.25",
        "999",
        "1 k",
        "2.5 k",
        "1.5 M",
        "3 G",
    ]
    assert [number_of(count, "row") for count in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert [size_text(size) for size in (0, 999, 1000, 1.5e6)] == ["0 B", "999 B", "1.0 kB", "1.5 MB"]
    assert time_text(1_700_000_000) == "2023-11-14 22:13:20"
    assert [length_text(length) for length in (60, 300, 3600, 7200, DAY, 7 * DAY)] == [
        "minute",
        "5 minutes",
        "hour",
        "2 hours",
        "day",
        "7 days",
    ]


@given(
    starts=st.sets(st.integers(0, 60_000_000).map(lambda minute: minute * 60), min_size=1, max_size=30),
    most=st.integers(2, 100),
)
def test_steps(starts: set[int], most: int) -> None:
    """Every minute is in one step, there are not too many steps, and each has the sum of its minutes."""
    minutes = [
        MinuteStatistics(start=start, transactions=1, inserts=2, bytes=start % 1000, max_lag=start % 7 - 3.0)
        for start in sorted(starts)
    ]
    length, steps = steps_of(minutes, most)
    assert 1 <= len(steps) <= most
    assert [step.start for step in steps] == list(range(steps[0].start, steps[-1].start + 1, length))
    for step in steps:
        inside = [minute for minute in minutes if step.start <= minute.start < step.start + length]
        assert step.transactions == len(inside)
        assert (step.inserts, step.bytes) == (2 * len(inside), sum(minute.bytes for minute in inside))
        lags = [minute.max_lag for minute in inside if minute.max_lag is not None]
        assert step.max_lag == max(lags, default=None)
    assert sum(step.transactions for step in steps) == len(minutes)


def test_no_steps() -> None:
    assert steps_of([], 10) == (60, [])
