"""The plan of a row image: variable-length columns and runs of fixed-size columns, worked out once per layout.

With the plan both ``row_starts`` (many events at once) and ``row_walker`` (one event) find the end of an image. This
module reads no rows.
"""

from functools import lru_cache

import numpy as np

from protocol.records import record
from protocol.wire import bitmap_size

from .buffer import Positions
from .rawrows import ColumnLayout, ImageLayout

_PLANS_KEPT = 4096


@record(frozen=True, slots=True)
class VariablePart:
    """A variable-length column: the byte and the bit of its NULL bit, and the number of bytes of its length."""

    null_byte: int
    null_bit: int
    length_bytes: int


@record(frozen=True, slots=True, eq=False)
class ImagePart:
    """A run of fixed-size columns, and the variable-length column after them if there is one.

    ``nulls`` has pairs: the index of a byte of NULL bits, and a table with the bytes that each of its 256 values
    takes away from ``fixed_size``.
    """

    fixed_size: int
    nulls: tuple[tuple[int, Positions], ...]
    variable: VariablePart | None


@record(frozen=True, slots=True, eq=False)
class ImagePlan:
    """The plan of one image. ``diff_bytes``: bytes of a partial update's diff bits, which a flag byte precedes."""

    diff_bytes: int
    null_mask: bytes
    parts: tuple[ImagePart, ...]


@lru_cache(_PLANS_KEPT)
def plan_image(image: ImageLayout) -> ImagePlan:
    """The plan of a layout; equal layouts share one object."""
    parts: list[ImagePart] = []
    fixed: list[ColumnLayout] = []
    for column in image.columns:
        if column.length_bytes:
            variable = VariablePart(column.bit >> 3, 1 << (column.bit & 7), column.length_bytes)
            parts.append(_part(fixed, variable))
            fixed = []
        else:
            fixed.append(column)
    if fixed:
        parts.append(_part(fixed, None))
    diff_bytes = 0 if image.diffs is None else bitmap_size(len(image.diffs))
    return ImagePlan(diff_bytes, image.null_mask, tuple(parts))


def _part(fixed: list[ColumnLayout], variable: VariablePart | None) -> ImagePart:
    nulls = []
    for index in sorted({column.bit >> 3 for column in fixed}):
        table = np.zeros(256, np.int64)
        for column in fixed:
            if column.bit >> 3 == index:
                table[np.arange(256) >> (column.bit & 7) & 1 == 1] += column.size
        nulls.append((index, table))
    return ImagePart(sum(column.size for column in fixed), tuple(nulls), variable)
