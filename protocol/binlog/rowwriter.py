"""Writes the source of row readers, from cells: the lines of a function and the objects that it names.

``rowcode`` says what the functions are for, and compiles them. There are two for a table: ``TrustingWriter``'s reads
what servers write as fast as Python can, and ``CarefulWriter``'s takes one value after the other and is there for all
else. Their text holds only integers and identifiers made here, never a name from the log.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise, takewhile
from types import MappingProxyType
from typing import Any, Final

from .cells import Cell
from .column import ABSENT

_INTEGER_CODES: Final = MappingProxyType({1: "B", 2: "H", 4: "I", 8: "Q"})
# So many neighbours are tested for NULL together where not all have values. With 8, tables of many numbers take
# 10 % longer at one NULL in ten.
_NEIGHBOURS: Final = 4
# A tuple of more items is made from a list: 660 ns for 100 items, as a sum of smaller ones 520.
_TUPLE_ITEMS: Final = 30
# To find out that rows are of one size takes 150 ns; so many bytes of NULL bitmaps are worth it.
_FEW_ROWS: Final = 3
_FEW_BITMAP_BYTES: Final = 8


class _Doubt(Exception):
    """A column that is NOT NULL is NULL."""


# What trust in the log may run into where the careful reader does not, or says better what it is.
_DOUBTS: Final = (_Doubt, IndexError, struct.error, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class Value:
    """One value of an image: ``name`` is its variable, ``bit`` its bit in the NULL bitmap.

    ``diff`` is 0, or the bit that says that the value is a diff to ``before``.
    """

    cell: Cell
    name: str
    bit: int
    is_wanted: bool
    is_required: bool
    diff: int = 0
    before: str = "ABSENT"


@dataclass(frozen=True, slots=True)
class ImageValues:
    """One image: its values in order, the items of its row tuple, and how many columns can be diffs, if any can."""

    values: Sequence[Value]
    items: Sequence[str]
    diff_count: int | None = None


@dataclass(slots=True)
class _Run:
    """What one unpack call reads: a NULL bitmap, numbers, gaps, the length of what comes behind.

    ``after`` are lines that make values of what was unpacked, or of what stands in the gaps.
    """

    codes: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    size: int = 0

    def add(self, code: str, size: int, *targets: str) -> None:
        self.codes.append(code)
        self.targets += targets
        self.size += size

    def add_gap(self, size: int) -> None:
        self.add(f"{size}x", size)

    def add_integer(self, size: int, name: str) -> list[str]:
        """Add an unsigned integer of any size; returns the lines that put it together."""
        if size in _INTEGER_CODES:
            self.add(_INTEGER_CODES[size], size, name)
            return []
        if size == 3:
            self.add("HB", size, name, f"high_{name}")
            return [f"{name} |= high_{name} << 16"]
        self.add(f"{size}s", size, name)
        return [f"{name} = from_bytes({name}, 'little')"]


class CarefulWriter:
    """Writes a reader that asks of every value whether it is NULL.

    ``names`` are what the text needs besides: ``overrun``, which makes the error for a wrong end, and ``apply_diff``.
    """

    def __init__(self, images: Sequence[ImageValues], names: Mapping[str, object]) -> None:
        self.namespace: dict[str, Any] = {
            "from_bytes": int.from_bytes,
            "ABSENT": ABSENT,
            "Doubt": _Doubt,
            "DOUBTS": _DOUBTS,
            **names,
        }
        self._images = images
        self._bound: dict[object, str] = {}

    def function(self) -> Iterator[str]:
        """The lines of ``read_rows``."""
        yield "def read_rows(data, position, end):"
        yield "    rows = []"
        yield "    append = rows.append"
        yield "    while position < end:"
        yield from _indent(self._row(), 2)
        yield "    if position != end:"
        yield "        raise overrun(position, end)"
        yield "    return rows"

    def _row(self) -> Iterator[str]:
        for image in self._images:
            if image.diff_count is not None:
                yield from _diff_bits(image.diff_count)
            if image.values:
                yield from self._image(image.values)
        yield f"append({_row_text([image.items for image in self._images])})"

    def _image(self, values: Sequence[Value]) -> Iterator[str]:
        size = _bitmap_size(values)
        yield f"nulls = from_bytes(data[position:position + {size}], 'little')"
        yield f"position += {size}"
        for value in values:
            yield from self._one(value)

    def _one(self, value: Value) -> Iterator[str]:
        """A value that can be NULL."""
        if value.is_wanted:
            yield f"if nulls & {value.bit}:"
            yield f"    {value.name} = None"
            yield "else:"
        else:
            yield f"if not nulls & {value.bit}:"
        yield from _indent(self._together(_Run(), [value]))

    def _together(self, run: _Run, values: Sequence[Value], checks: Sequence[str] = ()) -> Iterator[str]:
        """Neighbours that are not NULL, behind what ``run`` has; only the last may be of variable size.

        ``checks`` are lines that come before anything is made of what was unpacked.
        """
        for value in values:
            if value.cell.length_bytes:
                yield from self._variable(run, value, checks)
                return
            self._add(run, value)
        yield from self._unpack(run, checks)
        yield f"position += {run.size}"

    def _add(self, run: _Run, value: Value) -> None:
        """Add one value of fixed size."""
        cell, name = value.cell, value.name
        if value.is_wanted and cell.code:
            if cell.expression != "{v}":
                run.after.append(f"{name} = {self._expression(cell, v=name)}")
            run.add(cell.code, cell.size, name)
            return
        if value.is_wanted:
            position = f"position + {run.size}" if run.size else "position"
            run.after.append(f"{name} = {self._expression(cell, p=position)}")
        run.add_gap(cell.size)

    def _variable(self, run: _Run, value: Value, checks: Sequence[str]) -> Iterator[str]:
        """Read the run, the length behind it, and the value of that length."""
        if run.size or value.cell.length_bytes > 1:
            length = "n"
            checks = (*run.add_integer(value.cell.length_bytes, length), *checks)
        else:
            length = "data[position]"
            run.size = 1
        yield from self._unpack(run, checks)
        if value.is_wanted:
            yield f"start = position + {run.size}"
            yield f"position = start + {length}"
            yield f"{value.name} = {self._variable_value(value)}"
        else:
            yield f"position += {run.size} + {length}"

    def _variable_value(self, value: Value) -> str:
        text = self._expression(value.cell, v="data[start:position]")
        if value.diff:
            return f"apply_diff({value.before}, data[start:position]) if diffs & {value.diff} else {text}"
        return text

    def _unpack(self, run: _Run, checks: Sequence[str]) -> Iterator[str]:
        if run.codes == ["B"]:
            yield f"{run.targets[0]} = data[position]"
        elif run.targets:
            codes = "<" + "".join(run.codes)
            unpack = self._bind(codes, "unpack", struct.Struct(codes).unpack_from)
            yield f"{_names(run.targets)} = {unpack}(data, position)"
        yield from checks
        yield from run.after

    def _expression(self, cell: Cell, **words: str) -> str:
        function = "" if cell.function is None else self._bind(cell.function, "convert", cell.function)
        return self._template(cell).format(f=function, **words)

    def _template(self, cell: Cell) -> str:
        return cell.expression

    def _bind(self, key: object, stem: str, value: object) -> str:
        """A name for ``value`` in the function's globals; the same one for the same key."""
        name = self._bound.get(key)
        if name is None:
            name = self._bound[key] = f"{stem}_{len(self._bound)}"
            self.namespace[name] = value
        return name


class TrustingWriter(CarefulWriter):
    """Writes a reader that takes columns that are NOT NULL, and text, to be what they should be.

    Where they are not it calls ``careful()``, the careful reader, which begins anew.
    """

    def function(self) -> Iterator[str]:
        """The lines of ``read_rows``."""
        yield "def read_rows(data, position, end):"
        yield from _indent(self._rows_of_one_size())
        yield "    begin = position"
        yield "    rows = []"
        yield "    append = rows.append"
        yield "    try:"
        yield "        while position < end:"
        yield from _indent(self._row(), 3)
        yield "    except DOUBTS:"
        yield "        position = -1"
        yield "    if position != end:"
        yield "        return careful()(data, begin, end)"
        yield "    return rows"

    def _rows_of_one_size(self) -> Iterator[str]:
        """Rows of numbers in which nothing is NULL are of one size, and are read all at once, in half the time.

        It takes the zeros of all their NULL bitmaps to know that.
        """
        if not all(map(_are_numbers, self._images)):
            return
        run = _Run()
        zeros: list[tuple[int, bytes]] = []
        for image in self._images:
            zeros += _zero_bytes(image.values, run.size)
            run.add_gap(_bitmap_size(image.values))
            for value in image.values:
                self._add(run, value)
        if len(zeros) > _FEW_BITMAP_BYTES or not run.targets:
            return
        tests = [f"end - position > {_FEW_ROWS * run.size}", f"not (end - position) % {run.size}"]
        for offset, clear in zeros:
            start = f"position + {offset}" if offset else "position"
            tests.append(f"not data[{start}:end:{run.size}].strip({self._bind(clear, 'clear', clear)})")
        yield f"if {' and '.join(tests)}:"
        codes = "<" + "".join(run.codes)
        unpack = self._bind((codes, "all"), "unpack_all", struct.Struct(codes).iter_unpack)
        yield f"    return {self._all_rows(run.targets, f'{unpack}(data[position:end])')}"

    def _all_rows(self, targets: Sequence[str], unpacked: str) -> str:
        values = {
            value.name: self._expression(value.cell, v=value.name)
            for image in self._images
            for value in image.values
            if value.is_wanted
        }
        rows = [[values.get(item, item) for item in image.items] for image in self._images]
        if rows == [targets]:
            return f"list({unpacked})"
        return f"[{_row_text(rows)} for {_names(targets)} in {unpacked}]"

    def _image(self, values: Sequence[Value]) -> Iterator[str]:
        first, *others = _segments(values)
        size = _bitmap_size(values)
        required = sum(value.bit for value in values if value.is_required)
        run = _Run()
        checks = run.add_integer(size, "nulls")
        if required:
            checks += [f"if nulls & {required}:", "    raise Doubt"]
        # A bitmap of one byte is read in 10 ns, others in 50 and more: they come with the first values.
        leading = list(takewhile(lambda value: value.is_required, first))
        if size == 1 and len(leading) < len(first):
            leading = []
        yield from self._together(run, leading, checks)
        for segment in (first[len(leading) :], *others):
            yield from self._segment(segment)

    def _segment(self, values: Sequence[Value]) -> Iterator[str]:
        """Neighbours, read together, or in smaller parts where one of them is NULL."""
        nullable = sum(value.bit for value in values if not value.is_required)
        if not nullable:
            if values:
                yield from self._together(_Run(), values)
        elif len(values) == 1:
            yield from self._one(values[0])
        else:
            yield f"if not nulls & {nullable}:"
            yield from _indent(self._together(_Run(), values))
            yield "else:"
            for part in _parts(values):
                yield from _indent(self._segment(part))

    def _template(self, cell: Cell) -> str:
        return cell.quick or cell.expression


def _bitmap_size(values: Sequence[Value]) -> int:
    return (len(values) + 7) >> 3


def _segments(values: Sequence[Value]) -> Iterator[list[Value]]:
    """Neighbours whose places are known beforehand: values of fixed size, and one of variable size behind them."""
    segment: list[Value] = []
    for value in values:
        segment.append(value)
        if value.cell.length_bytes:
            yield segment
            segment = []
    if segment:
        yield segment


def _parts(values: Sequence[Value]) -> Iterator[list[Value]]:
    """Neighbours that are NOT NULL, and of the others a few each, or one where there are only a few."""
    count = _NEIGHBOURS if len(values) > _NEIGHBOURS else 1
    for is_required, group in groupby(values, lambda value: value.is_required):
        part = list(group)
        if is_required:
            yield part
        else:
            yield from (part[first : first + count] for first in range(0, len(part), count))


def _are_numbers(image: ImageValues) -> bool:
    return image.diff_count is None and all(
        value.cell.code if value.is_wanted else value.cell.size for value in image.values
    )


def _zero_bytes(values: Sequence[Value], offset: int) -> Iterator[tuple[int, bytes]]:
    """Offset and possible values of each byte of a NULL bitmap at ``offset`` in which nothing is NULL.

    Bits beyond the last column are set by 5.6 and clear in 8.0.
    """
    for byte in range(_bitmap_size(values)):
        yield offset + byte, bytes((0, 0xFF << len(values) - 8 * byte & 0xFF))


def _diff_bits(count: int) -> Iterator[str]:
    """Value options, then one bit per JSON column if they say so (log_event.cc: print_verbose_one_row)."""
    size = (count + 7) >> 3
    yield "options = data[position]"
    yield "position += 1"
    yield "diffs = 0"
    yield "if options & 1:"
    yield f"    diffs = from_bytes(data[position:position + {size}], 'little')"
    yield f"    position += {size}"


def _row_text(images: Sequence[Sequence[str]]) -> str:
    """A row: one tuple, or two in one."""
    tuples = [_tuple_text(items) for items in images]
    return tuples[0] if len(tuples) == 1 else f"({', '.join(tuples)})"


def _tuple_text(items: Sequence[str]) -> str:
    if len(items) == 1:
        return f"({items[0]},)"
    count = -(-len(items) // _TUPLE_ITEMS) or 1
    bounds = [len(items) * part // count for part in range(count + 1)]
    return " + ".join(f"({', '.join(items[first:last])})" for first, last in pairwise(bounds))


def _names(targets: Sequence[str]) -> str:
    return ", ".join(targets) if len(targets) > 1 else f"({targets[0]},)"


def _indent(lines: Iterable[str], levels: int = 1) -> Iterator[str]:
    indentation = "    " * levels
    for line in lines:
        yield indentation + line
