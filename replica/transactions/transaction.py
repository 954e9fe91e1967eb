"""The transactions of ``stream.transactions()`` and ``log.transactions()``, from begin to commit, row by row.

``units`` groups events into transactions without I/O. This module fetches the events, each only when it is needed.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from itertools import chain, islice, repeat
from typing import Any, Final, Self

from protocol.binlog.events import Event, QueryEvent, TransactionPayloadEvent
from protocol.binlog.row_changes import Change
from protocol.errors import LostEventsError, ReplicaError, TransactionOutcomeError
from protocol.gtid import Gtid, MariadbGtid
from protocol.position import Checkpoint
from protocol.rows.table import Table

from ..config.one_process import OneProcess
from ..sql.xa import Xid
from .snapshot_events import SnapshotRestartedEvent
from .units import Outcome, TransactionGrouper, Unit

_NO_CHANGES: Final[tuple[Change, ...]] = ()
# So many changes of an event are made at once. If a signal handler raises, they are made again.
_MADE_AT_ONCE: Final = 64


class _TransactionFacts(OneProcess):
    """The facts of a transaction that are known without iterating it."""

    _instead = "it reads its rows when it is iterated; its changes, gtid and checkpoint can be pickled"

    def __init__(self, unit: Unit, checkpoint_behind: Callable[[Unit], Checkpoint]) -> None:
        self._unit = unit
        self._checkpoint_behind = checkpoint_behind
        self._changes: Iterator[Change] = iter(_NO_CHANGES)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.gtid}: {self.outcome or 'open'}>"

    @property
    def gtid(self) -> Gtid | MariadbGtid | None:
        """The transaction's GTID; None if the source logs no GTIDs."""
        return self._unit.gtid

    @property
    def commit_time(self) -> datetime:
        """The time of the commit on the transaction's first server, in UTC, with microseconds (MySQL 8.0.1 and
        later).

        On other servers the second in which the transaction's first statement began.
        """
        return self._unit.commit_time

    @property
    def outcome(self) -> Outcome | None:
        """How the transaction ended; None until its end has been read.

        ``"commit"``: its changes stand. ``"rollback"``: its changes are undone. ``"prepared"``: XA PREPARE; a later
        transaction without changes names the same ``xid`` and commits or rolls it back. ``"restarted"``: a failover
        cut it off; its changes are void, and it comes again (``is_restart``) if the new source has it.
        ``"snapshot"``: this is no transaction of the log, but a chunk of an initial copy (``Read`` changes) or the
        end of a table's copy (no changes).
        """
        return self._unit.outcome

    @property
    def xid(self) -> Xid | None:
        """The id of the XA transaction that is prepared, committed or rolled back here, otherwise None."""
        return self._unit.xid

    @property
    def ddl(self) -> tuple[QueryEvent, ...]:
        """Statements that do not change rows, read so far: DDL, TRUNCATE, account management.

        A statement that is a transaction of its own is known from the beginning.
        """
        return tuple(self._unit.ddl)

    @property
    def is_restart(self) -> bool:
        """Whether a part was delivered before (with ``outcome`` ``"restarted"``), and the transaction begins anew."""
        return self._unit.is_restart

    @property
    def voided(self) -> Table | None:
        """The table whose rows so far are void, because its copy begins anew here: see ``SnapshotRestartedEvent``."""
        begin = self._unit.begin
        return begin.table if isinstance(begin, SnapshotRestartedEvent) else None

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint from which to resume after this transaction; ask at its end, before the next transaction.

        Raises ``RuntimeError`` at any other time, and ``TransactionOutcomeError`` if the transaction was cut off, by
        the end of the files, too.
        """
        unit = self._unit
        if unit.checkpoint is None:
            unit.checkpoint = self._checkpoint_behind(unit)
        return unit.checkpoint


def _check_end(grouper: TransactionGrouper, unit: Unit) -> None:
    """Raise unless the grouper stands at the end of the unit."""
    if unit.outcome == "restarted":
        raise TransactionOutcomeError(
            f"transaction {unit.gtid} was cut off by a failover, so it has no checkpoint"
        )
    if unit.outcome is None:
        raise RuntimeError(
            "a transaction's checkpoint is known only at its end: iterate the transaction first"
        )
    if not grouper.stands_behind(unit):
        raise RuntimeError("a transaction's checkpoint must be read before the next transaction begins")


class Transaction(_TransactionFacts):
    """One transaction of a stream, from begin to end; iterate it for its changes, row by row.

        async for tx in stream.transactions():
            async for change in tx:
                ...

    After leaving the loop, iterating again continues with the next change. Iterating raises ``StatementFormatError``
    for row changes that were logged as statements, and ``RolledBackToSavepointError`` if delivered changes were
    rolled back. After either error, iterating again continues. ``collect()`` handles rollbacks to savepoints itself.
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
            self._changes = self._unit.changes_of(event) or self._changes
        return change

    def events(self) -> "TransactionEvents":
        """All events from begin to end that have not been read yet, for users who need more than the changes."""
        return TransactionEvents(self._any_event)

    async def collect(self, *, prepared: bool = False) -> list[Change]:
        """All changes of a committed transaction as one list; an empty list if it was rolled back.

        Changes that were rolled back to a savepoint are left out. If a failover restarts the transaction, it is
        collected again from its begin. With ``prepared=True`` a prepared XA transaction gives its changes, too; a
        later transaction with the same ``xid`` commits or rolls them back. Raises ``TransactionOutcomeError`` for a
        prepared transaction without ``prepared=True`` and if the stream ends inside the transaction, and
        ``RuntimeError`` if iterating has already begun.
        """
        await self.gather()
        return self._unit.collected(prepared)

    async def collect_events(self) -> list[Event]:
        """Like ``collect``, of undecoded rows: what begins the transaction, and its rows events."""
        await self.gather(undecoded=True)
        return self._unit.collected_events()

    async def gather(self, most: int | None = None, *, undecoded: bool = False) -> bool:
        """Read the changes that ``collect`` returns, or until there are more than ``most`` of them.

        ``undecoded``: read what ``collect_events`` returns, or until it has more than ``most`` bytes. Returns False
        if ``most`` ended it. May be called again, also after it was cancelled.
        """
        self._unit.begin_collecting()
        while True:
            while (event := await self._next_event()) is not None:
                self._unit.collect(event, undecoded=undecoded)
                if most is not None and self._unit.collected_so_far > most:
                    return False
            if self._unit.outcome != "restarted" or (again := await self._owner.restarted()) is None:
                return True
            self._unit = again

    async def _next_event(self) -> Event | None:
        unit = self._unit
        waiting = unit.waiting
        while not waiting:
            if unit.is_over:
                return None
            try:
                await self._owner.pull()
            except StopAsyncIteration:
                return None
        return waiting.popleft()

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
    """The transactions of a stream, one after another; made by ``BinlogStream.transactions``.

    Moving on drains an unread transaction. After leaving the loop, iterating again continues with the next
    transaction. Raises the errors of iterating the stream, and ``LostEventsError``.

    ``next_event`` returns the stream's next event, of any type, and raises ``StopAsyncIteration`` at its end.
    ``checkpoint_behind`` returns the stream's checkpoint as if all events returned so far were done.
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
        """Note an event that the user got by iterating the stream itself."""
        with contextlib.suppress(LostEventsError):
            # The user has seen the INCIDENT event.
            self._grouper.feed(event)
        if self._grouper.unit is not None:
            self._grouper.unit.forget(event)

    async def pull(self) -> None:
        """Fetch one event and add it to its transaction."""
        self._grouper.feed(await self._next_event())

    def checkpoint_behind(self, unit: Unit) -> Checkpoint:
        """The checkpoint at the end of a transaction; raises if the stream is not there."""
        _check_end(self._grouper, unit)
        return self._checkpoint_behind()

    async def restarted(self) -> Unit | None:
        """The repetition of the transaction that was cut off, if it comes next; otherwise None."""
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
    """One transaction of a file, or of a stream of ``replica.sync``: like ``Transaction``, without ``await``."""

    # A signal handler may raise at any call in here, and then the next call does the same again: what has been taken
    # is noted behind the last call.

    def __init__(self, unit: Unit, owner: "FileTransactions") -> None:
        super().__init__(unit, owner.checkpoint_behind)
        self._owner = owner
        # The rows event whose changes are being made, those still to be made, and how many have been made.
        self._event: Any = None
        self._source: Iterator[Change] | None = None
        self._made = 0
        # Whether the last change has been handed out.
        self._is_whole = False

    def __iter__(self) -> Iterator[Change]:
        # A change costs 0.2 us less than by `__next__`, which a loop would call for each. It goes on behind an error,
        # which ends an iterator that is made of others.
        return chain(self._rest(), map(next, repeat(self)))

    def __next__(self) -> Change:
        if not self._is_whole:
            for change in self._rest():
                return change
        raise StopIteration

    def _rest(self) -> Iterator[Change]:
        return chain(self._changes, chain.from_iterable(iter(self._next_changes, None)))

    def _next_changes(self) -> Iterator[Change] | None:
        """The next changes, all of one event; None at the end."""
        unit = self._unit
        unit.is_iterated = True
        while self._event is None:
            event = self._first_event()
            if event is None:
                self._is_whole = True
                return None
            try:
                self._source = unit.changes_of(event)
            except ReplicaError:
                del unit.waiting[0]
                raise
            del unit.waiting[0]
            if self._source is not None:
                self._event, self._made = event, 0
        source, self._source = self._source, None
        if source is None:
            source = islice(self._event.changes(), self._made, None)
        made = list(islice(source, _MADE_AT_ONCE))
        changes, are_last = iter(made), len(made) < _MADE_AT_ONCE
        self._made += _MADE_AT_ONCE
        self._source, self._changes = source, changes
        if are_last:
            self._event = None
        return changes

    def events(self) -> Iterator[Event]:
        """All events from begin to end that have not been read yet."""
        return map(FileTransaction._any_event, repeat(self))

    def collect(self, *, prepared: bool = False) -> list[Change]:
        """All changes of a committed transaction as one list: see ``Transaction.collect``."""
        self._unit.begin_collecting()
        while True:
            while (event := self._first_event()) is not None:
                try:
                    self._unit.collect(event)
                except ReplicaError:
                    del self._unit.waiting[0]
                    raise
                del self._unit.waiting[0]
            if self._unit.outcome != "restarted" or (again := self._owner.restarted()) is None:
                return self._unit.collected(prepared)
            self._unit = again

    def _first_event(self) -> Event | None:
        """The next event, which stays where it waits; None at the end."""
        unit = self._unit
        waiting = unit.waiting
        while not waiting:
            if unit.is_over or not self._owner.pull():
                return None
        return waiting[0]

    def _any_event(self) -> Event:
        """The next event. Raises ``StopIteration`` at the end."""
        self._unit.is_iterated = True
        self._changes, self._event = iter(_NO_CHANGES), None
        event = self._first_event()
        if event is None:
            raise StopIteration
        del self._unit.waiting[0]
        return event


class FileTransactions:
    """The transactions of files, one after another; made by ``BinlogFile.transactions``.

    ``next_event`` returns all events of the files, each behind the count of its bytes there, and None at the end.
    """

    # Whether an exception of a signal handler, or Ctrl-C, has left a part of an event in the grouper.
    _is_torn = False
    # An event and a unit that have been fetched, until they are where they belong, in spite of such an exception.
    _fetched: tuple[int, Event] | None = None
    _found: Unit | None = None
    _is_over = False

    def __init__(self, next_event: Callable[[], tuple[int, Event] | None]) -> None:
        self._next_event = next_event
        self._grouper = TransactionGrouper(has_gtids=True)
        self._end = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FileTransaction:
        if self._found is None:
            self._found = self._next_unit()
        if self._found is None:
            raise StopIteration
        transaction = FileTransaction(self._found, self)
        self._found = None
        return transaction

    def restarted(self) -> Unit | None:
        """The repetition of the transaction that was cut off, if it comes next; in files there is none."""
        while (unit := self._grouper.unit) is None or unit.outcome == "restarted":
            if not self.pull():
                return None
        return self._next_unit() if unit.is_restart else None

    def _next_unit(self) -> Unit | None:
        while (unit := self._grouper.next_unit()) is None:
            if not self.pull():
                return None
        return unit

    def pull(self) -> bool:
        """Fetch one event and add it to its transaction; False at the end of the files."""
        if self._fetched is None:
            self._fetched = self._next_event()
        if self._fetched is None:
            self._is_over = True
            return False
        size, event = self._fetched
        if size:
            self._end = event.position + size
        # The envelope of a compressed transaction is not fed; its events follow it, without bytes of their own.
        if type(event) is not TransactionPayloadEvent:
            self._feed(event, event.file, self._end)
        self._fetched = None
        return True

    def _feed(self, event: Event, file: str = "", position: int = 0) -> None:
        if self._is_torn:
            raise RuntimeError(
                "a signal handler raised while an event was added to its transaction, which lacks events now: "
                "open the log again, or connect a new stream with start=stream.checkpoint"
            )
        try:
            self._grouper.feed(event, file, position)
        except ReplicaError:
            self._fetched = None
            raise
        except BaseException:
            self._is_torn = True
            raise

    def checkpoint_behind(self, unit: Unit) -> Checkpoint:
        """The place after a transaction in the files, for ``open_binlog(start=...)``."""
        if unit.outcome is None and self._is_over:
            raise TransactionOutcomeError(
                f"the files end inside transaction {unit.gtid}, so it has no checkpoint: the one before has"
            )
        _check_end(self._grouper, unit)
        progress = self._grouper.progress
        gtid_set = None if progress.resume_set is None else str(progress.resume_set)
        return Checkpoint(progress.file, progress.position, gtid_set)


class SyncTransactions(FileTransactions):
    """The transactions of a stream of ``replica.sync``, one after another: like ``Transactions``, without ``await``.

    ``next_event`` returns the stream's next event, of any type, and None at its end. ``checkpoint_behind`` is as in
    ``Transactions``.
    """

    def __init__(
        self, next_event: Callable[[], Event | None], checkpoint_behind: Callable[[], Checkpoint]
    ) -> None:
        self._event = next_event
        self._checkpoint_behind = checkpoint_behind
        self._grouper = TransactionGrouper()
        self._followed: Event | None = None

    def follow(self, event: Event) -> None:
        """Note an event that the user got by iterating the stream itself; may be called again if this was cut off."""
        if self._followed is not event:
            try:  # noqa: SIM105 -- where a `with` block is left a signal handler may raise, too
                self._feed(event)
            except LostEventsError:
                pass  # the user sees the INCIDENT event
            self._followed = event
        if self._grouper.unit is not None:
            self._grouper.unit.forget(event)

    def pull(self) -> bool:
        """Fetch one event and add it to its transaction; False at the end of the stream."""
        if self._fetched is None:
            event = self._event()
            if event is None:
                return False
            self._fetched = 0, event
        self._feed(self._fetched[1])
        self._fetched = None
        return True

    def checkpoint_behind(self, unit: Unit) -> Checkpoint:
        """The checkpoint at the end of a transaction; raises if the stream is not there."""
        _check_end(self._grouper, unit)
        return self._checkpoint_behind()
