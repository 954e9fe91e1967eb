"""Intervals of numbers as GTID sets keep them: their bounds in one strictly rising list, [start, end, start, end...].

Starts are included, ends are not. Nothing is said here of what the numbers count.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from heapq import merge


def cover(ends: list[int], start: int, end: int) -> None:
    """Add ``start`` up to, but not including, ``end``; adjacent intervals are merged."""
    low, high = bisect_left(ends, start), bisect_right(ends, end)
    ends[low:high] = [start] * (low % 2 == 0) + [end] * (high % 2 == 0)


def pairs(ends: list[int]) -> Iterator[tuple[int, int]]:
    """The start and the end of each interval."""
    return zip(ends[::2], ends[1::2], strict=True)


# Both operations go once through both lists. Changing a list in its middle for each interval of the other one takes
# quadratic time: 5 s for 200,000 intervals each.


def union(left: list[int], right: list[int]) -> list[int]:
    """The bounds of the numbers in either list's intervals."""
    result: list[int] = []
    for start, end in merge(pairs(left), pairs(right)):
        if not result or result[-1] < start:
            result += (start, end)
        elif result[-1] < end:
            result[-1] = end
    return result


def difference(ends: list[int], other: list[int]) -> list[int]:
    """The bounds of the numbers in the intervals of ``ends`` and not in those of ``other``."""
    result: list[int] = []
    index = 0
    for first, end in pairs(ends):
        start = first
        while index < len(other) and other[index + 1] <= start:
            index += 2
        at = index
        while at < len(other) and other[at] < end:
            if start < other[at]:
                result += (start, other[at])
            start = other[at + 1]
            at += 2
        if start < end:
            result += (start, end)
        # The last interval may reach into the next one of ``ends``.
        index = max(index, at - 2)
    return result


def are_within(ends: list[int], other: list[int]) -> bool:
    """Whether the intervals of ``other`` have all numbers of those of ``ends``.

    It looks at few of many intervals in ``other``: no two of them are adjacent, so one alone has all of an interval.
    """
    for start, end in pairs(ends):
        index = bisect_right(other, start)
        if index % 2 == 0 or other[index] < end:
            return False
    return True


def intervals_text(ends: list[int]) -> str:
    """The intervals as a GTID set names them: ``:1-5:7``."""
    if len(ends) == 2 and ends[0] + 1 < ends[1]:
        return f":{ends[0]}-{ends[1] - 1}"
    return "".join([f":{first}" if first + 1 == end else f":{first}-{end - 1}" for first, end in pairs(ends)])
