"""Find the places where rows begin, in one of three ways.

Rows of fixed-size columns without NULLs are equally spaced and need no search. Other rows must be followed one after
another. But servers write events of about 8 KB, so numpy finds the first rows of all events in one step, then all
second rows, and so on. When only few (large) events are left, a compiled loop (``row_walker``) follows row by row.
This module reads no values.
"""

import numpy as np

from protocol.errors import TruncatedError
from protocol.records import record
from protocol.rows.compiler import overrun

from .buffer import Bytes, Positions, RowBuffer
from .plan import ImagePlan, VariablePart, plan_image
from .rawrows import ImageLayout, RowsLayout
from .row_walker import row_finder

# With fewer events than these the compiled loop is faster.
_FEWEST_TOGETHER = 12


@record(frozen=True, slots=True)
class FoundRows:
    """``counts`` is the number of rows of each event. ``images`` has for each row image the places where it begins.

    If these places are a ``range``, the rows are equally spaced and hold no NULL.
    """

    counts: Positions
    images: tuple[Positions | range, ...]


def find_rows(buffer: RowBuffer, layout: RowsLayout, starts: Positions, ends: Positions) -> FoundRows:
    """The rows of events of one layout, whose rows are in ``buffer`` from ``starts`` to ``ends``, in this order.

    Raises ``DecodeError`` (``TruncatedError``) if rows do not end where their event ends; the error names no event.
    """
    if not any(image.columns for image in layout.images):
        return _empty_rows(layout, starts, ends)
    found = _equal_rows(buffer, layout, starts, ends)
    if found is not None:
        return found
    try:
        return _Search(buffer, tuple(map(plan_image, layout.images)), starts, ends).run()
    except IndexError:
        raise TruncatedError("the data ends inside a row") from None


def repeat_and_count(starts: Positions, counts: Positions, step: int = 1) -> Positions:
    """For each i, ``counts[i]`` numbers from ``starts[i]`` on, in steps of ``step``."""
    before = np.cumsum(counts) - counts
    total = int(counts.sum())
    return np.repeat(starts - before * step, counts) + np.arange(0, total * step, step, dtype=np.int64)


def _empty_rows(layout: RowsLayout, starts: Positions, ends: Positions) -> FoundRows:
    """Rows without any column take no bytes; the source logs one such row per event (do_apply_event's loop)."""
    left = int((ends - starts).max())
    if left:
        raise overrun(0, left)
    return FoundRows(np.ones(len(starts), np.int64), tuple(starts for _ in layout.images))


def _equal_rows(
    buffer: RowBuffer, layout: RowsLayout, starts: Positions, ends: Positions
) -> FoundRows | None:
    """Equally spaced rows; None if there are variable-length columns or NULLs."""
    sizes = [image.fixed_size for image in layout.images]
    row_size = sum(size for size in sizes if size is not None)
    if None in sizes or not row_size or ((ends - starts) % row_size).any():
        return None
    counts = (ends - starts) // row_size
    place: Positions | range = repeat_and_count(starts, counts, row_size)
    if (starts[1:] == ends[:-1]).all():
        place = range(int(starts[0]), int(ends[-1]), row_size)
    images = []
    for image, size in zip(layout.images, sizes, strict=True):
        if _has_nulls(buffer, image, place):
            return None
        images.append(place)
        place = moved(place, size or 0)
    return FoundRows(counts, tuple(images))


def moved(place: Positions | range, distance: int) -> Positions | range:
    """All places, moved by ``distance`` bytes."""
    if isinstance(place, range):
        return range(place.start + distance, place.stop + distance, place.step)
    return place + distance


def _has_nulls(buffer: RowBuffer, image: ImageLayout, place: Positions | range) -> bool:
    for offset, mask in enumerate(image.null_mask):
        if isinstance(place, range):
            bits = buffer.strided(np.uint8, range(place.start + offset, place.stop + offset, place.step))
        else:
            bits = buffer.numbers(np.uint8, offset)[place]
        if (bits & mask).any():
            return True
    return False


class _Search:
    """Follows rows of different sizes. Raises ``IndexError`` if damaged rows lead out of the buffer."""

    def __init__(
        self, buffer: RowBuffer, plans: tuple[ImagePlan, ...], starts: Positions, ends: Positions
    ) -> None:
        self._buffer = buffer
        self._plans = plans
        self._starts = starts
        self._ends = ends
        self._counts = np.zeros(len(starts), np.int64)
        # For each step: the events, and the places where the images of one row of each begin.
        self._steps: list[tuple[Positions, list[Positions]]] = []
        # For each event that the compiled loop finished: the places where the images of its further rows begin.
        self._rests: list[tuple[int, Positions]] = []

    def run(self) -> FoundRows:
        events = np.flatnonzero(self._starts < self._ends)
        places, ends = self._starts[events], self._ends[events]
        while len(events) >= _FEWEST_TOGETHER:
            places = self._step(events, places)
            goes_on = places < ends
            if not goes_on.all():
                if (places > ends).any():
                    raise TruncatedError("the last row needs more bytes than its event has")
                events, places, ends = events[goes_on], places[goes_on], ends[goes_on]
        for event, place in zip(events.tolist(), places.tolist(), strict=True):
            self._rest(event, place)
        return self._found()

    def _step(self, events: Positions, places: Positions) -> Positions:
        """Follow one row of each event. Returns the places where these rows end."""
        begins = []
        for plan in self._plans:
            begins.append(places)
            places = image_end(self._buffer, plan, places)
        self._steps.append((events, begins))
        self._counts[events] += 1
        return places

    def _rest(self, event: int, place: int) -> None:
        """Follow all rows of one event from ``place`` on."""
        found: list[int] = []
        end = int(self._ends[event])
        find = row_finder(self._plans)
        reached = find(self._buffer.data, place, end, found.append)
        if reached != end:
            raise overrun(reached, end)
        self._rests.append((event, np.array(found, np.int64).reshape(-1, len(self._plans))))
        self._counts[event] += len(found) // len(self._plans)

    def _found(self) -> FoundRows:
        first = np.cumsum(self._counts) - self._counts
        images = [np.empty(int(self._counts.sum()), np.int64) for _ in self._plans]
        for number, (events, begins) in enumerate(self._steps):
            rows = first[events] + number
            for image, begin in zip(images, begins, strict=True):
                image[rows] = begin
        for event, rest in self._rests:
            end = int(first[event] + self._counts[event])
            for index, image in enumerate(images):
                image[end - len(rest) : end] = rest[:, index]
        return FoundRows(self._counts, tuple(images))


def image_end(buffer: RowBuffer, plan: ImagePlan, places: Positions) -> Positions:
    """The ends of the images that begin at ``places``. Raises ``IndexError`` if one is outside of the buffer."""
    if plan.diff_bytes:
        has_bits = buffer.numbers(np.uint8)[places] & 1
        places = places + 1 + has_bits.astype(np.int64) * plan.diff_bytes
    bits = [null_bits(buffer, places, offset, mask) for offset, mask in enumerate(plan.null_mask)]
    has_nulls = any(byte.any() for byte in bits)
    places = places + np.int64(len(bits))
    for part in plan.parts:
        if part.fixed_size:
            places = places + part.fixed_size
        if has_nulls:
            for index, table in part.nulls:
                places = places - table[bits[index]]
        if part.variable is not None:
            places = places + _variable_sizes(buffer, part.variable, places, bits, has_nulls)
    return places


def _variable_sizes(
    buffer: RowBuffer, variable: VariablePart, places: Positions, bits: list[Bytes], has_nulls: bool
) -> Positions:
    """The sizes of the values at ``places`` with their length bytes; 0 for NULLs."""
    sizes = lengths_at(buffer, variable.length_bytes, places) + variable.length_bytes
    if has_nulls:
        sizes *= (bits[variable.null_byte] & variable.null_bit) == 0
    return sizes


def null_bits(buffer: RowBuffer, places: Positions, offset: int, mask: int) -> Bytes:
    """The byte of NULL bits ``offset`` bytes after the beginning of each image."""
    return buffer.numbers(np.uint8, offset)[places] & np.uint8(mask)


def lengths_at(buffer: RowBuffer, length_bytes: int, places: Positions) -> Positions:
    """The lengths stored at ``places``, each in ``length_bytes`` bytes."""
    if length_bytes == 1:
        return buffer.numbers(np.uint8)[places].astype(np.int64)
    if length_bytes == 2:
        return buffer.numbers(np.uint16)[places].astype(np.int64)
    lengths = buffer.numbers(np.uint32)[places].astype(np.int64)
    return lengths & 0xFFFFFF if length_bytes == 3 else lengths
