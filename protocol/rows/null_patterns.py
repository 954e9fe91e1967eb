"""Counts which columns of a table's rows are NULL together, and chooses the patterns that get code of their own.

Rows of a table with many nullable columns mostly have one of a few patterns of NULL bits, and code for one
pattern tests no column: 1.4 us instead of 3.1 for a row of 40 numbers. So the readers of such tables are compiled
again after some rows. This module counts; it writes no code.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

# The fewest nullable columns that are worth it: with 6 nullable columns of 19 the gain is only 3 %.
_MANY: Final = 8
# Limits of the generated code: patterns with code of their own, and the sum of their columns.
_PATTERNS_KEPT: Final = 8
_COLUMNS_KEPT: Final = 1024
# Numbers of rows to count, one row of each event, before the code is written again; that takes 1 ms per 100 columns.
_ROUNDS: Final = (50, 1000)
# The smallest share of the counted rows with which a pattern gets code of its own.
_SHARE: Final = 1 / 20


class NullPatterns:
    """The NULL patterns of one image; ``frequent`` has the patterns with code of their own, the most frequent first.

    While ``is_watching`` is true the reader calls ``saw``. ``changed`` is called when ``frequent`` or ``is_watching``
    changes.
    """

    def __init__(self, column_count: int) -> None:
        self.frequent: list[int] = []
        self.is_watching = True
        self.changed: Callable[[], None] = lambda: None
        self._room = min(_PATTERNS_KEPT, _COLUMNS_KEPT // column_count)
        self._rounds = list(_ROUNDS)
        self._seen: Counter[int] = Counter()
        self._count = 0

    def saw(self, nulls: int) -> None:
        """Count the NULL bits of a row whose pattern is not in ``frequent``."""
        self._seen[nulls] += 1
        self._count += 1
        if self._count < self._rounds[0]:
            return
        least = _SHARE * self._count
        often = [pattern for pattern, count in self._seen.most_common(self._room) if count >= least]
        self.frequent += often
        self._room -= len(often)
        self._rounds.pop(0)
        self._seen.clear()
        self._count = 0
        self.is_watching = bool(often and self._room and self._rounds)
        self.changed()


def patterns_of(column_count: int, nullable_count: int) -> NullPatterns | None:
    """A counter for an image with these numbers of columns and nullable columns; None if it is not worth it."""
    return NullPatterns(column_count) if nullable_count >= _MANY and column_count <= _COLUMNS_KEPT else None
