"""Counts which columns of a table's rows are NULL together, and chooses the patterns that get code of their own.

Rows of a table with many nullable columns mostly have one of a few patterns of NULL bits, and code for one
pattern tests no column: 1.4 us instead of 3.1 for a row of 40 numbers. So the rows of one event are looked at before
the readers of such tables are compiled, and these are compiled again if later rows have other patterns. This module
counts; it writes no code.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

# The fewest nullable columns that are worth it: with 6 nullable columns of 19 the gain is only 3 %.
_MANY: Final = 8
# Limits of the generated code: patterns with code of their own, and the sum of their columns.
_PATTERNS_KEPT: Final = 8
_COLUMNS_KEPT: Final = 1024
# Numbers of rows to count, one row of each event, before the code is written again; that takes 1 ms per 100 columns.
_ROUNDS: Final = (50, 1000)
# The smallest share of the counted rows, and the fewest rows, with which a pattern gets code of its own.
_SHARE: Final = 1 / 20
_FEWEST: Final = 2
# The share of the counted rows from which frequent patterns are nearly all.
_NEARLY_ALL: Final = 9 / 10


class NullPatterns:
    """The NULL patterns of one image; ``frequent`` has the patterns with code of their own, the most frequent first.

    While ``is_watching`` is true the reader calls ``saw``. ``changed`` is called when ``frequent`` or ``is_watching``
    changes after that.
    """

    def __init__(self, column_count: int) -> None:
        self.frequent: list[int] = []
        self.is_watching = True
        self.changed: Callable[[], None] = lambda: None
        self._room = min(_PATTERNS_KEPT, _COLUMNS_KEPT // column_count)
        self._rounds = list(_ROUNDS)
        self._seen: Counter[int] = Counter()
        self._count = 0
        self._others_are_rare = False

    def learn(self, rows: Iterable[int]) -> None:
        """Take the frequent patterns of these rows, before any code is written."""
        for nulls in rows:
            self._seen[nulls] += 1
            self._count += 1
        self._keep_frequent()
        self.is_watching = self._room > 0

    def saw(self, nulls: int) -> None:
        """Count the NULL bits of a row whose pattern is not in ``frequent``."""
        self._seen[nulls] += 1
        self._count += 1
        if self._count < self._rounds[0]:
            return
        self._rounds.pop(0)
        has_more = self._keep_frequent()
        self.is_watching = bool(has_more and self._room and self._rounds)
        self.changed()

    @property
    def others_are_rare(self) -> bool:
        """Whether nearly all rows had frequent patterns; if that changes, the reader calls ``saw``."""
        return self._others_are_rare and self.is_watching

    def _keep_frequent(self) -> bool:
        """Add the frequent patterns of the counted rows, and count anew. Returns whether there are any."""
        least = max(_SHARE * self._count, _FEWEST)
        often = [(nulls, count) for nulls, count in self._seen.most_common(self._room) if count >= least]
        self.frequent += (nulls for nulls, _ in often)
        self._room -= len(often)
        self._others_are_rare = sum(count for _, count in often) > _NEARLY_ALL * self._count
        self._seen.clear()
        self._count = 0
        return bool(often)


def patterns_of(column_count: int, nullable_count: int) -> NullPatterns | None:
    """A counter for an image with these numbers of columns and nullable columns; None if it is not worth it."""
    return NullPatterns(column_count) if nullable_count >= _MANY and column_count <= _COLUMNS_KEPT else None
