"""The events of a piece to its row changes, each with what is only known at the end of its transaction.

A transaction's events are held until it ends: its commit, its number and whether it stands are written last. One that
is too large for that is read twice, the first time without its rows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from protocol.binlog.events import (
    AnonymousGtidEvent,
    DeleteRowsEvent,
    Event,
    GtidEvent,
    MariadbGtidEvent,
    QueryEvent,
    RowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
    XidEvent,
)
from protocol.errors import RolledBackToSavepointError, StatementFormatError
from replica.arrow.rawrows import RawRows
from replica.transactions.units import Outcome, TransactionGrouper, Unit

from ..spool.pieces import LogPiece, PieceReader, PlacedEvent, ReadSettings

OnStatement = Literal["fail", "ignore"]
# Of undecoded rows; a transaction beyond it is read twice.
HELD_BYTES: Final = 64 << 20
_WITH_ROWS: Final = frozenset({WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent})
_INSIDE: Final = _WITH_ROWS | {TableMapEvent}
_BEGINNING: Final = frozenset({AnonymousGtidEvent, GtidEvent, MariadbGtidEvent})
_SAYING_NOTHING: Final = _BEGINNING | {TableMapEvent}
# Microseconds since 1970 in 7 bytes; some events have more there than any time is.
_LATEST: Final = 1 << 55


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
    is_open: bool = False
    statements: int = 0
    xid: int | None = None
    undone: list[range] | None = None
    # Known before the end, where it was read before.
    facts: TransactionFacts | None = None

    def add_rows(self, event: RowsEvent, inner: int) -> None:
        """Its next rows event."""
        for rows in event.rows:  # type: ignore[attr-defined]
            if _has_rows(rows):
                self.held.append((event, inner, self.rows_events))
                self.held_bytes += rows.end - rows.start
        self.rows_events += 1
        self.unit.changes = self.rows_events

    def end(self) -> TransactionFacts:
        """What is known of it now."""
        unit, xa = self.unit, self.unit.xid
        gtid = unit.gtid
        return TransactionFacts(
            None if gtid is None else str(gtid),
            commit_micros(unit.begin),
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
        grouper, file = self._grouper, self._piece.file
        for event, end, inner in events:
            if end <= start:
                continue
            kind = type(event)
            if current is not None and current.is_open and kind in _INSIDE:
                # Most of a log, and nothing to whom it is that groups events: 40 % of the time of small transactions.
                if kind is not TableMapEvent:
                    current.add_rows(event, inner)  # type: ignore[arg-type]
                    if current.held_bytes > self._held_bytes:
                        yield current
                continue
            grouper.feed(event, file, end)
            unit = grouper.unit
            if current is not None and current.unit is not unit:
                # It was cut off: what came instead belongs to the next one.
                yield current
                current = None
            if unit is None or (current is None and unit.is_left):
                continue
            if current is None:
                current = _Transaction(unit, [])
                unit.leave()
            current.is_open = kind not in _BEGINNING
            if kind in _WITH_ROWS:
                current.add_rows(event, inner)  # type: ignore[arg-type]
            elif kind is XidEvent:
                current.xid = event.xid  # type: ignore[attr-defined]
            elif kind not in _SAYING_NOTHING:
                self._statement(current, event, inner)
            if unit.outcome is not None:
                yield current
                current = None
            elif current.held_bytes > self._held_bytes:
                yield current
        if current is not None:
            # The log ends within it: reading again would say nothing more.
            current.facts = current.facts or current.end()
            yield current

    def _statement(self, transaction: _Transaction, event: Event, inner: int) -> None:
        unit = transaction.unit
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
            transaction.held.append((event, inner, -1))


def commit_micros(begin: Event) -> int:
    """When the transaction that begins with this event was committed: as ``Unit.commit_time``, without a datetime."""
    committed = begin.original_commit_timestamp if isinstance(begin, AnonymousGtidEvent) else None
    return committed if committed and committed < _LATEST else begin.header.timestamp * 1_000_000


def _has_rows(rows: RawRows) -> bool:
    """A row of no columns at all takes no byte, and its event holds one."""
    return rows.end > rows.start or not any(image.columns for image in rows.layout.images)


def _is_xa_end(sql: str) -> bool:
    return sql.startswith(("XA COMMIT", "XA ROLLBACK"))
