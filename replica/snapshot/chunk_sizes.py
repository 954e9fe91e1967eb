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
# A chunk that has more than so many times these bytes is given up.
_MOST_TIMES: Final = 4


class LargeRowsError(ReplicaError):
    """A chunk was given up, as its rows are large: read it again. The session has to be closed."""


class ChunkSizes:
    """The number of rows of the next chunk, by table: ``first`` of one that was not read yet, ``most`` of small rows.

    ``most`` is ``first`` if it is not given. ``target`` is the number of bytes that a chunk is to have.
    """

    def __init__(self, first: int, most: int | None = None, target: int = TARGET_BYTES) -> None:
        self._first = first
        self._most = first if most is None else most
        self._target = target
        self._rows: dict[TableId, int] = {}

    def limit(self, table: TableId) -> int:
        """How many rows the next chunk may have."""
        return self._rows.get(table, self._first)

    async def read(self, table: TableId, chunk: Chunk) -> list[Row]:
        """All rows of a chunk that may have ``limit`` rows. Raises as ``check``."""
        rows: list[Row] = []
        async for some in chunk:
            rows += some
            self.check(table, chunk)
        self.fit(table, chunk)
        return rows

    def check(self, table: TableId, chunk: Chunk) -> None:
        """Raises ``LargeRowsError`` if a chunk that may have ``limit`` rows is so large that it is to have fewer."""
        if chunk.size > _MOST_TIMES * self._target and chunk.rows < self.limit(table):
            self.fit(table, chunk)
            raise LargeRowsError(f"{chunk.rows} rows of {'.'.join(table)} have {chunk.size} bytes")

    def fit(self, table: TableId, chunk: Chunk) -> None:
        """Let the next chunk have as many rows of this one's size as are to be read at once."""
        if chunk.rows:
            fitting = self._target * chunk.rows // max(chunk.size, 1)
            self._rows[table] = min(self._most, max(1, fitting))
