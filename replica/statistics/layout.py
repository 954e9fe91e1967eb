"""Text for terminals: how many cells it takes, cut and filled to a width, nothing in it that a terminal would obey.

A line is a list of ``Span``s: text, and the role that it plays, which whoever prints it may turn into a colour.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

Role = Literal[
    "",
    "insert",
    "update",
    "delete",
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

# Combining characters and what only says how its neighbours are drawn take no cell of their own.
_NO_CELL: Final = frozenset({"Mn", "Me", "Cf"})
_WIDE: Final = frozenset({"W", "F"})
# Joins emoji; str.isprintable() knows no such use.
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
    """``text``, or as much of it as fits into ``width`` cells with an ellipsis behind it."""
    # No character takes less than no cell, none more than two.
    if len(text) * 2 <= width or cell_width(text) <= width:
        return text
    room = width - 1
    for index, character in enumerate(text):
        room -= _cells(character)
        if room < 0:
            return text[:index] + ELLIPSIS
    return text


def printable(text: str) -> str:
    """``text`` with all that a terminal would act upon, or show as nothing, as an escape sequence of Python's."""
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() or one == _JOINER else _escaped(one) for one in text])


def _escaped(character: str) -> str:
    return _ESCAPES.get(character) or character.encode("unicode_escape").decode()


def line_width(line: Iterable[Span]) -> int:
    """The cells that a line takes."""
    return sum(cell_width(span.text) for span in line)


def fill(head: Line, items: Sequence[Line], gap: str, indent: int, width: int | None) -> Iterator[Line]:
    """Lines of ``items`` behind ``head``, as many as fit into each, further ones indented; one line without a width.

    An item is never divided: it is to fit into ``width - indent`` cells.
    """
    line, used, space = list(head), line_width(head), ""
    # A new line has no more room than one without items whose head is no longer than the indent.
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
