"""The events of a piece of the log -> its row changes, each with the facts of its transaction.

Some facts come last in the log: the XID, the outcome, rollbacks to savepoints. So a transaction's events are held
until it ends. A transaction too large to be held is read twice, the first time without its rows. Rows stay
undecoded here.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from protocol.binlog.commit_time import commit_microseconds
from protocol.binlog.events import (
    Event,
    QueryEvent,
    RowsEvent,
    TableMapEvent,
    XidEvent,
)
from protocol.errors import RolledBackToSavepointError, StatementFormatError
from protocol.records import record, replace

from ..arrow.rawrows import RawRows
from ..spool.pieces import LogPiece, PieceReader, PlacedEvent, ReadSettings
from ..spool.transaction_part import TransactionFacts
from ..sql.xa import ends_prepared
from ..transactions.units import GTIDS, ROWS, TransactionGrouper, Unit

OnStatement = Literal["fail", "ignore"]
# Undecoded rows of one transaction; a larger transaction is read twice.
HELD_BYTES: Final = 64 << 20
_INSIDE: Final = ROWS | {TableMapEvent}
_WITHOUT_FACTS: Final = GTIDS | {TableMapEvent}


@record(frozen=True, slots=True)
class PlacedChange:
    """A rows event, or a statement such as DDL or XA COMMIT. ``inner``: see ``PlacedEvent``."""

    event: RowsEvent | QueryEvent
    inner: int
    facts: TransactionFacts


@record(slots=True)
class _Transaction:
    """A transaction that is being read. ``undone`` numbers the rows events that a rollback to a savepoint undid."""

    unit: Unit
    held: list[tuple[RowsEvent | QueryEvent, int, int]]
    held_bytes: int = 0
    rows_events: int = 0
    is_open: bool = False
    statements: int = 0
    xid: int | None = None
    undone: list[range] | None = None
    # Set before the transaction ends if it is read for the second time, or if the piece is a part of it.
    facts: TransactionFacts | None = None

    def add_rows(self, event: RowsEvent, inner: int) -> None:
        """Add the transaction's next rows event."""
        for rows in event.rows:  # type: ignore[attr-defined]
            if _has_rows(rows):
                self.held.append((event, inner, self.rows_events))
                self.held_bytes += rows.end - rows.start
        self.rows_events += 1
        self.unit.changes = self.rows_events

    def end(self) -> TransactionFacts:
        """The facts known at the last event so far."""
        unit, xa = self.unit, self.unit.xid
        gtid = unit.gtid
        return TransactionFacts(
            None if gtid is None else str(gtid),
            commit_microseconds(unit.begin),
            self.xid,
            None if xa is None else str(xa),
            unit.outcome or "open",
        )

    def changes(self, facts: TransactionFacts) -> Iterator[PlacedChange]:
        """Give out the changes held so far, and hold them no longer."""
        undone = None if not self.undone else replace(facts, outcome="rollback")
        held, self.held, self.held_bytes = self.held, [], 0
        for event, inner, number in held:
            is_undone = undone is not None and any(number in some for some in self.undone or ())
            yield PlacedChange(event, inner, undone if undone is not None and is_undone else facts)


@record(frozen=True, slots=True)
class TransactionEnd:
    """The end of a transaction that begins at ``position``; ``undone`` is as in ``TransactionPart``."""

    position: int
    rows_events: int
    facts: TransactionFacts
    undone: tuple[range, ...]


class ChangeReader:
    """The changes of a piece, in the order of the log: iterate it once. ``rows`` decodes their rows one by one.

    With ``on_statement="fail"`` a statement that changed rows without rows events raises ``StatementFormatError``.
    Also raises ``LostEventsError`` for an event by which the source says that its log lacks events, and the errors
    of ``PieceReader``.
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
        """The facts at the end of the transaction that begins with this event of the piece, and what was undone.

        Undone are the rows events that a rollback to a savepoint took back.
        """
        for transaction in self._transactions(self._events, begin.position):
            found = transaction.unit.begin
            if (found.position, type(found)) == (begin.position, type(begin)):
                transaction.held.clear()
                transaction.held_bytes = 0
                if transaction.unit.outcome is not None:
                    return transaction.end(), transaction.undone or []
        return TransactionFacts(None, begin.header.timestamp * 1_000_000), []

    def ends(self, events: Iterable[PlacedEvent]) -> Iterator[TransactionEnd]:
        """The facts at the end of each transaction; ``events`` must be the events of the piece."""
        for transaction in self._transactions(events):
            transaction.held.clear()
            transaction.held_bytes = 0
            if transaction.unit.outcome is not None or transaction.facts is not None:
                yield TransactionEnd(
                    transaction.unit.begin.position,
                    transaction.rows_events,
                    transaction.facts or transaction.end(),
                    tuple(transaction.undone or ()),
                )

    def _transactions(self, events: Iterable[PlacedEvent], start: int = 0) -> Iterator[_Transaction]:
        """Each transaction when it has ended, and before that whenever it holds more than ``held_bytes``."""
        current: _Transaction | None = None
        grouper, file = self._grouper, self._piece.file
        for event, end, inner in events:
            if end <= start:
                continue
            kind = type(event)
            if current is not None and current.is_open and kind in _INSIDE:
                # Fast path: rows inside an open transaction never change grouping. They are most of a log, and
                # feeding them to the grouper took 40 % of the time of small transactions.
                if kind is not TableMapEvent:
                    current.add_rows(event, inner)  # type: ignore[arg-type]
                    if current.held_bytes > self._held_bytes:
                        yield current
                continue
            grouper.feed(event, file, end)
            unit = grouper.unit
            if current is not None and current.unit is not unit:
                # The transaction was cut off: this event belongs to the next one.
                yield current
                current = None
            if unit is None or (current is None and unit.is_left):
                continue
            if current is None:
                current = self._begin(unit)
            current.is_open = kind not in GTIDS
            if kind in ROWS:
                current.add_rows(event, inner)  # type: ignore[arg-type]
            elif kind is XidEvent:
                current.xid = event.xid  # type: ignore[attr-defined]
            elif kind not in _WITHOUT_FACTS:
                self._statement(current, event, inner)
            if unit.outcome is not None:
                yield current
                current = None
            elif current.held_bytes > self._held_bytes:
                yield current
        if current is not None:
            # The log ends within the transaction: reading it again would give no more facts.
            current.facts = current.facts or current.end()
            yield current

    def _begin(self, unit: Unit) -> _Transaction:
        unit.leave()
        transaction, part = _Transaction(unit, []), self._piece.part
        if part is not None:
            transaction.facts, transaction.undone = part.facts, list(part.undone)
            transaction.rows_events = unit.changes = part.rows_events
        return transaction

    def _statement(self, transaction: _Transaction, event: Event, inner: int) -> None:
        unit, piece = transaction.unit, self._piece
        if piece.part is not None and event.position < piece.position:
            # An event of the prelude: an earlier part contains this statement, and has given it out.
            transaction.statements = len(unit.ddl)
            return
        try:
            unit.changes_of(event)
        except RolledBackToSavepointError as error:
            if piece.part is None:
                transaction.undone = transaction.undone or []
                transaction.undone.append(range(error.changes_kept, transaction.rows_events))
            # Rows events keep counting up: the numbers of undone ones are not used again.
            unit.changes = transaction.rows_events
        except StatementFormatError:
            if self._on_statement == "fail":
                raise
        if isinstance(event, QueryEvent) and (
            ends_prepared(event.sql) or len(unit.ddl) > transaction.statements
        ):
            transaction.statements = len(unit.ddl)
            transaction.held.append((event, inner, -1))


def _has_rows(rows: RawRows) -> bool:
    """Whether the event has rows. A row image without any column takes no byte, and such an event holds one row."""
    return rows.end > rows.start or not any(image.columns for image in rows.layout.images)
