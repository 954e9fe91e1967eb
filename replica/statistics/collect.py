"""Counts changes by table, transactions, statements, minutes and lag from the events of files or of a stream.

    open_binlog(..., row_values=False) or connect(..., row_values=False) -> LogStatistics.add -> tables, minutes...

Rows and bytes are counted, values are not read. A transaction is counted at its end; the rows of a transaction that a
crash or failover cut off are not counted. Nothing here reads a file or prints.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Final

from protocol.binlog.commit_time import is_commit_time
from protocol.binlog.events import (
    AnonymousGtidEvent,
    DeleteRowsEvent,
    Event,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    GtidEvent,
    IncidentEvent,
    MariadbGtidEvent,
    QueryEvent,
    RotateEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)
from protocol.constants import ARTIFICIAL, EventFlag
from protocol.records import record
from protocol.rows.bounded_cache import BoundedCache
from protocol.rows.table import Table

from ..sql.statement_kind import kind_of, statement_name
from ..transactions.boundary import BEGINNING, OPEN, OUTSIDE, STEPS, Progress, State
from ..transactions.replay import TransactionRestarted
from .parts import add_counts, add_minute, add_table
from .summaries import (
    DDL_KEPT,
    ROWS_CLASSES,
    LagStatistics,
    Largest,
    MinuteStatistics,
    RowCounts,
    StatementStatistics,
    TableStatistics,
    TransactionStatistics,
    iso_text,
    lag_dict,
    shown_statement,
    type_name,
    utc,
    with_total,
)

_MINUTE: Final = 60
_NEVER: Final = 1 << 62
_MICROSECONDS: Final = 1_000_000
_NOT_CUTTING: Final = int(EventFlag.ARTIFICIAL | EventFlag.RELAY_LOG)
# Memory for the tables of table maps; a table has 2 KB or more.
_KNOWN_BYTES: Final = 64 << 20
_KNOWN_SIZE: Final = 2000
# Reading a global name is faster than an attribute of an Enum.
_ANNOUNCED: Final = State.ANNOUNCED
_GTIDS: Final = (AnonymousGtidEvent, GtidEvent, MariadbGtidEvent)
_OF_FILES: Final = (FormatDescriptionEvent, RotateEvent)
# The action for each event type; _CUTS: the event may cut off a transaction that has not ended.
_ROWS, _TABLE_MAP, _STATEMENT, _CUTS = "rows", "table map", "statement", "cuts"
_MARKS: Final[Mapping[type[Event], str]] = MappingProxyType(
    {
        **dict.fromkeys((WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent), _ROWS),
        TableMapEvent: _TABLE_MAP,
        **dict.fromkeys((QueryEvent, ExecuteLoadQueryEvent), _STATEMENT),
        **dict.fromkeys((*_GTIDS, *_OF_FILES, IncidentEvent, TransactionRestarted), _CUTS),
    }
)


@record(slots=True)
class _TableShare:
    """Row changes of the open transaction in one table."""

    table: TableStatistics
    inserts: int
    updates: int
    deletes: int
    events: int
    bytes: int

    @property
    def rows(self) -> int:
        return self.inserts + self.updates + self.deletes


class _OpenTransaction:
    """The transaction that has begun but not ended; ``first`` and ``last`` are seconds since 1970."""

    __slots__ = ("begin", "bytes", "first", "last", "shares")

    def __init__(self, begin: Event, time: int) -> None:
        self.begin = begin
        self.first = self.last = time
        self.bytes = 0
        self.shares: dict[int, _TableShare] = {}


class LogStatistics:
    """Counts the content of a log, event by event.

        statistics = replica.LogStatistics()
        with replica.open_binlog("binlog.000042", row_values=False) as log:
            statistics.add_all(log)

    Add all events, in the order of the log: table filters are fine, ``events=`` is not. ``row_values=False`` reads in
    a third of the time and gives the same counts. The attributes can be read at any time.

    ``bytes`` is the size of the log, ``transactions`` the number of finished transactions, ``with_rows`` the number
    of those that changed rows. ``unfinished`` transactions were cut off by a crash; ``incidents`` counts the source's
    INCIDENT events, which say that events are missing. ``servers`` counts transactions by the id of the server where
    they began. ``versions`` lists the versions of the servers that wrote the log, ``files`` its files, in order.
    ``statements`` counts statements without rows by name (``"CREATE TABLE"``); ``ddl`` holds the last 50 DDL
    statements. ``rows_classes`` counts transactions with rows by their number of rows
    (``replica.statistics.summaries.ROWS_CLASSES``). ``lag`` is the lag of transactions that another server committed
    first (MySQL 8.0.1 and later), ``seconds_behind`` the lag of a live stream.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.transactions = 0
        self.with_rows = 0
        self.unfinished = 0
        self.incidents = 0
        self.files: list[str] = []
        self.versions: list[str] = []
        self.servers: dict[int, int] = {}
        self.statements: dict[str, int] = {}
        self.ddl: list[StatementStatistics] = []
        self.rows_classes = [0] * (len(ROWS_CLASSES) + 1)
        self.lag = LagStatistics()
        self.seconds_behind = LagStatistics()
        self._types = [0] * 256
        self._tables: dict[tuple[str, str], TableStatistics] = {}
        # By identity, because hashing a Table takes longer than all other work for an event. The Table is kept in the
        # value, so that its id() is not reused.
        self._known: BoundedCache[int, tuple[Table, TableStatistics]] = BoundedCache(_KNOWN_BYTES)
        self._minutes: dict[int, MinuteStatistics] = {}
        self._by_rows, self._by_bytes, self._by_seconds = Largest(), Largest(), Largest(1)
        self._progress = Progress("", 0, None, has_gtids=False)
        self._open: _OpenTransaction | None = None
        self._newest = MinuteStatistics(start=-_MINUTE)  # the minute of the newest commit
        self._first, self._last = _NEVER, 0

    def __repr__(self) -> str:
        return f"<LogStatistics of {self.transactions} transactions, {self.rows.total} rows>"

    # Results.

    @property
    def events(self) -> int:
        """Number of events; of a compressed transaction its inner events are counted."""
        return sum(self._types)

    @property
    def first_time(self) -> int | None:
        """The time of the first event, in seconds since 1970 by its server's clock; None without events."""
        return self._first if self._last else None

    @property
    def last_time(self) -> int | None:
        """The time of the last event, likewise."""
        return self._last or None

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun but not ended: it is not counted yet."""
        return self._open is not None

    @property
    def tables(self) -> list[TableStatistics]:
        """The changed tables, those with the most row changes first."""
        return sorted(self._tables.values(), key=lambda table: (-table.total, str(table)))

    @property
    def rows(self) -> RowCounts:
        """The row changes of all tables."""
        tables = self._tables.values()
        return RowCounts(
            sum(table.inserts for table in tables),
            sum(table.updates for table in tables),
            sum(table.deletes for table in tables),
        )

    @property
    def minutes(self) -> list[MinuteStatistics]:
        """The minutes in which something was committed, in order."""
        return [self._minutes[start] for start in sorted(self._minutes)]

    @property
    def event_types(self) -> dict[str, int]:
        """Events by the name of their type (``"WRITE_ROWS"``), the most frequent first."""
        counted = sorted((-count, number) for number, count in enumerate(self._types) if count)
        return {type_name(number): -count for count, number in counted}

    @property
    def most_rows(self) -> list[TransactionStatistics]:
        """The transactions with the most row changes, at most ten."""
        return self._by_rows.transactions

    @property
    def most_bytes(self) -> list[TransactionStatistics]:
        """The largest transactions in bytes, at most ten."""
        return self._by_bytes.transactions

    @property
    def longest(self) -> list[TransactionStatistics]:
        """The transactions that took longest, at most ten; none below 2 seconds, as the log has whole seconds."""
        return self._by_seconds.transactions

    def to_dict(self) -> dict[str, object]:
        """All results as JSON types; times are ISO 8601 in UTC, and keys are the attributes' names."""
        named = ("bytes", "transactions", "with_rows", "unfinished", "incidents", "files", "versions")
        found: dict[str, object] = {name: getattr(self, name) for name in named}
        found["events"] = self.events
        found["first_time"], found["last_time"] = iso_text(self.first_time), iso_text(self.last_time)
        found["servers"] = {str(server): count for server, count in self.servers.items()}
        found["rows"] = with_total(self.rows)
        found["tables"] = [with_total(table) for table in self.tables]
        found["statements"] = self.statements
        found["ddl"] = [asdict(one) | {"time": one.time.isoformat()} for one in self.ddl]
        for name in ("most_rows", "most_bytes", "longest"):
            found[name] = [asdict(one) | {"started": one.started.isoformat()} for one in getattr(self, name)]
        found["minutes"] = [with_total(one) | {"start": iso_text(one.start)} for one in self.minutes]
        found["lag"], found["seconds_behind"] = lag_dict(self.lag), lag_dict(self.seconds_behind)
        found["event_types"] = self.event_types
        return found

    # Counting.

    def __getstate__(self) -> dict[str, object]:
        # Tables are known by their identity, which holds in one process.
        return vars(self) | {"_known": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._known = BoundedCache(_KNOWN_BYTES)
        if self._open is not None:
            self._open.shares = {id(share.table): share for share in self._open.shares.values()}

    def include(self, later: "LogStatistics") -> None:
        """Add the counts of the part of the log that follows, which begins with a transaction or with a file."""
        opened = self._open
        if opened is not None:
            # The part that follows cuts the open transaction off.
            self.unfinished += 1
            self._cover(opened.last, opened.bytes)
        self._cover(later._first if later._last else 0, later.bytes)
        self._cover(later._last, 0)
        add_counts(self, later)
        self._types = [one + other for one, other in zip(self._types, later._types, strict=True)]
        for key, table in later._tables.items():
            add_table(self._tables.setdefault(key, TableStatistics(schema=key[0], name=key[1])), table)
        for start, minute in later._minutes.items():
            add_minute(self._minutes.setdefault(start, MinuteStatistics(start=start)), minute)
        self._by_rows.include(later._by_rows)
        self._by_bytes.include(later._by_bytes)
        self._by_seconds.include(later._by_seconds)
        self._newest = MinuteStatistics(start=-_MINUTE)
        self._progress, self._open = later._progress, later._open

    def add(self, event: Event) -> None:
        """Count the next event of the log."""
        self.add_all((event,))

    def add_behind(self, seconds: float, time: float) -> None:
        """Count a lag of a live stream: ``seconds`` behind its source at ``time`` (seconds since 1970)."""
        self.seconds_behind.add(seconds)
        self._minute(int(time)).see_lag(seconds)

    def add_all(self, events: Iterable[Event]) -> None:
        """Count the next events of the log, such as a ``BinlogFile``. Errors of iterating are not caught."""
        types, marks, steps, progress = self._types, _MARKS, STEPS, self._progress
        opened = self._open
        for event in events:
            # By index, because the header's names would make an object of each header.
            header, kind = event.header_fields, type(event)
            types[header[1]] += 1
            mark = marks.get(kind, "")
            if opened is None or mark is _CUTS:
                opened = self._enter(event, kind)
                if opened is None or kind in _OF_FILES:
                    continue
            opened.bytes += header[3]
            time = header[0]
            if time > opened.last:
                opened.last = time
            elif 0 < time < opened.first:
                opened.first = time
            if mark is _ROWS:
                progress.state = OPEN
                self._count_rows(opened, event, header[3])
                continue
            if mark is _STATEMENT:
                if event.sql == "BEGIN":  # type: ignore[attr-defined]
                    progress.state = OPEN
                    continue
                self._count_statement(opened, event)  # type: ignore[arg-type]
            elif mark is _TABLE_MAP:
                progress.state = OPEN
                continue
            elif kind is GtidEvent:
                # The step would also make the GTID, which takes 0.5 us.
                progress.state = _ANNOUNCED
                continue
            step = steps.get(kind)
            if step is not None:
                step(progress, event)
                if progress.state is OUTSIDE:
                    self._finish(opened)
                    opened = self._open = None

    def _enter(self, event: Event, kind: type[Event]) -> _OpenTransaction | None:
        """Count an event between transactions, or one that may cut a transaction off; return the open transaction."""
        header = event.header_fields
        if kind is TransactionRestarted:
            # This event is not in the log. The changes so far come again.
            self._types[header[1]] -= 1
            self._open = None
            self._progress.reopen()
            return None
        if kind in _OF_FILES and (header[5] & _NOT_CUTTING or not header[4]):
            # Sent for the connection, or in a relay log, where transactions continue in the next file.
            self._note(event, kind)
            if not header[5] & ARTIFICIAL:
                self._cover(0, header[3])
            return self._open
        if self._open is not None:
            self.unfinished += 1
            self._cover(self._open.last, self._open.bytes)
            self._open = None
            self._progress.reopen()
        if kind in BEGINNING:
            self._open = _OpenTransaction(event, header[0])
            return self._open
        self._cover(header[0], header[3])
        self._note(event, kind)
        return None

    def _note(self, event: Event, kind: type[Event]) -> None:
        note = _NOTES.get(kind)
        if note is not None:
            note(self, event)

    def _note_description(self, event: FormatDescriptionEvent) -> None:
        if event.server_version not in self.versions:
            self.versions.append(event.server_version)
        if event.file not in self.files:
            self.files.append(event.file)

    def _note_incident(self, event: IncidentEvent) -> None:
        self.incidents += 1

    def _cover(self, time: int, size: int) -> None:
        """Add ``size`` bytes of the log, and extend its time span to ``time``."""
        self.bytes += size
        if time:
            self._first = min(self._first, time)
            self._last = max(self._last, time)

    def _count_rows(self, opened: _OpenTransaction, event: Event, size: int) -> None:
        table, count = event.table, len(event.rows)  # type: ignore[attr-defined]
        known = self._known.get(id(table)) or self._meet(table)
        share = opened.shares.get(id(known[1]))
        if share is None:
            share = opened.shares[id(known[1])] = _TableShare(known[1], 0, 0, 0, 0, 0)
        kind = type(event)
        if kind is WriteRowsEvent:
            share.inserts += count
        elif kind is UpdateRowsEvent:
            share.updates += count
        else:
            share.deletes += count
        share.events += 1
        share.bytes += size

    def _meet(self, table: Table) -> tuple[Table, TableStatistics]:
        key = table.schema, table.name
        statistics = self._tables.get(key)
        if statistics is None:
            statistics = self._tables[key] = TableStatistics(schema=table.schema, name=table.name)
        known = table, statistics
        self._known.keep(id(table), known, _KNOWN_SIZE)
        return known

    def _count_statement(self, opened: _OpenTransaction, event: QueryEvent) -> None:
        kind = kind_of(event)
        if kind == "frame":
            return
        time = event.header.timestamp
        opened.last = max(opened.last, time + event.exec_time)
        name = statement_name(event.sql)
        self.statements[name] = self.statements.get(name, 0) + 1
        if kind == "ddl":
            sql = shown_statement(name, event.sql)
            self.ddl.append(StatementStatistics(utc(time), event.exec_time, event.schema, sql))
            del self.ddl[:-DDL_KEPT]

    def _finish(self, opened: _OpenTransaction) -> None:
        """Count a transaction that has ended."""
        begin, end, committed = opened.begin, opened.last, opened.last
        lag: float | None = None
        if isinstance(begin, AnonymousGtidEvent):
            if begin.transaction_length:
                # The size in the log, where the transaction may be compressed.
                opened.bytes = begin.transaction_length
            original, immediate = begin.original_commit_timestamp, begin.immediate_commit_timestamp
            if is_commit_time(original) and is_commit_time(immediate):
                end, committed = original // _MICROSECONDS, immediate // _MICROSECONDS
                if original != immediate:
                    lag = (immediate - original) / _MICROSECONDS
        # The same whatever came before, so that parts of a log can be counted one by one.
        first, last = self._first, self._last
        if not (first <= committed <= last and first <= opened.first <= last):
            self._cover(opened.first, 0)
            self._cover(committed, 0)
        self.bytes += opened.bytes
        self.transactions += 1
        server = begin.header_fields[2]
        self.servers[server] = self.servers.get(server, 0) + 1
        minute = self._newest
        if not 0 <= committed - minute.start < _MINUTE:
            minute = self._newest = self._minute(committed)
        minute.transactions += 1
        minute.bytes += opened.bytes
        if lag is not None:
            self.lag.add(lag)
            minute.see_lag(lag)
        rows = self._settle(opened, minute) if opened.shares else 0
        seconds = max(end - opened.first, 0)
        if (
            rows > self._by_rows.least
            or opened.bytes > self._by_bytes.least
            or seconds > self._by_seconds.least
        ):
            self._keep(opened, seconds, rows)

    def _settle(self, opened: _OpenTransaction, minute: MinuteStatistics) -> int:
        """Count the rows of a transaction; returns their number."""
        rows = 0
        for share in opened.shares.values():
            table = share.table
            table.inserts += share.inserts
            table.updates += share.updates
            table.deletes += share.deletes
            table.events += share.events
            table.bytes += share.bytes
            table.transactions += 1
            minute.inserts += share.inserts
            minute.updates += share.updates
            minute.deletes += share.deletes
            rows += share.rows
        if rows:
            self.with_rows += 1
            self.rows_classes[bisect_left(ROWS_CLASSES, rows)] += 1
        return rows

    def _keep(self, opened: _OpenTransaction, seconds: int, rows: int) -> None:
        begin = opened.begin
        gtid = str(begin.gtid) if isinstance(begin, GtidEvent | MariadbGtidEvent) else None
        shares = sorted(opened.shares.values(), key=lambda share: -share.rows)
        transaction = TransactionStatistics(
            gtid,
            begin.file,
            begin.position,
            utc(opened.first),
            seconds,
            rows,
            opened.bytes,
            tuple(str(share.table) for share in shares),
        )
        self._by_rows.add(rows, transaction)
        self._by_bytes.add(opened.bytes, transaction)
        self._by_seconds.add(seconds, transaction)

    def _minute(self, time: int) -> MinuteStatistics:
        start = time - time % _MINUTE
        minute = self._minutes.get(start)
        if minute is None:
            minute = self._minutes[start] = MinuteStatistics(start=start)
        return minute


_NOTES: Final[Mapping[type[Event], Callable[[LogStatistics, Any], None]]] = MappingProxyType(
    {
        FormatDescriptionEvent: LogStatistics._note_description,
        IncidentEvent: LogStatistics._note_incident,
    }
)
