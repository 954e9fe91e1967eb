"""Shapes of tables by their places in the log, as pieces carry them to the tasks.

A piece has the shapes for its table maps without column names, so a task need not ask a server. They come from a
schema history: the spool's (``live_names``), or that of a relay beside its files.
"""

import pickle
import sys
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Final

from protocol.rows.table import Table, table_text

from ..schemas.proof import first_difference, with_shape
from ..schemas.shape import Shape
from ..schemas.timeline import SchemaHistory
from .offsets import Key

# A table's ``table_text`` -> its shapes, the newest first, each from a place on; None: its columns are not known
# there.
PlacedShapes = Mapping[str, tuple[tuple[Key, Shape | None], ...]]

_STRETCH_BYTES: Final = 1 << 18
# The place where a stretch begins.
_BEGIN: Final = itemgetter(0)


def named(table: Table, shapes: PlacedShapes, place: Key) -> Table | None:
    """The table with the names of that place; None if they are not known."""
    for begin, shape in shapes.get(table_text(table.schema, table.name), ()):
        if begin <= place:
            fits = shape is not None and first_difference(shape, table) is None
            return with_shape(table, shape) if shape is not None and fits else None
    return None


def shapes_of(
    histories: Iterable[SchemaHistory], wants_table: Callable[[str, str], bool] | None
) -> PlacedShapes:
    """The wanted tables of histories of one log, the later one last; their places are of the epoch 0."""
    found: dict[str, list[tuple[Key, Shape | None]]] = {}
    for history in histories:
        for table, timeline in history.tables.items():
            if table.name and (wants_table is None or wants_table(table.schema, table.name)):
                states = found.setdefault(table_text(*table), [])
                states += (
                    ((0, *place), state if isinstance(state, Shape) else None) for place, state in timeline
                )
    return {table: tuple(sorted(states, key=itemgetter(0))[::-1]) for table, states in found.items()}


def between(shapes: PlacedShapes, begin: Key, end: Key) -> PlacedShapes:
    """The shapes that places from ``begin`` to ``end`` need."""
    found = {}
    for table, states in shapes.items():
        first = next((number for number, (place, _) in enumerate(states) if place <= end), len(states))
        last = next((number for number, (place, _) in enumerate(states) if place <= begin), len(states) - 1)
        if first <= last:
            found[table] = states[first : last + 1]
    return found


class SharedShapes(Mapping[str, tuple[tuple[Key, Shape | None], ...]]):
    """Shapes that many pieces have: pickled with each piece, but compressed, and once for all of them.

    Those of 5,000 tables are 4.5 MB, and a log of a terabyte has 8,000 pieces.
    """

    def __init__(self, shapes: PlacedShapes) -> None:
        self._shapes = shapes
        self._packed: bytes | None = None

    def __getitem__(self, table: str) -> tuple[tuple[Key, Shape | None], ...]:
        return self._shapes[table]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def __reduce__(self) -> tuple[Callable[[bytes], PlacedShapes], tuple[bytes]]:
        """A task gets the plain mapping."""
        if self._packed is None:
            self._packed = zlib.compress(pickle.dumps(dict(self._shapes)), 1)
        return _unpacked, (self._packed,)


def _unpacked(data: bytes) -> PlacedShapes:
    found: PlacedShapes = pickle.loads(zlib.decompress(data))
    return found


class PlacedTables:
    """The tables that have table maps without names, by stretches of a log of some 256 KB.

    A thread notes them. Another one may call ``between`` and ``trim``.
    """

    def __init__(self) -> None:
        # The place where a stretch begins, and its tables. It ends where the next one begins.
        self._stretches: list[tuple[Key, Collection[str]]] = []
        self._open: set[str] = set()

    def enter(self, place: Key) -> bool:
        """Take the place of the next table map. Returns whether a stretch begins there."""
        if self._stretches:
            begin = self._stretches[-1][0]
            if begin <= place < (*begin[:2], begin[2] + _STRETCH_BYTES):
                return False
            # A tuple takes a fifth of the memory.
            self._stretches[-1] = begin, tuple(self._open)
        # After a lost connection the log comes again from the last boundary on.
        while self._stretches and self._stretches[-1][0] >= place:
            self._stretches.pop()
        self._open = set()
        self._stretches.append((place, self._open))
        return True

    def add(self, table: str) -> None:
        """Note a table, by its ``table_text``, in the stretch of the last place."""
        self._open.add(sys.intern(table))

    def between(self, begin: Key, end: Key) -> set[str]:
        """The tables of all stretches that overlap the range between two places."""
        # Other threads may change the list meanwhile.
        stretches = list(self._stretches)
        first = max(bisect_right(stretches, begin, key=_BEGIN) - 1, 0)
        found = stretches[first : bisect_left(stretches, end, key=_BEGIN)]
        return set().union(*(tables for _, tables in found))

    def trim(self, end: Key) -> None:
        """Forget the stretches that end before a place."""
        done = bisect_right(self._stretches, end, key=_BEGIN) - 1
        del self._stretches[: max(done, 0)]
