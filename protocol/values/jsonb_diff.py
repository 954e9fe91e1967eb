"""Partial updates of JSON columns: reads the logged diffs and applies them to the old document.

With ``binlog_row_value_options=PARTIAL_JSON`` an after image can hold, instead of a document, the changes that
JSON_SET, JSON_REPLACE and JSON_REMOVE made: a list of operation, path and value. Format: worklog 2955,
``sql-common/json_diff.cc``; rules of paths: ``apply_json_diffs`` there and ``json_path.cc``.
"""

import json
import re
from collections.abc import Sequence
from typing import Literal

from ..errors import DecodeError
from ..records import record
from ..wire import Reader, utf8_bytes, utf8_text
from .jsonb import JsonValue, decode_json

Operation = Literal["replace", "insert", "remove"]

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
    grown: dict[int, dict[str, JsonValue]] = {}
    for diff in diffs:
        _apply(holder, diff, grown)
    # Sorted once at the end, because there may be very many changes.
    for members in grown.values():
        in_order = sorted(members.items(), key=_member_order)
        members.clear()
        members.update(in_order)
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


def _apply(holder: list[JsonValue], diff: JsonDiff, grown: dict[int, dict[str, JsonValue]]) -> None:
    """Make one change. An object with a new last member is added to ``grown``, by its id, to be sorted later."""
    legs = _legs(diff.path)
    if not legs:
        if diff.operation != "replace":
            raise _misfit(diff)
        holder[0] = decode_json(diff.value)
        return
    parent = holder[0]
    for leg in legs[:-1]:
        parent = _child(parent, leg, diff)
    value = None if diff.operation == "remove" else decode_json(diff.value, depth=len(legs))
    last = legs[-1]
    if isinstance(parent, dict) and isinstance(last, str):
        _change_member(parent, last, value, diff)
        if diff.operation == "insert":
            grown[id(parent)] = parent
    elif isinstance(parent, list) and isinstance(last, _Cell):
        _change_cell(parent, last, value, diff)
    else:
        raise _misfit(diff)


def _child(parent: JsonValue, leg: str | _Cell, diff: JsonDiff) -> JsonValue:
    if isinstance(parent, dict) and isinstance(leg, str) and leg in parent:
        return parent[leg]
    if isinstance(parent, list) and isinstance(leg, _Cell):
        position = leg.position(len(parent))
        if 0 <= position < len(parent):
            return parent[position]
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


def _change_cell(elements: list[JsonValue], cell: _Cell, value: JsonValue, diff: JsonDiff) -> None:
    position = cell.position(len(elements))
    if diff.operation == "insert":
        # A place after the end inserts at the end, a place before the start at the start.
        elements.insert(max(position, 0), value)
    elif not 0 <= position < len(elements):
        raise _misfit(diff)
    elif diff.operation == "replace":
        elements[position] = value
    else:
        del elements[position]


def _misfit(diff: JsonDiff) -> DecodeError:
    return DecodeError(f"a JSON diff does not fit the document: {diff.operation} at {diff.path!r}")
