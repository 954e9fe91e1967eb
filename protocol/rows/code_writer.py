"""Writes the source code of row readers from cells: the lines of a function, and the objects that it refers to.

``compiler`` describes the functions and compiles them. A table has two: the function of ``TrustingWriter`` reads rows
as servers write them, as fast as Python can; the function of ``CarefulWriter`` reads value by value, for all other
rows. Their text holds only integers and identifiers made here, never a name from the log.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Context, getcontext, setcontext
from itertools import groupby, pairwise, takewhile
from typing import Any, Final

from ..records import record
from ..values.inline import Inline
from .cells import Cell
from .column import ABSENT
from .null_patterns import NullPatterns
from .runs import Run, Unpacking

# Number of adjacent columns tested for NULL together, if one of a longer run is NULL. With 8, tables of many numbers
# take 10 % longer at one NULL in ten.
_NEIGHBOURS: Final = 4
# CPython makes a longer tuple from a list, which takes 660 ns for 100 items; a sum of shorter tuples takes 520.
_TUPLE_ITEMS: Final = 30
# The test whether all rows have one size takes 150 ns, so it is only made for more than 3 rows, and for rows with at
# most 8 bytes of NULL bitmaps.
_FEW_ROWS: Final = 3
_FEW_BITMAP_BYTES: Final = 8


class _Doubt(Exception):
    """A NOT NULL column is NULL."""


# Errors of the trusting reader after which the careful reader either succeeds or raises a better error.
_DOUBTS: Final = (_Doubt, IndexError, struct.error, UnicodeDecodeError)


@record(frozen=True, slots=True)
class Value:
    """One value of an image: ``name`` is its variable, ``bit`` its bit in the NULL bitmap.

    ``diff`` is 0, or the bit that marks the value as a diff to ``before``.
    """

    cell: Cell
    name: str
    bit: int
    is_wanted: bool
    is_required: bool
    diff: int = 0
    before: str = "ABSENT"


@record(frozen=True, slots=True)
class ImageValues:
    """One image: its values in order, the items of its row tuple, and the number of columns that can be diffs.

    ``diff_count`` is None if no column can. ``patterns`` counts its NULL patterns (None: they are not
    counted). Variables of the image end in ``name``.
    """

    name: str
    values: Sequence[Value]
    items: Sequence[str]
    diff_count: int | None = None
    patterns: NullPatterns | None = None

    @property
    def has_rare_rows(self) -> bool:
        """Whether nearly all rows have frequent patterns of NULL bits."""
        return self.patterns is not None and self.patterns.others_are_rare


class CarefulWriter:
    """Writes a reader that tests every value for NULL.

    ``names`` holds further objects that the text names: ``overrun`` makes the error for a wrong end, ``apply_diff``
    applies a partial JSON update.
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
                yield from self._image(image)
        yield f"append({_row_text([image.items for image in self._images])})"

    def _image(self, image: ImageValues) -> Iterator[str]:
        size = _bitmap_size(image.values)
        yield f"nulls = from_bytes(data[position:position + {size}], 'little')"
        yield f"position += {size}"
        for value in image.values:
            yield from self._one(value)

    def _one(self, value: Value) -> Iterator[str]:
        """Read a value that can be NULL."""
        if value.is_wanted:
            yield f"if nulls & {value.bit}:"
            yield f"    {value.name} = None"
            yield "else:"
        else:
            yield f"if not nulls & {value.bit}:"
        yield from _indent(self._together(Run(), [value]))

    def _together(self, run: Run, values: Sequence[Value], checks: Sequence[str] = ()) -> Iterator[str]:
        """Read adjacent values that are not NULL, after the bytes of ``run``; only the last may have variable size.

        ``checks`` are lines between the unpacking and the use of the unpacked numbers.
        """
        for value in values:
            if value.cell.length_bytes:
                yield from self._variable(run, value, checks)
                return
            self._add(run, value)
        yield from self._unpack(run, checks)
        yield f"position += {run.size}"

    def _add(self, run: Run, value: Value) -> None:
        """Add one value of fixed size."""
        cell, name = value.cell, value.name
        if not value.is_wanted:
            run.add_gap(cell.size)
        elif cell.code:
            if cell.expression != "{v}":
                run.after.append(f"{name} = {self._expression(cell, v=name)}")
            run.add(cell.code, cell.size, name)
        else:
            run.after.append(f"{name} = {self._expression(cell, p=_position(run.size))}")
            run.add_gap(cell.size)

    def _variable(self, run: Run, value: Value, checks: Sequence[str]) -> Iterator[str]:
        """Read the run, the length after it, and the value of that length."""
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
            yield f"{value.name} = {self._variable_value(value, length)}"
        else:
            yield f"position += {run.size} + {length}"

    def _variable_value(self, value: Value, length: str) -> str:
        size = length if length == "n" else "position - start"
        text = self._expression(value.cell, v="data[start:position]", n=size, s="start", e="position")
        if value.diff:
            return f"apply_diff({value.before}, data[start:position]) if diffs & {value.diff} else {text}"
        return text

    def _unpack(self, run: Run, checks: Sequence[str]) -> Iterator[str]:
        for part in run.unpackings():
            position = _position(part.offset)
            if part.format[1:] == "B":
                yield f"{part.targets[0]} = data[{position}]"
            else:
                unpack = self._bind(struct.Struct(part.format).unpack_from, "unpack", part.format)
                yield f"{_names(part.targets)} = {unpack}(data, {position})"
        yield from checks
        yield from run.after

    def _expression(self, cell: Cell, **words: str) -> str:
        return cell.expression.format(f=self._bind(cell.function, "convert"), **words)

    def _bind(self, value: object, stem: str, key: object = None) -> str:
        """A name for ``value`` in the function's globals; equal keys, or the same object, give the same name."""
        if value is None:
            return ""
        key = key or id(value)
        name = self._bound.get(key)
        if name is None:
            name = self._bound[key] = f"{stem}_{len(self._bound)}"
            self.namespace[name] = value
        return name


class CarefulRowWriter(CarefulWriter):
    """Writes a reader of one row, which appends the row and returns the position behind it."""

    def function(self) -> Iterator[str]:
        """The lines of ``read_rows``."""
        yield "def read_rows(data, position, append):"
        yield from _indent(self._row())
        yield "    return position"


class TrustingWriter(CarefulWriter):
    """Writes a reader that expects valid text, and values in all NOT NULL columns.

    If that is wrong, it calls ``careful()``, the careful reader, which reads the rows again from the first.
    """

    def __init__(self, images: Sequence[ImageValues], names: Mapping[str, object]) -> None:
        super().__init__(images, names)
        self.namespace |= {f"saw_{image.name}": image.patterns.saw for image in images if image.patterns}
        # Variables kept from row to row; the context that Decimal's operators need, and the digits it needs.
        self._kept: list[str] = []
        self._context: Context | None = None
        self._digits = 0

    def function(self) -> Iterator[str]:
        """The lines of ``read_rows``."""
        watched = [
            image for image in self._images if image.patterns is not None and image.patterns.is_watching
        ]
        # Lines for the few rows that ``careful_row`` reads would take as long to compile as 300 rows to read.
        start = ["row = position"] if any(image.has_rare_rows for image in self._images) else []
        body = [*self._rows_of_one_size(), "while position < end:", *_indent([*start, *self._row()])]
        yield "def read_rows(data, position, end):"
        yield "    begin = position"
        yield "    rows = []"
        yield "    append = rows.append"
        unset = [*(f"odd_{image.name}" for image in watched), *dict.fromkeys(self._kept)]
        if unset:
            yield f"    {' = '.join(unset)} = None"
        if self._context:
            self.namespace |= {"getcontext": getcontext, "setcontext": setcontext, "context": self._context}
            # A change of the context takes 200 ns, so it is only changed if it is too narrow.
            yield "    outer = getcontext()"
            digits = self._digits
            yield f"    is_narrow = outer.prec < {digits} or outer.Etop() < 0 or outer.Emin > -{digits}"
            yield "    if is_narrow:"
            yield "        setcontext(context)"
        yield "    try:"
        yield from _indent(body, 2)
        yield "    except DOUBTS:"
        yield "        position = -1"
        if self._context:
            yield "    finally:"
            yield "        if is_narrow:"
            yield "            setcontext(outer)"
        yield "    if position != end:"
        yield "        return careful()(data, begin, end)"
        for image in watched:
            yield f"    if odd_{image.name} is not None:"
            yield f"        saw_{image.name}(odd_{image.name})"
        yield "    return rows"

    def _rows_of_one_size(self) -> Iterator[str]:
        """Read all rows at once if they have one size: no values of variable size, and no NULL.

        The NULL bitmaps of all rows have to be zero. Rows of numbers only take a third of the time.
        """
        values = [value for image in self._images for value in image.values]
        has_diffs = any(image.diff_count is not None for image in self._images)
        if has_diffs or any(value.cell.length_bytes for value in values):
            return
        run = Run()
        zeros: list[tuple[int, bytes]] = []
        for image in self._images:
            zeros += _zero_bytes(image.values, run.size)
            run.add_gap(_bitmap_size(image.values))
            for value in image.values:
                self._add(run, value)
        parts = list(run.whole_unpackings())
        if len(zeros) > _FEW_BITMAP_BYTES or not parts:
            return
        tests = [f"end - position > {_FEW_ROWS * run.size}", f"not (end - position) % {run.size}"]
        for offset, clear in zeros:
            name = self._bind(clear, "clear", clear)
            tests.append(f"not data[{_position(offset)}:end:{run.size}].strip({name})")
        yield f"if {' and '.join(tests)}:"
        yield from _indent(self._all_rows(run, parts))

    def _all_rows(self, run: Run, parts: Sequence[Unpacking]) -> Iterator[str]:
        rows = [image.items for image in self._images]
        targets = [_names(part.targets) for part in parts]
        numbers = []
        for part in parts:
            unpack = self._bind(struct.Struct(part.format).iter_unpack, "unpack_all", (part.format,))
            numbers.append(f"{unpack}(data[position:end])")
        if rows == [part.targets for part in parts] and not run.after:
            yield f"return list({numbers[0]})"
            return
        if any("position" in line for line in run.after):
            targets.insert(0, "position")
            numbers.insert(0, f"range(position, end, {run.size})")
        if len(numbers) == 1:
            yield f"for {targets[0]} in {numbers[0]}:"
        else:
            yield f"for {', '.join(f'({target})' for target in targets)} in zip({', '.join(numbers)}):"
        yield from _indent(run.after)
        yield f"    append({_row_text(rows)})"
        yield "return rows"

    def _image(self, image: ImageValues) -> Iterator[str]:
        values = image.values
        size = _bitmap_size(values)
        required = sum(value.bit for value in values if value.is_required)
        run = Run()
        checks = run.add_integer(size, "nulls")
        if required:
            checks += [f"if nulls & {required}:", "    raise Doubt"]
        # A bitmap of one byte is read in 10 ns. Longer ones take 50 ns and more: the first values are read with them.
        first = next(_segments(values))
        leading = list(takewhile(lambda value: value.is_required, first))
        if size == 1 and len(leading) < len(first):
            leading = []
        yield from self._together(run, leading, checks)
        yield from self._by_pattern(image, values[len(leading) :])

    def _by_pattern(self, image: ImageValues, values: Sequence[Value]) -> Iterator[str]:
        """Read the values after the NULL bits, with code of its own for each frequent pattern of NULL bits."""
        patterns = image.patterns
        if image.has_rare_rows:
            others = ["position = careful_row()(data, row, append)", "continue"]
        else:
            others = [line for segment in _segments(values) for line in self._segment(segment)]
        if patterns is not None and patterns.is_watching:
            others.insert(0, f"odd_{image.name} = nulls")
        frequent = patterns.frequent if patterns is not None else []
        for pattern in frequent:
            yield f"{'if' if pattern == frequent[0] else 'elif'} nulls == {pattern}:"
            yield from _indent(self._with_nulls(values, pattern))
        if frequent:
            yield "else:"
        yield from _indent(others, 1 if frequent else 0)

    def _with_nulls(self, values: Sequence[Value], pattern: int) -> Iterator[str]:
        """Read values of which exactly those in the pattern are NULL."""
        absent = [value.name for value in values if value.bit & pattern and value.is_wanted]
        yield f"{' = '.join(absent)} = None" if absent else "pass"
        for segment in _segments([value for value in values if not value.bit & pattern]):
            yield from self._together(Run(), segment)

    def _segment(self, values: Sequence[Value]) -> Iterator[str]:
        """Read adjacent values together, or in smaller parts if one of them is NULL."""
        nullable = sum(value.bit for value in values if not value.is_required)
        if not nullable:
            yield from self._together(Run(), values)
        elif len(values) == 1:
            yield from self._one(values[0])
        elif all(map(_is_gap, values)):
            yield f"position += {_sizes(values)}"
        else:
            yield f"if not nulls & {nullable}:"
            yield from _indent(self._together(Run(), values))
            yield "else:"
            for part in _parts(values):
                yield from _indent(self._segment(part))

    def _add(self, run: Run, value: Value) -> None:
        inline = value.cell.inline
        if inline is None or not value.is_wanted or not self._has_context(inline):
            super()._add(run, value)
            return
        numbers = [value.name, *(f"{value.name}_{number}" for number in range(1, len(inline.code)))]
        kept = [f"{value.name}_k{number}" for number in range(inline.kept)]
        constants = [self._bind(constant, "constant") for constant in inline.constants]
        self._kept += kept
        if inline.expression != "{v}":
            words = {f"v{number}": name for number, name in enumerate(numbers)}
            words |= {f"k{number}": name for number, name in enumerate(kept)}
            words |= {f"c{number}": name for number, name in enumerate(constants)}
            words |= {
                "v": value.name,
                "f": self._bind(value.cell.function, "convert"),
                "p": _position(run.size),
            }
            run.after.append(f"{value.name} = {inline.expression.format(**words)}")
        run.add(inline.code, value.cell.size, *numbers, is_big_endian=inline.is_big_endian)

    def _has_context(self, inline: Inline) -> bool:
        """Whether the function uses, or can still choose, the Decimal context of the expression."""
        if inline.context is None:
            return True
        self._context = self._context or inline.context
        self._digits = max(self._digits, inline.digits)
        return self._context is inline.context

    def _expression(self, cell: Cell, **words: str) -> str:
        return (cell.quick or cell.expression).format(f=self._bind(cell.function, "convert"), **words)


def _position(offset: int) -> str:
    return f"position + {offset}" if offset else "position"


def _bitmap_size(values: Sequence[Value]) -> int:
    return (len(values) + 7) >> 3


def _segments(values: Sequence[Value]) -> Iterator[list[Value]]:
    """Adjacent values at known offsets: values of fixed size, and at the end at most one of variable size."""
    segment: list[Value] = []
    for value in values:
        segment.append(value)
        if value.cell.length_bytes:
            yield segment
            segment = []
    if segment:
        yield segment


def _parts(values: Sequence[Value]) -> Iterator[list[Value]]:
    """Split into gaps, adjacent NOT NULL values, and small groups (or single ones) of nullable values."""
    count = _NEIGHBOURS if len(values) > _NEIGHBOURS else 1
    for kind, group in groupby(values, _kind):
        part = list(group)
        if kind == "nullable":
            yield from (part[first : first + count] for first in range(0, len(part), count))
        else:
            yield part


def _kind(value: Value) -> str:
    return "gap" if _is_gap(value) else "required" if value.is_required else "nullable"


def _is_gap(value: Value) -> bool:
    """Whether the value is skipped: it is not wanted, and its size is fixed."""
    return not value.is_wanted and not value.cell.length_bytes


def _sizes(gaps: Sequence[Value]) -> str:
    """An expression for the bytes that gaps take, without those that are NULL."""
    nullable: dict[int, int] = {}
    for gap in gaps:
        if not gap.is_required:
            nullable[gap.cell.size] = nullable.get(gap.cell.size, 0) | gap.bit
    absent = (f" - {size} * (nulls & {bits}).bit_count()" for size, bits in nullable.items())
    return f"{sum(gap.cell.size for gap in gaps)}{''.join(absent)}"


def _zero_bytes(values: Sequence[Value], offset: int) -> Iterator[tuple[int, bytes]]:
    """Offset and allowed values of each byte of a NULL bitmap at ``offset`` without any NULL.

    MySQL 5.6 sets the bits after the last column, 8.0 clears them.
    """
    for byte in range(_bitmap_size(values)):
        yield offset + byte, bytes((0, 0xFF << len(values) - 8 * byte & 0xFF))


def _diff_bits(count: int) -> Iterator[str]:
    """Read the value options and, if they say so, a bit per JSON column (log_event.cc: print_verbose_one_row)."""
    size = (count + 7) >> 3
    yield "options = data[position]"
    yield "position += 1"
    yield "diffs = 0"
    yield "if options & 1:"
    yield f"    diffs = from_bytes(data[position:position + {size}], 'little')"
    yield f"    position += {size}"


def _row_text(images: Sequence[Sequence[str]]) -> str:
    """The text of a row: a tuple, or a pair of tuples."""
    tuples = [_tuple_text(items) for items in images]
    return tuples[0] if len(tuples) == 1 else f"({', '.join(tuples)})"


def _tuple_text(items: Sequence[str]) -> str:
    if len(items) == 1:
        return f"({items[0]},)"
    count = -(-len(items) // _TUPLE_ITEMS) or 1
    bounds = [len(items) * part // count for part in range(count + 1)]
    parts = [f"({', '.join(items[first:last])})" for first, last in pairwise(bounds)]
    while len(parts) > 1:
        # In pairs: another order makes tuples between, of more than 59 items, for which CPython calls malloc().
        parts = [f"({' + '.join(parts[number : number + 2])})" for number in range(0, len(parts), 2)]
    return parts[0]


def _names(targets: Sequence[str]) -> str:
    return ", ".join(targets) if len(targets) > 1 else f"({targets[0]},)"


def _indent(lines: Iterable[str], levels: int = 1) -> Iterator[str]:
    indentation = "    " * levels
    for line in lines:
        yield indentation + line
