"""Reads rows value by value, without a function for their images: for images that few events have.

With ``binlog_row_image=MINIMAL`` each combination of updated columns is another image, and compiling one takes a
thousand times as long as reading a row. So images are interpreted until they have recurred often enough. Each kind of
value has one function, ``(data, position) -> (value, next position)``, which is compiled from the same lines as those
of ``CarefulWriter``: results and errors equal the careful reader's. A row takes about 150 ns a value more than
compiled; an image of numbers alone without any NULL is unpacked at once, 50 ns a value.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import compress
from operator import itemgetter
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

from ..records import record, replace
from ..wire import bitmap_size
from .bounded_cache import BoundedCache
from .cells import Cell, Function
from .code_writer import CarefulWriter, Value
from .column import ABSENT
from .compiler import RowReader, overrun
from .runs import Run

# Functions and their code kept; a function takes 800 bytes, its code 1 KB.
_FUNCTIONS_BYTES: Final = 4 << 20
_CODE_BYTES: Final = 1 << 20
_FUNCTION_SIZE: Final = 800
_CODE_SIZE: Final = 1000
_LABEL_SIZE: Final = 80
# Formats of images whose values are unpacked together; one takes 500 bytes.
_FORMATS_KEPT: Final = 1 << 10
# In a format: a value that is more than a number.
_NO_NUMBER: Final = "|"

_from_bytes = int.from_bytes
# Digits of a binary number to bytes that are false and true.
_BITS: Final = bytes(byte == ord("1") for byte in range(256))

#: A column in a row: the place of its value in the row's list, its function, its bit if it can be a diff, and its
#: ``struct`` code (``number_code``).
Step = tuple[int, Any, int, str]
_place_of, _code_of = itemgetter(0), itemgetter(3)


def number_code(cell: Cell) -> str:
    """The ``struct`` code of values that need only be unpacked; for others a code that makes a format useless."""
    return cell.code if len(cell.code) == 1 and cell.expression == "{v}" else _NO_NUMBER


class _ValueWriter(CarefulWriter):
    """Writes the function that reads one value, or only moves past it."""

    def __init__(self, cell: Cell, is_wanted: bool) -> None:
        super().__init__((), {})
        self._value = Value(cell, "value", 1, is_wanted, is_required=True)

    def function(self) -> Iterator[str]:
        yield "def read_value(data, position):"
        for line in self._together(Run(), [self._value]):
            yield f"    {line}"
        yield f"    return {'value' if self._value.is_wanted else 'None'}, position"


@record(frozen=True, slots=True)
class CellFunctions:
    """The functions of one kind of value: ``read`` it, ``skip`` it, or read its bytes as they are: ``raw``."""

    read: Any
    skip: Any
    raw: Any


class ValueFunctions:
    """Makes the functions of cells, and keeps them."""

    def __init__(self) -> None:
        self._functions: BoundedCache[Cell, CellFunctions] = BoundedCache(_FUNCTIONS_BYTES)
        self._codes: BoundedCache[str, CodeType] = BoundedCache(_CODE_BYTES)

    def of(self, cell: Cell) -> CellFunctions:
        """The functions of a cell; those of a column that cannot be read are never called."""
        found = self._functions.get(cell)
        if found is None:
            raw = replace(cell, expression="{v}", function=None) if cell.length_bytes else cell
            found = CellFunctions(self._made(cell), self._made(cell, is_wanted=False), self._made(raw))
            held = cell.function[0] if isinstance(cell.function, tuple) else ()
            labels = len(held) if isinstance(held, tuple) else 0
            self._functions.keep(cell, found, 3 * _FUNCTION_SIZE + labels * _LABEL_SIZE)
        return found

    def _made(self, cell: Cell, is_wanted: bool = True) -> FunctionType:
        writer = _ValueWriter(cell, is_wanted)
        source = "\n".join(writer.function())
        code = self._codes.get(source)
        if code is None:
            namespace: dict[str, Any] = {}
            exec(
                compile(source, "<row reader of one value>", "exec"), namespace
            )  # the text holds no word from the log
            code = namespace["read_value"].__code__
            self._codes.keep(source, code, _CODE_SIZE + len(source))
        return FunctionType(code, writer.namespace)


class ImageSteps(NamedTuple):
    """One image of an event: the size of its NULL bitmap, and the steps of the columns that it holds, in order.

    ``unpack`` reads all values at once, which take ``size`` bytes; None if not all of them are numbers.
    ``diff_bytes`` is the number of bytes of diff bits; None if the image has none.
    """

    null_bytes: int
    steps: Sequence[Step]
    unpack: Any = None
    size: int = 0
    diff_bytes: int | None = None


def image_steps(bitmap: bytes, columns: Sequence[Step], diff_count: int | None = None) -> ImageSteps:
    """The steps of an image by its bitmap of present columns, from the steps of all columns."""
    # The lowest bit first: for a hundred columns a third of the time of a loop over the bits.
    bits = f"{_from_bytes(bitmap, 'little'):b}".encode().translate(_BITS)[::-1]
    steps = list(compress(columns, bits))
    null_bytes = len(steps) + 7 >> 3
    if diff_count is not None:
        return ImageSteps(null_bytes, steps, diff_bytes=bitmap_size(diff_count))
    codes = "".join(map(_code_of, steps))
    if _NO_NUMBER in codes:
        return ImageSteps(null_bytes, steps)
    numbers = _unpackers.get(codes) or _unpacker(codes)
    return ImageSteps(null_bytes, steps, numbers.unpack_from, numbers.size)


_unpackers: dict[str, struct.Struct] = {}


def _unpacker(codes: str) -> struct.Struct:
    if len(_unpackers) >= _FORMATS_KEPT:
        _unpackers.clear()
    made = _unpackers[codes] = struct.Struct(f"<{codes}")
    return made


def interpreted_reader(images: Sequence[ImageSteps], width: int, apply_diff: Function) -> RowReader:
    """A row reader; ``width`` is the number of items of a row tuple. A step with this place has no item.

    Returns and raises the same as the compiled reader of these images.
    """
    return partial(read_images, images, [ABSENT] * (width + 1), apply_diff)


def read_images(
    images: Sequence[ImageSteps],
    absent: list[object],
    apply_diff: Function,
    data: bytes,
    position: int,
    end: int,
) -> list[Any]:
    """The rows of ``interpreted_reader``; ``absent`` is a row without values, with an item more."""
    rows: list[Any] = []
    is_pair = len(images) > 1
    while position < end:
        found: list[tuple[object, ...]] = []
        for image in images:
            values = absent.copy()
            null_bytes, steps, unpack, size, diff_bytes = image
            if diff_bytes is not None:
                position = _read_diffs(image, values, found[0], apply_diff, data, position)
            else:
                nulls = _from_bytes(data[position : position + null_bytes], "little")
                position += null_bytes
                if unpack is not None and not nulls:
                    for place, value in zip(map(_place_of, steps), unpack(data, position), strict=False):
                        values[place] = value
                    position += size
                else:
                    for place, read, _, _ in steps:
                        if nulls & 1:
                            values[place] = None
                        else:
                            values[place], position = read(data, position)
                        nulls >>= 1
            values.pop()
            found.append(tuple(values))
        rows.append(tuple(found) if is_pair else found[0])
    if position != end:
        raise overrun(position, end)
    return rows


def _read_diffs(
    image: ImageSteps,
    values: list[object],
    before: Sequence[object],
    apply_diff: Function,
    data: bytes,
    position: int,
) -> int:
    """An after image of a partial update: a byte of options, and a bit for each JSON column if they say so."""
    diffs = 0
    options = data[position]
    position += 1
    if options & 1:
        assert image.diff_bytes is not None
        diffs = _from_bytes(data[position : position + image.diff_bytes], "little")
        position += image.diff_bytes
    size = image.null_bytes
    nulls = _from_bytes(data[position : position + size], "little") if size else 0
    position += size
    for place, functions, diff, _ in image.steps:
        if nulls & 1:
            values[place] = None
        elif diffs & diff and place < len(before):
            raw, position = functions.raw(data, position)
            values[place] = apply_diff(before[place], raw)
        else:
            read = functions.skip if place == len(before) else functions.read
            values[place], position = read(data, position)
        nulls >>= 1
    return position


def count_rows(images: Sequence[ImageSteps], data: bytes, position: int, end: int, most: int) -> int:
    """The number of rows up to ``most``, from steps that only skip; damaged rows count up to the damage."""
    count = 0
    while position < end and count < most:
        for image in images:
            if image.diff_bytes is not None:
                position += 1 + (image.diff_bytes if data[position] & 1 else 0)
            nulls = _from_bytes(data[position : position + image.null_bytes], "little")
            position += image.null_bytes
            for _, skip, _, _ in image.steps:
                if not nulls & 1:
                    _, position = skip(data, position)
                nulls >>= 1
        count += 1
    return count
