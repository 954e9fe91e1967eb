"""What finding the end of a row image takes, worked out once per layout: variable columns, and runs of fixed ones.

It is read by the compiled finder and by the one that finds rows of many events at once.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from protocol.wire import bitmap_size

from .buffer import Positions
from .rawrows import ColumnLayout, ImageLayout

_PLANS_KEPT = 4096


@dataclass(frozen=True, slots=True)
class VariablePart:
    """A variable column: which bit of which byte of the NULL bits is its, and the bytes of its length."""

    null_byte: int
    null_bit: int
    length_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class ImagePart:
    """Fixed columns and the variable one behind them, if there is one.

    ``nulls`` are (index of a byte of NULL bits, table of what its 256 values take away from ``fixed_size``).
    """

    fixed_size: int
    nulls: tuple[tuple[int, Positions], ...]
    variable: VariablePart | None


@dataclass(frozen=True, slots=True, eq=False)
class ImagePlan:
    """One image. ``diff_bytes`` are the bits of a partial update, behind a byte that says whether they are there."""

    diff_bytes: int
    null_mask: bytes
    parts: tuple[ImagePart, ...]


@lru_cache(_PLANS_KEPT)
def plan_image(image: ImageLayout) -> ImagePlan:
    """The plan of a layout; the same object for equal layouts."""
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
