"""From cells to one compiled function per table shape: what reads the rows of a rows event.

The work of finding out how a row is laid out is done once, here; what is left per row is straight-line code. The
function for inserts into a table of INT, VARCHAR(10) in utf8mb4 and nullable DOUBLE is

    def read_rows(data, position, end):
        rows = []
        append = rows.append
        while position < end:
            nulls = data[position] & 7
            position += 1
            if not nulls:
                a0, n = unpack_0(data, position)
                start = position + 5
                position = start + n
                a1 = data[start:position].decode('utf-8', 'surrogateescape')
                (a2,) = unpack_1(data, position)
                position += 8
            else:
                if nulls & 1:
                    a0 = None
                else:
                    (a0,) = unpack_2(data, position)
                    position += 4
                if nulls & 2:
                    a1 = None
                else:
                    n = data[position]
                    start = position + 1
                    position = start + n
                    a1 = data[start:position].decode('utf-8', 'surrogateescape')
                if nulls & 4:
                    a2 = None
                else:
                    (a2,) = unpack_1(data, position)
                    position += 8
            append((a0, a1, a2))
        if position != end:
            raise overrun(position, end)
        return rows

Generated text holds only integers and identifiers made here, never a name from the log: a column name with a
newline would run as code. Sources are registered in linecache, so that tracebacks and debuggers show them.
"""

import linecache
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from ..errors import DecodeError, TruncatedError
from .cells import Cell, Function
from .column import ABSENT

# Compiled functions of a stream; each takes some 10 KB.
_READERS_KEPT = 4096

Row = tuple[object, ...]
RowReader = Callable[[bytes, int, int], list[Any]]


@dataclass(frozen=True, slots=True)
class Image:
    """One row image: which columns it holds, and which of those the reader wants.

    ``cells`` are all columns' cells; ``present`` the indexes in the image; ``wanted`` the indexes of the row
    tuple, in its order. In an after image of PARTIAL_UPDATE_ROWS each column of ``diffs`` has a bit that says
    whether its value is a diff, which ``apply_diff(before, diff)`` turns into the value.
    """

    cells: tuple[Cell, ...]
    present: tuple[int, ...]
    wanted: tuple[int, ...]
    diffs: tuple[int, ...] | None = None
    apply_diff: Function | None = None


def overrun(position: int, end: int) -> DecodeError:
    """The error for rows that do not end where their event does."""
    if position > end:
        return TruncatedError(f"the last row needs {position - end} bytes more than its event has")
    return DecodeError(f"{end - position} bytes are left behind the rows")


class RowCompiler:
    """Compiles row readers and keeps them, one per combination of images."""

    def __init__(self) -> None:
        self._readers: dict[tuple[Image, ...], RowReader] = {}

    def reader(self, *images: Image) -> RowReader:
        """A function ``(data, position, end) -> rows`` over ``data[position:end]``.

        With one image a row is a tuple of values, with two it is a ``(before, after)`` pair of them. The function
        raises ``DecodeError`` when the last row does not end at ``end``; on damaged data also ``IndexError``,
        ``struct.error``, ``ValueError`` or ``OverflowError``, which the decoder turns into ``DecodeError``.
        """
        reader = self._readers.get(images)
        if reader is None:
            if len(self._readers) >= _READERS_KEPT:
                self._forget()
            reader = self._readers[images] = _compile(images)
        return reader

    def _forget(self) -> None:
        for reader in self._readers.values():
            linecache.cache.pop(reader.__code__.co_filename, None)
        self._readers.clear()


def _compile(images: Sequence[Image]) -> RowReader:
    if not any(image.present for image in images):
        return _empty_rows(images)
    writer = _Writer()
    source = writer.function(images)
    filename = f"<row reader {crc32(source.encode()):08x}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace = writer.namespace
    exec(compile(source, filename, "exec"), namespace)  # the text is made of our own words only
    reader: RowReader = namespace["read_rows"]
    return reader


def _empty_rows(images: Sequence[Image]) -> RowReader:
    """Rows without any column take no byte: the source logs one such row per event (do_apply_event's loop)."""
    rows = [(ABSENT,) * len(image.wanted) for image in images]
    row = rows[0] if len(rows) == 1 else tuple(rows)

    def read_rows(data: bytes, position: int, end: int) -> list[Any]:
        if position != end:
            raise overrun(position, end)
        return [row]

    return read_rows


@dataclass(slots=True)
class _Run:
    """Neighbouring values that one unpack call reads: numbers, gaps, and the length of what comes behind."""

    codes: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    size: int = 0


class _Writer:
    """Writes the source of one function and gathers the objects that it names."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {"from_bytes": int.from_bytes, "ABSENT": ABSENT, "overrun": overrun}
        self._names: dict[object, str] = {}
        # Columns of the before image, which a diff is applied to.
        self._before: frozenset[int] = frozenset()

    def function(self, images: Sequence[Image]) -> str:
        self._before = frozenset(images[0].present).intersection(images[0].wanted)
        lines = [
            "def read_rows(data, position, end):",
            "    rows = []",
            "    append = rows.append",
            "    while position < end:",
        ]
        results = []
        for image, prefix in zip(images, "ab", strict=False):
            lines += (f"        {line}" for line in self._image(image, prefix))
            results.append(self._row(image, prefix))
        lines += [
            f"        append({results[0] if len(results) == 1 else f'({results[0]}, {results[1]})'})",
            "    if position != end:",
            "        raise overrun(position, end)",
            "    return rows",
            "",
        ]
        return "\n".join(lines)

    def _row(self, image: Image, prefix: str) -> str:
        present = set(image.present)
        values = [f"{prefix}{index}" if index in present else "ABSENT" for index in image.wanted]
        return f"({values[0]},)" if len(values) == 1 else f"({', '.join(values)})"

    def _image(self, image: Image, prefix: str) -> Iterator[str]:
        if image.diffs is not None:
            yield from self._diff_bits(image.diffs)
        count = len(image.present)
        if not count:
            return
        size = (count + 7) >> 3
        # Bits beyond the last column are set by 5.6 and clear in 8.0.
        mask = f" & {(1 << count) - 1}" if count % 8 else ""
        bitmap = "data[position]" if size == 1 else f"from_bytes(data[position:position + {size}], 'little')"
        yield f"nulls = {bitmap}{mask}"
        yield f"position += {size}"
        yield "if not nulls:"
        yield from _indent(self._straight(image, prefix))
        yield "else:"
        yield from _indent(self._with_nulls(image, prefix))

    def _diff_bits(self, diffs: tuple[int, ...]) -> Iterator[str]:
        """Value options, then one bit per JSON column if they say so (log_event.cc: print_verbose_one_row)."""
        size = (len(diffs) + 7) >> 3
        yield "options = data[position]"
        yield "position += 1"
        yield "diffs = 0"
        yield "if options & 1:"
        yield f"    diffs = from_bytes(data[position:position + {size}], 'little')"
        yield f"    position += {size}"

    def _straight(self, image: Image, prefix: str) -> Iterator[str]:
        """All values present: neighbours of fixed size are read together."""
        run = _Run()
        for index in image.present:
            yield from self._value(run, image, index, prefix)
        yield from self._flush(run)

    def _with_nulls(self, image: Image, prefix: str) -> Iterator[str]:
        wanted = set(image.wanted)
        for bit, index in enumerate(image.present):
            name = f"{prefix}{index}"
            run = _Run()
            value = [*self._value(run, image, index, prefix), *self._flush(run)]
            if index in wanted:
                yield f"if nulls & {1 << bit}:"
                yield f"    {name} = None"
                yield "else:"
            else:
                yield f"if not nulls & {1 << bit}:"
            yield from _indent(value)

    def _value(self, run: _Run, image: Image, index: int, prefix: str) -> Iterator[str]:
        """Add one value to ``run``; a variable one ends the run."""
        cell, name, wanted = image.cells[index], f"{prefix}{index}", index in image.wanted
        if cell.length_bytes:
            yield from self._variable(run, cell)
            if wanted:
                yield f"{name} = {self._variable_value(image, index)}"
        elif not wanted:
            run.codes.append(f"{cell.size}x")
            run.size += cell.size
        elif cell.code:
            run.codes.append(cell.code)
            run.targets.append(name)
            if cell.expression != "{v}":
                run.after.append(f"{name} = {self._expression(cell, v=name)}")
            run.size += cell.size
        else:
            position = f"position + {run.size}" if run.size else "position"
            run.after.append(f"{name} = {self._expression(cell, p=position)}")
            run.codes.append(f"{cell.size}x")
            run.size += cell.size

    def _variable_value(self, image: Image, index: int) -> str:
        value = self._expression(image.cells[index], v="data[start:position]")
        if image.diffs is None or index not in image.diffs:
            return value
        apply_diff = self._bind(image.apply_diff, "apply", image.apply_diff)
        before = f"a{index}" if index in self._before else "ABSENT"
        bit = 1 << image.diffs.index(index)
        return f"{apply_diff}({before}, data[start:position]) if diffs & {bit} else {value}"

    def _variable(self, run: _Run, cell: Cell) -> Iterator[str]:
        run.codes.append({1: "B", 2: "H", 3: "HB", 4: "I"}[cell.length_bytes])
        run.targets += ["n", "high"] if cell.length_bytes == 3 else ["n"]
        length = "n + (high << 16)" if cell.length_bytes == 3 else "n"
        run.size += cell.length_bytes
        yield from self._unpack(run)
        yield f"start = position + {run.size}"
        yield f"position = start + {length}"
        run.codes, run.targets, run.after, run.size = [], [], [], 0

    def _flush(self, run: _Run) -> Iterator[str]:
        if run.size:
            yield from self._unpack(run)
            yield f"position += {run.size}"

    def _unpack(self, run: _Run) -> Iterator[str]:
        if len(run.targets) == 1 and run.codes[-1] == "B" and run.size == 1:
            yield f"{run.targets[0]} = data[position]"
        elif run.targets:
            targets = ", ".join(run.targets) if len(run.targets) > 1 else f"({run.targets[0]},)"
            yield f"{targets} = {self._unpacker(''.join(run.codes))}(data, position)"
        yield from run.after

    def _unpacker(self, codes: str) -> str:
        return self._bind(codes, "unpack", struct.Struct("<" + codes).unpack_from)

    def _expression(self, cell: Cell, **words: str) -> str:
        function = "" if cell.function is None else self._bind(cell.function, "convert", cell.function)
        return cell.expression.format(f=function, **words)

    def _bind(self, key: object, stem: str, value: object) -> str:
        """A name for ``value`` in the generated function's globals; the same one for the same key."""
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"{stem}_{len(self._names)}"
            self.namespace[name] = value
        return name


def _indent(lines: Iterator[str] | list[str]) -> Iterator[str]:
    written = False
    for line in lines:
        written = True
        yield f"    {line}"
    if not written:
        yield "    pass"
