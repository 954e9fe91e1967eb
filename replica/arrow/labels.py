"""The converters for ENUM and SET with known labels. Each label, or combination of labels, is made text only once.

Columns with unknown labels are numbers: see ``numbers``.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from protocol.rows.column import Column
from protocol.values.readers import enum_label, set_labels

from .arrays import ArrowColumn, Losses, numbers_array
from .binary import text_array
from .buffer import Positions, Unsigned
from .numbers import index, indexes
from .places import Places
from .strings import STRING, valid_text

# The number of label combinations of a SET that are kept as text.
_TEXTS_KEPT = 1 << 16


def enum(column: Column) -> ArrowColumn:
    """ENUM: the label; 0 is the empty string, MySQL's invalid value. The label's number if labels are not known."""
    return _labelled(column, enum_label)


def label_set(column: Column) -> ArrowColumn:
    """SET: the comma-joined labels in definition order; the bits if labels are not known."""
    return _labelled(column, set_labels)


def _labelled(column: Column, text_of: Callable[[int, Sequence[str]], str]) -> ArrowColumn:
    labels, size = column.labels, column.metadata
    if not labels:
        return index(column)
    texts: dict[int, str] = {}

    def convert(places: Places, losses: Losses) -> pa.Array:
        stored = indexes(places, size)
        if places.valid is not None:
            stored *= places.valid
        values, which = _distinct(stored, size)
        if len(texts) > _TEXTS_KEPT:
            texts.clear()
        for value in values:
            if value not in texts:
                texts[value] = valid_text(text_of(value, labels))
        distinct = text_array([texts[value] for value in values])
        return distinct.take(numbers_array(which, places.valid))

    return ArrowColumn(STRING, convert)


def _distinct(stored: Unsigned, size: int) -> tuple[list[int], Positions]:
    """The distinct values, and for each value its index among them."""
    if size > 2:
        values, which = np.unique(stored, return_inverse=True)
        return values.tolist(), which
    small = stored.astype(np.int64)
    is_there = np.bincount(small) > 0
    return np.flatnonzero(is_there).tolist(), (np.cumsum(is_there) - 1)[small]
