"""``stream.batches()``: the changes of several transactions at once, and a checkpoint that waits for all of them.

Transactions -> changes of whole transactions -> ChangeBatch -> the user
"""

from typing import Self

from protocol.binlog.events import QueryEvent
from protocol.binlog.row_changes import Change
from protocol.position import Checkpoint
from protocol.records import record
from protocol.rows.table import Table

from ..transactions.transaction import Transaction, Transactions
from .transaction_groups import StreamPlace, TransactionGroups, check_limits


@record(frozen=True, slots=True)
class ChangeBatch:
    """The changes of one or more whole transactions, in the order of the log.

    ``changes`` are the changes as ``Transaction.collect`` returns them: committed ones, without those that were
    rolled back to a savepoint. ``ddl`` are statements that come before the changes: DDL, TRUNCATE, account
    management. A transaction with such a statement is a batch of its own, mostly without changes. ``voided`` is the
    table whose rows so far are void, because its copy begins anew here: a batch of its own, too. ``checkpoint`` is
    the place after the batch: store it together with the rows, and each row is there exactly once.
    """

    changes: list[Change]
    ddl: tuple[QueryEvent, ...]
    checkpoint: Checkpoint
    voided: Table | None = None


class Batches(TransactionGroups[Change]):
    """The changes of a stream in batches; made by ``BinlogStream.batches``.

    After leaving the loop, iterating again continues with the next batch. Raises the errors of iterating the stream
    and of ``Transaction.collect``, after the batch of the transactions before the failure.
    """

    def __init__(self, transactions: Transactions, place: StreamPlace) -> None:
        super().__init__(transactions, place)
        self._max_rows = 0

    def limit(self, max_rows: int, max_seconds: float | None) -> None:
        """Set the limits of the next batches."""
        check_limits("batches()", max_rows, max_seconds)
        self._max_rows, self._max_seconds = max_rows, max_seconds

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChangeBatch:
        return ChangeBatch(*await self.next_group())

    @property
    def _most(self) -> int:
        return self._max_rows

    async def _gather(self, tx: Transaction, room: int | None) -> bool:
        return await tx.gather(room)

    async def _collect(self, tx: Transaction) -> tuple[list[Change], int]:
        changes = await tx.collect()
        return changes, len(changes)
