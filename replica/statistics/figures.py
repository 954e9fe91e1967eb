"""Formats numbers, sizes, times and durations for people, and groups minutes into the steps of a chart."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain, count
from typing import Final

from .summaries import MinuteStatistics

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_SHORT_UNITS: Final = ("", " k", " M", " G", " T")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
# Lengths of the steps of a chart, in seconds.
_STEPS: Final = (
    *(_MINUTE * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * hours for hours in (1, 2, 3, 6, 12)),
    *(_DAY * days for days in (1, 2, 7, 14, 28, 91, 364, 1820, 3640, 36400)),
)


def size_text(size: float) -> str:
    """A number of bytes: "1.5 MB"; units are powers of 1000."""
    for unit in _UNITS[:-1]:
        if size < 999.95:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"


def count_text(number: int) -> str:
    """A whole number with its digits in groups: "1,234,567"."""
    return f"{number:,}"


def number_of(number: int, noun: str) -> str:
    """A number of things: "1 row", "2,000 rows"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def short_text(number: float) -> str:
    """A number for the axis of a chart: "1.5 M"."""
    for unit in _SHORT_UNITS[:-1]:
        if abs(number) < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}{_SHORT_UNITS[-1]}"


def seconds_text(seconds: float) -> str:
    """A duration in its two largest units: "850 ms", "2.5 s", "3 min 20 s", "2 d 4 h"."""
    if seconds < 0:
        return f"-{seconds_text(-seconds)}"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for size, unit, smaller, smaller_unit in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller if whole < 100 * size else 0
            return f"{whole // size} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{whole} s"


def time_text(seconds: int) -> str:
    """Seconds since 1970 as "2026-01-31 12:00:00", in UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def steps_of(minutes: Sequence[MinuteStatistics], most: int) -> tuple[int, list[MinuteStatistics]]:
    """Group minutes into at most ``most`` (two or more) steps; returns a step's length in seconds, and the steps."""
    if not minutes:
        return _MINUTE, []
    first, last = minutes[0].start, minutes[-1].start
    lengths = chain(_STEPS, (_STEPS[-1] << doublings for doublings in count(1)))
    length = next(length for length in lengths if last // length - first // length < most)
    steps = [MinuteStatistics(start=start) for start in range(first - first % length, last + 1, length)]
    for minute in minutes:
        _add(steps[(minute.start - steps[0].start) // length], minute)
    return length, steps


def _add(step: MinuteStatistics, minute: MinuteStatistics) -> None:
    step.inserts += minute.inserts
    step.updates += minute.updates
    step.deletes += minute.deletes
    step.transactions += minute.transactions
    step.bytes += minute.bytes
    if minute.max_lag is not None:
        step.see_lag(minute.max_lag)


def length_text(length: int) -> str:
    """The length of a step: "minute", "5 minutes", "hour", "2 days"."""
    for size, unit in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if not length % size:
            times = length // size
            return unit if times == 1 else f"{times} {unit}s"
    return seconds_text(length)
