"""Row changes as lines for people to watch: a line for each transaction, its changes below it.

    2026-11-22 00:12:07  0653d282-e609-11f1-913a-0242ac110002:12  shop.000001:2787
      update shop.orders  id=2  status='new' -> 'paid'

It takes the events of a log in order and writes lines of spans with roles; it does not know the terminal, and asks
the caller for its width. A transaction without shown changes has no line.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from protocol.binlog.events import (
    AnnotateRowsEvent,
    AnonymousGtidEvent,
    DeleteRowsEvent,
    Event,
    ExecuteLoadQueryEvent,
    GtidEvent,
    IncidentEvent,
    MariadbGtidEvent,
    QueryEvent,
    RowsQueryEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
    XaPrepareEvent,
    XidEvent,
)
from protocol.binlog.row_changes import Change
from protocol.constants import ENDING_STATEMENTS, EventFlag

from ..sql.xa import Xid
from ..statistics.layout import Line, Role, Span, cell_width, cut, fill, line_width, printable
from ..transactions.replay import TransactionRestarted
from ..transactions.snapshot_events import SnapshotRestartedEvent, SnapshotRowsEvent
from .change_text import change_fields
from .json_values import document_cells

_INDENT: Final = "  "
_FURTHER: Final = 9  # the column after the indent and "insert ", "update " or "delete "
_GAP: Final = "  "
_NARROWEST: Final = 40
#: A change or statement takes at most this many lines; the last one says how many were left out.
MOST_LINES: Final = 8
_XA_FRAMES: Final = ("XA START", "XA END")


class ChangeRenderer:
    """Passes events as lines to ``write``. The events must come from a decoder with ``renderer.cells``.

    ``width`` returns how many cells a line may have now; None: nothing is cut. ``with_statements=False`` leaves
    statements out.
    """

    def __init__(
        self, write: Callable[[Line], None], width: Callable[[], int | None], *, with_statements: bool = True
    ) -> None:
        self.cells = document_cells()
        self._write = write
        self._width = width
        self._with_statements = with_statements
        # The open transaction's line, until it is written; whether a transaction is open.
        self._head: tuple[Event, str] | None = None
        self._is_open = False
        # The statement of the next rows. It is written with them, because its tables may be filtered out.
        self._source = ""

    def render(self, raw: bytes, position: int, event: Event) -> None:
        """Write one event; ``raw`` and ``position`` are not used: the event has its own."""
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event)

    def finish(self) -> None:
        """Do nothing: every line has been written."""

    def _begin(self, event: Event, gtid: str = "") -> None:
        self._head, self._is_open, self._source = (event, gtid), True, ""

    def _end(self, event: Event) -> None:
        self._head, self._is_open, self._source = None, False, ""

    def _anonymous(self, event: AnonymousGtidEvent) -> None:
        self._begin(event)

    def _gtid(self, event: GtidEvent | MariadbGtidEvent) -> None:
        self._begin(event, str(event.gtid))

    def _query(self, event: QueryEvent) -> None:
        if event.sql in ENDING_STATEMENTS:
            if event.sql == "ROLLBACK" and self._is_shown:
                self._note("rolled back", "warning")
            self._end(event)
        elif event.sql == "BEGIN" or event.sql.startswith(_XA_FRAMES):
            if not self._is_open:
                self._begin(event)
        else:
            self._statement(event)

    def _statement(self, event: QueryEvent) -> None:
        if not self._with_statements:
            return
        schema = "" if event.header.flags & EventFlag.SUPPRESS_USE else event.schema
        sql = f"use {schema}; {event.sql}" if schema else event.sql
        self._below(event)
        width = self._line_width()
        words = [[Span(cut(word, width - _FURTHER) if width else word)] for word in printable_words(sql)]
        head = [Span(_INDENT), Span("sql", "statement"), Span(" " * (_FURTHER - 5))]
        self._lines(fill(head, words, " ", _FURTHER, width))

    def _rows(self, event: WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent) -> None:
        self._below(event)
        if self._source:
            self._note(f"# {self._source}", "comment")
            self._source = ""
        width = self._line_width()
        for change in event.changes():
            self._change(change, width)

    def _read_rows(self, event: SnapshotRowsEvent) -> None:
        width = self._line_width()
        for change in event.changes():
            self._change(change, width)

    def _read_anew(self, event: SnapshotRestartedEvent) -> None:
        self._note(
            f"the copy of {printable(str(event.table))} begins anew: its rows so far are void", "warning"
        )

    def _change(self, change: Change, width: int | None) -> None:
        table = printable(str(change.table))
        if width is not None:
            table = cut(table, width - _FURTHER - len(_GAP))
        head = [Span(_INDENT), Span(change.op, change.op), Span(" "), Span(table, "table"), Span(_GAP)]
        room = None if width is None else width - _FURTHER
        items = [field.spans(room) for field in change_fields(change)] or [[Span("(no columns)", "comment")]]
        self._lines(fill(head, items, _GAP, _FURTHER, width))

    def _original(self, event: RowsQueryEvent | AnnotateRowsEvent) -> None:
        """Note the statement of the next rows, if the source logs it."""
        self._source = " ".join(printable_words(event.sql))

    def _prepared(self, event: XaPrepareEvent) -> None:
        xid = Xid(event.format_id, event.gtrid, event.bqual)
        if self._is_shown:
            self._note(f"committed as {xid}" if event.one_phase else f"prepared as {xid}", "comment")
        self._end(event)

    def _restarted(self, event: TransactionRestarted) -> None:
        if self._is_shown:
            self._note("this transaction was cut off; it comes again from its beginning", "warning")
        self._end(event)

    def _incident(self, event: IncidentEvent) -> None:
        self._below(event)
        self._note(
            f"the source reports that events are missing from its log: {printable(event.message)}", "warning"
        )
        self._end(event)

    # Lines

    @property
    def _is_shown(self) -> bool:
        """Whether the open transaction's line has been written."""
        return self._is_open and self._head is None

    def _below(self, event: Event) -> None:
        """Write the transaction's line, unless it has been written."""
        if self._is_shown:
            return
        first, gtid = self._head or (event, "")
        self._head = None
        moment = datetime.fromtimestamp(first.header.timestamp, UTC)
        line = [Span(f"{moment:%Y-%m-%d %H:%M:%S}", "time")]
        if gtid:
            line += [Span(_GAP), Span(gtid, "gtid")]
        place = printable(f"{first.file}:{first.position}")
        width = self._line_width()
        if width is not None:
            line = _fitting(line, width)
        # The position is shown whole or not at all: cut short it would be another position.
        if width is None or line_width(line) + len(_GAP) + cell_width(place) <= width:
            line += [Span(_GAP), Span(place, "place")]
        self._write(line)

    def _note(self, text: str, role: Role) -> None:
        width = self._line_width()
        self._write([Span(_INDENT), Span(text if width is None else cut(text, width - len(_INDENT)), role)])

    def _lines(self, lines: Iterator[Line]) -> None:
        for number, line in enumerate(lines, 1):
            if number == MOST_LINES:
                left = sum(1 for _ in lines)
                if left:
                    self._note(f"{' ' * (_FURTHER - len(_INDENT))}... {left + 1} more lines", "comment")
                    return
            self._write(line)

    def _line_width(self) -> int | None:
        width = self._width()
        return None if width is None else max(width, _NARROWEST)


def _fitting(line: Line, width: int) -> Line:
    """Time and GTID; the GTID alone if both are too long."""
    if line_width(line) <= width:
        return line
    return [Span(cut(line[-1].text, width), line[-1].role)]


def printable_words(sql: str) -> list[str]:
    """A statement's words; lines may be broken between them."""
    return [printable(word) for word in sql.split()]


_Step = Callable[[ChangeRenderer, Any], None]
_STEPS: Final[Mapping[type[Event], _Step]] = MappingProxyType(
    {
        AnonymousGtidEvent: ChangeRenderer._anonymous,
        GtidEvent: ChangeRenderer._gtid,
        MariadbGtidEvent: ChangeRenderer._gtid,
        QueryEvent: ChangeRenderer._query,
        ExecuteLoadQueryEvent: ChangeRenderer._statement,
        WriteRowsEvent: ChangeRenderer._rows,
        UpdateRowsEvent: ChangeRenderer._rows,
        DeleteRowsEvent: ChangeRenderer._rows,
        SnapshotRowsEvent: ChangeRenderer._read_rows,
        SnapshotRestartedEvent: ChangeRenderer._read_anew,
        RowsQueryEvent: ChangeRenderer._original,
        AnnotateRowsEvent: ChangeRenderer._original,
        XidEvent: ChangeRenderer._end,
        XaPrepareEvent: ChangeRenderer._prepared,
        TransactionRestarted: ChangeRenderer._restarted,
        IncidentEvent: ChangeRenderer._incident,
    }
)
