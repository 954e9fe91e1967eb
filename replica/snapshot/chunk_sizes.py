"""How many rows the next chunk of each table has, so that a chunk has some megabytes however large its rows are.

The rows of a table are as large as those of its last chunk, so far as one knows. Where they turn out to be much
larger, the chunk is given up, and read again with fewer rows.
"""

from typing import Final

from protocol.errors import ReplicaError
from protocol.rows.result_compiler import Row

from .chunk_reader import Chunk
from .transaction_touches import TableId

#: The bytes that a chunk is to have.
TARGET_BYTES: Final = 4 << 20
# A chunk is given up when it has more.
_MOST_BYTES: Final = 4 * TARGET_BYTES


class LargeRowsError(ReplicaError):
    """A chunk was given up, as its rows are large: read it again. The session has to be closed."""


class ChunkSizes:
    """The number of rows of the next chunk, by table; ``most`` is that of a table with small rows."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: dict[TableId, int] = {}

    def limit(self, table: TableId) -> int:
        """How many rows the next chunk may have."""
        return self._rows.get(table, self._most)

    async def read(self, table: TableId, chunk: Chunk) -> list[Row]:
        """All rows of a chunk that may have ``limit`` rows. ``LargeRowsError`` if it is to have fewer."""
        rows: list[Row] = []
        async for some in chunk:
            rows += some
            if chunk.size > _MOST_BYTES and len(rows) < self.limit(table):
                break
        else:
            if rows:
                self._fit(table, chunk)
            return rows
        self._fit(table, chunk)
        raise LargeRowsError(f"{len(rows)} rows of {'.'.join(table)} have {chunk.size} bytes")

    def _fit(self, table: TableId, chunk: Chunk) -> None:
        self._rows[table] = min(self._most, max(1, TARGET_BYTES * chunk.rows // max(chunk.size, 1)))
