"""Text for terminals: measures its width in cells, cuts and fills lines, and escapes control characters.

A line is a list of ``Span``s, each a text and its role; the printer may turn roles into colours. Prints nothing
itself.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

Role = Literal[
    "",
    "insert",
    "update",
    "delete",
    "read",
    "statement",
    "warning",
    "table",
    "name",
    "null",
    "before",
    "after",
    "time",
    "gtid",
    "place",
    "comment",
    "heading",
]
ELLIPSIS: Final = "…"

# Combining characters, and characters that only change how their neighbours are drawn, take no cell.
_NO_CELL: Final = frozenset({"Mn", "Me", "Cf"})
_WIDE: Final = frozenset({"W", "F"})
# The zero-width joiner joins emoji, although str.isprintable() is False for it.
_JOINER: Final = "\u200d"
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    role: Role = ""


Line = list[Span]


def cell_width(text: str) -> int:
    """The cells of a terminal that ``text`` takes: two for each wide character, such as 佐."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(character: str) -> int:
    if unicodedata.category(character) in _NO_CELL:
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1


def cut(text: str, width: int) -> str:
    """``text``, or as much of it as fits into ``width`` cells followed by an ellipsis."""
    # A character takes at most two cells.
    if len(text) * 2 <= width or cell_width(text) <= width:
        return text
    room = width - 1
    for index, character in enumerate(text):
        room -= _cells(character)
        if room < 0:
            return text[:index] + ELLIPSIS
    return text


def printable(text: str) -> str:
    """``text`` with control and invisible characters replaced by Python's escape sequences."""
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() or one == _JOINER else _escaped(one) for one in text])


def _escaped(character: str) -> str:
    return _ESCAPES.get(character) or character.encode("unicode_escape").decode()


def line_width(line: Iterable[Span]) -> int:
    """The cells that a line takes."""
    return sum(cell_width(span.text) for span in line)


def fill(head: Line, items: Sequence[Line], gap: str, indent: int, width: int | None) -> Iterator[Line]:
    """Lay out ``items`` after ``head`` in lines of at most ``width`` cells; further lines are indented.

    Without a width there is one line. An item is never divided: it should fit into ``width - indent`` cells.
    """
    line, used, space = list(head), line_width(head), ""
    # While the line holds only a head no longer than the indent, a new line would have no more room.
    has_more_room = used > indent
    for item in items:
        size = line_width(item)
        if width is not None and has_more_room and used + len(space) + size > width:
            yield line
            line, used, space = [Span(" " * indent)], indent, ""
        line += [Span(space), *item] if space else item
        used += len(space) + size
        space, has_more_room = gap, True
    yield line
