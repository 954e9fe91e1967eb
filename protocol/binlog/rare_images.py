"""Reads rows events whose images are not compiled, and counts their bytes until compiling them is worth it.

With ``binlog_row_image=MINIMAL`` nearly every event may have another combination of columns. For such a load,
finding the row reader costs as much as reading the rows. So there is one function for each table and rows format,
which reads the bytes in front of the rows itself. ``rows_events`` decides for which events it is called;
``row_interpreter`` reads the values.
"""

from collections.abc import Callable
from typing import Any, Final

from ..rows.cells import Function
from ..rows.column import ABSENT
from ..rows.compiler import COMPILING_BYTES
from ..rows.row_interpreter import ImageSteps, read_images

# Counters of images take 100 bytes each, and their bitmaps.
_COUNTERS: Final = 1 << 14
# So many times ``max_event_bytes`` the compiler may take.
_COMPILING_FACTOR: Final = 2

#: A row reader, which finds the images in front of the rows. It returns None for an event that it does not know, and
#: for one that makes compiling its images worth it.
RareReader = Callable[[bytes, int, int], list[Any] | None]


def no_rare_reader(data: bytes, position: int, end: int) -> None:
    """Returns None for every event."""


class ImageCounters:
    """Counts the bytes of rows of images that are not compiled, by a hash of the images.

    Images with equal hashes replace each other. Compiling images is worth it from ``least`` bytes of rows for each of
    their columns.
    """

    def __init__(self, least: int, max_event_bytes: int) -> None:
        self.least = least
        self._most_columns = _COMPILING_FACTOR * max_event_bytes // COMPILING_BYTES
        # Made for the first image: most decoders, such as those that look for GTIDs, read no rows.
        self._counters: list[tuple[object, bytes, int] | None] = []

    def is_rare(self, mark: object, prefix: bytes, size: int, columns: int) -> bool:
        """Whether too few bytes of rows with these images have come so far, the ``size`` bytes of now included.

        ``mark`` and ``prefix`` stand for the images of a table.
        """
        if not self._counters:
            self._counters = [None] * _COUNTERS
        place = (hash(prefix) ^ id(mark) >> 4) % _COUNTERS
        counter = self._counters[place]
        if counter is not None and counter[0] is mark and counter[1] == prefix:
            size += counter[2]
        self._counters[place] = mark, prefix, size
        return size < self.least * columns or columns > self._most_columns


def rare_reader(
    images: tuple[Callable[[bytes], ImageSteps], ...],
    prefix: bytes,
    bitmap_size: int,
    width: int,
    apply_diff: Function,
    is_rare: Callable[[bytes, int, int], bool],
) -> RareReader:
    """The reader of the events of one table and rows format without extra row information.

    ``images`` make the steps of each image from its bitmap. ``prefix`` is that of any event; its bitmaps, which are
    its end, may differ. ``is_rare`` is told the prefix, the bytes of rows and the columns of each event.
    """
    prefix_size = len(prefix)
    first = prefix_size - len(images) * bitmap_size
    last = prefix_size - bitmap_size
    front = prefix[:first]
    absent: list[object] = [ABSENT] * (width + 1)
    is_pair = len(images) > 1
    of_first, of_last = images[0], images[-1]

    def read_rows(data: bytes, position: int, end: int) -> list[Any] | None:
        prefix = data[position - prefix_size : position]
        if not prefix.startswith(front):
            return None
        found = [of_last(prefix[last:])]
        columns = len(found[0].steps)
        if is_pair:
            before = of_first(prefix[first:last])
            columns += len(before.steps)
            found.insert(0, before)
        if not (columns and is_rare(prefix, end - position, columns)):
            return None
        return read_images(found, absent, apply_diff, data, position, end)

    return read_rows
