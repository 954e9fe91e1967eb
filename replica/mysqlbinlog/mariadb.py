"""The text of MariaDB's events, as ``mariadb-binlog -vv --base64-output=decode-rows`` (11.8) prints them.

Like the tool it also prints the rows of MySQL 5.1 to 5.5, which today's mysqlbinlog refuses. Formats: MariaDB's
``sql/log_event_client.cc``, and ``client/mysqlbinlog.cc`` for their order.
"""

from collections.abc import Iterator
from functools import singledispatchmethod
from typing import BinaryIO

from protocol.binlog.events import (
    AnnotateRowsEvent,
    BinlogCheckpointEvent,
    CreateFileEvent,
    Event,
    ExecuteLoadEvent,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    PreGaRowsEvent,
    QueryEvent,
    RotateEvent,
    RowsEvent,
    StartEncryptionEvent,
    StopEvent,
    TableMapEvent,
    UserVarEvent,
    XaPrepareEvent,
    XidEvent,
)
from protocol.constants import (
    BINLOG_MAGIC,
    EventFlag,
    EventType,
    MariadbGtidExtraFlag,
    MariadbGtidFlag,
    RowsFlag,
)
from protocol.wire import utf8_bytes

from ..sql.xa import Xid
from .hexdump import mariadb_hexdump
from .query import DELIMITER, Session, status_variables
from .rows import quoted_name
from .statements import statement_text, user_variable
from .writer import Spool, TextWriter, timestamp_text

_OPENING = b"""\
/*!50530 SET @@SESSION.PSEUDO_SLAVE_MODE=1*/;
/*!40019 SET @@session.max_delayed_threads=0*/;
/*!50003 SET @OLD_COMPLETION_TYPE=@@COMPLETION_TYPE,COMPLETION_TYPE=0*/;
DELIMITER /*!*/;
"""
_CLOSING = b"""\
DELIMITER ;
# End of log file
ROLLBACK /* added by mysqlbinlog */;
/*!50003 SET COMPLETION_TYPE=@OLD_COMPLETION_TYPE*/;
/*!50530 SET @@SESSION.PSEUDO_SLAVE_MODE=0*/;
"""
_NEXT_FILE = b"""\
DELIMITER ;
DELIMITER /*!*/;
"""
_END = DELIMITER + b"\n"

_ROWS_NAMES: dict[int, bytes] = {
    EventType.PRE_GA_WRITE_ROWS: b"Write_rows_old",
    EventType.PRE_GA_UPDATE_ROWS: b"Update_rows_old",
    EventType.PRE_GA_DELETE_ROWS: b"Delete_rows_old",
    EventType.WRITE_ROWS_V1: b"Write_rows",
    EventType.UPDATE_ROWS_V1: b"Update_rows",
    EventType.DELETE_ROWS_V1: b"Delete_rows",
    EventType.WRITE_ROWS: b"Write_rows",
    EventType.UPDATE_ROWS: b"Update_rows",
    EventType.DELETE_ROWS: b"Delete_rows",
    EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1: b"Write_compressed_rows",
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED_V1: b"Update_compressed_rows",
    EventType.MARIADB_DELETE_ROWS_COMPRESSED_V1: b"Delete_compressed_rows",
    EventType.MARIADB_WRITE_ROWS_COMPRESSED: b"Write_compressed_rows",
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED: b"Update_compressed_rows",
    EventType.MARIADB_DELETE_ROWS_COMPRESSED: b"Delete_compressed_rows",
}
_ROWS = (RowsEvent, PreGaRowsEvent)

_HAS_TRIGGERS = 1 << 14
_ALTER_FLAGS = 2 | 4 | 8


class MariadbText(TextWriter):
    """Writes events of a MariaDB server."""

    flavor = "mariadb"

    def __init__(self, output: BinaryIO, hexdump: bool) -> None:
        super().__init__(output, hexdump)
        self._head = Spool()
        self._annotation: tuple[bytes, AnnotateRowsEvent] | None = None
        self._row_count: int | None = None
        self._gtid_settings: dict[bytes, int] = {}
        self._skips_replication = False
        self._has_begun = False
        output.write(_OPENING)

    def event(self, raw: bytes, position: int, event: Event) -> None:
        """Write one event. An annotation waits for the table map after it."""
        if not isinstance(event, _ROWS):
            self.end_statement(event)
            self._write_row_count()
        if isinstance(event, FormatDescriptionEvent):
            if self._has_begun and position == len(BINLOG_MAGIC):
                self._begin_file()
            self._has_begun = True
            self.follow(event)
        self.output.write(b"# at %d\n" % position)
        if isinstance(event, AnnotateRowsEvent):
            self._annotation = (raw, event)
            return
        annotated, self._annotation = self._annotation, None
        # If another event follows the annotation, its table map was filtered out.
        if isinstance(event, TableMapEvent) and annotated is not None:
            annotation_raw, annotation = annotated
            # Like the tool, label the annotation's dump with the table map's offset.
            self._write_head(annotation_raw, position, annotation)
        self._write_skip_replication(event)
        self._write_head(raw, position, event)
        if isinstance(event, _ROWS):
            self._row_count = (self._row_count or 0) + len(getattr(event, "rows", ()))
        if isinstance(event, RowsEvent):
            self.write_rows(event)

    def _begin_file(self) -> None:
        """Forget the session's settings: the tool prints each file by itself."""
        self.output.write(_NEXT_FILE)
        self.session = Session(self.flavor)
        self._gtid_settings = {}
        self._skips_replication = False

    def pause(self) -> dict[str, object] | None:
        """See ``TextWriter.pause``."""
        state = super().pause()
        self._write_row_count()
        return None if state is None or self._head or self._annotation else state | {"_row_count": None}

    def finish(self) -> None:
        """Write the held bytes, and the end of the text."""
        self.release_rows()
        self._write_row_count()
        self.output.write(_CLOSING)

    def release_rows(self) -> None:
        """Write the held headers, then the held rows."""
        self._head.release(self.output)
        super().release_rows()

    def _write_row_count(self) -> None:
        count, self._row_count = self._row_count, None
        if count is not None:
            self.output.write(b"# Number of rows: %d\n" % count)

    def _write_skip_replication(self, event: Event) -> None:
        skips = bool(event.header.flags & EventFlag.MARIADB_SKIP_REPLICATION)
        if skips != self._skips_replication and not isinstance(event, (TableMapEvent, *_ROWS)):
            self._skips_replication = skips
            self.output.write(b"/*!50521 SET skip_replication=%d*/%b" % (skips, _END))

    def _write_head(self, raw: bytes, position: int, event: Event) -> None:
        """Write an event's header and text. Headers of rows events wait for the last rows event of the statement."""
        # The tool prints no header line before the encryption scheme.
        has_header = not isinstance(event, StartEncryptionEvent)
        pieces = [self.header_line(raw, event.header)] if has_header else []
        if has_header and self.hexdump:
            pieces.append(b"\n" + mariadb_hexdump(raw, position, self.header_size) + b"# Event: ")
        pieces.extend(self.body(event))
        if isinstance(event, RowsEvent) and not event.rows_flags & RowsFlag.STATEMENT_END:
            self._head.write(pieces)
        else:
            self._head.release(self.output)
            self.output.writelines(pieces)

    # --------------------------------------------------------------------------------- an event's own text

    @singledispatchmethod
    def _body(self, event: Event) -> Iterator[bytes]:
        yield statement_text(event) or b"\tIgnorable\n# Ignorable event type %d\n" % event.header.type

    @_body.register
    def _user_var(self, event: UserVarEvent) -> Iterator[bytes]:
        yield b"\tUser_var\n%b" % user_variable(event, "mariadb")

    @_body.register
    def _format_description(self, event: FormatDescriptionEvent) -> Iterator[bytes]:
        yield b"\tStart: binlog v %d, server v %b created %b%b\n" % (
            event.binlog_version,
            utf8_bytes(event.server_version),
            timestamp_text(event.header.timestamp),
            b" at startup" if event.created else b"",
        )
        if event.header.flags & EventFlag.BINLOG_IN_USE:
            yield b"# Warning: this binlog is either in use or was not closed properly.\n"
        if event.created and not event.header.flags & EventFlag.ARTIFICIAL:
            yield b"ROLLBACK" + _END

    @_body.register
    def _start_encryption(self, event: StartEncryptionEvent) -> Iterator[bytes]:
        yield b"# Encryption scheme: %d, key_version: %d, nonce: %b\n" % (
            event.scheme,
            event.key_version,
            event.nonce.hex().encode(),
        )
        yield b"# The rest of the binlog is encrypted!\n"

    @_body.register
    def _rotate(self, event: RotateEvent) -> Iterator[bytes]:
        yield b"\tRotate to %b  pos: %d\n" % (utf8_bytes(event.next_file), event.next_position)

    @_body.register
    def _stop(self, event: StopEvent) -> Iterator[bytes]:
        yield b"\tStop\n"

    @_body.register
    def _binlog_checkpoint(self, event: BinlogCheckpointEvent) -> Iterator[bytes]:
        yield b"\tBinlog checkpoint %b\n" % utf8_bytes(event.checkpoint_file)

    @_body.register
    def _gtid_list(self, event: MariadbGtidListEvent) -> Iterator[bytes]:
        gtids = sorted(event.gtids, key=lambda gtid: (gtid.domain_id, gtid.server_id))
        yield b"\tGtid list [%b]\n" % ",\n# ".join(map(str, gtids)).encode()

    @_body.register
    def _gtid(self, event: MariadbGtidEvent) -> Iterator[bytes]:
        yield b"\tGTID %b\n" % "".join([str(event.gtid), *_gtid_words(event)]).encode()
        is_parallel = bool(event.gtid_flags & MariadbGtidFlag.ALLOW_PARALLEL)
        yield from self._set(b"/*M!100101 SET @@session.skip_parallel_replication=%d*/", not is_parallel)
        yield from self._set(b"/*M!100001 SET @@session.gtid_domain_id=%d*/", event.gtid.domain_id)
        yield from self._set(b"/*M!100001 SET @@session.server_id=%d*/", event.gtid.server_id)
        yield b"/*M!100001 SET @@session.gtid_seq_no=%d*/%b" % (event.gtid.sequence, _END)
        if event.gtid_flags & MariadbGtidFlag.PREPARED_XA and event.xid is not None:
            yield b"XA START %b%b" % (str(Xid(*event.xid)).encode(), _END)
        elif not event.gtid_flags & MariadbGtidFlag.STANDALONE:
            yield b"START TRANSACTION\n" + _END

    def _set(self, statement: bytes, value: int) -> Iterator[bytes]:
        if self._gtid_settings.get(statement) != value:
            self._gtid_settings[statement] = value
            yield statement % value + _END

    @_body.register
    def _query(self, event: QueryEvent) -> Iterator[bytes]:
        is_compressed = event.header.type == EventType.MARIADB_QUERY_COMPRESSED
        yield from self._query_head(b"Query_compressed" if is_compressed else b"Query", event)
        alter = status_variables(event.status_variables).get("MARIADB_GTID_FLAGS3")
        sql = utf8_bytes(event.sql)
        if isinstance(alter, tuple) and isinstance(alter[0], int) and alter[0] & _ALTER_FLAGS:
            yield b"### %b\n" % sql  # one phase of a two-phase ALTER, which only a replica can run
        else:
            yield b"%b\n%b\n" % (sql, DELIMITER)

    @_body.register
    def _execute_load_query(self, event: ExecuteLoadQueryEvent) -> Iterator[bytes]:
        yield from self._query_head(b"Execute_load_query", event)
        yield b"%b\n%b\n# file_id: %d \n" % (utf8_bytes(event.sql), DELIMITER, event.file_id)

    def _query_head(self, name: bytes, event: QueryEvent) -> Iterator[bytes]:
        xid = status_variables(event.status_variables).get("MARIADB_XID", 0)
        yield b"\t%b\tthread_id=%d\texec_time=%d\terror_code=%d\txid=%b\n" % (
            name,
            event.thread_id,
            event.exec_time,
            event.error_code,
            str(xid).encode(),
        )
        yield from self.session.statements(event)

    @_body.register
    def _xid(self, event: XidEvent) -> Iterator[bytes]:
        yield b"\tXid = %d\nCOMMIT%b" % (event.xid, _END)

    @_body.register
    def _xa_prepare(self, event: XaPrepareEvent) -> Iterator[bytes]:
        xid = str(Xid(event.format_id, event.gtrid, event.bqual)).encode()
        yield b"\tXID = %b\nXA PREPARE %b\n%b\n" % (xid, xid, DELIMITER)

    @_body.register
    def _create_file(self, event: CreateFileEvent) -> Iterator[bytes]:
        yield b"\n#Create_file: file_id: %d  block_len: %d\n" % (event.file_id, len(event.block))

    @_body.register
    def _execute_load(self, event: ExecuteLoadEvent) -> Iterator[bytes]:
        yield b"\n#Exec_load: file_id=%d\n" % event.file_id

    @_body.register
    def _annotate_rows(self, event: AnnotateRowsEvent) -> Iterator[bytes]:
        yield b"\tAnnotate_rows:\n"
        for line in utf8_bytes(event.sql).replace(b"\r", b"\n").split(b"\n"):
            if line:
                yield b"#Q> %b\n" % line

    @_body.register
    def _table_map(self, event: TableMapEvent) -> Iterator[bytes]:
        yield b"\tTable_map: %b.%b mapped to number %d%b\n" % (
            quoted_name(event.table.schema),
            quoted_name(event.table.name),
            event.table_id,
            b" (has triggers)" if event.table_map_flags & _HAS_TRIGGERS else b"",
        )

    @_body.register
    def _pre_ga_rows(self, event: PreGaRowsEvent) -> Iterator[bytes]:
        yield b"\t%b: table id %d\n" % (_ROWS_NAMES[event.header.type], event.table_id)

    @_body.register
    def _rows(self, event: RowsEvent) -> Iterator[bytes]:
        flags = b" flags: STMT_END_F" if event.rows_flags & RowsFlag.STATEMENT_END else b""
        yield b"\t%b: table id %d%b\n" % (_ROWS_NAMES[event.header.type], event.table_id, flags)


def _gtid_words(event: MariadbGtidEvent) -> Iterator[str]:
    if event.gtid_flags & MariadbGtidFlag.GROUP_COMMIT_ID:
        yield f" cid={event.commit_id}"
    for flag, word in (
        (MariadbGtidFlag.DDL, " ddl"),
        (MariadbGtidFlag.TRANSACTIONAL, " trans"),
        (MariadbGtidFlag.WAITED, " waited"),
    ):
        if event.gtid_flags & flag:
            yield word
    if event.extra_flags & MariadbGtidExtraFlag.START_ALTER:
        yield " START ALTER"
    if event.extra_flags & MariadbGtidExtraFlag.COMMIT_ALTER:
        yield f" COMMIT ALTER id= {event.alter_sequence}"
    if event.extra_flags & MariadbGtidExtraFlag.ROLLBACK_ALTER:
        yield f" ROLLBACK ALTER id= {event.alter_sequence}"
    if event.thread_id is not None:
        yield f" thread_id={event.thread_id}"
