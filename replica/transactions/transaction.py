"""Transactions as the unit: ``stream.transactions()`` and ``log.transactions()``, from begin to commit, row by row.

What a transaction is and how it ended, ``grouping`` says, without I/O; here events are fetched for it, only when they
are asked for.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Final, Self

from protocol.binlog.events import Change, Event, QueryEvent, TransactionPayloadEvent
from protocol.errors import LostEventsError, TransactionOutcomeError
from protocol.gtid import Gtid, MariadbGtid
from protocol.position import Checkpoint

from ..sql.xa import Xid
from .units import Outcome, TransactionGrouper, Unit

_NO_CHANGES: Final[tuple[Change, ...]] = ()


class _TransactionFacts:
    """What is known of a transaction without iterating it."""

    def __init__(self, unit: Unit, checkpoint_behind: Callable[[Unit], Checkpoint]) -> None:
        self._unit = unit
        self._checkpoint_behind = checkpoint_behind
        self._changes: Iterator[Change] = iter(_NO_CHANGES)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.gtid}: {self.outcome or 'open'}>"

    @property
    def gtid(self) -> Gtid | MariadbGtid | None:
        """None where the source logs none."""
        return self._unit.gtid

    @property
    def commit_time(self) -> datetime:
        """When it was committed on the server that had it first, in UTC; microseconds from MySQL 8.0.1 on.

        Elsewhere the second in which the statement began that its first event comes from.
        """
        return self._unit.commit_time

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None as long as its end has not been read.

        ``"commit"``; ``"rollback"``: what it has changed is undone. ``"prepared"``: XA PREPARE, and a later
        transaction without changes, committed or rolled back, names the same ``xid``. ``"restarted"``: a failover
        has cut it off; it is void, and comes again (``is_restart``) unless the new source does not have it.
        """
        return self._unit.outcome

    @property
    def xid(self) -> Xid | None:
        """The XA transaction that is prepared, committed or rolled back here."""
        return self._unit.xid

    @property
    def ddl(self) -> tuple[QueryEvent, ...]:
        """Its statements that are no row changes: DDL, TRUNCATE, account management. As far as they have been read.

        Where one stands alone it is known from the beginning.
        """
        return tuple(self._unit.ddl)

    @property
    def is_restart(self) -> bool:
        """Whether it was delivered before, in part (``outcome`` was ``"restarted"``), and begins anew."""
        return self._unit.is_restart

    @property
    def checkpoint(self) -> Checkpoint:
        """Where to go on after this transaction; to be asked for at its end, before the next one.

        Raises ``RuntimeError`` at another time, and ``TransactionOutcomeError`` where it was cut off.
        """
        unit = self._unit
        if unit.checkpoint is None:
            unit.checkpoint = self._checkpoint_behind(unit)
        return unit.checkpoint


def _check_end(grouper: TransactionGrouper, unit: Unit) -> None:
    """Whether what is known of progress is that of the unit's end."""
    if unit.outcome == "restarted":
        raise TransactionOutcomeError(
            f"transaction {unit.gtid} was cut off by a failover: nothing is behind it"
        )
    if unit.outcome is None:
        raise RuntimeError("a transaction's checkpoint is known at its end: iterate it first")
    if not grouper.stands_behind(unit):
        raise RuntimeError("a transaction's checkpoint is to be asked for before the next transaction")


class Transaction(_TransactionFacts):
    """One transaction of a stream, from begin to end; iterate it for its changes, row by row.

        async for tx in stream.transactions():
            async for change in tx:
                ...

    Leaving the loop and iterating again goes on with the next change. Iterating raises ``StatementFormatError`` for
    row changes that were logged as statements, and ``RolledBackToSavepointError`` where changes that were delivered
    do not stand any more; both can be passed by iterating again. ``collect()`` spares one the latter.
    """

    def __init__(self, unit: Unit, owner: "Transactions") -> None:
        super().__init__(unit, owner.checkpoint_behind)
        self._owner = owner

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        self._unit.is_iterated = True
        while (change := next(self._changes, None)) is None:
            event = await self._next_event()
            if event is None:
                raise StopAsyncIteration
            self._changes = self._unit.changes_of(event)
        return change

    def events(self) -> "TransactionEvents":
        """All of its events from begin to end, or those that are left: for who needs more than the changes."""
        return TransactionEvents(self._any_event)

    async def collect(self, *, prepared: bool = False) -> list[Change]:
        """All its changes at once, if they are committed; none of them if they are rolled back.

        Changes that were rolled back to a savepoint are not among them. Where a failover restarts the
        transaction, it is collected again from its begin. ``TransactionOutcomeError`` is raised for prepared ones
        (``prepared`` gives their changes, too: what becomes of them, a later transaction with this ``xid`` says), and
        where the stream ends within it; ``RuntimeError`` if iterating has begun already.
        """
        self._unit.begin_collecting()
        while True:
            while (event := await self._next_event()) is not None:
                self._unit.collect(event)
            if self._unit.outcome != "restarted" or (again := await self._owner.restarted()) is None:
                return self._unit.collected(prepared)
            self._unit = again

    async def _next_event(self) -> Event | None:
        unit = self._unit
        while (event := unit.take()) is None:
            if unit.is_over:
                return None
            try:
                await self._owner.pull()
            except StopAsyncIteration:
                return None
        return event

    async def _any_event(self) -> Event | None:
        self._unit.is_iterated = True
        self._changes = iter(_NO_CHANGES)
        return await self._next_event()


class TransactionEvents:
    """The events of one transaction."""

    def __init__(self, next_event: Callable[[], Awaitable[Event | None]]) -> None:
        self._next_event = next_event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self._next_event()
        if event is None:
            raise StopAsyncIteration
        return event


class Transactions:
    """The transactions of a stream, one after the other; made by ``BinlogStream.transactions``.

    Moving on drains an unread transaction. Leaving the loop and iterating again goes on with the next one. Raises
    what iterating the stream does, and ``LostEventsError``.

    ``next_event`` gives the stream's events, all of them, and raises ``StopAsyncIteration`` at its end;
    ``checkpoint_behind`` gives its checkpoint as if all events that it has given were done.
    """

    def __init__(
        self, next_event: Callable[[], Awaitable[Event]], checkpoint_behind: Callable[[], Checkpoint]
    ) -> None:
        self._next_event = next_event
        self._checkpoint_behind = checkpoint_behind
        self._grouper = TransactionGrouper()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Transaction:
        return Transaction(await self._next_unit(), self)

    def follow(self, event: Event) -> None:
        """The user has had an event of the stream by another way."""
        with contextlib.suppress(LostEventsError):
            # What it says, the user has seen.
            self._grouper.feed(event)
        if self._grouper.unit is not None:
            self._grouper.unit.forget(event)

    async def pull(self) -> None:
        """Fetch one event for the transaction that it belongs to."""
        self._grouper.feed(await self._next_event())

    def checkpoint_behind(self, unit: Unit) -> Checkpoint:
        """The checkpoint at the end of a transaction, if that is where the stream stands."""
        _check_end(self._grouper, unit)
        return self._checkpoint_behind()

    async def restarted(self) -> Unit | None:
        """The repeat of the transaction that was cut off, if that is what comes next."""
        while (unit := self._grouper.unit) is None or unit.outcome == "restarted":
            try:
                await self.pull()
            except StopAsyncIteration:
                return None
        return await self._next_unit() if unit.is_restart else None

    async def _next_unit(self) -> Unit:
        while (unit := self._grouper.next_unit()) is None:
            await self.pull()
        return unit


class FileTransaction(_TransactionFacts):
    """One transaction of a file: as ``Transaction``, without ``await``."""

    def __init__(self, unit: Unit, owner: "FileTransactions") -> None:
        super().__init__(unit, owner.checkpoint_behind)
        self._owner = owner

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        self._unit.is_iterated = True
        while (change := next(self._changes, None)) is None:
            event = self._next_event()
            if event is None:
                raise StopIteration
            self._changes = self._unit.changes_of(event)
        return change

    def events(self) -> Iterator[Event]:
        """All of its events from begin to end, or those that are left."""
        return iter(self._any_event, None)

    def collect(self, *, prepared: bool = False) -> list[Change]:
        """All its changes at once, if they are committed: see ``Transaction.collect``."""
        self._unit.begin_collecting()
        while (event := self._next_event()) is not None:
            self._unit.collect(event)
        return self._unit.collected(prepared)

    def _next_event(self) -> Event | None:
        unit = self._unit
        while (event := unit.take()) is None:
            if unit.is_over:
                return None
            if not self._owner.pull():
                return None
        return event

    def _any_event(self) -> Event | None:
        self._unit.is_iterated = True
        self._changes = iter(_NO_CHANGES)
        return self._next_event()


class FileTransactions:
    """The transactions of files, one after the other; made by ``BinlogFile.transactions``.

    ``next_event`` gives all events of the files as ``BinlogFile.raw_events`` does, and None at the end.
    """

    def __init__(self, next_event: Callable[[], tuple[bytes, int, Event] | None]) -> None:
        self._next_event = next_event
        self._grouper = TransactionGrouper(has_gtids=True)
        self._end = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FileTransaction:
        while (unit := self._grouper.next_unit()) is None:
            if not self.pull():
                raise StopIteration
        return FileTransaction(unit, self)

    def pull(self) -> bool:
        """Fetch one event for the transaction that it belongs to; false where there is none."""
        found = self._next_event()
        if found is None:
            return False
        raw, position, event = found
        if raw:
            self._end = position + len(raw)
        # The envelope of a compressed transaction; what is in it comes behind it, without bytes of its own.
        if type(event) is not TransactionPayloadEvent:
            self._grouper.feed(event, event.file, self._end)
        return True

    def checkpoint_behind(self, unit: Unit) -> Checkpoint:
        """The place behind a transaction in the files, for ``open_binlog(start=...)``."""
        _check_end(self._grouper, unit)
        progress = self._grouper.progress
        gtid_set = None if progress.gtid_set is None else str(progress.gtid_set)
        return Checkpoint(progress.file, progress.position, gtid_set)
