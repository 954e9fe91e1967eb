"""``stream.arrow()``: the row changes of one table as Arrow RecordBatches, of whole transactions.

    Transactions -> rows events with undecoded rows -> TransactionGroups -> BatchReader -> RecordBatches -> the user

The checkpoint moves behind a group of transactions when the user comes back after the last RecordBatch of the group.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Self

from protocol.binlog.events import Event
from protocol.position import Checkpoint
from protocol.records import record

from ..transactions.transaction import Transaction, Transactions
from .transaction_groups import StreamPlace, TransactionGroups

if TYPE_CHECKING:
    import pyarrow as pa

    from ..arrow import BatchReader, Images, Losses

# A guess of the bytes of a row in the log, until the first rows have come.
_FIRST_ROW_SIZE = 64


@record(frozen=True, slots=True)
class ColumnChoice:
    """What ``stream.arrow()`` reads: a table, its columns, and the limits of batches."""

    table: str
    columns: Sequence[str] | None
    images: "Images"
    metadata: Sequence[str] | None
    max_rows: int
    max_seconds: float | None


class RowsGroups(TransactionGroups[Event]):
    """The undecoded rows events of whole transactions, each transaction behind the event that begins it."""

    def __init__(self, transactions: Transactions, place: StreamPlace, choice: ColumnChoice) -> None:
        super().__init__(transactions, place)
        self._max_rows, self._max_seconds = choice.max_rows, choice.max_seconds
        # Rows are not counted before they become columns.
        self._row_size = float(_FIRST_ROW_SIZE)
        #: Whether the user has yet to get a part of the group that was handed out last.
        self.has_parts_left = False

    def finish_given(self) -> None:
        """The user is done with what was handed out: with the last group, or with a part of it."""
        if not self.has_parts_left:
            super().finish_given()

    def learn(self, rows: int, size: int) -> None:
        """Note that so many rows took so many bytes in the log."""
        self._row_size = size / rows if rows else self._row_size

    @property
    def _most(self) -> int:
        return int(self._max_rows * self._row_size)

    async def _gather(self, tx: Transaction, room: int | None) -> bool:
        return await tx.gather(room, undecoded=True)

    async def _collect(self, tx: Transaction) -> tuple[list[Event], int]:
        events = await tx.collect_events()
        return events, _size_of(events)


class ArrowBatches:
    """The row changes of one table as RecordBatches; made by ``BinlogStream.arrow``.

    ``schema`` is the schema of the last batch (None before the first), and ``losses`` counts the values that Arrow
    could not hold, as of ``BatchReader``. After leaving the loop, iterating again continues with the next batch.
    Raises the errors of iterating the stream and of ``Transaction.collect``, after the batches of the transactions
    before the failure; an error in rows is raised again and again.
    """

    def __init__(self, groups: RowsGroups, reader: "BatchReader", add_rows: Callable[[int], None]) -> None:
        self._groups = groups
        self._reader = reader
        self._add_rows = add_rows
        self._batches: Iterator[pa.RecordBatch] = iter(())
        # The batch behind the last one, if both are of one group; the rows handed out of the group, and its bytes.
        self._next: pa.RecordBatch | None = None
        self._rows = self._size = 0
        self._behind: Checkpoint | None = None
        self._checkpoint: Checkpoint | None = None
        self._schema: pa.Schema | None = None

    @property
    def table(self) -> str:
        """The table, such as ``"shop.orders"``."""
        return self._reader.table

    @property
    def schema(self) -> "pa.Schema | None":
        """The schema of the last batch."""
        return self._schema

    @property
    def empty_schema(self) -> "pa.Schema":
        """The schema of an Arrow stream without any batch: the metadata columns."""
        return self._reader.empty_schema

    @property
    def losses(self) -> "Losses":
        """How many values Arrow could not hold so far."""
        return self._reader.losses

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The place behind the last batch: store both at once, and each row is there exactly once.

        A transaction of more than ``max_rows`` rows comes in several batches. Until its last one this is the place
        before it, or None if no other batch came before: store these batches together.
        """
        return self._checkpoint

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "pa.RecordBatch":
        while self._next is None:
            if self._reader.error is not None:
                raise self._reader.error
            group = await self._groups.next_group()
            self._batches, self._behind = self._reader.read(group.items), group.checkpoint
            self._rows, self._size = 0, _size_of(group.items)
            self._next = next(self._batches, None)
            self._groups.has_parts_left = self._reader.error is not None
        batch = self._next
        self._schema = batch.schema
        self._rows += batch.num_rows
        self._add_rows(batch.num_rows)
        self._next = next(self._batches, None)
        self._groups.has_parts_left = self._next is not None or self._reader.error is not None
        if not self._groups.has_parts_left:
            self._checkpoint = self._behind
            self._groups.learn(self._rows, self._size)
        return batch


def _size_of(events: Sequence[Event]) -> int:
    return sum(event.header_fields[3] for event in events)
