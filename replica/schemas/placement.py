"""Where the known columns of a shape that is not whole stand among those of a table map.

A shape of the past may lack columns: somewhere between the known ones the log has more. The known ones keep their
order, and each fits a column of the log by type, length, nullability and whatever else the log says. A column of the
log gets a name only if in every way to place them it is the same one.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

_Known = TypeVar("_Known")
_Logged = TypeVar("_Logged")


def placed(
    known: Sequence[_Known], logged: Sequence[_Logged], fits: Callable[[_Known, _Logged], bool]
) -> list[_Known | None] | None:
    """For each column of the log the known one that it must be, None where that is not sure.

    None instead of a list: the known columns cannot be placed at all.
    """
    count, spare = len(known), len(logged) - len(known)
    if spare < 0:
        return None
    # A known column has all known ones before it on its left, so it can only be moved by so many places as are spare:
    # ``[number][moved]``. A table may have 4,096 columns, and mostly few of them are not known.
    agree = [
        [fits(one, other) for other in logged[number : number + spare + 1]]
        for number, one in enumerate(known)
    ]
    before = _reachable(agree, spare)
    # The same from behind: the last so many known ones in the last so many places.
    behind = _reachable([row[::-1] for row in agree[::-1]], spare)
    if not before[count][spare]:
        return None
    found: list[_Known | None] = []
    for place in range(len(logged)):
        near = range(max(place - spare, 0), min(place, count) + 1)
        choices = [
            number
            for number in near
            if number < count
            and agree[number][place - number]
            and before[number][place - number]
            and behind[count - number - 1][spare - place + number]
        ]
        may_be_other = any(
            before[number][place - number] and behind[count - number][spare - place + number - 1]
            for number in near
            if place - number < spare
        )
        found.append(known[choices[0]] if len(choices) == 1 and not may_be_other else None)
    return found


def _reachable(agree: Sequence[Sequence[bool]], spare: int) -> list[list[bool]]:
    """``[number][more]``: whether the first ``number`` known columns fit into so many places and ``more``."""
    rows = [[True] * (spare + 1)]
    for row in agree:
        line, fitted = list[bool](), False
        for above, agrees in zip(rows[-1], row, strict=True):
            fitted = fitted or (above and agrees)
            line.append(fitted)
        rows.append(line)
    return rows
