"""Compiles one function per shape of a result set, from cells, that reads rows of the binary protocol into tuples.

A row is a bitmap of NULLs, whose first two bits are unused, and the values that are not NULL, in the order of the
SELECT list. ``select_order`` gives the best one: columns of fixed size that cannot be NULL first, so that one unpack
reads the bitmap and all of them. The function for INT NOT NULL, DOUBLE and VARCHAR in utf8mb4 is

    def read_rows(payloads):
        rows = []
        append = rows.append
        try:
            for data in payloads:
                nulls, a0 = unpack_0(data)
                if not nulls:
                    (a1,) = unpack_1(data, 5)
                    position = 13
                    start = position + 1
                    length = data[position]
                    if length <= 250:
                        position = start + length
                    else:
                        start, position = long_length(data, position)
                    a2 = data[start:position].decode()
                else:
                    position = 5
                    ... value by value
                if position != len(data):
                    raise Doubt
                append((a0, a1, a2))
        except DOUBTS:
            return careful()(payloads)
        return rows

``careful()`` reads text that is not valid in its character set, and raises the right error. As in ``compiler``,
generated text holds only integers and identifiers made here.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import groupby, takewhile
from types import CodeType
from typing import Any, Final

from ..errors import DecodeError, ProtocolError
from ..records import record
from .cells import Cell
from .column import ABSENT
from .generated_source import compiled, run
from .result_cells import SHORT, UsualForm

Row = tuple[Any, ...]
ResultReader = Callable[[Sequence[bytes]], list[Row]]
RowWalker = Callable[[list[Row], bytes, int, int, int, int], tuple[int, int, int]]

_KIND: Final = "result reader"
#: The bits of a bitmap before the first column's.
UNUSED_BITS: Final = 2
_BITMAP_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
# Lengths up to this take one byte; the next values announce lengths of 2, 3 and 8 bytes.
_LAST_SHORT_LENGTH: Final = 250
_LENGTH_SIZES: Final = {252: 2, 253: 3, 254: 8}
# To cut a row's values of variable size out takes as long as their integers save.
_FEWEST_CUT: Final = 3
_CODES_KEPT: Final = 64
# The largest length of a frame that two bytes can hold.
_LARGEST_WALKED: Final = 0xFFFF


class _Doubt(Exception):
    """A row does not end where its packet ends."""


# ValueError: text that is not valid, and partial dates. StopIteration and RecursionError: JSON that is no document.
_DOUBTS: Final = (_Doubt, IndexError, struct.error, ValueError, StopIteration, RecursionError)
#: What reading a damaged row may raise.
ROW_DAMAGE: Final = (_Doubt, IndexError, KeyError, struct.error, ValueError, OverflowError, ArithmeticError)


@record(slots=True, frozen=True)
class ResultColumn:
    """One selected column: how its value is read, and whether it can be NULL."""

    cell: Cell
    is_nullable: bool
    usual: UsualForm | None = None


def select_order(columns: Sequence[ResultColumn]) -> list[int]:
    """The indexes of the columns in the order in which they are read fastest."""
    return sorted(range(len(columns)), key=lambda index: _rank(columns[index]))


def _rank(column: ResultColumn) -> int:
    if column.cell.length_bytes and column.usual is None:
        return 4
    return 2 * column.is_nullable + (column.usual is not None)


def long_length(data: bytes, position: int) -> tuple[int, int]:
    """The end of a length of several bytes at ``position``, and the end of the value after it."""
    start = position + 1 + _LENGTH_SIZES[data[position]]
    return start, start + int.from_bytes(data[position + 1 : start], "little")


def compile_result_reader(columns: Sequence[ResultColumn], items: Sequence[int | None]) -> ResultReader:
    """A function of rows without their first byte (0) -> tuples.

    ``columns`` are in the order of the SELECT list; ``items`` are the items of a tuple: the index of a column, or
    None for ABSENT. The function raises one of ``ROW_DAMAGE``, ``DecodeError`` or ``ProtocolError`` for a
    row that no server sends.
    """
    careful = cache(lambda: _compile(_CarefulWriter(columns, items)))
    return _compile(_TrustingWriter(columns, items), careful=careful)


def _compile(writer: "_CarefulWriter", **names: object) -> ResultReader:
    return _made(writer, "read_rows", **names)  # type: ignore[no-any-return]


def _made(writer: "_CarefulWriter", function: str, **names: object) -> Any:
    source = "\n".join(writer.function())
    namespace = writer.namespace | names
    run(source, _KIND, namespace, _code(source))  # the text holds no word from the server
    return namespace[function]


@lru_cache(_CODES_KEPT)
def _code(source: str) -> CodeType:
    """Compiled text, cached: many of thousands of tables are alike, and to compile takes as long as 500 rows."""
    return compiled(source, _KIND)


def _overrun(position: int, size: int) -> ProtocolError:
    return ProtocolError(f"the values of a row end at byte {position} of {size}")


def compile_row_walker(columns: Sequence[ResultColumn], items: Sequence[int | None]) -> RowWalker:
    """A function that reads rows out of the frames in which they come, as ``FrameStream.read_walked`` needs it.

    It reads what ``compile_result_reader`` expects, 150 ns a row faster than from a payload of its own, and stops in
    front of any other row, and of a frame that is not a row or not there as a whole.
    """
    return _made(_WalkingWriter(columns, items), "walk_rows")  # type: ignore[no-any-return]


class _CarefulWriter:
    """Writes a reader that tests every value for NULL."""

    def __init__(self, columns: Sequence[ResultColumn], items: Sequence[int | None]) -> None:
        self.namespace: dict[str, Any] = {
            "from_bytes": int.from_bytes,
            "long_length": long_length,
            "overrun": _overrun,
            "ABSENT": ABSENT,
            "Doubt": _Doubt,
            "DOUBTS": _DOUBTS,
        }
        self._columns = columns
        self._row = "".join("ABSENT, " if item is None else f"a{item}, " for item in items)
        self._bitmap_size = (len(columns) + UNUSED_BITS + 7) >> 3
        # The bit of the first column in `nulls`.
        self._first_bit = UNUSED_BITS
        # The name of the bytes that `position` counts in.
        self._data = "data"

    def function(self) -> Iterator[str]:
        """The lines of ``read_rows``."""
        yield "def read_rows(payloads):"
        yield "    rows = []"
        yield "    append = rows.append"
        yield "    for data in payloads:"
        yield f"        nulls = from_bytes(data[:{self._bitmap_size}], 'little')"
        yield f"        position = {self._bitmap_size}"
        yield from _indent(self._one_by_one(range(len(self._columns)), are_required_tested=True), 2)
        yield "        if position != len(data):"
        yield "            raise overrun(position, len(data))"
        yield f"        append(({self._row}))"
        yield "    return rows"

    def _one_by_one(self, indexes: Iterable[int], *, are_required_tested: bool) -> Iterator[str]:
        """Read values of which any may be NULL."""
        for index in indexes:
            yield from self._before(index)
            lines = self._fixed([index]) if self._is_fixed(index) else self._variable(index)
            if are_required_tested or self._columns[index].is_nullable:
                yield f"if nulls & {1 << index + self._first_bit}:"
                yield f"    a{index} = None"
                yield "else:"
                yield from _indent(lines)
            else:
                yield from lines

    def _before(self, index: int) -> Iterator[str]:
        """The code before a value is read, whether it is NULL or not."""
        yield from ()

    def _is_fixed(self, index: int) -> bool:
        return not self._columns[index].cell.length_bytes

    def _fixed(self, indexes: Sequence[int]) -> Iterator[str]:
        """Read adjacent values of fixed size at ``position``."""
        code = "".join(self._columns[index].cell.code for index in indexes)
        targets = "".join(f"a{index}, " for index in indexes)
        yield f"{targets}= {self._unpack(code)}({self._data}, position)"
        yield f"position += {struct.calcsize('<' + code)}"
        yield from self._conversions(indexes)

    def _conversions(self, indexes: Sequence[int]) -> Iterator[str]:
        for index in indexes:
            cell = self._columns[index].cell
            if cell.expression != "{v}":
                yield f"a{index} = {self._expression(index, v=f'a{index}')}"

    def _variable(self, index: int) -> Iterator[str]:
        """Read a value behind its length at ``position``."""
        yield "start = position + 1"
        if self._columns[index].cell.length_bytes == SHORT:
            yield f"position = start + {self._data}[position]"
        else:
            yield f"length = {self._data}[position]"
            yield f"if length <= {_LAST_SHORT_LENGTH}:"
            yield "    position = start + length"
            yield "else:"
            yield f"    start, position = long_length({self._data}, position)"
        yield f"a{index} = {self._expression(index, v=f'{self._data}[start:position]')}"

    def _expression(self, index: int, v: str) -> str:
        cell = self._columns[index].cell
        function = self._bind(f"convert_{index}", cell.function)
        return self._template(cell).format(v=v, f=function, d=self._data, e="position")

    def _template(self, cell: Cell) -> str:
        return cell.expression

    def _unpack(self, code: str) -> str:
        name = f"unpack_{code}"
        self.namespace[name] = struct.Struct("<" + code).unpack_from
        return name

    def _bind(self, name: str, value: object) -> str:
        self.namespace[name] = value
        return name


class _TrustingWriter(_CarefulWriter):
    """Writes a reader that expects valid text, and values in all NOT NULL columns; else it calls the careful one."""

    def function(self) -> Iterator[str]:
        """The lines of ``read_rows``."""
        yield "def read_rows(payloads):"
        yield "    rows = []"
        yield "    append = rows.append"
        yield "    try:"
        yield "        for data in payloads:"
        yield from _indent(self._body(), 3)
        yield "            if position != len(data):"
        yield "                raise Doubt"
        yield f"            append(({self._row}))"
        yield "    except DOUBTS:"
        yield "        return careful()(payloads)"
        yield "    return rows"

    def _body(self) -> Iterator[str]:
        indexes = range(len(self._columns))
        head = list(
            takewhile(lambda index: self._is_fixed(index) and not self._columns[index].is_nullable, indexes)
        )
        lead = list(takewhile(self._is_expected, indexes[len(head) :]))
        rest = indexes[len(head) + len(lead) :]
        refused = self._refused_marks()
        yield from self._head(head, lead)
        if any(self._columns[index].is_nullable for index in rest):
            yield "if not nulls:"
            yield from _indent(self._without_nulls(rest))
            self._data = "data"
            yield "else:"
            yield f"    if nulls & {refused}:"
            yield "        raise Doubt"
            yield from _indent(self._with_nulls(rest))
        else:
            yield "if nulls:"
            yield "    raise Doubt"
            yield from self._without_nulls(rest)

    def _refused_marks(self) -> int:
        """The bits of `nulls` that no row of this table has."""
        required = (index for index, column in enumerate(self._columns) if not column.is_nullable)
        return sum(1 << index + self._first_bit for index in required)

    def _is_expected(self, index: int) -> bool:
        """Whether a value is unpacked together with those before it, as if it had its usual size.

        Not out of payloads: shorter values at the end of one would leave too few bytes to unpack.
        """
        return False

    def _head(self, indexes: Sequence[int], lead: Sequence[int]) -> Iterator[str]:
        """Read the bitmap and the first values; ``lead`` are those that are expected to have their usual size."""
        bitmap = _BITMAP_CODES.get(self._bitmap_size)
        code = "".join(self._columns[index].cell.code for index in indexes)
        targets = "".join(f"a{index}, " for index in indexes)
        if bitmap is None:
            yield f"nulls = from_bytes(data[:{self._bitmap_size}], 'little')"
            code = f"{self._bitmap_size}x{code}" if code else ""
        elif bitmap == "B" and not code:
            yield "nulls = data[0]"
        else:
            targets, code = f"nulls, {targets}", bitmap + code
        if code and targets:
            yield f"{targets}= {self._unpack(code)}(data)"
        size = self._bitmap_size + sum(self._columns[index].cell.size for index in indexes)
        yield f"position = {size}"
        yield from self._conversions(indexes)

    def _without_nulls(self, indexes: Sequence[int]) -> Iterator[str]:
        fixed = list(takewhile(self._is_fixed, indexes))
        expected = list(takewhile(self._has_usual_form, indexes[len(fixed) :]))
        if len(fixed) + len(expected) > 1 and expected:
            yield from self._together(fixed, expected)
            indexes = indexes[len(fixed) + len(expected) :]
        for is_fixed, group in groupby(indexes, self._is_fixed):
            if is_fixed:
                yield from self._fixed(list(group))
            else:
                for index in group:
                    yield from self._before(index)
                    yield from self._variable(index)

    def _with_nulls(self, indexes: Sequence[int]) -> Iterator[str]:
        """Read values of which some are NULL; those of fixed size at the beginning are often there all the same."""
        fixed = list(takewhile(self._is_fixed, indexes))
        if len(fixed) > 1:
            yield f"if not nulls & {sum(1 << index + self._first_bit for index in fixed)}:"
            yield from _indent(self._fixed(fixed))
            yield "else:"
            yield from _indent(self._one_by_one(fixed, are_required_tested=False))
            indexes = indexes[len(fixed) :]
        yield from self._one_by_one(indexes, are_required_tested=False)

    def _has_usual_form(self, index: int) -> bool:
        return False

    def _together(self, fixed: Sequence[int], expected: Sequence[int]) -> Iterator[str]:
        """Read values of fixed size and some that are expected to have their usual size with one unpack."""
        code = "".join(self._columns[index].cell.code for index in fixed)
        targets = "".join(f"a{index}, " for index in fixed)
        usual_targets, usual_code = self._expectations(expected)
        yield f"{targets}{usual_targets}= {self._unpack(code + usual_code)}(data, position)"
        if fixed:
            yield f"position += {struct.calcsize('<' + code)}"
            yield from self._conversions(fixed)
        yield from self._expected(expected)

    def _expectations(self, indexes: Sequence[int]) -> tuple[str, str]:
        """The names and codes of values of their usual size, each behind its length."""
        forms = [(index, self._columns[index].usual) for index in indexes]
        targets = "".join(f"n{index}, {self._usual(index)[0]}, " for index, _ in forms)
        return targets, "".join(f"B{usual.code}" for _, usual in forms if usual is not None)

    def _expected(self, indexes: Sequence[int]) -> Iterator[str]:
        """Make the values that were unpacked, or read them one by one if a length is another than the usual one."""
        forms = [(index, self._columns[index].usual) for index in indexes]
        sizes = [(index, usual.size) for index, usual in forms if usual is not None]
        yield f"if {' and '.join(f'n{index} == {size}' for index, size in sizes)}:"
        for index in indexes:
            yield f"    a{index} = {self._usual(index)[1]}"
        yield f"    position += {sum(1 + size for _, size in sizes)}"
        yield "else:"
        for index in indexes:
            yield from _indent(self._variable(index))

    def _usual(self, index: int) -> tuple[str, str]:
        """The names of the numbers of a value of usual size, and what is made of them."""
        usual = self._columns[index].usual
        assert usual is not None
        count = len(struct.unpack("<" + usual.code, bytes(usual.size)))
        parts = [f"a{index}_{part}" for part in range(count)]
        if usual.values is not None:
            return parts[0], f"{self._bind(f'values_{index}', usual.values)}[{parts[0]}]"
        if usual.function is None:
            return ", ".join(parts), self._expression(index, v=parts[0])
        make = self._bind(f"make_{index}", usual.function)
        more = [self._bind(f"more_{index}_{at}", value) for at, value in enumerate(usual.more)]
        return ", ".join(parts), f"{make}({', '.join([*parts, *more])})"

    def _variable(self, index: int) -> Iterator[str]:
        usual = self._columns[index].usual
        if usual is None or (usual.function is None and usual.values is None):
            yield from super()._variable(index)
            return
        parts, value = self._usual(index)
        yield f"if {self._data}[position] == {usual.size}:"
        yield f"    {parts}, = {self._unpack(usual.code)}({self._data}, position + 1)"
        yield f"    a{index} = {value}"
        yield f"    position += {1 + usual.size}"
        yield "else:"
        yield from _indent(super()._variable(index))

    def _template(self, cell: Cell) -> str:
        return cell.quick or cell.expression


class _WalkingWriter(_TrustingWriter):
    """Writes a reader of rows within their frames: 3 bytes of length, 1 of number, the row's first byte (0).

    Rows of 64 KB and more are left to the reader of payloads: the third byte of their length is read as a part of the
    number, which is then another one than was due. Numbers above 30 bits take Python twice as long as those of a
    header read in this way. For the same reason several values of variable size are read out of bytes of their own:
    Python has the integers up to 256 at hand.
    """

    def __init__(self, columns: Sequence[ResultColumn], items: Sequence[int | None]) -> None:
        super().__init__(columns, items)
        variable = [index for index in range(len(columns)) if not self._has_known_size(index)]
        self._first_cut = variable[0] if len(variable) >= _FEWEST_CUT else None
        # The code that reads the row's first byte and the bitmap as one integer; None without one of that size.
        self._both = _BITMAP_CODES.get(1 + self._bitmap_size)
        if self._both:
            self._first_bit += 8

    def function(self) -> Iterator[str]:
        """The lines of ``walk_rows``."""
        self.namespace["DAMAGE"] = (*_DOUBTS, *ROW_DAMAGE, DecodeError)
        yield "def walk_rows(rows, data, position, limit, sequence, largest):"
        yield "    append = rows.append"
        yield "    size = len(data)"
        yield "    begin = last = position"
        yield "    number = sequence >> 16"
        yield f"    if largest < {_LARGEST_WALKED}:"
        yield "        limit = position"
        yield "    try:"
        yield "        while position < limit:"
        yield from _indent(self._body(), 3)
        yield f"            if position != {'end' if self._first_cut is None else 'len(row)'}:"
        yield "                break"
        yield f"            append(({self._row}))"
        yield "            last = begin"
        yield f"            begin = {'' if self._first_cut is None else 'position = '}end"
        yield "            number = number + 256 & 65280"
        yield "    except DAMAGE:"
        yield "        pass"
        yield "    return begin, number << 16, last"

    def _refused_marks(self) -> int:
        return super()._refused_marks() | (255 if self._both else 0)

    def _before(self, index: int) -> Iterator[str]:
        if index == self._first_cut:
            yield "if position > end:"
            yield "    break"
            yield "row = data[position:end]"
            yield "position = 0"
            self._data = "row"

    def _has_known_size(self, index: int) -> bool:
        return self._is_fixed(index) or self._has_usual_form(index)

    def _is_expected(self, index: int) -> bool:
        return self._has_usual_form(index) and not self._columns[index].is_nullable

    def _has_usual_form(self, index: int) -> bool:
        return self._columns[index].usual is not None

    def _head(self, indexes: Sequence[int], lead: Sequence[int]) -> Iterator[str]:
        """Read the frame's header, the bitmap and the first values."""
        bitmap = _BITMAP_CODES.get(self._bitmap_size)
        code = "".join(self._columns[index].cell.code for index in indexes)
        targets = "".join(f"a{index}, " for index in indexes)
        if self._both:
            marks, marks_code = "nulls", self._both
        elif bitmap:
            marks, marks_code = "mark, nulls", "B" + bitmap
        else:
            marks, marks_code = "mark", f"B{self._bitmap_size}x"
        head = f"HH{marks_code}{code}"
        lead_targets, lead_code = self._expectations(lead)
        yield (
            f"length, found, {marks}, {targets}{lead_targets}= {self._unpack(head + lead_code)}(data, position)"
        )
        yield "end = position + 4 + length"
        yield f"if found != number {'' if self._both else 'or mark '}or end > size:"
        yield "    break"
        if not self._both and not bitmap:
            yield f"nulls = from_bytes(data[position + 5:position + {5 + self._bitmap_size}], 'little')"
        yield f"position += {struct.calcsize('<' + head)}"
        yield from self._conversions(indexes)
        if lead:
            yield from self._expected(lead)


def _indent(lines: Iterable[str], levels: int = 1) -> Iterator[str]:
    return ("    " * levels + line for line in lines)
