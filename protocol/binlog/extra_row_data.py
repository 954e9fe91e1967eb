"""Extra row data of version 2 rows events: tagged parts, of NDB and of partitions.

Layout: MySQL's ``rows_event.cpp`` (Rows_event). As there, an unknown tag ends what is understood, and a part that
ends behind the data is damage. MariaDB knows NDB's tag only (``log_event_server.cc``: Rows_log_event).
"""

from typing import Final

from ..errors import DecodeError
from ..wire import Reader

NDB: Final = 0
PARTITION: Final = 1


def read_extra(body: Reader, *, has_two_images: bool) -> bytes:
    """The extra row data of an event, without their length. An update names the partitions of both images."""
    length = body.uint(2)
    if length < 2:
        raise DecodeError(f"the extra row information has {length} bytes, less than its 2-byte length field")
    extra = body.take(length - 2)
    position = 0
    while position < len(extra):
        tag = extra[position]
        if tag == NDB:
            # The length counts itself.
            position += 1 + (extra[position + 1] if position + 1 < len(extra) else 1)
        elif tag == PARTITION:
            position += 5 if has_two_images else 3
        else:
            break
        if position > len(extra):
            raise DecodeError(
                f"the extra row information has {len(extra)} bytes, and a part of it ends at {position}"
            )
    return extra
