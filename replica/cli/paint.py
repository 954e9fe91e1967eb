"""Lines for the terminal: roles become colours, with the extra ``[cli]`` (rich), where the terminal has them.

rich says which colours a terminal has (``TERM``, ``COLORTERM``, ``NO_COLOR``) and how they are asked for; it is asked
once. Without it, or where the output is no terminal, lines are plain text.
"""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import BinaryIO, Final

from ..statistics.layout import Line, Role

# Names of the terminal's own colours, which fit its background.
_STYLES: Final[Mapping[Role, str]] = MappingProxyType(
    {
        "insert": "bold green",
        "update": "bold yellow",
        "delete": "bold red",
        "statement": "bold magenta",
        "warning": "bold red",
        "table": "bold",
        "name": "cyan",
        "null": "dim italic",
        "before": "dim",
        "after": "bold",
        "time": "blue",
        "gtid": "blue",
        "place": "dim",
        "comment": "dim",
        "heading": "bold cyan",
    }
)
# Stands for the text while a style is asked for what surrounds it.
_TEXT: Final = "\0"


class Paint:
    """Writes lines to ``output``, which is a terminal or not."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._codes = _terminal_codes() if output.isatty() else {}

    @property
    def has_colours(self) -> bool:
        """Whether lines are more than plain text."""
        return bool(self._codes)

    def write(self, line: Line) -> None:
        """One line; whoever writes the last of several flushes."""
        codes = self._codes
        if codes:
            text = "".join([codes[span.role].replace(_TEXT, span.text) for span in line])
        else:
            text = "".join([span.text for span in line])
        self._output.write(text.encode("utf-8", "backslashreplace") + b"\n")

    def width(self) -> int | None:
        """How many cells a line may have; None where that is no matter."""
        return terminal_width(self._output)


def terminal_width(output: BinaryIO) -> int | None:
    """The columns of the terminal that is written to, or ``COLUMNS``; None for what is neither."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    if not output.isatty():
        return None
    # Some terminals do not say how large they are.
    return os.get_terminal_size(output.fileno()).columns or 80


def _terminal_codes() -> dict[Role, str]:
    """Per role what stands around ``_TEXT``; empty without colours."""
    try:
        from rich.console import COLOR_SYSTEMS, Console
        from rich.style import Style
    except ImportError:
        return {}
    console = Console(force_terminal=True)
    if console.color_system is None or console.no_color:
        return {}
    system = COLOR_SYSTEMS[console.color_system]
    codes: dict[Role, str] = {"": _TEXT}
    for role, style in _STYLES.items():
        codes[role] = Style.parse(style).render(_TEXT, color_system=system)
    return codes
