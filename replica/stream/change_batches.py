"""``stream.batches()``: the changes of several transactions at once, and a checkpoint that waits for all of them.

    Transactions -> changes of whole transactions -> ChangeBatch -> the user

The stream's own account counts an event as done when the next one is asked for. A batch asks for many events before
the user has seen the first: so ``held`` keeps the checkpoint where the batch begins, until the user is done with it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from protocol.binlog.events import QueryEvent
from protocol.binlog.row_changes import Change
from protocol.errors import ConfigurationError, ReplicaError
from protocol.position import Checkpoint
from protocol.records import record
from protocol.rows.table import Table

from ..transactions.transaction import Transaction, Transactions


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


@record(frozen=True, slots=True)
class StreamPlace:
    """What ``Batches`` asks of its stream.

    ``before`` returns the checkpoint after the last transaction of which every event is done, ``behind`` the one as
    if all events handed out were done. ``finish`` marks these as done. ``is_awaited`` says whether the source waits
    for an acknowledgement (semi-sync). ``settled`` saves the checkpoint if that is due.
    """

    before: Callable[[], Checkpoint]
    behind: Callable[[], Checkpoint]
    finish: Callable[[], None]
    is_awaited: Callable[[], bool]
    settled: Callable[[], Awaitable[None]]


def check_limits(max_rows: object, max_seconds: object) -> None:
    """Raise ``ConfigurationError`` for limits of batches that cannot be used."""
    if not isinstance(max_rows, int) or isinstance(max_rows, bool) or max_rows < 1:
        raise ConfigurationError(f"batches(): max_rows is a number of rows from 1 on, not {max_rows!r}")
    if max_seconds is not None and not (isinstance(max_seconds, int | float) and max_seconds > 0):
        raise ConfigurationError(
            f"batches(): max_seconds is a number of seconds above 0, or None, not {max_seconds!r}"
        )


def _stands_alone(tx: Transaction) -> bool:
    """Whether the user must see more of the transaction than its changes."""
    return bool(tx.ddl) or tx.voided is not None


class Batches:
    """The changes of a stream in batches; made by ``BinlogStream.batches``.

    After leaving the loop, iterating again continues with the next batch. Raises the errors of iterating the stream
    and of ``Transaction.collect``, after the batch of the transactions before the failure.
    """

    def __init__(self, transactions: Transactions, place: StreamPlace) -> None:
        self._transactions = transactions
        self._place = place
        #: The stream's checkpoint while a batch is not done; None: that of the stream's events.
        self.held: Checkpoint | None = None
        self._max_rows = 0
        self._max_seconds: float | None = None
        self._changes: list[Change] = []
        self._ddl: tuple[QueryEvent, ...] = ()
        self._voided: Table | None = None
        # A transaction that has been read in part, or as a whole if it is left for the next batch.
        self._open: Transaction | None = None
        # A failure behind the transactions of the last batch.
        self._error: ReplicaError | StopAsyncIteration | None = None
        self._given: Checkpoint | None = None

    def limit(self, max_rows: int, max_seconds: float | None) -> None:
        """Set the limits of the next batches."""
        check_limits(max_rows, max_seconds)
        self._max_rows, self._max_seconds = max_rows, max_seconds

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChangeBatch:
        if self._given is not None:
            self.finish_given()
            await self._place.settled()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        try:
            async with asyncio.timeout(None) as timer:
                await self._fill(timer)
        except TimeoutError:
            if not timer.expired():
                raise
        except (ReplicaError, StopAsyncIteration) as error:
            self._open = None
            if not self._is_begun:
                raise
            self._error = error
        return self._give()

    def finish_given(self) -> None:
        """The user is done with the batch that was handed out last: the checkpoint moves behind it."""
        given, self._given = self._given, None
        if given is None:
            return
        if self._open is not None or self._error is not None:
            # Later transactions have been read, and maybe to their ends.
            self.held = given
        else:
            self._place.finish()
            self.held = None

    @property
    def _is_begun(self) -> bool:
        return bool(self._changes) or self._is_alone

    @property
    def _is_alone(self) -> bool:
        return bool(self._ddl) or self._voided is not None

    def _give(self) -> ChangeBatch:
        is_behind = self._open is None and self._error is None
        checkpoint = self._place.behind() if is_behind else self._place.before()
        batch = ChangeBatch(self._changes, self._ddl, checkpoint, self._voided)
        self._changes, self._ddl, self._voided, self._given = [], (), None, checkpoint
        return batch

    async def _fill(self, timer: asyncio.Timeout) -> None:
        """Read transactions until the batch is full. ``timer`` is set when the batch has its first transaction."""
        while not (self._is_begun and self._is_full()):
            if self._open is None:
                self._open = await anext(self._transactions)
            room = self._max_rows - len(self._changes) if self._is_begun else None
            if not await self._open.gather(room) or (self._is_begun and _stands_alone(self._open)):
                return
            await self._add(self._open)
            self._open = None
            if self._is_begun and timer.when() is None and self._max_seconds is not None:
                timer.reschedule(asyncio.get_running_loop().time() + self._max_seconds)

    def _is_full(self) -> bool:
        return self._is_alone or len(self._changes) >= self._max_rows or self._place.is_awaited()

    async def _add(self, tx: Transaction) -> None:
        """Add a transaction that was read to its end; nothing is awaited for it any more."""
        if tx.outcome is None:
            # The stream was closed in the middle of the transaction, which comes again from the checkpoint.
            raise StopAsyncIteration
        # A transaction that a failover cut off, and that the new source does not have, never was.
        changes = await tx.collect() if tx.outcome != "restarted" else []
        if changes or _stands_alone(tx):
            # The last event of the transaction is not done yet, so this is the place before it.
            self.held = self.held or self._place.before()
            self._changes += changes
            self._ddl, self._voided = tx.ddl, tx.voided
        elif not self._is_begun:
            self.held = None
