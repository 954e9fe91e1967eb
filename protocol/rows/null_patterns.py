"""Which columns of a row are NULL together: what a row reader sees of that, and what deserves code of its own.

Rows of a table with many columns that can be NULL mostly have one of a few patterns of NULL bits, and code for one
pattern tests no column: 1.4 us instead of 3.1 for a row of 40 numbers. So readers of such tables are compiled again
once they have seen some rows. This module counts; it writes no code.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

# Columns that can be NULL; with fewer there is little to win: 3 % with 6 of 19.
_MANY: Final = 8
# Patterns with code of their own, and the columns in all of them, so that the code does not grow without end.
_PATTERNS_KEPT: Final = 8
_COLUMNS_KEPT: Final = 1024
# So many rows are looked at, one of an event, before code is written again: 1 ms for each hundred of its columns.
_ROUNDS: Final = (50, 1000)
# Of the rows looked at, a pattern must have this share.
_SHARE: Final = 1 / 20


class NullPatterns:
    """The patterns of one image: ``frequent`` are those with code of their own, the most frequent first.

    ``changed`` is called when that or ``is_watching`` changes, which says whether the reader is to call ``saw``.
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
        """Count the NULL bits of a row that ``frequent`` does not have."""
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
    """The patterns of an image with so many columns, of which so many can be NULL; None if they are not worth it."""
    return NullPatterns(column_count) if nullable_count >= _MANY and column_count <= _COLUMNS_KEPT else None
