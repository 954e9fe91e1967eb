"""Reads rows value by value, without a function for their images: for images that few events have.

With ``binlog_row_image=MINIMAL`` each combination of updated columns is another image, and compiling one takes a
thousand times as long as reading a row. So images are interpreted until they have recurred often enough. Each kind of
value has one function, ``(data, position) -> (value, next position)``, which is compiled from the same lines as those
of ``CarefulWriter``: results and errors equal the careful reader's. A row takes about 150 ns a value more than
compiled.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import compress
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

from ..records import record
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

_from_bytes = int.from_bytes
# Digits of a binary number to bytes that are false and true.
_BITS: Final = bytes(byte == ord("1") for byte in range(256))

#: A column in a row: the place of its value in the row's list, its function, and its bit if it can be a diff.
Step = tuple[int, Any, int]


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

    ``diff_bytes`` is the number of bytes of diff bits; None if the image has none.
    """

    null_bytes: int
    steps: Sequence[Step]
    diff_bytes: int | None = None


def image_steps(bitmap: bytes, columns: Sequence[Step], diff_count: int | None = None) -> ImageSteps:
    """The steps of an image by its bitmap of present columns, from the steps of all columns."""
    # The lowest bit first: for a hundred columns a third of the time of a loop over the bits.
    bits = f"{_from_bytes(bitmap, 'little'):b}".encode().translate(_BITS)[::-1]
    steps = list(compress(columns, bits))
    return ImageSteps(bitmap_size(len(steps)), steps, None if diff_count is None else bitmap_size(diff_count))


def interpreted_reader(images: Sequence[ImageSteps], width: int, apply_diff: Function) -> RowReader:
    """A row reader; ``width`` is the number of items of a row tuple. A step with this place has no item.

    Returns and raises the same as the compiled reader of these images.
    """
    absent: list[object] = [ABSENT] * (width + 1)
    is_pair = len(images) > 1

    def read_rows(data: bytes, position: int, end: int) -> list[Any]:
        rows: list[Any] = []
        while position < end:
            found: list[list[object]] = []
            for image in images:
                values = absent.copy()
                size = image.null_bytes
                if image.diff_bytes is not None:
                    position = _read_diffs(image, values, found[0], apply_diff, data, position)
                else:
                    nulls = _from_bytes(data[position : position + size], "little")
                    position += size
                    for place, read, _ in image.steps:
                        if nulls & 1:
                            values[place] = None
                        else:
                            values[place], position = read(data, position)
                        nulls >>= 1
                values.pop()
                found.append(values)
            rows.append((tuple(found[0]), tuple(found[1])) if is_pair else tuple(found[0]))
        if position != end:
            raise overrun(position, end)
        return rows

    return read_rows


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
    for place, functions, diff in image.steps:
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


def count_rows(images: Sequence[ImageSteps], data: bytes, position: int, end: int) -> int:
    """The number of rows, from steps that only skip; damaged rows count up to the damage."""
    count = 0
    while position < end:
        for image in images:
            if image.diff_bytes is not None:
                position += 1 + (image.diff_bytes if data[position] & 1 else 0)
            nulls = _from_bytes(data[position : position + image.null_bytes], "little")
            position += image.null_bytes
            for _, skip, _ in image.steps:
                if not nulls & 1:
                    _, position = skip(data, position)
                nulls >>= 1
        count += 1
    return count
