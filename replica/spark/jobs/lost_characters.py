"""Which texts a character set cannot hold: outside of strict mode ALTER TABLE writes ? for their characters."""

from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from protocol.charset import charset_by_name

#: Character sets with all characters, and those without the characters of four bytes in UTF-8.
_WHOLE: Final = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
_BASIC: Final = frozenset({"utf8mb3", "utf8", "ucs2"})
_BEYOND_BASIC: Final = r"[\x{10000}-\x{10FFFF}]"


def loses_characters(values: pa.Array, charset: str) -> bool:
    """Whether any of these texts has a character that the character set lacks; of unknown ones only ASCII is sure."""
    charset = charset.lower()
    if charset in _WHOLE or not pa.types.is_string(values.type):
        return False
    values = values.filter(pc.invert(pc.string_is_ascii(values))).drop_null()
    if charset in _BASIC:
        return bool(pc.any(pc.match_substring_regex(values, _BEYOND_BASIC)).as_py())
    return any(not _holds(text, charset) for text in pc.unique(values).to_pylist())


def _holds(text: str, charset: str) -> bool:
    found = charset_by_name(charset)
    if found is None:
        return False
    if found.max_bytes == 1:
        return _characters(charset).issuperset(text)
    try:
        text.encode(found.codec or "ascii")
    except UnicodeEncodeError:
        return False
    return True


@cache
def _characters(charset: str) -> frozenset[str]:
    found = charset_by_name(charset)
    decode = None if found is None else found.decode
    return frozenset() if decode is None else frozenset(decode(bytes([byte])) for byte in range(256))
