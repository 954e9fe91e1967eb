"""All rows of a table without a key, which are one unit: the first ones in memory, the others in a temporary file.

The file has the rows as they came from the server; they are decoded when they are handed out. It has no name.
"""

import contextlib
import os
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Final, overload

from protocol.errors import ConfigurationError
from protocol.records import record
from protocol.rows.result_compiler import Row
from protocol.rows.table import Table
from protocol.rows.undecoded_rows import UndecodedRows

from .chunk_reader import Chunk
from .select_list import SelectList

#: More bytes of a table's rows go into the file. As tuples, narrow rows take seven times as much.
MOST_IN_MEMORY: Final = 4 << 20
# So many bytes are written, and later decoded, at once.
_BLOCK: Final = 1 << 18
_LENGTH: Final = 4


async def rows_of(chunk: Chunk, select: SelectList) -> Sequence[Row]:
    """All rows of a chunk that holds a whole table. ``ConfigurationError`` if there is no room for the file."""
    rows: list[Row] = []
    async for some in chunk:
        rows += some
        if chunk.size > MOST_IN_MEMORY:
            break
    else:
        return rows
    with _told(select.table):
        kept = KeptRows(rows, select.rows)
        while payloads := await chunk.read_payloads():
            kept.add(payloads)
        kept.end()
    return kept


async def undecoded_of(chunk: Chunk, table: Table) -> tuple[UndecodedRows, Iterable[UndecodedRows]]:
    """The same, undecoded: rows in memory, and the others, some megabytes at a time."""
    first = UndecodedRows()
    while await chunk.read_undecoded(first):
        if chunk.size > MOST_IN_MEMORY:
            break
    else:
        return first, ()
    with _told(table):
        kept, rows, begin = _UndecodedFile(), UndecodedRows(), chunk.size
        while await chunk.read_undecoded(rows):
            if chunk.size - begin > MOST_IN_MEMORY:
                kept.add(rows)
                rows, begin = UndecodedRows(), chunk.size
        if rows.sizes:
            kept.add(rows)
    return first, kept


@contextlib.contextmanager
def _told(table: Table) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{table} has no key, so all its rows are kept in the folder for temporary files while it is copied: "
            f"{error.strerror or error} -- make room, name another folder in TMPDIR, or add a primary key"
        ) from error


@record(slots=True, frozen=True)
class _Block:
    begin: int
    size: int
    rows: int


class KeptRows(Sequence[Row]):
    """Rows that are read from a temporary file when they are needed, as often as they are.

    ``first`` are rows in memory; ``decode`` makes tuples of the bytes that ``add`` gets.
    """

    def __init__(self, first: Sequence[Row], decode: Callable[[Sequence[bytes]], list[Row]]) -> None:
        self._first = first
        self._decode = decode
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._blocks: list[_Block] = []
        # The number of the first row of each block, and of the row behind all of them.
        self._begins = [len(first)]
        self._waiting: list[bytes] = []
        self._size = self._waiting_size = 0
        self._newest: tuple[int, list[Row]] = -1, []

    def __del__(self) -> None:
        if file := getattr(self, "_file", None):
            file.close()

    def add(self, payloads: Sequence[bytes]) -> None:
        """Add rows; they are there after ``end``."""
        self._waiting += payloads
        self._waiting_size += sum(map(len, payloads))
        if self._waiting_size >= _BLOCK:
            self.end()

    def end(self) -> None:
        """Write the rows that were added."""
        if not self._waiting:
            return
        data = b"".join([part for row in self._waiting for part in (len(row).to_bytes(_LENGTH), row)])
        _write(self._file, data)
        self._blocks.append(_Block(self._size, len(data), len(self._waiting)))
        self._begins.append(self._begins[-1] + len(self._waiting))
        self._size += len(data)
        self._waiting, self._waiting_size = [], 0

    def __len__(self) -> int:
        return self._begins[-1]

    def __iter__(self) -> Iterator[Row]:
        yield from self._first
        for number in range(len(self._blocks)):
            yield from self._rows(number)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        places = range(len(self))[index]
        if isinstance(places, range):
            return [self._row(place) for place in places]
        return self._row(places)

    def _row(self, place: int) -> Row:
        number = bisect_right(self._begins, place) - 1
        if number < 0:
            return self._first[place]
        if self._newest[0] != number:
            self._newest = number, self._rows(number)
        return self._newest[1][place - self._begins[number]]

    def _rows(self, number: int) -> list[Row]:
        block = self._blocks[number]
        data, begin, payloads = os.pread(self._file.fileno(), block.size, block.begin), 0, list[bytes]()
        for _ in range(block.rows):
            end = begin + _LENGTH + int.from_bytes(data[begin : begin + _LENGTH])
            payloads.append(data[begin + _LENGTH : end])
            begin = end
        return self._decode(payloads)


class _UndecodedFile(Iterable[UndecodedRows]):
    """Rows in a temporary file, in the parts in which they were added."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._blocks: list[_Block] = []
        self._size = 0

    def __del__(self) -> None:
        if file := getattr(self, "_file", None):
            file.close()

    def add(self, rows: UndecodedRows) -> None:
        """Write rows, with their sizes behind them."""
        data = b"".join((*rows.parts, array("I", rows.sizes)))
        _write(self._file, data)
        self._blocks.append(_Block(self._size, len(data), len(rows)))
        self._size += len(data)

    def __iter__(self) -> Iterator[UndecodedRows]:
        for block in self._blocks:
            data, rows, sizes = (
                os.pread(self._file.fileno(), block.size, block.begin),
                UndecodedRows(),
                array("I"),
            )
            end = block.size - block.rows * sizes.itemsize
            sizes.frombytes(data[end:])
            rows.parts.append(memoryview(data)[:end])
            rows.sizes += sizes
            yield rows


def _write(file: IO[bytes], data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
