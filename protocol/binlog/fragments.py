"""Joins the fragments in which MariaDB 12 sends a large rows event (MARIADB_PARTIAL_ROW_DATA, MDEV-32570).

Layout of a fragment: count of fragments, number of this fragment, flags, the total size (first fragment only), data.
"""

from io import BytesIO
from typing import Final

from ..constants import MAX_EVENT_SIZE, ROW_CODES
from ..errors import DecodeError
from ..wire import Reader, check_size

_WITH_ORIGINAL_SIZE: Final = 1


class Fragments:
    """The fragments so far of one rows event: together at most ``max_event_bytes``."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_SIZE) -> None:
        self._limit = max_event_bytes
        # Not a list: 2^32 empty fragments would take 32 GB.
        self._data = BytesIO()
        self._count = 0

    def add(self, body: Reader) -> tuple[int, int, bytes, bytes | None]:
        """The count of fragments, this fragment's number, its data, and the whole event after the last fragment.

        Raises ``DecodeError`` for a fragment out of order, an event that is too large, and one that is no rows event;
        the fragments so far are then forgotten.
        """
        try:
            fragments, number, flags = body.uint(4), body.uint(4), body.u8()
            if flags & _WITH_ORIGINAL_SIZE:
                check_size("a rows event in fragments", body.uint(8), self._limit)
            if number != self._count + 1 or number > fragments:
                raise DecodeError(f"fragment {number} of {fragments} of a rows event is out of order")
            check_size("a rows event in fragments", self._data.tell() + body.remaining, self._limit)
        except DecodeError:
            self._forget()
            raise
        data = body.rest()
        self._data.write(data)
        self._count = number
        if number < fragments:
            return fragments, number, data, None
        whole = self._data.getvalue()
        self._forget()
        if whole[4:5] not in ROW_CODES:
            # A fragment in fragments, for example, and in it another one: as deep as the interpreter's stack.
            raise DecodeError("an event in fragments is no rows event")
        return fragments, number, data, whole

    def _forget(self) -> None:
        self._data = BytesIO()
        self._count = 0
