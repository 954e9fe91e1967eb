"""Count the rows of an event without decoding their values."""

from typing import Final

import numpy as np

from protocol.binlog.events import RowsEvent

from ..arrow.buffer import RowBuffer
from ..arrow.row_starts import find_rows
from .pieces import RowLayouts

# For fewer bytes, calls of numpy cost more than decoding the rows one by one.
_FEW_BYTES: Final = 2048


class RowCounter:
    """Counts the rows of events whose rows ``layouts`` left undecoded."""

    def __init__(self, layouts: RowLayouts) -> None:
        self._layouts = layouts

    def __call__(self, event: RowsEvent) -> int:
        """The number of rows. Raises the errors of decoding them."""
        rows = event.rows[0]  # type: ignore[attr-defined]
        size = rows.end - rows.start
        if size <= _FEW_BYTES:
            return len(self._layouts.tuples(rows))
        buffer = RowBuffer([memoryview(rows.data)[rows.start : rows.end]])
        found = find_rows(buffer, rows.layout, np.zeros(1, np.int64), np.array([size], np.int64))
        return int(found.counts[0])
