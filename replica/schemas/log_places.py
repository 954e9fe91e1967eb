"""Places in one log as pairs of numbers: of the file and of the byte; they compare as the log goes on."""

import re
from typing import Final

from protocol.position import BinlogPosition

#: The number of a binlog file, -1 for a file without one, and the offset in it.
Place = tuple[int, int]

_FILE: Final = re.compile(r"(.*\.)([0-9]{1,20})", re.DOTALL)
_DIGITS: Final = 6
_NO_NUMBER: Final = -1


def place_of(position: BinlogPosition) -> tuple[str, Place]:
    """The base name of the log with its dot, and the place. A file without a number is a log of its own."""
    found = _FILE.fullmatch(position.file)
    if found is None:
        return position.file, (_NO_NUMBER, position.position)
    return found[1], (int(found[2]), position.position)


def file_of(base: str, place: Place) -> BinlogPosition:
    """The reverse of ``place_of``: servers write six digits, or more."""
    number = "" if place[0] == _NO_NUMBER else f"{place[0]:0{_DIGITS}}"
    return BinlogPosition(base + number, place[1])
