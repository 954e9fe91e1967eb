"""Places in one log as pairs of numbers: of the file and of the byte; they compare as the log goes on."""

import re
from typing import Final

from protocol.errors import ConfigurationError
from protocol.position import BinlogPosition

#: The number of a binlog file, and the offset in it.
Place = tuple[int, int]

_FILE: Final = re.compile(r"(.*\.)([0-9]{1,20})", re.DOTALL)
_DIGITS: Final = 6


def place_of(position: BinlogPosition) -> tuple[str, Place]:
    """The base name of the log with its dot, and the place; ``ConfigurationError`` for a file without a number."""
    found = _FILE.fullmatch(position.file)
    if found is None:
        raise ConfigurationError(f"{position.file!r} is no file of a binary log: it has no number")
    return found[1], (int(found[2]), position.position)


def file_of(base: str, place: Place) -> BinlogPosition:
    """The reverse of ``place_of``: servers write six digits, or more."""
    return BinlogPosition(f"{base}{place[0]:0{_DIGITS}}", place[1])
