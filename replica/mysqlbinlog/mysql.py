"""The text of MySQL's events, as ``mysqlbinlog -vv --base64-output=decode-rows`` prints them.

Formats: the ``print`` functions of MySQL's ``sql/log_event.cc``, and ``client/mysqlbinlog.cc`` for their order.
"""

import re
from collections.abc import Iterator
from functools import lru_cache, singledispatchmethod
from itertools import chain
from typing import BinaryIO
from zlib import crc32

from protocol.binlog.commit_time import utc_time
from protocol.binlog.events import (
    AnonymousGtidEvent,
    Event,
    EventHeader,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    GtidEvent,
    IntvarEvent,
    PreviousGtidsEvent,
    QueryEvent,
    RandEvent,
    RotateEvent,
    RowsEvent,
    RowsQueryEvent,
    StopEvent,
    TableMapEvent,
    TransactionContextEvent,
    TransactionPayloadEvent,
    UserVarEvent,
    ViewChangeEvent,
    XaPrepareEvent,
    XidEvent,
)
from protocol.constants import CHECKSUM_SIZE, EventFlag, EventType, RowsFlag
from protocol.errors import DecodeError, ReplicaError
from protocol.inflate import payload_events
from protocol.wire import unpack_event_header, utf8_bytes

from ..sql.xa import Xid, prepare_statement
from .hexdump import mysql_hexdump
from .query import DELIMITER, status_variables
from .statements import statement_text, user_variable
from .writer import TextWriter, timestamp_text

_OPENING = b"""\
# The proper term is pseudo_replica_mode, but we use this compatibility alias
# to make the statement usable on server versions 8.0.24 and older.
/*!50530 SET @@SESSION.PSEUDO_SLAVE_MODE=1*/;
/*!50003 SET @OLD_COMPLETION_TYPE=@@COMPLETION_TYPE,COMPLETION_TYPE=0*/;
DELIMITER /*!*/;
"""
_CLOSING = b"""\
DELIMITER ;
# End of log file
/*!50003 SET COMPLETION_TYPE=@OLD_COMPLETION_TYPE*/;
/*!50530 SET @@SESSION.PSEUDO_SLAVE_MODE=0*/;
"""
_AUTOMATIC = b"SET @@SESSION.GTID_NEXT= 'AUTOMATIC' /* added by mysqlbinlog */ /*!*/;\n"
_BEGIN = b"BEGIN /*added by mysqlbinlog */ /*!*/;\n"
_ROLLBACK = b"ROLLBACK /* added by mysqlbinlog */ /*!*/;\n"
# As the tool compares it (Query_log_event::ends_group).
_ROLLS_BACK = re.compile(r"ROLLBACK(?! TO )", re.IGNORECASE)
_PAYLOAD_END = b"# End of compressed events.\n"

_END = DELIMITER + b"\n"
_MAY_HAVE_STATEMENTS = 1
_UNKNOWN_VERSION = 999999
# The first server that logs generated invisible primary keys, and their flag in the table map.
_TELLS_GENERATED_KEYS = 80030
_HAS_GENERATED_KEY = 1 << 2

_ROWS_NAMES: dict[int, bytes] = {
    EventType.WRITE_ROWS_V1: b"Write_rows_v1",
    EventType.UPDATE_ROWS_V1: b"Update_rows_v1",
    EventType.DELETE_ROWS_V1: b"Delete_rows_v1",
    EventType.WRITE_ROWS: b"Write_rows",
    EventType.UPDATE_ROWS: b"Update_rows",
    EventType.DELETE_ROWS: b"Delete_rows",
    EventType.PARTIAL_UPDATE_ROWS: b"Update_rows_partial",
}
_ROWS_FLAGS = (
    (RowsFlag.STATEMENT_END, b" STMT_END_F"),
    (RowsFlag.NO_FOREIGN_KEY_CHECKS, b" NO_FOREIGN_KEY_CHECKS_F"),
    (RowsFlag.RELAXED_UNIQUE_CHECKS, b" RELAXED_UNIQUE_CHECKS_F"),
    (RowsFlag.COMPLETE_ROWS, b" COMPLETE_ROWS_F"),
    (0x10, b" USE_SQL_FOREIGN_KEY_F"),
)

_GTID_SETTINGS = (
    b"# original_commit_timestamp=%%d (%%b)\n"
    b"# immediate_commit_timestamp=%%d (%%b)\n"
    b"/*!80001 SET @@session.original_commit_timestamp=%%d*/%b"
    b"/*!80014 SET @@session.original_server_version=%%d*/%b"
    b"/*!80014 SET @@session.immediate_server_version=%%d*/%b"
    b"SET @@SESSION.GTID_NEXT= '%%b'%b"
) % (_END, _END, _END, _END)

# Events that are printed with the statement they belong to.
_DEFERRED = (IntvarEvent, RandEvent, UserVarEvent)
_COMPRESSIONS = {0: b"ZSTD", 255: b"NONE"}


class MysqlText(TextWriter):
    """Writes events of a MySQL server. Events inside a compressed transaction have its position."""

    flavor = "mysql"

    def __init__(self, output: BinaryIO, hexdump: bool) -> None:
        super().__init__(output, hexdump)
        self._deferred: list[tuple[bytes, int, Event]] = []
        self._payload: _Payload | None = None
        self._has_begun = False
        self._in_transaction = False
        self._seen_gtid = False
        self._source_version = _UNKNOWN_VERSION
        output.write(_OPENING)

    def event(self, raw: bytes, position: int, event: Event) -> None:
        """Write one event. ``raw`` is not used for events inside a compressed transaction."""
        if self._payload is not None:
            if position == self._payload.position and not isinstance(event, TransactionPayloadEvent):
                raw, position = self._payload.reveal(event, self.has_checksums)
            else:
                self._end_payload()
        if isinstance(event, FormatDescriptionEvent):
            self.follow(event)
        self.end_statement(event)
        if isinstance(event, FormatDescriptionEvent) and not event.header.flags & EventFlag.RELAY_LOG:
            if self._has_begun and event.header.next_position:
                self._end_log()
            self._has_begun = True
        self.output.write(b"# at %d\n" % position)
        if isinstance(event, _DEFERRED):
            self._deferred.append((raw, position, event))
            return
        if isinstance(event, QueryEvent):
            self._write_deferred()
        self._write(raw, position, event)
        if isinstance(event, XidEvent) and self._payload is not None and self._payload.is_over():
            # The next event may be damaged.
            self._end_payload()

    def pause(self) -> dict[str, object] | None:
        """See ``TextWriter.pause``."""
        self._end_payload()
        return None if self._deferred else super().pause()

    def finish(self) -> None:
        """Write the held bytes and the end of the text, which rolls back an open transaction."""
        self._end_payload()
        self._write_deferred()
        self.held_rows.release(self.output)
        self._end_log()
        self.output.write(_CLOSING)

    def _end_log(self) -> None:
        """Roll back an open transaction at the end of a log file."""
        if self._in_transaction or self._seen_gtid:
            self.output.write(_ROLLBACK if self._in_transaction else _BEGIN + _ROLLBACK)
        self.output.write(_AUTOMATIC)
        self._in_transaction = self._seen_gtid = False

    def _write(self, raw: bytes, position: int, event: Event) -> None:
        header = event.header if self._payload is None else self._payload.header_of(event)
        line = self.header_line(raw, header)
        if self.hexdump:
            line += b"\n" + mysql_hexdump(raw, position, self.header_size) + b"# "
        self.output.write(line + b"".join(self.body(event)))
        if isinstance(event, RowsEvent):
            self.write_rows(event)

    def _write_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        for raw, position, event in deferred:
            self._write(raw, position, event)

    def _end_payload(self) -> None:
        if self._payload is not None:
            self._payload = None
            self.output.write(_PAYLOAD_END)

    # --------------------------------------------------------------------------------- an event's own text

    @singledispatchmethod
    def _body(self, event: Event) -> Iterator[bytes]:
        yield statement_text(event) or b"\tIgnorable\n# Unrecognized ignorable event\n"

    @_body.register
    def _format_description(self, event: FormatDescriptionEvent) -> Iterator[bytes]:
        flags = event.header.flags
        created = b" at startup" if event.created else b""
        yield b"\tStart: binlog v %d, server v %b created %b%b\n" % (
            event.binlog_version,
            utf8_bytes(event.server_version),
            timestamp_text(event.header.timestamp),
            created,
        )
        if flags & EventFlag.BINLOG_IN_USE:
            yield b"# Warning: this binlog is either in use or was not closed properly.\n"
        if flags & EventFlag.RELAY_LOG:
            yield (
                b"# This Format_description_event appears in a relay log and was generated by the replica thread.\n"
            )
        if event.created and not flags & EventFlag.ARTIFICIAL:
            yield b"ROLLBACK" + _END

    @_body.register
    def _rotate(self, event: RotateEvent) -> Iterator[bytes]:
        yield b"\tRotate to %b  pos: %d\n" % (utf8_bytes(event.next_file), event.next_position)

    @_body.register
    def _user_var(self, event: UserVarEvent) -> Iterator[bytes]:
        """The name is in utf8mb3, whatever the character set of the statement is."""
        before, after = self.session.around_name(
            is_text=event.value is None or isinstance(event.value, bytes)
        )
        yield b"\tUser_var\n%b%b%b" % (before, user_variable(event, "mysql"), after)

    @_body.register
    def _stop(self, event: StopEvent) -> Iterator[bytes]:
        yield b"\tStop\n"

    @_body.register
    def _query(self, event: QueryEvent) -> Iterator[bytes]:
        self._follow_transaction(event.sql)
        yield from self._query_head(b"Query", event)
        yield b"%b\n%b\n" % (utf8_bytes(event.sql), DELIMITER)

    @_body.register
    def _execute_load_query(self, event: ExecuteLoadQueryEvent) -> Iterator[bytes]:
        yield from self._query_head(b"Execute_load_query", event)
        yield b"%b\n%b\n# file_id: %d \n" % (utf8_bytes(event.sql), DELIMITER, event.file_id)

    def _query_head(self, name: bytes, event: QueryEvent) -> Iterator[bytes]:
        logged = status_variables(event.status_variables).get("DDL_LOGGED_WITH_XID")
        yield b"\t%b\tthread_id=%d\texec_time=%d\terror_code=%d%b\n" % (
            name,
            event.thread_id,
            event.exec_time,
            event.error_code,
            b"" if logged is None else f"\tXid = {logged}".encode(),
        )
        yield from self.session.statements(event)

    def _follow_transaction(self, sql: str) -> None:
        """The tool takes XA PREPARE and XA COMMIT for no end of a transaction; a ROLLBACK does no harm there."""
        if sql == "BEGIN" or sql.startswith("XA START"):
            self._in_transaction = True
        elif sql == "COMMIT" or sql.startswith("XA ROLLBACK") or _ROLLS_BACK.match(sql):
            self._in_transaction = self._seen_gtid = False
        elif not self._in_transaction:
            self._seen_gtid = False

    @_body.register
    def _xid(self, event: XidEvent) -> Iterator[bytes]:
        self._in_transaction = self._seen_gtid = False
        yield b"\tXid = %d\nCOMMIT%b" % (event.xid, _END)

    @_body.register
    def _xa_prepare(self, event: XaPrepareEvent) -> Iterator[bytes]:
        xid = Xid(event.format_id, event.gtrid, event.bqual)
        statement = prepare_statement(xid, event.one_phase)
        yield b"\tXA PREPARE %b\n%b\n%b\n" % (str(xid).encode(), statement.encode(), DELIMITER)

    @_body.register
    def _transaction_context(self, event: TransactionContextEvent) -> Iterator[bytes]:
        server = utf8_bytes(event.server_uuid)
        yield b"Transaction_context: server_uuid=%b\tthread_id=%d\n" % (server, event.thread_id)

    @_body.register
    def _view_change(self, event: ViewChangeEvent) -> Iterator[bytes]:
        yield b"View_change_log_event: view_id=%b\n" % utf8_bytes(event.view_id)

    @_body.register
    def _previous_gtids(self, event: PreviousGtidsEvent) -> Iterator[bytes]:
        sets = str(event.gtid_set).replace(",", ",\n# ")
        yield b"\tPrevious-GTIDs\n# %b\n" % (sets.encode() or b"[empty]")

    @_body.register
    def _gtid(self, event: AnonymousGtidEvent) -> Iterator[bytes]:
        self._seen_gtid = True
        # Servers before 8.0.1 log none of these fields, servers before 8.0.14 all but the versions.
        unknown = 0 if event.immediate_commit_timestamp is None else _UNKNOWN_VERSION
        self._source_version = event.immediate_server_version or unknown
        is_anonymous = not isinstance(event, GtidEvent)
        has_rows_only = not event.gtid_flags & _MAY_HAVE_STATEMENTS
        original = event.original_commit_timestamp or 0
        immediate = event.immediate_commit_timestamp or 0
        yield (
            b"\t%b\tlast_committed=%d\tsequence_number=%d\trbr_only=%b\toriginal_committed_timestamp=%d"
            b"\timmediate_commit_timestamp=%d\ttransaction_length=%d\n"
        ) % (
            b"Anonymous_GTID" if is_anonymous else b"GTID",
            event.last_committed or 0,
            event.sequence_number or 0,
            b"yes" if has_rows_only else b"no",
            original,
            immediate,
            event.transaction_length or 0,
        )
        if has_rows_only:
            yield b"/*!50718 SET TRANSACTION ISOLATION LEVEL READ COMMITTED*/" + _END
        gtid = str(event.gtid) if isinstance(event, GtidEvent) else "ANONYMOUS"
        yield _GTID_SETTINGS % (
            original,
            _microseconds_text(original),
            immediate,
            _microseconds_text(immediate),
            original,
            event.original_server_version or unknown,
            self._source_version,
            gtid.encode(),
        )

    @_body.register
    def _rows_query(self, event: RowsQueryEvent) -> Iterator[bytes]:
        yield b"\tRows_query\n# %b\n" % utf8_bytes(event.sql).replace(b"\n", b"\n# ")

    @_body.register
    def _table_map(self, event: TableMapEvent) -> Iterator[bytes]:
        table = event.table
        yield b"\tTable_map: `%b`.`%b` mapped to number %d\n" % (
            utf8_bytes(table.schema),
            utf8_bytes(table.name),
            event.table_id,
        )
        if _TELLS_GENERATED_KEYS <= self._source_version < _UNKNOWN_VERSION:
            has_key = bool(event.table_map_flags & _HAS_GENERATED_KEY)
            yield b"# has_generated_invisible_primary_key=%d\n" % has_key

    @_body.register
    def _rows(self, event: RowsEvent) -> Iterator[bytes]:
        flags = _flags_text(event.rows_flags)
        yield b"\t%b: table id %d%b\n" % (_ROWS_NAMES[event.header.type], event.table_id, flags)

    @_body.register
    def _transaction_payload(self, event: TransactionPayloadEvent) -> Iterator[bytes]:
        self._payload = _Payload(event)
        yield b"\tTransaction_Payload\t\tpayload_size=%d\tcompression_type=%b\tuncompressed_size=%d\n" % (
            len(event.payload),
            _COMPRESSIONS.get(event.compression_type, b"%d" % event.compression_type),
            event.uncompressed_size,
        )
        yield b"# Start of compressed events.\n"


class _Payload:
    """The compressed transaction whose events are being printed; they are shown at the position of its end."""

    def __init__(self, event: TransactionPayloadEvent) -> None:
        self.position = event.position
        self._end = event.header.next_position
        self._raw_events: Iterator[bytes] = payload_events(event.payload, event.compression_type)

    def is_over(self) -> bool:
        """Whether all events have been shown."""
        try:
            following = next(self._raw_events, None)
        except ReplicaError:
            return False
        if following is not None:
            self._raw_events = chain([following], self._raw_events)
        return following is None

    def reveal(self, event: Event, has_checksums: bool) -> tuple[bytes, int]:
        """The bytes of the next inner event equal to ``event``, with a checksum added, and the position to show."""
        raw = next((raw for raw in self._raw_events if unpack_event_header(raw) == event.header), None)
        if raw is None:
            raise DecodeError(
                "the event is not in the compressed transaction before it", event.file, event.position
            )
        if has_checksums:
            size = (len(raw) + CHECKSUM_SIZE).to_bytes(4, "little")
            raw = raw[:9] + size + raw[13:]
            raw += crc32(raw).to_bytes(CHECKSUM_SIZE, "little")
        return raw, self._end

    def header_of(self, event: Event) -> EventHeader:
        if isinstance(event, TransactionPayloadEvent):
            return event.header
        return event.header._replace(next_position=self._end)


@lru_cache(maxsize=16)
def _flags_text(rows_flags: int) -> bytes:
    flags = b"".join(name for flag, name in _ROWS_FLAGS if rows_flags & flag)
    return b" flags:" + flags if flags else b""


def _microseconds_text(microseconds: int) -> bytes:
    seconds, rest = divmod(microseconds, 1_000_000)
    return b"%b.%06d UTC" % (_seconds_text(seconds), rest)


# Most transactions have the same second as the one before.
@lru_cache(maxsize=16)
def _seconds_text(seconds: int) -> bytes:
    return f"{utc_time(seconds * 1_000_000):%Y-%m-%d %H:%M:%S}".encode()
