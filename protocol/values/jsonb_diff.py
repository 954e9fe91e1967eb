"""Partial updates of JSON columns: reads the logged diffs and applies them to the old document.

With ``binlog_row_value_options=PARTIAL_JSON`` an after image can hold, instead of a document, the changes that
JSON_SET, JSON_REPLACE and JSON_REMOVE made: a list of operation, path and value. Format: worklog 2955,
``sql-common/json_diff.cc``; rules of paths: ``apply_json_diffs`` there and ``json_path.cc``.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Final, Literal

from ..errors import DecodeError
from ..records import record
from ..wire import Reader, utf8_bytes, utf8_text
from .jsonb import JsonValue, decode_json

Operation = Literal["replace", "insert", "remove"]

#: Elements of a block of a large array. Moving them takes some microseconds.
BLOCK: Final = 1 << 14

_OPERATIONS: tuple[Operation, ...] = ("replace", "insert", "remove")


@record(frozen=True, slots=True)
class JsonDiff:
    """One change. ``path`` is the server's text (``$.a[0]``), ``value`` a document; empty for a removal."""

    operation: Operation
    path: str
    value: bytes


def read_json_diffs(data: bytes) -> list[JsonDiff]:
    """The changes in a column's after image; ``data`` are the bytes after the 4-byte length.

    Raises ``TruncatedError`` or ``DecodeError``.
    """
    reader = Reader(data)
    diffs = []
    while reader.remaining:
        number = reader.u8()
        if number >= len(_OPERATIONS):
            raise DecodeError(f"a JSON diff has the unknown operation {number}")
        operation = _OPERATIONS[number]
        path = utf8_text(reader.lenenc_bytes())
        value = b"" if operation == "remove" else reader.lenenc_bytes()
        diffs.append(JsonDiff(operation, path, value))
    return diffs


def apply_json_diffs(document: JsonValue, diffs: Sequence[JsonDiff]) -> JsonValue:
    """The document after all changes, applied in order. ``document`` itself is not modified.

    A change that does not fit the document raises ``DecodeError``; it would stop a MySQL replica, too.
    """
    holder: list[JsonValue] = [_copy(document)]
    unfinished = _Unfinished()
    for diff in diffs:
        _apply(holder, diff, unfinished)
    unfinished.finish()
    return holder[0]


def _copy(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _copy(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_copy(element) for element in value]
    return value


# --------------------------------------------------------------------------------------------- paths

_LEG = re.compile(
    r"""
      \. (?P<key> [^.\[\]"]+ )
    | \. (?P<quoted> "(?:[^"\\]|\\.)*" )
    | \[ (?P<from_end> last -? )? (?P<number> [0-9]{0,10} ) \]
    """,
    re.VERBOSE | re.DOTALL,
)


@record(frozen=True, slots=True)
class _Cell:
    """An array index; ``[last]`` and ``[last-2]`` count from the end."""

    number: int
    from_end: bool

    def position(self, size: int) -> int:
        """0 to ``size - 1``, or -1 for a place before the array, or ``size`` for a place after it."""
        if self.from_end:
            return max(size - 1 - self.number, -1)
        return min(self.number, size)


def _legs(path: str) -> list[str | _Cell]:
    """The steps of a path in the server's text form (``Json_path::to_string``), from the root on."""
    if not path.startswith("$"):
        raise _bad_path(path)
    legs: list[str | _Cell] = []
    position = 1
    while position < len(path):
        match = _LEG.match(path, position)
        if match is None:
            raise _bad_path(path)
        legs.append(_leg(match, path))
        position = match.end()
    return legs


def _leg(match: re.Match[str], path: str) -> str | _Cell:
    if match["key"] is not None:
        return match["key"]
    if match["quoted"] is not None:
        return _unquote(match["quoted"], path)
    from_end, number = match["from_end"], match["number"]
    # "[last]" and "[last-1]", but not "[]", "[last-]" or "[last1]".
    if (from_end == "last") == bool(number):
        raise _bad_path(path)
    return _Cell(int(number or 0), from_end is not None)


def _unquote(quoted: str, path: str) -> str:
    try:
        key = json.loads(quoted, strict=False)
    except ValueError:
        raise _bad_path(path) from None
    assert isinstance(key, str)
    return key


def _bad_path(path: str) -> DecodeError:
    return DecodeError(f"{path!r} is not the path of a JSON diff")


# ------------------------------------------------------------------------------------------ changes


class _Blocks:
    """The elements of a large array in blocks: inserting and removing move the elements of one block only."""

    def __init__(self, elements: list[JsonValue]) -> None:
        self.blocks = [elements[at : at + BLOCK] for at in range(0, len(elements), BLOCK)]
        # Behind each block, how many elements there are up to its end; None: not known since the last change.
        self._ends: list[int] | None = None

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def find(self, position: int) -> tuple[list[JsonValue], int]:
        """The block of an element, and its place there. The place behind all elements is in the last block."""
        if self._ends is None:
            self._ends = list(accumulate(map(len, self.blocks)))
        number = min(bisect_right(self._ends, position), len(self.blocks) - 1)
        return self.blocks[number], position - (self._ends[number - 1] if number else 0)

    def insert(self, position: int, value: JsonValue) -> None:
        block, place = self.find(position)
        block.insert(place, value)
        self._ends = None
        if len(block) > 2 * BLOCK:
            number = next(number for number, one in enumerate(self.blocks) if one is block)
            self.blocks[number : number + 1] = [block[:BLOCK], block[BLOCK:]]

    def remove(self, position: int) -> None:
        block, place = self.find(position)
        del block[place]
        self._ends = None
        if not block and len(self.blocks) > 1:
            self.blocks = [one for one in self.blocks if one]


class _Unfinished:
    """Work that is done once after all changes, because there may be very many of them."""

    def __init__(self) -> None:
        # Objects with a new last member, which are to be sorted, and large arrays with their blocks; by their ids.
        self._grown: dict[int, dict[str, JsonValue]] = {}
        self._blocks: dict[int, tuple[list[JsonValue], _Blocks]] = {}

    def grow(self, members: dict[str, JsonValue]) -> None:
        """Note that an object has a new last member."""
        self._grown[id(members)] = members

    def elements(self, array: list[JsonValue], *, is_moved: bool = False) -> "list[JsonValue] | _Blocks":
        """The array's elements, as a list or in blocks; ``is_moved``: one is to be inserted or removed."""
        _, blocks = self._blocks.get(id(array), (None, None))
        if blocks is None and is_moved and len(array) > 2 * BLOCK:
            blocks = _Blocks(array)
            self._blocks[id(array)] = array, blocks
        return array if blocks is None else blocks

    def finish(self) -> None:
        for members in self._grown.values():
            in_order = sorted(members.items(), key=_member_order)
            members.clear()
            members.update(in_order)
        for array, blocks in self._blocks.values():
            array[:] = chain.from_iterable(blocks.blocks)


def _apply(holder: list[JsonValue], diff: JsonDiff, unfinished: _Unfinished) -> None:
    """Make one change."""
    legs = _legs(diff.path)
    if not legs:
        if diff.operation != "replace":
            raise _misfit(diff)
        holder[0] = decode_json(diff.value)
        return
    parent = holder[0]
    for leg in legs[:-1]:
        parent = _child(parent, leg, diff, unfinished)
    value = None if diff.operation == "remove" else decode_json(diff.value, depth=len(legs))
    last = legs[-1]
    if isinstance(parent, dict) and isinstance(last, str):
        _change_member(parent, last, value, diff)
        if diff.operation == "insert":
            unfinished.grow(parent)
    elif isinstance(parent, list) and isinstance(last, _Cell):
        elements = unfinished.elements(parent, is_moved=diff.operation != "replace")
        _change_cell(elements, last, value, diff)
    else:
        raise _misfit(diff)


def _child(parent: JsonValue, leg: str | _Cell, diff: JsonDiff, unfinished: _Unfinished) -> JsonValue:
    if isinstance(parent, dict) and isinstance(leg, str) and leg in parent:
        return parent[leg]
    if isinstance(parent, list) and isinstance(leg, _Cell):
        elements = unfinished.elements(parent)
        position = leg.position(len(elements))
        if 0 <= position < len(elements):
            block, place = elements.find(position) if isinstance(elements, _Blocks) else (elements, position)
            return block[place]
    raise _misfit(diff)


def _change_member(members: dict[str, JsonValue], key: str, value: JsonValue, diff: JsonDiff) -> None:
    if (key in members) == (diff.operation == "insert"):
        raise _misfit(diff)
    if diff.operation == "remove":
        del members[key]
    else:
        members[key] = value


def _member_order(member: tuple[str, JsonValue]) -> tuple[int, bytes]:
    """The server's order of members: short names first, then by bytes (``json_dom.cc``: Json_key_comparator)."""
    name = utf8_bytes(member[0])
    return len(name), name


def _change_cell(elements: list[JsonValue] | _Blocks, cell: _Cell, value: JsonValue, diff: JsonDiff) -> None:
    position = cell.position(len(elements))
    if diff.operation == "insert":
        # A place after the end inserts at the end, a place before the start at the start.
        elements.insert(max(position, 0), value)
    elif not 0 <= position < len(elements):
        raise _misfit(diff)
    elif diff.operation == "remove":
        elements.remove(position) if isinstance(elements, _Blocks) else elements.pop(position)
    else:
        block, place = elements.find(position) if isinstance(elements, _Blocks) else (elements, position)
        block[place] = value


def _misfit(diff: JsonDiff) -> DecodeError:
    return DecodeError(f"a JSON diff does not fit the document: {diff.operation} at {diff.path!r}")
