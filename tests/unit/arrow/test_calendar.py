"""Days of all years, and what their tables take."""

from __future__ import annotations

import tracemalloc
from datetime import date

import numpy as np

from replica.arrow import temporal
from replica.arrow.buffer import RowBuffer
from replica.arrow.places import Places

EPOCH = date(1970, 1, 1).toordinal()


def days_of(parts: list[tuple[int, int, int]]) -> temporal.Days:
    year, month, day = (np.array(numbers, np.int64) for numbers in zip(*parts, strict=True))
    places = Places(RowBuffer([]), range(len(parts)))
    return temporal.calendar_days(places, year * temporal.MONTHS + month, day)


def test_all_months(thorough: bool) -> None:
    """Their first and last days, and days that are none; of the year 0 too, which has none."""
    # Every seventh year has all kinds of years, too: by 4, 100 and 400.
    years = range(0, 10_000, 1 if thorough else 7)
    parts = [(year, month, day) for year in years for month in range(13) for day in (0, 1, 28, 29, 30, 31)]
    found = days_of(parts)
    for (year, month, day), days, is_real in zip(
        parts, found.days.tolist(), found.is_real.tolist(), strict=True
    ):
        try:
            expected = date(year, month, day).toordinal() - EPOCH
        except ValueError:
            assert not is_real
        else:
            assert (is_real, days) == (True, expected)


def test_the_first_date_of_a_process_takes_little() -> None:
    """Tables of all years took 5 MB while they were made, a fault of each page of which the process waits for."""
    temporal._calendar.cache_clear()
    tracemalloc.start()
    try:
        days_of([(2024, 2, 29)])
        assert tracemalloc.get_traced_memory()[1] < 1 << 18
    finally:
        tracemalloc.stop()
