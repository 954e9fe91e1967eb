"""Colours on the terminal: each role of a span (``statistics.layout``) becomes an ANSI escape sequence.

Lines stay plain text where the output is no terminal, where ``NO_COLOR`` is set (https://no-color.org), and where
``TERM`` is unset, ``dumb`` or ``unknown``.
"""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import BinaryIO, Final

from ..statistics.layout import Line, Role

# Parameters of SGR, "select graphic rendition" (ECMA-48): 1 bold, 2 dim, 3 italic, 31 red, 32 green, 33 yellow,
# 34 blue, 35 magenta, 36 cyan. These are the terminal's own colours, which fit its background.
_CODES: Final[Mapping[Role, str]] = MappingProxyType(
    {
        "insert": "1;32",
        "update": "1;33",
        "delete": "1;31",
        "read": "1;36",
        "statement": "1;35",
        "warning": "1;31",
        "table": "1",
        "name": "36",
        "null": "2;3",
        "before": "2",
        "after": "1",
        "time": "34",
        "gtid": "34",
        "place": "2",
        "comment": "2",
        "heading": "1;36",
    }
)
_NO_CODES: Final[Mapping[Role, str]] = MappingProxyType({})
_TERMS_WITHOUT_COLOURS: Final = frozenset({"", "dumb", "unknown"})
_DEFAULT_COLUMNS: Final = 80


class Paint:
    """Writes lines to ``output``, in colours if it is a terminal that has them."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._codes = _CODES if output.isatty() and _wants_colours(os.environ) else _NO_CODES

    def write(self, line: Line) -> None:
        """Write one line. The caller flushes after the last one."""
        codes = self._codes
        text = "".join(
            [f"\x1b[{codes[role]}m{text}\x1b[0m" if role in codes else text for text, role in line]
        )
        self._output.write(text.encode("utf-8", "backslashreplace") + b"\n")

    def width(self) -> int | None:
        """The cells that a line may take; None if there is no limit."""
        return terminal_width(self._output)


def terminal_width(output: BinaryIO) -> int | None:
    """``COLUMNS`` if it is set, else the columns of the terminal; None if ``output`` is no terminal."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    if not output.isatty():
        return None
    # Some terminals report a width of 0.
    return os.get_terminal_size(output.fileno()).columns or _DEFAULT_COLUMNS


def _wants_colours(environment: Mapping[str, str]) -> bool:
    return not environment.get("NO_COLOR") and environment.get("TERM", "") not in _TERMS_WITHOUT_COLOURS
