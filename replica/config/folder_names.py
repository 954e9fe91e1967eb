"""Names of files and folders that are made from names of tables, in at most the 255 bytes that file systems allow.

A name has 64 characters, and an escaped one can take nine bytes for each.
"""

import hashlib
from typing import Final

_MOST: Final = 255
_DIGITS: Final = 32


def fitting(name: str, most: int = _MOST) -> str:
    """An escaped name as it is; of a longer one the beginning, and a digest that tells it from others like it.

    The escaped name is ASCII, and has its escape character wherever it is too long. So no other table has the cut one
    for its name: in that, each escape character is escaped itself.
    """
    if len(name) <= most:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]
    return f"{name[: most - _DIGITS - 1]}-{digest}"
