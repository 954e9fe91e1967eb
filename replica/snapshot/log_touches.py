"""Reads touches from the beginning of the current log file up to the place from which the stream knows them.

This is a second dump, over a connection of its own, which ends at that place. It serves sources without an exact low
mark (without GTIDs, MySQL 5.6, MariaDB), once after each start in the middle of a file.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import (
    Event,
    GtidEvent,
    MariadbGtidEvent,
    QueryEvent,
    TableMapEvent,
    TransactionPayloadEvent,
)
from protocol.constants import DumpFlag
from protocol.errors import SchemaMismatchError
from protocol.position import FIRST_POSITION
from protocol.records import record

from ..config.options import Options
from ..source.column_lookup import ColumnLookup
from ..source.second_connection import beside_the_dump
from ..source.server_facts import Source, introduce
from ..source.session import Session
from ..sql.dialect import Dialect
from ..sql.statement_kind import kind_of, read_event
from ..sql.xa import Xid
from .marks import Place
from .statement_effects import changed_tables, waits_for_transactions
from .touches import NEWEST_KEYS, Key, Touched, add_transaction
from .transaction_touches import KeyColumns, TableId, Touching, TransactionTouches


async def touches_before(
    options: Options,
    source: Source,
    file: str,
    end: Place,
    keys: Mapping[TableId, KeyColumns],
    dialect: Dialect,
) -> "Before":
    """The touches of the transactions from the beginning of ``file`` up to ``end``, for each of these tables.

    A DDL statement that waited for all transactions on its table makes their touches void, as they are visible.
    ``dialect`` is that of the statements. If ``end`` has a GTID set, its transactions are read, wherever they stand
    in the file. Raises the errors of a dump and of decoding.
    """
    scan = _Scan(end, keys, dialect)
    lookup = ColumnLookup(options)
    with beside_the_dump():
        session = await Session.open(options)
    try:
        checksums = await introduce(session, source, options)
        decoder = EventDecoder(
            file=file,
            mariadb=source.is_mariadb,
            wants_table=lambda schema, name: (schema, name) in keys,
            columns=options.columns,
            cells=options.cells,
        )
        decoder.checksum_enabled = checksums
        session.start_dump(file, FIRST_POSITION, 0, DumpFlag.NON_BLOCK | source.dump_flags)
        while events := await session.read_events(options.connect_timeout):
            for raw in events:
                event = decoder.decode(raw)
                if isinstance(event, TableMapEvent) and lookup.is_needed(event.table):
                    # Before a DDL the table had other columns: its touches until then will be void.
                    with suppress(SchemaMismatchError):
                        decoder.describe(event.table_id, await lookup.columns(event.table))
                if isinstance(event, TransactionPayloadEvent):
                    scan.feed(list(decoder.payload_events(event)))
                elif event is not None:
                    scan.feed([event])
                if scan.is_behind(decoder.file, decoder.position):
                    return scan.found
    finally:
        await session.aclose()
        await lookup.aclose()
    return scan.found


@record(slots=True)
class Before:
    """Touches by table, and those of XA transactions that were prepared and not decided, by their xid.

    ``made`` has the keys of the newest rows that were inserted, or moved to these keys, oldest first.
    """

    touched: dict[TableId, Touched]
    prepared: Mapping[Xid, Touching]
    made: Mapping[TableId, Sequence[Key]]


class _Scan:
    """Collects the touches of transactions before the end."""

    def __init__(self, end: Place, keys: Mapping[TableId, KeyColumns], dialect: Dialect) -> None:
        self._end = end
        self._dialect = dialect
        self._is_before = True
        self.touched: dict[TableId, Touched] = {table: {} for table in keys}
        self._made: dict[TableId, dict[Key, None]] = {table: {} for table in keys}
        self._touches = TransactionTouches(keys, self._add, lambda xid: None, self._note_statement)

    @property
    def found(self) -> Before:
        """The touches that have been read so far."""
        made = {table: tuple(made) for table, made in self._made.items()}
        return Before(self.touched, self._touches.prepared, made)

    def feed(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, GtidEvent | MariadbGtidEvent) and self._end.gtid_set is not None:
                self._is_before = event.gtid in self._end.gtid_set  # type: ignore[operator]
        if self._is_before:
            # Not after the end: an XA transaction that was prepared before the end may be decided after it.
            self._touches.follow(events)

    def is_behind(self, file: str, position: int) -> bool:
        """Whether all transactions before the end have been read."""
        return self._end.gtid_set is None and Place(file, position).has_reached(self._end)

    def _add(self, touching: Touching) -> None:
        for table, touched in touching.touched.items():
            add_transaction(self.touched[table], touched)
            made = self._made[table]
            for key, touch in touched.items():
                made.pop(key, None)
                if touch.is_new and not touch.is_gone:
                    made[key] = None
            for key in list(islice(made, max(0, len(made) - NEWEST_KEYS))):
                del made[key]

    def _note_statement(self, event: QueryEvent) -> None:
        if kind_of(event) == "frame":
            return
        statement = read_event(event, self._dialect)
        if waits_for_transactions(statement):
            for table in changed_tables(statement) & self.touched.keys():
                self.touched[table].clear()
                self._made[table].clear()
