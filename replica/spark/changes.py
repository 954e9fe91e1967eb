"""The events of a piece to its row changes, each with what is only known at the end of its transaction.

A transaction's events are held until it ends: its commit, its number and whether it stands are written last. One that
is too large for that is read twice, the first time without its rows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from protocol.binlog.events import (
    AnonymousGtidEvent,
    Event,
    MariadbGtidEvent,
    QueryEvent,
    RowsEvent,
    XidEvent,
)
from protocol.errors import RolledBackToSavepointError, StatementFormatError
from replica.arrow.rawrows import RawRows
from replica.grouping import Outcome, TransactionGrouper, Unit

from .pieces import LogPiece, PieceReader, PlacedEvent, ReadSettings

OnStatement = Literal["fail", "ignore"]
# Of undecoded rows; a transaction beyond it is read twice.
HELD_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class TransactionFacts:
    """What all changes of a transaction have in common.

    ``ts`` is when it was committed, in microseconds since 1970; ``xid`` the storage engine's number of it, ``xa`` the
    id of an XA transaction (``"X'6162',X'',1"``). ``outcome`` is ``"commit"``, ``"rollback"`` (of the transaction, or
    to a savepoint before the change), ``"prepared"``, or ``"open"`` where the log ends within it.
    """

    gtid: str | None = None
    ts: int = 0
    xid: int | None = None
    xa: str | None = None
    outcome: Outcome | Literal["open"] = "open"


@dataclass(frozen=True, slots=True)
class PlacedChange:
    """A rows event, or a statement that is no row change. ``inner`` as in ``PlacedEvent``."""

    event: RowsEvent | QueryEvent
    inner: int
    facts: TransactionFacts


@dataclass(slots=True)
class _Transaction:
    """One that is read. ``undone`` are numbers of its rows events that a rollback to a savepoint has undone."""

    unit: Unit
    held: list[tuple[RowsEvent | QueryEvent, int, int]]
    held_bytes: int = 0
    rows_events: int = 0
    statements: int = 0
    xid: int | None = None
    undone: list[range] | None = None
    # Known before the end, where it was read before.
    facts: TransactionFacts | None = None

    def end(self) -> TransactionFacts:
        """What is known of it now."""
        unit, xa = self.unit, self.unit.xid
        gtid, commit_time = unit.gtid, unit.commit_time
        return TransactionFacts(
            None if gtid is None else str(gtid),
            round(commit_time.timestamp() * 1_000_000),
            self.xid,
            None if xa is None else f"X'{xa.gtrid.hex()}',X'{xa.bqual.hex()}',{xa.format_id}",
            unit.outcome or "open",
        )

    def changes(self, facts: TransactionFacts) -> Iterator[PlacedChange]:
        """What is held, which is given out."""
        undone = None if not self.undone else replace(facts, outcome="rollback")
        held, self.held, self.held_bytes = self.held, [], 0
        for event, inner, number in held:
            is_undone = undone is not None and any(number in some for some in self.undone or ())
            yield PlacedChange(event, inner, undone if undone is not None and is_undone else facts)


class ChangeReader:
    """The changes of a piece, in the order of the log: iterate it once. ``rows`` decodes their rows one by one.

    With ``on_statement="fail"`` a statement that has changed rows out of sight raises ``StatementFormatError``. Also
    raises ``LostEventsError`` where the source says that its log lacks events, and what ``PieceReader`` raises.
    """

    def __init__(
        self,
        piece: LogPiece,
        settings: ReadSettings,
        *,
        on_statement: OnStatement = "fail",
        held_bytes: int = HELD_BYTES,
    ) -> None:
        self._piece = piece
        self._settings = settings
        self._on_statement = on_statement
        self._held_bytes = held_bytes
        self._grouper = TransactionGrouper()
        self._events = PieceReader(piece, settings)
        self.rows = self._events.rows

    def __iter__(self) -> Iterator[PlacedChange]:
        for transaction in self._transactions(self._events):
            if transaction.facts is None and transaction.unit.outcome is None:
                again = ChangeReader(self._piece, self._settings, on_statement="ignore")
                transaction.facts, transaction.undone = again.end_of(transaction.unit.begin)
            yield from transaction.changes(transaction.facts or transaction.end())

    def end_of(self, begin: Event) -> tuple[TransactionFacts, list[range]]:
        """What is known at the end of the transaction that begins with this event of the same piece."""
        for transaction in self._transactions(self._events, begin.position):
            found = transaction.unit.begin
            if (found.position, type(found)) == (begin.position, type(begin)):
                transaction.held.clear()
                transaction.held_bytes = 0
                if transaction.unit.outcome is not None:
                    return transaction.end(), transaction.undone or []
        return TransactionFacts(None, begin.header.timestamp * 1_000_000), []

    def _transactions(self, events: Iterable[PlacedEvent], start: int = 0) -> Iterator[_Transaction]:
        """Each transaction when it has ended, or holds so much that some of it must go."""
        current: _Transaction | None = None
        end = 0
        for placed in events:
            if placed.end <= start:
                continue
            end = placed.end
            self._grouper.feed(placed.event, self._piece.file, end)
            unit = self._grouper.unit
            if current is not None and current.unit is not unit:
                # It was cut off: what came instead belongs to the next one.
                yield current
                current = None
            if unit is None or (current is None and unit.is_left):
                continue
            if current is None:
                current = _Transaction(unit, [])
                unit.leave()
            self._add(current, placed)
            if unit.outcome is not None:
                yield current
                current = None
            elif current.held_bytes > self._held_bytes:
                yield current
        if current is not None:
            # The log ends within it: reading again would say nothing more.
            current.facts = current.facts or current.end()
            yield current

    def _add(self, transaction: _Transaction, placed: PlacedEvent) -> None:
        event = placed.event
        if isinstance(event, RowsEvent):
            for rows in event.rows:  # type: ignore[attr-defined]
                if _has_rows(rows):
                    transaction.held.append((event, placed.inner, transaction.rows_events))
                    transaction.held_bytes += rows.end - rows.start
            transaction.rows_events += 1
            transaction.unit.changes = transaction.rows_events
        elif isinstance(event, XidEvent):
            transaction.xid = event.xid
        elif not isinstance(event, AnonymousGtidEvent | MariadbGtidEvent):
            self._statement(transaction, placed)

    def _statement(self, transaction: _Transaction, placed: PlacedEvent) -> None:
        event, unit = placed.event, transaction.unit
        try:
            for _ in unit.changes_of(event):
                pass
        except RolledBackToSavepointError as error:
            transaction.undone = transaction.undone or []
            transaction.undone.append(range(error.changes_kept, transaction.rows_events))
            # Numbers go on: those that were undone are not given again.
            unit.changes = transaction.rows_events
        except StatementFormatError:
            if self._on_statement == "fail":
                raise
        if isinstance(event, QueryEvent) and (
            _is_xa_end(event.sql) or len(unit.ddl) > transaction.statements
        ):
            transaction.statements = len(unit.ddl)
            transaction.held.append((event, placed.inner, -1))


def _has_rows(rows: RawRows) -> bool:
    """A row of no columns at all takes no byte, and its event holds one."""
    return rows.end > rows.start or not any(image.columns for image in rows.layout.images)


def _is_xa_end(sql: str) -> bool:
    return sql.startswith(("XA COMMIT", "XA ROLLBACK"))
