"""Compiles one function per table shape, from cells, that reads the rows of a rows event.

Images of which few rows are read are not compiled: ``row_interpreter`` reads them.

The layout of a row is worked out once, here, so that the function for each row is straight-line code. The
function for inserts into a table of INT NOT NULL, VARCHAR(10) NOT NULL in utf8mb4, and DOUBLE is

    def read_rows(data, position, end):
        begin = position
        rows = []
        append = rows.append
        try:
            while position < end:
                nulls, a0, n = unpack_0(data, position)
                if nulls & 3:
                    raise Doubt
                start = position + 6
                position = start + n
                a1 = data[start:position].decode()
                if nulls & 4:
                    a2 = None
                else:
                    (a2,) = unpack_1(data, position)
                    position += 8
                append((a0, a1, a2))
        except DOUBTS:
            position = -1
        if position != end:
            return careful()(data, begin, end)
        return rows

The function trusts the log: NOT NULL columns have values, text is valid UTF-8, and all rows are complete. If any of
this is wrong, ``careful()`` reads the rows again from the first. That function is only compiled then; it reads value
by value, and returns the rows or raises the right error.

Adjacent nullable columns are tested together first, and read by one unpack if none is NULL. If many columns are
nullable, frequent patterns of NULL bits get code of their own. Such a function is compiled when it reads its first
event, for the patterns there; if nearly all rows have these, ``careful_row()`` reads the others. Rows of fixed size
without any NULL are read all at once. Generated text holds only integers and identifiers made here, never a name from
the log: a column name with a newline would run as code. Tracebacks and debuggers show it.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import FunctionType
from typing import Any, Final

from ..errors import DecodeError, TruncatedError
from ..records import record
from .cells import Cell, Function
from .code_writer import CarefulRowWriter, CarefulWriter, ImageValues, TrustingWriter, Value
from .column import ABSENT
from .generated_source import run
from .null_patterns import patterns_of

# Bytes of rows of the same images, for each of their columns, before the images are compiled: compiling takes 25 us a
# column or more, and a compiled row of 4 bytes a column takes some 150 ns a column less than an interpreted one.
BYTES_BEFORE_COMPILING: Final = 500
# Memory that compiling takes for a column, at its peak.
COMPILING_BYTES: Final = 100_000
# A compiled reader takes so many times its code (its own, its source and its constants), and so much for a column.
# Before its first rows it has less code than it will have: so much for a column counts.
_CODE_FACTOR: Final = 6
_LEAST_CODE: Final = 100
_BYTES_PER_COLUMN: Final = 800
_READER_BYTES: Final = 5000

# Rows of one event that are looked at for their NULLs: 10 us each for 100 columns.
_ROWS_LEARNED: Final = 32
# The text of a reader that looks at the rows of its first event before it is compiled.
_FIRST_CALL: Final = """\
def read_rows(data, position, end):
    learn(data, position, end)
    return read_rows(data, position, end)
"""

Row = tuple[object, ...]
RowReader = Callable[[bytes, int, int], list[Any]]


@record(frozen=True, slots=True)
class Image:
    """One row image: the columns in it, and the columns that the reader wants.

    ``cells`` has the cells of all columns. The other fields are column indexes: ``present`` those in the image,
    ``wanted`` those of the row tuple in its order, ``required`` those of the NOT NULL columns. In an after image of
    PARTIAL_UPDATE_ROWS each column of ``diffs`` has a bit that marks its value as a diff;
    ``apply_diff(before, diff)`` returns the value.
    """

    cells: tuple[Cell, ...]
    present: tuple[int, ...]
    wanted: tuple[int, ...]
    required: frozenset[int] = frozenset()
    diffs: tuple[int, ...] | None = None
    apply_diff: Function | None = None


def overrun(position: int, end: int) -> DecodeError:
    """The error for rows that do not end where their event ends."""
    if position > end:
        return TruncatedError(f"the last row needs {position - end} bytes more than its event has")
    return DecodeError(f"{end - position} bytes are left after the last row")


class RowCompiler:
    """Compiles row readers; the caller keeps them.

    The caller interprets the rows of some images until it has read ``bytes_before_compiling`` of them for each of
    their columns; with None it never does. ``changed`` is called with a reader that has become larger.
    """

    #: Whether rows are only counted: all columns are skipped.
    is_counting = False

    def __init__(self, bytes_before_compiling: int | None = BYTES_BEFORE_COMPILING) -> None:
        self.bytes_before_compiling = bytes_before_compiling
        self.changed: Callable[[RowReader], None] = lambda reader: None

    def reader(self, *images: Image) -> RowReader:
        """A function ``(data, position, end) -> rows`` over ``data[position:end]``.

        With one image a row is a tuple of values; with two a row is a pair of tuples, ``(before, after)``. The
        function raises ``DecodeError`` if the last row does not end at ``end``. On damaged data it also raises
        ``IndexError``, ``struct.error``, ``ValueError`` or ``OverflowError``, which the decoder turns into
        ``DecodeError``.
        """
        if not any(image.present for image in images):
            return _empty_rows(images)
        values = list(_values_of(images))
        names: dict[str, object] = {"overrun": overrun, "apply_diff": images[-1].apply_diff}
        names["careful"] = cache(lambda: self._compile(CarefulWriter(values, names)))
        names["careful_row"] = cache(lambda: self._compile(CarefulRowWriter(values, names)))
        writer = TrustingWriter(values, names)
        if all(image.patterns is None for image in values):
            return self._compile(writer)

        def learn(data: bytes, position: int, end: int) -> None:
            rows = _null_bits(values, data, position, end)
            for number, image in enumerate(values):
                if image.patterns is not None:
                    image.patterns.learn(row[number] for row in rows)
            write_again()

        def write_again() -> None:
            # The function object stays the same, so every holder of it runs the new code.
            reader.__code__ = self._compile(writer).__code__
            self.changed(reader)

        for image in values:
            if image.patterns is not None:
                image.patterns.changed = write_again
        writer.namespace["learn"] = learn
        run(_FIRST_CALL, "row reader", writer.namespace)
        reader: FunctionType = writer.namespace["read_rows"]
        return reader

    def _compile(self, writer: CarefulWriter) -> FunctionType:
        # The text holds no word from the log.
        run("\n".join(writer.function()), "row reader", writer.namespace)
        reader: FunctionType = writer.namespace["read_rows"]
        return reader


def _null_bits(images: Sequence[ImageValues], data: bytes, position: int, end: int) -> list[list[int]]:
    """The NULL bits of each image of an event's first rows; those before the damage if the rows are damaged."""
    rows: list[list[int]] = []
    try:
        while position < end and len(rows) < _ROWS_LEARNED:
            bits = []
            for image in images:
                if image.diff_count is not None:
                    position += 1 + ((image.diff_count + 7 >> 3) if data[position] & 1 else 0)
                first = position + (len(image.values) + 7 >> 3)
                nulls = int.from_bytes(data[position:first], "little")
                position = first
                bits.append(nulls)
                for value in image.values:
                    if not nulls & value.bit:
                        cell, size = value.cell, value.cell.length_bytes
                        if size:
                            position += size + int.from_bytes(data[position : position + size], "little")
                        else:
                            position += cell.size
            rows.append(bits)
    except IndexError:
        pass
    return rows


def reader_size(reader: RowReader, column_count: int) -> int:
    """About how many bytes a reader of ``column_count`` columns takes."""
    code = max(sys.getsizeof(getattr(reader, "__code__", None)), _LEAST_CODE * column_count)
    return _READER_BYTES + _CODE_FACTOR * code + _BYTES_PER_COLUMN * column_count


def _empty_rows(images: Sequence[Image]) -> RowReader:
    """A reader of rows without columns: they take no bytes, and an event has one of them (do_apply_event's loop)."""
    rows = [(ABSENT,) * len(image.wanted) for image in images]
    row = rows[0] if len(rows) == 1 else tuple(rows)

    def read_rows(data: bytes, position: int, end: int) -> list[Any]:
        if position != end:
            raise overrun(position, end)
        return [row]

    return read_rows


def _values_of(images: Sequence[Image]) -> Iterator[ImageValues]:
    """The images for the code writers: names of variables begin with ``a`` before a change, ``b`` after it."""
    before = set(images[0].present).intersection(images[0].wanted)
    for image, prefix in zip(images, "ab", strict=False):
        present, wanted = set(image.present), set(image.wanted)
        diffs = {index: 1 << place for place, index in enumerate(image.diffs or ())}
        values = [
            Value(
                image.cells[index],
                f"{prefix}{index}",
                1 << place,
                index in wanted,
                index in image.required,
                diffs.get(index, 0),
                f"a{index}" if index in before else "ABSENT",
            )
            for place, index in enumerate(image.present)
        ]
        items = [f"{prefix}{index}" if index in present else "ABSENT" for index in image.wanted]
        diff_count = None if image.diffs is None else len(image.diffs)
        nullable_count = sum(value.is_wanted and not value.is_required for value in values)
        yield ImageValues(prefix, values, items, diff_count, patterns_of(len(values), nullable_count))
