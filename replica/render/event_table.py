"""Events as the table of SHOW BINLOG EVENTS: file, start, type, server id, end, and a short text for each event.

Type names and the texts under Info are the servers' own: ``pack_info`` of MySQL 8.4 to 9.7 (``sql/log_event.cc``) and
of MariaDB 10.11 to 11.8 (``sql/log_event_server.cc``), each for its own logs. Older servers name fewer flags.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, BinaryIO, Final

from protocol.binlog.checksum import is_mariadb_version
from protocol.binlog.events import (
    AnnotateRowsEvent,
    AnonymousGtidEvent,
    AppendBlockEvent,
    BeginLoadQueryEvent,
    BinlogCheckpointEvent,
    DeleteRowsEvent,
    Event,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    GtidEvent,
    HeartbeatEvent,
    IncidentEvent,
    IntvarEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    PreviousGtidsEvent,
    QueryEvent,
    RandEvent,
    RotateEvent,
    RowsQueryEvent,
    TableMapEvent,
    TransactionPayloadEvent,
    UpdateRowsEvent,
    UserVarEvent,
    WriteRowsEvent,
    XaPrepareEvent,
    XidEvent,
)
from protocol.binlog.query_status import parse_status_variables
from protocol.constants import (
    INTVAR_NAMES,
    EventFlag,
    EventType,
    MariadbGtidExtraFlag,
    MariadbGtidFlag,
    SessionFlag,
)
from protocol.values.jsonb_text import float_text
from protocol.wire import utf8_bytes

from ..mysqlbinlog.statements import user_value
from ..sql.quoting import identifier
from ..sql.xa import Xid, prepare_statement

_COLUMNS: Final = ("Log_name", "Pos", "Event_type", "Server_id", "End_log_pos", "Info")
_WIDTHS: Final = (16, 10, 20, 10, 11)
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\0": "\\0"})

# Types whose name in the servers is not the constant's name with one capital.
_TYPE_NAMES: Final[Mapping[int, str]] = MappingProxyType(
    {
        EventType.RAND: "RAND",
        EventType.USER_VAR: "User var",
        EventType.FORMAT_DESCRIPTION: "Format_desc",
        EventType.PRE_GA_WRITE_ROWS: "Write_rows_event_old",
        EventType.PRE_GA_UPDATE_ROWS: "Update_rows_event_old",
        EventType.PRE_GA_DELETE_ROWS: "Delete_rows_event_old",
        EventType.ANONYMOUS_GTID: "Anonymous_Gtid",
        EventType.XA_PREPARE: "XA_prepare",
        EventType.PARTIAL_UPDATE_ROWS: "Update_rows_partial",
        EventType.GTID_TAGGED: "Gtid_tagged_log_event",
    }
)
_ROWS_FLAGS: Final = (
    (0x01, "STMT_END_F"),
    (0x02, "NO_FOREIGN_KEY_CHECKS_F"),
    (0x04, "RELAXED_UNIQUE_CHECKS_F"),
    (0x08, "COMPLETE_ROWS_F"),
    (0x10, "USE_SQL_FOREIGN_KEY_F"),
)
_MARIADB_SETTINGS: Final = (
    (SessionFlag.NO_FOREIGN_KEY_CHECKS, "foreign_key_checks=0"),
    (SessionFlag.AUTO_IS_NULL, "sql_auto_is_null=1"),
    (SessionFlag.RELAXED_UNIQUE_CHECKS, "unique_checks=0"),
    (SessionFlag.MARIADB_NO_CHECK_CONSTRAINT_CHECKS, "check_constraint_checks=0"),
    (SessionFlag.MARIADB_IF_EXISTS, "@@sql_if_exists=1"),
    (SessionFlag.MARIADB_INSERT_HISTORY, "@@system_versioning_insert_history=1"),
)
# Flags of MariaDB's two-phase ALTER TABLE (binlog_alter_two_phase).
_ALTER_PHASES: Final = (
    (MariadbGtidExtraFlag.START_ALTER, " START ALTER"),
    (MariadbGtidExtraFlag.COMMIT_ALTER, " COMMIT ALTER id={}"),
    (MariadbGtidExtraFlag.ROLLBACK_ALTER, " ROLLBACK ALTER id={}"),
)


class EventTable:
    """Writes a line for each event: tab-separated and escaped like ``mysql --batch``, or aligned for people."""

    def __init__(self, output: BinaryIO, *, aligned: bool = False) -> None:
        self._output = output
        self._aligned = aligned
        self._is_mariadb = False
        self._payload_end = 0
        self._write(_COLUMNS)

    def render(self, raw: bytes, position: int, event: Event) -> None:
        """Write one event. Events inside a compressed transaction (``raw`` is empty) get the position of its end."""
        if isinstance(event, FormatDescriptionEvent):
            self._is_mariadb = is_mariadb_version(event.server_version)
        end = event.header.next_position
        if isinstance(event, TransactionPayloadEvent):
            self._payload_end = end
        elif not raw:
            position = end = self._payload_end
        make = _INFO.get(type(event))
        info = "" if make is None else make(event, self._is_mariadb)
        name = type_name(event.header.type)
        self._write((event.file, str(position), name, str(event.header.server_id), str(end), info))

    def finish(self) -> None:
        """Do nothing: every line has been written."""

    def _write(self, fields: tuple[str, ...]) -> None:
        escaped = [field.translate(_ESCAPES) for field in fields]
        if self._aligned:
            padded = [field.ljust(width) for field, width in zip(escaped, _WIDTHS, strict=False)]
            line = "  ".join([*padded, escaped[-1]])
        else:
            line = "\t".join(escaped)
        self._output.write(utf8_bytes(line) + b"\n")


def type_name(event_type: int) -> str:
    """The name of an event type as the servers print it: "Write_rows"."""
    known = _TYPE_NAMES.get(event_type)
    if known is not None:
        return known
    try:
        return EventType(event_type).name.removeprefix("MARIADB_").capitalize()
    except ValueError:
        return "Unknown"


# ------------------------------------------------------------------------------------------------------- Info


def _format_description(event: FormatDescriptionEvent, is_mariadb: bool) -> str:
    return f"Server ver: {event.server_version}, Binlog ver: {event.binlog_version}"


def _query(event: QueryEvent, is_mariadb: bool) -> str:
    use = ""
    if event.schema and not event.header.flags & EventFlag.SUPPRESS_USE:
        use = f"use {identifier(event.schema)}; "
    variables = parse_status_variables(event.status_variables)
    flags, xid = variables.get("FLAGS2"), variables.get("DDL_LOGGED_WITH_XID")
    if is_mariadb and isinstance(flags, int):
        settings = ", ".join(setting for bit, setting in _MARIADB_SETTINGS if flags & bit)
        use += f"set {settings}; " if settings else ""
    return f"{use}{event.sql}" + (f" /* xid={xid} */" if xid is not None else "")


def _execute_load_query(event: ExecuteLoadQueryEvent, is_mariadb: bool) -> str:
    return f"{_query(event, is_mariadb)} ;file_id={event.file_id}"


def _gtid(event: GtidEvent, is_mariadb: bool) -> str:
    return f"SET @@SESSION.GTID_NEXT= '{event.gtid}'"


def _mariadb_gtid(event: MariadbGtidEvent, is_mariadb: bool) -> str:
    begin = ""
    if event.xid is not None and event.gtid_flags & MariadbGtidFlag.PREPARED_XA:
        begin = f"XA START {Xid(*event.xid)} "
    elif not event.is_standalone:
        begin = "BEGIN "
    commit_id = "" if event.commit_id is None else f" cid={event.commit_id}"
    alter = "".join(
        text.format(event.alter_sequence) for flag, text in _ALTER_PHASES if event.extra_flags & flag
    )
    return f"{begin}GTID {event.gtid}{commit_id}{alter}"


def _gtid_list(event: MariadbGtidListEvent, is_mariadb: bool) -> str:
    gtids = sorted(event.gtids, key=lambda gtid: (gtid.domain_id, gtid.server_id))
    return f"[{','.join(map(str, gtids))}]"


def _table_map(event: TableMapEvent, is_mariadb: bool) -> str:
    return f"table_id: {event.table_id} ({event.table})"


def _rows(event: Any, is_mariadb: bool) -> str:
    flags = [name for bit, name in _ROWS_FLAGS if event.rows_flags & bit]
    shown = flags if not is_mariadb else flags[:1] if event.rows_flags & 1 else []
    return f"table_id: {event.table_id}" + (f" flags: {' '.join(shown)}" if shown else "")


def _xa_prepare(event: XaPrepareEvent, is_mariadb: bool) -> str:
    xid = Xid(event.format_id, event.gtrid, event.bqual)
    return prepare_statement(xid, event.one_phase)


def _payload(event: TransactionPayloadEvent, is_mariadb: bool) -> str:
    compression = "NONE" if event.compression_type else "ZSTD"
    return f"compression='{compression}', decompressed_size={event.uncompressed_size} bytes"


def _intvar(event: IntvarEvent, is_mariadb: bool) -> str:
    return f"{INTVAR_NAMES.get(event.variable, 'LAST_INSERT_ID')}={event.value}"


def _user_var(event: UserVarEvent, is_mariadb: bool) -> str:
    value = user_value(event, "mariadb" if is_mariadb else "mysql", str.encode).decode()
    if isinstance(event.value, float):
        # MariaDB has no sign for zero.
        value = float_text(event.value if event.value or not is_mariadb else 0.0).removesuffix(".0")
    return f"@{identifier(event.name)}={value}"


def _block(event: AppendBlockEvent, is_mariadb: bool) -> str:
    return f";file_id={event.file_id};block_len={len(event.block)}"


def _incident(event: IncidentEvent, is_mariadb: bool) -> str:
    name = "LOST_EVENTS" if event.incident == 1 else "NONE"
    return f"#{event.incident} ({name})" + (f": {event.message}" if event.message else "")


_Info = Callable[[Any, bool], str]
_INFO: Final[Mapping[type[Event], _Info]] = MappingProxyType(
    {
        FormatDescriptionEvent: _format_description,
        RotateEvent: lambda event, _: f"{event.next_file};pos={event.next_position}",
        QueryEvent: _query,
        ExecuteLoadQueryEvent: _execute_load_query,
        XidEvent: lambda event, _: f"COMMIT /* xid={event.xid} */",
        AnonymousGtidEvent: lambda event, _: "SET @@SESSION.GTID_NEXT= 'ANONYMOUS'",
        GtidEvent: _gtid,
        PreviousGtidsEvent: lambda event, _: str(event.gtid_set).replace(",", ",\n"),
        MariadbGtidEvent: _mariadb_gtid,
        MariadbGtidListEvent: _gtid_list,
        BinlogCheckpointEvent: lambda event, _: event.checkpoint_file,
        AnnotateRowsEvent: lambda event, _: event.sql,
        RowsQueryEvent: lambda event, _: f"# {event.sql}",
        TableMapEvent: _table_map,
        **dict.fromkeys((WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent), _rows),
        XaPrepareEvent: _xa_prepare,
        TransactionPayloadEvent: _payload,
        IntvarEvent: _intvar,
        RandEvent: lambda event, _: f"rand_seed1={event.seed1},rand_seed2={event.seed2}",
        UserVarEvent: _user_var,
        AppendBlockEvent: _block,
        BeginLoadQueryEvent: _block,
        IncidentEvent: _incident,
        HeartbeatEvent: lambda event, _: "",
    }
)
