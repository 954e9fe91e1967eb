"""How many rows the next chunk has: as many as keep its bytes and the time of its SELECT within limits.

It reads no clock: whoever reads a chunk says how long it took.
"""

from typing import Final

#: The bytes of a chunk in memory, undecoded; decoded rows take about four times as much.
CHUNK_BYTES: Final = 8 << 20
#: Seconds in which a chunk should be read: its read view holds a metadata lock so long.
CHUNK_SECONDS: Final = 1.0
_FIRST_ROWS: Final = 1000
# A chunk has at most so many times the rows of the one before it: one light chunk says little about the next.
_GROWTH: Final = 4


class ChunkSize:
    """The size of the chunks of one table. ``rows`` is that of the next chunk, ``most`` the user's limit."""

    def __init__(self, most: int) -> None:
        self.rows = min(most, _FIRST_ROWS)
        self._most = most

    def read(self, rows: int, size: int, seconds: float) -> None:
        """Note a chunk that was read: its rows, their bytes, and the seconds that it took."""
        if not rows:
            return
        by_bytes = CHUNK_BYTES * rows // max(size, 1)
        by_time = int(CHUNK_SECONDS * rows / seconds) if seconds > 0 else self._most
        self.rows = max(1, min(by_bytes, by_time, _GROWTH * self.rows, self._most))
