"""Groups of whole transactions, and a checkpoint that waits for all of a group: what makes batches of a stream.

    Transactions -> the items of whole transactions -> Group -> Batches, ArrowBatches

The stream's own account counts an event as done when the next one is asked for. A group asks for many events before
the user has seen the first: so ``held`` keeps the checkpoint where the group begins, until the user is done with it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from protocol.binlog.events import QueryEvent
from protocol.errors import ConfigurationError, ReplicaError
from protocol.position import Checkpoint
from protocol.records import record
from protocol.rows.table import Table

from ..transactions.transaction import Transaction, Transactions

Item = TypeVar("Item")


@record(frozen=True, slots=True)
class StreamPlace:
    """What ``TransactionGroups`` asks of its stream.

    ``before`` returns the checkpoint after the last transaction of which every event is done, ``behind`` the one as
    if all events handed out were done. ``finish`` marks these as done. ``is_awaited`` says whether the source waits
    for an acknowledgement (semi-sync). ``settled`` saves the checkpoint if that is due.
    """

    before: Callable[[], Checkpoint]
    behind: Callable[[], Checkpoint]
    finish: Callable[[], None]
    is_awaited: Callable[[], bool]
    settled: Callable[[], Awaitable[None]]


def check_limits(method: str, max_rows: object, max_seconds: object) -> None:
    """Raise ``ConfigurationError`` for limits of batches that cannot be used."""
    if not isinstance(max_rows, int) or isinstance(max_rows, bool) or max_rows < 1:
        raise ConfigurationError(f"{method}: max_rows is a number of rows from 1 on, not {max_rows!r}")
    if max_seconds is not None and not (isinstance(max_seconds, int | float) and max_seconds > 0):
        raise ConfigurationError(
            f"{method}: max_seconds is a number of seconds above 0, or None, not {max_seconds!r}"
        )


def _stands_alone(tx: Transaction) -> bool:
    """Whether the user must see more of the transaction than its changes."""
    return bool(tx.ddl) or tx.voided is not None


class Group(NamedTuple, Generic[Item]):
    """Items of one or more transactions, in the order of the log: see ``ChangeBatch``."""

    items: list[Item]
    ddl: tuple[QueryEvent, ...]
    checkpoint: Checkpoint
    voided: Table | None


class TransactionGroups(ABC, Generic[Item]):
    """The transactions of a stream in groups: what ``Batches`` and ``ArrowBatches`` have in common."""

    def __init__(self, transactions: Transactions, place: StreamPlace) -> None:
        self._transactions = transactions
        self._place = place
        #: The stream's checkpoint while a group is not done; None: that of the stream's events.
        self.held: Checkpoint | None = None
        self._max_seconds: float | None = None
        self._items: list[Item] = []
        self._size = 0
        self._ddl: tuple[QueryEvent, ...] = ()
        self._voided: Table | None = None
        # A transaction that has been read in part, or as a whole if it is left for the next group.
        self._open: Transaction | None = None
        # When the group that is being read ends, by the event loop's clock; a call that is cancelled leaves it begun.
        self._due: float | None = None
        # A failure behind the transactions of the last group.
        self._error: ReplicaError | StopAsyncIteration | None = None
        self._given: Checkpoint | None = None

    @property
    @abstractmethod
    def _most(self) -> int:
        """The size that a group should not exceed."""

    @abstractmethod
    async def _gather(self, tx: Transaction, room: int | None) -> bool:
        """Read a transaction; False if its size was found to exceed ``room``."""

    @abstractmethod
    async def _collect(self, tx: Transaction) -> tuple[list[Item], int]:
        """The items of a transaction that was read, and their size."""

    async def next_group(self) -> Group[Item]:
        """The next group; the one before is done. Raises ``StopAsyncIteration`` at the end of the stream."""
        if self._given is not None:
            self.finish_given()
            await self._place.settled()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        try:
            async with asyncio.timeout_at(self._due) as timer:
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
        """The user is done with the group that was handed out last: the checkpoint moves behind it."""
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
        return bool(self._items) or self._is_alone

    @property
    def _is_alone(self) -> bool:
        return bool(self._ddl) or self._voided is not None

    def _give(self) -> Group[Item]:
        is_behind = self._open is None and self._error is None
        checkpoint = self._place.behind() if is_behind else self._place.before()
        group = Group(self._items, self._ddl, checkpoint, self._voided)
        self._items, self._size, self._ddl, self._voided, self._given = [], 0, (), None, checkpoint
        self._due = None
        return group

    async def _fill(self, timer: asyncio.Timeout) -> None:
        """Read transactions until the group is full. ``timer`` is set when the group has its first transaction."""
        while not (self._is_begun and self._is_full()):
            if self._open is None:
                self._open = await anext(self._transactions)
            room = self._most - self._size if self._is_begun else None
            if not await self._gather(self._open, room) or (self._is_begun and _stands_alone(self._open)):
                return
            await self._add(self._open)
            self._open = None
            if self._is_begun and self._due is None and self._max_seconds is not None:
                self._due = asyncio.get_running_loop().time() + self._max_seconds
                timer.reschedule(self._due)

    def _is_full(self) -> bool:
        return self._is_alone or self._size >= self._most or self._place.is_awaited()

    async def _add(self, tx: Transaction) -> None:
        """Add a transaction that was read to its end; nothing is awaited for it any more."""
        if tx.outcome is None:
            # The stream was closed in the middle of the transaction, which comes again from the checkpoint.
            raise StopAsyncIteration
        # A transaction that a failover cut off, and that the new source does not have, never was.
        items, size = await self._collect(tx) if tx.outcome != "restarted" else ([], 0)
        if items or _stands_alone(tx):
            # The last event of the transaction is not done yet, so this is the place before it.
            self.held = self.held or self._place.before()
            self._items += items
            self._size += size
            self._ddl, self._voided = tx.ddl, tx.voided
        elif not self._is_begun:
            self.held = None
