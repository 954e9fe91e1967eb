"""The lines of a stored schema history: a JSON text, a space, and a checksum in hexadecimal.

    {"version":2,...} 1c291ca3      the CRC32 of the text
    {"columns":[...]} 9be3f1d0      the CRC32 of the text, begun with the checksum of the line before

So a line that is lost, doubled or moved is damage like any other: columns and shapes are counted, and without one of
their lines all that follow would have the names of others. Histories of version 1 have the CRC32 of each text alone.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from protocol.errors import ConfigurationError

VERSION: Final = 2
# The last version whose lines do not depend on each other.
_UNCHAINED: Final = 1


class StoredLines:
    """The lines of one history, in the order in which they are written or read."""

    def __init__(self) -> None:
        self._is_chained = True
        self._last = 0

    def first(self, data: Mapping[str, Any]) -> str:
        """The first line, which names the version."""
        self._is_chained, self._last = True, 0
        return self.next({"version": VERSION, **data})

    def next(self, data: Mapping[str, Any]) -> str:
        """The line behind the last one that was written or read."""
        text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
        return f"{text} {self._add(text)}"

    def read(self, lines: Iterable[str]) -> Iterator[Any]:
        """What the lines say, the first one first. Raises ``ValueError`` for damage, ``ConfigurationError``."""
        is_first = True
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            text, _, checksum = line.rstrip().rpartition(" ")
            if checksum != self._add(text):
                raise ValueError(f"line {number} is damaged, or lines are missing before it")
            data = json.loads(text)
            if is_first:
                self._is_chained = _version(data) > _UNCHAINED
                is_first = False
            yield data

    @property
    def needs_end(self) -> bool:
        """Whether a history without a head behind its tables was cut off."""
        return self._is_chained

    def _add(self, text: str) -> str:
        begin = self._last if self._is_chained else 0
        self._last = zlib.crc32(text.encode("utf-8", "surrogatepass"), begin)
        return f"{self._last:08x}"


def _version(header: Any) -> int:
    version = header.get("version") if isinstance(header, dict) else None
    if type(version) is int and version > VERSION:
        raise ConfigurationError(
            f"it has version {version}, written by a later mysql-replica; this one reads up to version {VERSION}: "
            "upgrade"
        )
    if type(version) is not int or version < _UNCHAINED:
        raise ConfigurationError(f"it has no version up to {VERSION}: {str(header)[:200]}")
    return version
