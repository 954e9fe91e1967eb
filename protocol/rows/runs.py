"""Runs: adjacent bytes of a row that one or two calls of ``struct`` unpack together.

Integers of a row are little-endian, parts of DECIMAL and temporal values big-endian. So a run with both is unpacked
twice, and each format skips the other's bytes. This module knows no cells; ``code_writer`` fills runs.
"""

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Final

from ..records import field, record

_INTEGER_CODES: Final = MappingProxyType({1: "B", 2: "H", 4: "I", 8: "Q"})
_ONE_BYTE_CODES: Final = frozenset("Bbs0123456789")


@record(frozen=True, slots=True)
class Unpacking:
    """One call of ``struct``: its offset in the run, its format, and the names of the unpacked values."""

    offset: int
    format: str
    targets: Sequence[str]


@record(frozen=True, slots=True)
class _Item:
    """The numbers of one value. ``order`` is the byte order; empty for single bytes, which have none."""

    offset: int
    size: int
    code: str
    order: str
    targets: Sequence[str]


@record(slots=True)
class Run:
    """``size`` bytes: a NULL bitmap, numbers, gaps, and at the end the length of a variable value.

    ``after`` are lines that make values from the numbers, or from the bytes in the gaps.
    """

    size: int = 0
    after: list[str] = field(default_factory=list)
    _items: list[_Item] = field(default_factory=list)

    def add(self, code: str, size: int, *targets: str, is_big_endian: bool = False) -> None:
        """Add numbers by their ``struct`` codes, one name for each."""
        order = "" if _ONE_BYTE_CODES.issuperset(code) else ">" if is_big_endian else "<"
        self._items.append(_Item(self.size, size, code, order, targets))
        self.size += size

    def add_gap(self, size: int) -> None:
        """Add bytes that are not unpacked."""
        self.size += size

    def add_integer(self, size: int, name: str) -> list[str]:
        """Add an unsigned little-endian integer of any size; returns the lines that assemble it."""
        if size in _INTEGER_CODES:
            self.add(_INTEGER_CODES[size], size, name)
            return []
        if size == 3:
            self.add("HB", size, name, f"high_{name}")
            return [f"{name} |= high_{name} << 16"]
        self.add(f"{size}s", size, name)
        return [f"{name} = from_bytes({name}, 'little')"]

    def unpackings(self) -> Iterator[Unpacking]:
        """The calls that unpack the run: none, one, or one for each byte order."""
        for order, items in self._by_order():
            begin = items[0].offset
            targets = [target for item in items for target in item.targets]
            yield Unpacking(begin, order + "".join(_codes(items, begin)), targets)

    def whole_unpackings(self) -> Iterator[Unpacking]:
        """The same calls, each with a format that covers all bytes of the run."""
        for order, items in self._by_order():
            end = _Item(self.size, 0, "", "", ())
            targets = [target for item in items for target in item.targets]
            yield Unpacking(0, order + "".join(_codes([*items, end], 0)), targets)

    def _by_order(self) -> Iterator[tuple[str, list[_Item]]]:
        # Single bytes join the little-endian numbers, if there are any.
        bytes_with = "<" if any(item.order == "<" for item in self._items) else ">"
        for order in "<>":
            items = [item for item in self._items if (item.order or bytes_with) == order]
            if items:
                yield order, items


def _codes(items: Sequence[_Item], position: int) -> Iterator[str]:
    for item in items:
        if item.offset > position:
            yield f"{item.offset - position}x"
        yield item.code
        position = item.offset + item.size
