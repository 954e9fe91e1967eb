"""Quoting for SQL: identifiers, and literals for text and bytes. Also turns LIKE patterns into regular expressions.

There are two literals for text. ``text_literal`` is readable, for scripts. ``hex_literal`` means the same in any
sql_mode (ANSI_QUOTES, NO_BACKSLASH_ESCAPES), for statements sent to a source.
"""

import re
from collections.abc import Sequence
from typing import Final

#: So many tables are named in a message.
_NAMED: Final = 5

#: Backslash escapes of a literal between apostrophes, for ``str.translate``.
ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", "'": "\\'", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"}
)


def quoted(text: str, mark: str) -> str:
    """Text between quote marks. Marks inside are doubled; nothing else is escaped."""
    return mark + text.replace(mark, mark * 2) + mark


def identifier(name: str) -> str:
    """A name in backticks."""
    return quoted(name, "`")


def text_literal(text: str) -> str:
    """Characters as a literal with backslash escapes; not for text with surrogate escapes."""
    literal = f"'{text.translate(ESCAPES)}'"
    return literal if text.isascii() else f"_utf8mb4{literal}"


def hex_literal(text: str) -> str:
    """Text as a hexadecimal literal in utf8mb4; surrogate escapes become their bytes."""
    return f"_utf8mb4 X'{text.encode('utf-8', 'surrogateescape').hex()}'"


def binary_literal(data: bytes) -> str:
    """Bytes as a literal."""
    return f"0x{data.hex().upper()}" if data else "''"


def like_expression(pattern: str) -> str:
    r"""A LIKE pattern as a regular expression: ``%`` and ``_`` are wildcards unless ``\`` precedes them.

    The time of a match grows with the product of both lengths at most: the characters between two ``%`` are an atomic
    group, which is searched once. With ``.*`` instead, 40 ``%`` take for ever.
    """
    pieces: list[list[str]] = [[]]
    for part in re.findall(r"\\.|.", pattern, re.DOTALL):
        if part == "%":
            pieces.append([])
        else:
            pieces[-1].append("." if part == "_" else re.escape(part[-1]))
    first, *rest = ("".join(piece) for piece in pieces)
    if not rest:
        return f"(?s:{first})"
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1] if piece)
    return f"(?s:{first}{middle}.*{rest[-1]})"


def first_names(names: Sequence[str]) -> str:
    """The first five names, and how many more there are, for a message."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
