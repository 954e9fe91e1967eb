"""A checksum in a JSON object that a file holds: ``{"checksum": "1c291ca3", ...}``.

Files that are replaced as a whole are not damaged by a kill or a crash. A checksum finds what happens to them later:
a bit that flips on the disk, a backup or merge tool that mixes two files, an edit by hand. It is the CRC32 of the
content, not of the bytes: other line ends, another indentation or order do not change it.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

CHECKSUM: Final = "checksum"


def with_checksum(data: Mapping[str, Any]) -> dict[str, Any]:
    """The object with its checksum. It comes first: removing its line leaves no comma behind the last value."""
    return {CHECKSUM: _checksum(data), **data}


def checked(data: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse. An object without a checksum is as it is; raises ``ValueError`` for one that does not match."""
    found = dict(data)
    if CHECKSUM in found and found.pop(CHECKSUM) != _checksum(found):
        raise ValueError("its checksum is that of other content")
    return found


def _checksum(data: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(data, sort_keys=True).encode()):08x}"
