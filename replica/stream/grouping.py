"""``Grouping``: how a stream is iterated, by events and transactions, or by batches of transactions.

``GroupedStream`` has the methods of a stream that ask for these.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from protocol.binlog.events import Event
from protocol.errors import ConfigurationError
from protocol.position import Checkpoint

from ..config.options import Options
from ..transactions.transaction import Transactions
from .arrow_batches import ArrowBatches, ColumnChoice, RowsGroups
from .batch import Account
from .change_batches import Batches
from .deliveries import Deliveries
from .transaction_groups import StreamPlace, check_limits

if TYPE_CHECKING:
    from ..arrow import Images


class Grouping:
    """The transactions and batches of one stream, as far as the user has asked for them.

    ``next_event`` returns the stream's next event.
    """

    def __init__(
        self,
        options: Options,
        next_event: Callable[[], Awaitable[Event]],
        place: StreamPlace,
        deliveries: Deliveries,
        account: Account,
    ) -> None:
        self._options = options
        self._next_event = next_event
        self._place = place
        self._deliveries = deliveries
        self._account = account
        #: None until transactions or batches are asked for.
        self.transactions: Transactions | None = None
        self.batches: Batches | RowsGroups | None = None
        self._is_grouping = False

    @property
    def held(self) -> Checkpoint | None:
        """The stream's checkpoint while a batch is not done; None: that of the stream's events."""
        return None if self.batches is None else self.batches.held

    def by_transactions(self) -> Transactions:
        """The result of ``stream.transactions()``."""
        self.check_without_batches()
        return self.transactions or self._group_all("transactions()")

    def by_batches(self, max_rows: int, max_seconds: float | None) -> Batches:
        """The result of ``stream.batches()``."""
        batches = self.batches
        if batches is None:
            self._check_ungrouped()
            check_limits("batches()", max_rows, max_seconds)
            batches = self.batches = Batches(self._group_all("batches()"), self._place)
        if not isinstance(batches, Batches):
            raise RuntimeError("a stream gives batches or columns, not both: connect another stream")
        batches.limit(max_rows, max_seconds)
        return batches

    def by_columns(self, choice: ColumnChoice) -> ArrowBatches:
        """The result of ``stream.arrow()``."""
        from ..arrow import METADATA_COLUMNS, BatchReader, RawRowCompiler

        self._check_ungrouped()
        if self.batches is not None:
            raise RuntimeError("a stream gives the columns of one table, once: connect another stream")
        if self._options.start == "snapshot":
            raise ConfigurationError(
                "arrow() reads the log: start='snapshot' would begin with rows of tables"
            )
        check_limits("arrow()", choice.max_rows, choice.max_seconds)
        reader = BatchReader(
            iter(()),
            choice.table,
            columns=choice.columns,
            images=choice.images,
            metadata=METADATA_COLUMNS if choice.metadata is None else choice.metadata,
            batch_rows=choice.max_rows,
        )
        groups = RowsGroups(self._group_all("arrow()"), self._place, choice)
        self._deliveries.read_columns(reader.table, RawRowCompiler)
        self.batches = groups
        return ArrowBatches(groups, reader, self._account.add_rows)

    def check_without_batches(self) -> None:
        """Raise ``RuntimeError`` if the stream gives batches."""
        if self.batches is not None:
            method = "batches()" if isinstance(self.batches, Batches) else "arrow()"
            raise RuntimeError(f"a stream that gives batches is iterated by {method} alone")

    def check_decodes(self) -> None:
        """Raise ``RuntimeError`` if the stream's rows are left undecoded."""
        if isinstance(self.batches, RowsGroups):
            raise RuntimeError("arrow() reads the log: a stream that gives columns copies no tables")

    def follow(self, event: Event) -> Event:
        """Show an event to the transactions, unless they asked for it themselves."""
        if self.transactions is not None and not self._is_grouping:
            self.transactions.follow(event)
        return event

    def _check_ungrouped(self) -> None:
        if self.batches is None and self.transactions is not None:
            raise RuntimeError("a stream gives batches or transactions, not both: connect another stream")

    def _group_all(self, name: str) -> Transactions:
        if Event not in self._options.events:
            raise ConfigurationError(f"{name} needs all events: leave out events=")
        self.transactions = Transactions(self._next_to_group, self._place.behind)
        return self.transactions

    async def _next_to_group(self) -> Event:
        self._is_grouping = True
        try:
            return await self._next_event()
        finally:
            self._is_grouping = False


class GroupedStream:
    """The ways to iterate a ``BinlogStream`` by more than single events."""

    _grouping: Grouping
    # Events to hand out without a look at their transactions: none from now on.
    _rest: Iterator[Event]

    def transactions(self) -> Transactions:
        """Iterate over whole transactions, from begin to commit; each transaction yields its changes.

        Transactions and events of a stream share one place in the log: each loop goes on where the other stopped.
        Raises ``ConfigurationError`` if the stream has ``events=``: a transaction needs all its events.
        """
        self._rest = iter(())
        return self._grouping.by_transactions()

    def batches(self, *, max_rows: int = 10_000, max_seconds: float | None = 1.0) -> Batches:
        """Iterate over the changes of many transactions at once, for targets that are written in bulk.

            async for batch in stream.batches(max_rows=5000, max_seconds=2):
                write(batch.changes, batch.checkpoint)

        The checkpoint moves behind a batch when the next one is asked for, or by ``acknowledge()``: after a kill,
        changes that were collected and not yet done come again. A batch holds whole transactions. It ends before the
        transaction that would bring more than ``max_rows`` changes, ``max_seconds`` after its first transaction was
        read (None: no limit), before and after a statement (``ChangeBatch.ddl``), and at the end of the stream. With
        ``semi_sync`` it also ends when the source waits for an acknowledgement.

        A transaction is never cut: one of more than ``max_rows`` changes is a batch of its own, as a whole in memory
        (``transactions()`` gives its changes one by one). Iterating raises ``TransactionOutcomeError`` for an XA
        transaction that is only prepared; iterating again goes on behind it.

        Raises ``ConfigurationError`` for limits that cannot be used and if the stream has ``events=``, and
        ``RuntimeError`` after ``transactions()``: a stream gives one or the other.
        """
        self._rest = iter(())
        return self._grouping.by_batches(max_rows, max_seconds)

    def arrow(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        images: "Images" = "after",
        metadata: Sequence[str] | None = None,
        max_rows: int = 16_384,
        max_seconds: float | None = 1.0,
    ) -> ArrowBatches:
        """Iterate over the row changes of one table as Arrow RecordBatches, of whole transactions.

            async for batch in stream.arrow(table="shop.orders"):
                write(batch)

        Ask for it before the first event. ``table``, ``columns``, ``images`` and ``metadata`` are those of
        ``BinlogFile.arrow``, and so are rows and schema: if the table's columns change, the next batch has another
        schema. ``replica.sync`` gives an Arrow stream, which DuckDB, Polars, pandas and pyarrow take as it is.

        The checkpoint moves behind a batch when the next one is asked for, or by ``acknowledge()``;
        ``ArrowBatches.checkpoint`` is the place to store with the rows. A batch ends at about ``max_rows`` rows, and
        ``max_seconds`` after its first transaction was read (None: no limit). A transaction of more rows comes in
        several batches. It is in memory as a whole, as the log has it. Iterating raises what ``batches()`` raises,
        and ``DecodeError`` for damaged rows.

        Raises ``MissingExtraError`` without the extra ``[arrow]``; ``ConfigurationError`` for unknown names, for
        limits that cannot be used, if the stream has ``events=`` or ``start="snapshot"``, and if events have been
        read; and ``RuntimeError`` after ``transactions()`` and ``batches()``.
        """
        self._rest = iter(())
        return self._grouping.by_columns(
            ColumnChoice(table, columns, images, metadata, max_rows, max_seconds)
        )
