"""Names of tables as options and commands write them: ``shop.orders``, `` `a.b`.orders ``, or several with commas."""

import re
from typing import Final

_QUOTED: Final = r"`(?:[^`]|``)+`"
_QUOTED_NAME: Final = re.compile(_QUOTED)
_PARTS: Final = re.compile(rf"({_QUOTED}|[^.]*)\.({_QUOTED}|.*)", re.DOTALL)
# A backtick opens a quoted part at the part's beginning only.
_LISTED: Final = re.compile(rf",((?:(?<![^.,\s]){_QUOTED}|[^,])*+)")


def split_text(text: str) -> tuple[str, str]:
    """Schema and table of a text such as ``shop.orders`` or `` `a.b`.c ``: the reverse of ``table_text``.

    The schema ends at the first dot, unless it is in backticks; a backtick inside of them is doubled.
    """
    schema, table = written_parts(text)
    return unquoted(schema) or schema, unquoted(table) or table


def written_parts(text: str) -> tuple[str, str]:
    """The two parts of a text as of ``split_text``, as they are written; the second one is empty without a dot."""
    match = _PARTS.fullmatch(text)
    return (text, "") if match is None else (match[1], match[2])


def unquoted(part: str) -> str | None:
    """The name that is in backticks; None if the part is not in backticks."""
    return part[1:-1].replace("``", "`") if _QUOTED_NAME.fullmatch(part) else None


def split_list(text: str) -> list[str]:
    """Texts as of ``split_text`` with commas between them; a comma in backticks is part of a name."""
    return [part.strip() for part in _LISTED.findall(f",{text}")]
