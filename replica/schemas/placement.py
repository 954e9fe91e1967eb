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
    agree = [[fits(one, other) for other in logged] for one in known]
    before = _reachable(agree, len(logged))
    # The same from behind: the last so many known ones in the last so many places.
    behind = _reachable([row[::-1] for row in agree[::-1]], len(logged))
    count, places = len(known), len(logged)
    if not before[count][places]:
        return None
    found: list[_Known | None] = []
    for place in range(places):
        choices = [
            number
            for number in range(count)
            if agree[number][place]
            and before[number][place]
            and behind[count - number - 1][places - place - 1]
        ]
        may_be_other = any(
            before[number][place] and behind[count - number][places - place - 1]
            for number in range(count + 1)
        )
        found.append(known[choices[0]] if len(choices) == 1 and not may_be_other else None)
    return found


def _reachable(agree: Sequence[Sequence[bool]], places: int) -> list[list[bool]]:
    """``[number][place]``: whether the first ``number`` known columns fit into the first ``place`` places."""
    rows = [[True] * (places + 1)]
    for row in agree:
        above, line = rows[-1], [False]
        for place in range(places):
            line.append(line[-1] or (above[place] and row[place]))
        rows.append(line)
    return rows
