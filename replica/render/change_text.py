"""Values and row changes as short text for people, on one line; changes inside a document are shown by path.

Takes rows of a decoder with ``document_cells``. ``live_changes`` arranges the lines.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Final

from protocol.binlog.row_changes import Change
from protocol.records import record
from protocol.values.jsonb import JsonValue, decode_json
from protocol.values.jsonb_text import render_json

from ..sql.quoting import quoted
from ..statistics.layout import Line, Role, Span, cell_width, cut, printable
from .json_lines import time_text
from .json_values import JsonChanges, JsonDocument

NULL: Final = "NULL"
NOTHING: Final = "(none)"
ARROW: Final = " -> "

_MISSING: Final = object()
# The most characters made of a value, which is more than a screen shows.
_LONGEST: Final = 4096


@record(frozen=True, slots=True)
class Field:
    """A column, or a path in its document. Of the texts ``before`` and ``after``, inserts and deletes have one."""

    name: str
    before: str | None = None
    after: str | None = None
    is_change: bool = False

    def spans(self, width: int | None) -> Line:
        """``name=value``, or ``name=before -> after``, cut to ``width`` cells."""
        name = self.name if width is None else cut(self.name, max(1, width // 2))
        values = [(text, role) for text, role in self._values() if text is not None]
        line = [Span(name, "name")]
        left = None if width is None else width - cell_width(name) - 1 - len(ARROW) * (len(values) - 1)
        if len(values) == 2:
            first, second = _shares([cell_width(text) for text, _ in values], left)
            line += [Span("="), _span(*values[0], first), Span(ARROW), _span(*values[1], second)]
        else:
            # The before image lacks the column: only the new value, or a partial update, is known.
            line += [Span(ARROW if self.is_change else "="), _span(*values[0], left)]
        return line

    def _values(self) -> tuple[tuple[str | None, Role], tuple[str | None, Role]]:
        if self.is_change:
            return (self.before, "before"), (self.after, "after")
        return (self.before, ""), (self.after, "")


def _span(text: str, role: Role, width: int | None) -> Span:
    return Span(text if width is None else cut(text, max(1, width)), "null" if text == NULL else role)


def _shares(sizes: list[int], width: int | None) -> tuple[int | None, int | None]:
    """Share a width between two texts: each gets half, or more if the other needs less."""
    if width is None:
        return None, None
    half = width // 2
    first = max(half, width - sizes[1]) if sizes[0] > half else sizes[0]
    return first, width - min(first, sizes[0])


def change_fields(change: Change) -> Iterator[Field]:
    """The columns of an inserted or deleted row; of an updated row its key and the changed columns."""
    if change.after is None:
        yield from _image(change.before or {}, is_after=False)
    elif change.before is None:
        yield from _image(change.after, is_after=True)
    else:
        changed = list(_changed(change.before, change.after))
        names = {field.name for field in changed}
        key = change.table.primary_key or change.table.column_names[:1]
        known = change.after | change.before
        for name in key:
            if name in known and printable(name) not in names:
                yield Field(printable(name), value_text(known[name]))
        yield from changed


def _image(image: Mapping[str, object], is_after: bool) -> Iterator[Field]:
    for name, value in image.items():
        text = value_text(value)
        yield Field(printable(name), None, text) if is_after else Field(printable(name), text)


def _changed(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[Field]:
    for name, new in after.items():
        old = before.get(name, _MISSING)
        if old is _MISSING:
            yield Field(printable(name), None, value_text(new), is_change=True)
        elif isinstance(old, JsonDocument) and isinstance(new, JsonDocument):
            yield from _document_changes(printable(name), old.value, new.value)
        elif old != new:
            yield Field(printable(name), value_text(old), value_text(new), is_change=True)


def _document_changes(path: str, old: object, new: object) -> Iterator[Field]:
    """The differences between two documents, each with its path: ``details.ship_to.city``."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            yield from _document_changes(
                f"{path}.{_key(key)}", old.get(key, _MISSING), new.get(key, _MISSING)
            )
    elif isinstance(old, list) and isinstance(new, list):
        for index, (one, other) in enumerate(zip_longest(old, new, fillvalue=_MISSING)):
            yield from _document_changes(f"{path}[{index}]", one, other)
    elif old != new or type(old) is not type(new):
        yield Field(path, _member(old), _member(new), is_change=True)


def _key(key: str) -> str:
    return key if key.isidentifier() else printable(render_json(key))


def _member(value: Any) -> str:
    return NOTHING if value is _MISSING else printable(render_json(value)[:_LONGEST])


def value_text(value: object) -> str:
    """A value as on one line of SQL, at most about 4096 characters of it."""
    make = _TEXTS.get(type(value))
    return str(value) if make is None else make(value)


def _quoted(text: str) -> str:
    return quoted(printable(text[:_LONGEST]), "'")


def _time(value: datetime) -> str:
    """A time without trailing zeros of its fraction; TIMESTAMP, which is in UTC, gets a Z."""
    text = value.replace(tzinfo=None).isoformat(" ")
    text = text.rstrip("0") if "." in text else text
    return f"'{text}'" if value.tzinfo is None else f"'{text}Z'"


def _bytes(value: bytes) -> str:
    return f"0x{value[: _LONGEST // 2].hex()}" if value else "''"


def _vector(value: Sequence[float]) -> str:
    return f"[{', '.join(map(repr, value[: _LONGEST // 8]))}]"


def _diffs(value: JsonChanges) -> str:
    """A partial update of a document that is not in the log."""
    return ", ".join(
        f"{diff.operation} {printable(diff.path)}"
        + ("" if diff.operation == "remove" else f" = {_member(_decoded(diff.value))}")
        for diff in value.diffs
    )


def _decoded(data: bytes) -> JsonValue:
    return decode_json(data)


_TEXTS: Final[Mapping[type, Callable[[Any], str]]] = MappingProxyType(
    {
        type(None): lambda value: NULL,
        str: _quoted,
        bytes: _bytes,
        Decimal: lambda value: f"{value:f}",
        datetime: _time,
        date: lambda value: f"'{value.isoformat()}'",
        timedelta: lambda value: f"'{time_text(value)}'",
        array: _vector,
        JsonDocument: lambda value: printable(render_json(value.value)[:_LONGEST]),
        JsonChanges: _diffs,
    }
)
