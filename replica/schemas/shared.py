"""Equal columns, keys and shapes share one object: a source of 10,000 tables has few that differ."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from protocol.records import replace

from .shape import ColumnShape, Key, Shape

_T = TypeVar("_T", ColumnShape, Key, Shape, tuple[ColumnShape, ...], tuple[Key, ...], str)


class Shared:
    """Keeps one object of each value that it has seen.

    It holds what the shapes of a history need; when that is pruned, ``keep`` forgets the others.
    """

    def __init__(self) -> None:
        self._known: dict[object, object] = {}

    def shape(self, shape: Shape) -> Shape:
        """An equal shape, whose parts are shared, too."""
        found = self._known.get(shape)
        if isinstance(found, Shape):
            return found
        keys = None if shape.keys is None else self._one(tuple(self._one(key) for key in shape.keys))
        columns = self._one(tuple(self._column(column) for column in shape.columns))
        primary = None if shape.primary is None else self._one(shape.primary)
        return self._one(replace(shape, columns=columns, keys=keys, primary=primary))

    def keep(self, shapes: Iterable[Shape]) -> None:
        """Forget all but these shapes, whose parts are shared already, and their parts."""
        self._known = {}
        for shape in {id(shape): shape for shape in shapes}.values():
            self._known |= {part: part for part in _parts(shape) if part is not None}

    def _column(self, column: ColumnShape) -> ColumnShape:
        found = self._known.get(column)
        if isinstance(found, ColumnShape):
            return found
        name, kind = self._one(column.name), self._one(column.type)
        # Those of ``baseline`` are shared already: ``replace`` would take most of the time.
        is_shared = name is column.name and kind is column.type
        return self._one(column if is_shared else replace(column, name=name, type=kind))

    def _one(self, value: _T) -> _T:
        return self._known.setdefault(value, value)  # type: ignore[return-value]


def _parts(shape: Shape) -> Iterator[object]:
    yield from (shape, shape.columns, shape.keys, shape.primary, *shape.columns, *(shape.keys or ()))
    for column in shape.columns:
        yield from (column.name, column.type)
