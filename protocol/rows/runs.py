"""Runs: neighbouring bytes of a row that are unpacked together, by one call of ``struct`` or by two.

Integers of a row are little-endian, parts of DECIMAL and temporal values big-endian. So a run that has both is
unpacked twice, and each format passes over what is the other's. It knows no cells; ``rowwriter`` fills runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

_INTEGER_CODES: Final = MappingProxyType({1: "B", 2: "H", 4: "I", 8: "Q"})
_ONE_BYTE_CODES: Final = frozenset("Bbs0123456789")


@dataclass(frozen=True, slots=True)
class Unpacking:
    """One call: where it begins in the run, the format, and the names of what comes out."""

    offset: int
    format: str
    targets: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Item:
    """Numbers of one value. ``order`` is empty if they are bytes, which have none."""

    offset: int
    size: int
    code: str
    order: str
    targets: Sequence[str]


@dataclass(slots=True)
class Run:
    """A NULL bitmap, numbers, gaps, the length of what comes behind; ``size`` bytes so far.

    ``after`` are lines that make values of the numbers, or of what stands in the gaps.
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
        """Add an unsigned little-endian integer of any size; returns the lines that put it together."""
        if size in _INTEGER_CODES:
            self.add(_INTEGER_CODES[size], size, name)
            return []
        if size == 3:
            self.add("HB", size, name, f"high_{name}")
            return [f"{name} |= high_{name} << 16"]
        self.add(f"{size}s", size, name)
        return [f"{name} = from_bytes({name}, 'little')"]

    def unpackings(self) -> Iterator[Unpacking]:
        """The calls that unpack it: none, one, or one for either byte order."""
        for order, items in self._by_order():
            begin = items[0].offset
            targets = [target for item in items for target in item.targets]
            yield Unpacking(begin, order + "".join(_codes(items, begin)), targets)

    def whole_unpackings(self) -> Iterator[Unpacking]:
        """The same, each over all of the run's bytes."""
        for order, items in self._by_order():
            end = _Item(self.size, 0, "", "", ())
            targets = [target for item in items for target in item.targets]
            yield Unpacking(0, order + "".join(_codes([*items, end], 0)), targets)

    def _by_order(self) -> Iterator[tuple[str, list[_Item]]]:
        # Bytes go with the little-endian numbers, where there are any.
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
