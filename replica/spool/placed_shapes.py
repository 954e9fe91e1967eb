"""Shapes of tables by their places in the log, as pieces carry them to the tasks.

A piece has the shapes that table maps without column names need at its place, so a task asks nobody. ``live_names``
and ``log_names`` take them from a schema history.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from protocol.rows.table import Table

from ..schemas.proof import first_difference, with_shape
from ..schemas.shape import Shape
from .offsets import Key

# Table -> its shapes, the newest first, each from a place on; None: its columns are not known there.
PlacedShapes = Mapping[str, tuple[tuple[Key, Shape | None], ...]]

NO_SHAPES: Final[PlacedShapes] = MappingProxyType({})


def named(table: Table, shapes: PlacedShapes, place: Key) -> Table | None:
    """The table with the names of that place; None if they are not known."""
    for begin, shape in shapes.get(str(table), ()):
        if begin <= place:
            fits = shape is not None and first_difference(shape, table) is None
            return with_shape(table, shape) if shape is not None and fits else None
    return None


def between(shapes: PlacedShapes, begin: Key, end: Key) -> PlacedShapes:
    """The shapes that places from ``begin`` to ``end`` need."""
    found = {}
    for table, states in shapes.items():
        first = next((number for number, (place, _) in enumerate(states) if place <= end), len(states))
        last = next((number for number, (place, _) in enumerate(states) if place <= begin), len(states) - 1)
        if first <= last:
            found[table] = states[first : last + 1]
    return found
