"""How many rows an event holds, found without reading their values."""

from typing import Final

import numpy as np

from protocol.binlog.events import RowsEvent
from replica.arrow.buffer import RowBuffer
from replica.arrow.row_starts import find_rows

from .pieces import RowLayouts

# Below it, calls of numpy cost more than reading the rows one by one.
_FEW_BYTES: Final = 2048


class RowCounter:
    """Counts the rows of events whose rows were left undecoded by ``layouts``."""

    def __init__(self, layouts: RowLayouts) -> None:
        self._layouts = layouts

    def __call__(self, event: RowsEvent) -> int:
        """Raises as decoding the rows does."""
        rows = event.rows[0]  # type: ignore[attr-defined]
        size = rows.end - rows.start
        if size <= _FEW_BYTES:
            return len(self._layouts.tuples(rows))
        buffer = RowBuffer([memoryview(rows.data)[rows.start : rows.end]])
        found = find_rows(buffer, rows.layout, np.zeros(1, np.int64), np.array([size], np.int64))
        return int(found.counts[0])
