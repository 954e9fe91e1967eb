"""The plan of a row image: variable-length columns and runs of fixed-size columns, worked out once per layout.

With the plan both ``row_starts`` (many events at once) and ``row_walker`` (one event) find the end of an image. This
module reads no rows.
"""

import numpy as np

from protocol.records import record
from protocol.rows.bounded_cache import remembered
from protocol.wire import bitmap_size

from .buffer import Positions
from .rawrows import ColumnLayout, ImageLayout

# Memory for plans. Most of a plan is its tables of NULL bits: 2 KB for up to eight fixed-size neighbours.
_PLANS_BYTES = 64 << 20
_PLAN_SIZE = 500
_SIZE_PER_COLUMN = 150
_SIZE_PER_PART = 250
_SIZE_PER_TABLE = 2300

# For each bit of a byte, the bytes that have it.
_WITH_BIT = tuple(np.flatnonzero(np.arange(256) >> bit & 1) for bit in range(8))


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


def plan_size(image: ImageLayout, plan: ImagePlan) -> int:
    """About how many bytes a plan takes, with its key in the cache."""
    tables = sum(len(part.nulls) for part in plan.parts)
    return (
        _PLAN_SIZE
        + _SIZE_PER_COLUMN * len(image.columns)
        + _SIZE_PER_PART * len(plan.parts)
        + _SIZE_PER_TABLE * tables
    )


@remembered(_PLANS_BYTES, plan_size)
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
    tables: dict[int, Positions] = {}
    for column in fixed:
        index = column.bit >> 3
        if index not in tables:
            tables[index] = np.zeros(256, np.int64)
        tables[index][_WITH_BIT[column.bit & 7]] += column.size
    return ImagePart(sum(column.size for column in fixed), tuple(tables.items()), variable)
