"""``SyncArrowBatches``: what ``stream.arrow()`` of ``replica.sync`` returns, an iterator and an Arrow stream."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from protocol.position import Checkpoint

from ..stream.arrow_batches import ArrowBatches
from .loop_driver import LoopDriver

if TYPE_CHECKING:
    import pyarrow as pa

    from ..arrow import Losses


class SyncArrowBatches:
    """The row changes of one table as RecordBatches: like ``ArrowBatches``, without ``await``.

    It is an Arrow stream, too (``__arrow_c_stream__``): ``pyarrow.table``, ``polars.DataFrame`` and DuckDB take it
    as it is, up to the stream's ``stop``.
    """

    def __init__(self, batches: ArrowBatches, driver: LoopDriver, stream: object) -> None:
        # A stream that nobody holds is closed. ``pickle`` and ``copy`` come to it first, and are refused.
        self._stream = stream
        self._batches = batches
        self._driver = driver
        # A batch that was read for its schema, or that a program with another schema could not take.
        self._first: pa.RecordBatch | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> "pa.RecordBatch":
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return self._driver.next(self._batches)

    @property
    def table(self) -> str:
        """The table, such as ``"shop.orders"``."""
        return self._batches.table

    @property
    def schema(self) -> "pa.Schema | None":
        """The schema of the last batch; None before the first."""
        return self._batches.schema

    @property
    def losses(self) -> "Losses":
        """How many values Arrow could not hold so far."""
        return self._batches.losses

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The place behind the last batch: see ``ArrowBatches.checkpoint``."""
        return self._batches.checkpoint

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The batches as a stream of the Arrow PyCapsule interface; reading it reads the source's log.

        This waits for the first batch, whose schema is that of the stream: later columns are a
        ``SchemaMismatchError``, and iterating again goes on with them. Without any batch the stream has the metadata
        columns alone. A batch is done when the next one is read: a program that reads ahead of what it has stored is
        to be given a ``stop``, and its rows are stored before the stream is closed.
        """
        import pyarrow as pa

        first = self._first = next(self, None)
        schema = self._batches.empty_schema if first is None else first.schema
        stream = pa.RecordBatchReader.from_batches(schema, self._of_one_schema(schema))
        return stream.__arrow_c_stream__(requested_schema)

    def _of_one_schema(self, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
        from ..arrow import check_schema

        for batch in self:
            self._first = batch
            check_schema(self.table, batch, schema)
            self._first = None
            yield batch
