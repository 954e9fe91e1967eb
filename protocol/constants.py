"""Numbers of the client/server protocol and of the binary log, under the names that the servers give them.

From MySQL's ``mysql_com.h`` and ``binlog_event.h``, and MariaDB's ``log_event.h``.
Constants only, no behaviour.
"""

from collections.abc import Mapping
from enum import IntEnum, IntFlag
from types import MappingProxyType
from typing import Final


class EventType(IntEnum):
    """Type byte of a binlog event's header. 160 and above are MariaDB's own."""

    UNKNOWN = 0
    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    SLAVE = 7
    CREATE_FILE = 8
    APPEND_BLOCK = 9
    EXEC_LOAD = 10
    DELETE_FILE = 11
    NEW_LOAD = 12
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    PRE_GA_WRITE_ROWS = 20
    PRE_GA_UPDATE_ROWS = 21
    PRE_GA_DELETE_ROWS = 22
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    MARIADB_ANNOTATE_ROWS = 160
    MARIADB_BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    MARIADB_START_ENCRYPTION = 164
    MARIADB_QUERY_COMPRESSED = 165
    MARIADB_WRITE_ROWS_COMPRESSED_V1 = 166
    MARIADB_UPDATE_ROWS_COMPRESSED_V1 = 167
    MARIADB_DELETE_ROWS_COMPRESSED_V1 = 168
    MARIADB_WRITE_ROWS_COMPRESSED = 169
    MARIADB_UPDATE_ROWS_COMPRESSED = 170
    MARIADB_DELETE_ROWS_COMPRESSED = 171
    MARIADB_PARTIAL_ROW_DATA = 172


_ROW_EVENTS: Final = (
    EventType.TABLE_MAP,
    EventType.PRE_GA_WRITE_ROWS,
    EventType.PRE_GA_UPDATE_ROWS,
    EventType.PRE_GA_DELETE_ROWS,
    EventType.WRITE_ROWS_V1,
    EventType.UPDATE_ROWS_V1,
    EventType.DELETE_ROWS_V1,
    EventType.WRITE_ROWS,
    EventType.UPDATE_ROWS,
    EventType.DELETE_ROWS,
    EventType.PARTIAL_UPDATE_ROWS,
    EventType.ROWS_QUERY,
    EventType.MARIADB_ANNOTATE_ROWS,
    EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1,
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED_V1,
    EventType.MARIADB_DELETE_ROWS_COMPRESSED_V1,
    EventType.MARIADB_WRITE_ROWS_COMPRESSED,
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED,
    EventType.MARIADB_DELETE_ROWS_COMPRESSED,
)
#: Event types that change how later events are read, hold other events, or tell about the source itself.
ALONE: Final = frozenset(
    {
        EventType.FORMAT_DESCRIPTION,
        EventType.HEARTBEAT,
        EventType.HEARTBEAT_V2,
        EventType.MARIADB_GTID_LIST,
        EventType.MARIADB_START_ENCRYPTION,
        EventType.PREVIOUS_GTIDS,
        EventType.ROTATE,
        EventType.STOP,
        EventType.TRANSACTION_PAYLOAD,
    }
)
#: Event types by which a source says that it has nothing more, and how far its log has come.
HEARTBEATS: Final = frozenset({EventType.HEARTBEAT, EventType.HEARTBEAT_V2})
# Type bytes (``raw[4:5]``) of the events that make up most of a log. None of these begins or ends a transaction.
ROW_CODES: Final = frozenset(bytes([event_type]) for event_type in _ROW_EVENTS)


class EventFlag(IntFlag):
    """Flags of a binlog event's header (``log_event.h``: LOG_EVENT_*_F)."""

    BINLOG_IN_USE = 0x0001
    THREAD_SPECIFIC = 0x0004
    SUPPRESS_USE = 0x0008
    ARTIFICIAL = 0x0020
    RELAY_LOG = 0x0040
    IGNORABLE = 0x0080
    NO_FILTER = 0x0100
    MTS_ISOLATE = 0x0200
    MARIADB_SKIP_REPLICATION = 0x8000


class SessionFlag(IntFlag):
    """Bits of FLAGS2, a status variable of QUERY events (``query_options.h``; MariaDB's ``sql_priv.h``: OPTION_*)."""

    AUTO_IS_NULL = 1 << 14
    MARIADB_NO_CHECK_CONSTRAINT_CHECKS = 1 << 15
    NOT_AUTOCOMMIT = 1 << 19
    MARIADB_EXPLICIT_DEF_TIMESTAMP = 1 << 24
    NO_FOREIGN_KEY_CHECKS = 1 << 26
    RELAXED_UNIQUE_CHECKS = 1 << 27
    MARIADB_IF_EXISTS = 1 << 28
    MARIADB_INSERT_HISTORY = 1 << 30


class RowsFlag(IntFlag):
    """Flags in a rows event's post-header (``rows_event.h``: Rows_event::enum_flag)."""

    STATEMENT_END = 0x0001
    NO_FOREIGN_KEY_CHECKS = 0x0002
    RELAXED_UNIQUE_CHECKS = 0x0004
    COMPLETE_ROWS = 0x0008
    NO_CHECK_CONSTRAINT_CHECKS = 0x0080  # MariaDB


class ColumnType(IntEnum):
    """Column types as TABLE_MAP and the text protocol number them (``field_types.h``, ``field.h``)."""

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    TYPED_ARRAY = 20
    MARIADB_BLOB_COMPRESSED = 140
    MARIADB_VARCHAR_COMPRESSED = 141
    VECTOR = 242
    INVALID = 243
    BOOL = 244
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


class Command(IntEnum):
    """First byte of a client's command packet (``my_command.h``)."""

    QUIT = 0x01
    QUERY = 0x03
    PING = 0x0E
    BINLOG_DUMP = 0x12
    REGISTER_SLAVE = 0x15
    STMT_PREPARE = 0x16
    STMT_EXECUTE = 0x17
    STMT_CLOSE = 0x19
    BINLOG_DUMP_GTID = 0x1E


class DumpFlag(IntFlag):
    """Flags of COM_BINLOG_DUMP. 0x0002 is HEARTBEAT_V2 on MySQL and "send ANNOTATE_ROWS" on MariaDB."""

    NON_BLOCK = 0x0001
    HEARTBEAT_V2 = 0x0002
    MARIADB_ANNOTATE_ROWS = 0x0002


class Capability(IntFlag):
    """Client/server capability bits (``mysql_com.h``: CLIENT_*). From bit 32 on: MariaDB's."""

    LONG_PASSWORD = 1 << 0
    FOUND_ROWS = 1 << 1
    LONG_FLAG = 1 << 2
    CONNECT_WITH_DB = 1 << 3
    NO_SCHEMA = 1 << 4
    COMPRESS = 1 << 5
    LOCAL_FILES = 1 << 7
    PROTOCOL_41 = 1 << 9
    SSL = 1 << 11
    TRANSACTIONS = 1 << 13
    SECURE_CONNECTION = 1 << 15
    MULTI_STATEMENTS = 1 << 16
    MULTI_RESULTS = 1 << 17
    PLUGIN_AUTH = 1 << 19
    CONNECT_ATTRS = 1 << 20
    PLUGIN_AUTH_LENENC_CLIENT_DATA = 1 << 21
    SESSION_TRACK = 1 << 23
    DEPRECATE_EOF = 1 << 24
    ZSTD_COMPRESSION = 1 << 26
    QUERY_ATTRIBUTES = 1 << 27


class StatusFlag(IntFlag):
    """Server status bits in OK and EOF packets (``mysql_com.h``: SERVER_*)."""

    IN_TRANSACTION = 0x0001
    AUTOCOMMIT = 0x0002
    MORE_RESULTS_EXISTS = 0x0008
    SESSION_STATE_CHANGED = 0x4000


class MariadbGtidFlag:
    """``MariadbGtidEvent.gtid_flags`` (MariaDB's ``Gtid_log_event``). Plain numbers: see ``ARTIFICIAL``."""

    STANDALONE: Final = 1
    GROUP_COMMIT_ID: Final = 2
    TRANSACTIONAL: Final = 4
    ALLOW_PARALLEL: Final = 8
    WAITED: Final = 16
    DDL: Final = 32
    PREPARED_XA: Final = 64
    COMPLETED_XA: Final = 128


class MariadbGtidExtraFlag:
    """``MariadbGtidEvent.extra_flags`` (10.8 and later). A two-phase ALTER TABLE begins, is committed, has failed."""

    MULTI_ENGINE: Final = 1
    START_ALTER: Final = 2
    COMMIT_ALTER: Final = 4
    ROLLBACK_ALTER: Final = 8
    THREAD_ID: Final = 16


#: Flags of a two-phase ALTER TABLE of MariaDB that has only begun, or has failed: it changes nothing yet.
ALTER_NOT_DONE: Final = MariadbGtidExtraFlag.START_ALTER | MariadbGtidExtraFlag.ROLLBACK_ALTER


#: A plain number for hot paths: ``&`` with a member of an IntFlag takes 540 ns instead of 9.
ARTIFICIAL: Final = int(EventFlag.ARTIFICIAL)
#: IntvarEvent.variable: 2 is INSERT_ID.
INTVAR_NAMES: Final[Mapping[int, str]] = MappingProxyType({1: "LAST_INSERT_ID", 2: "INSERT_ID"})

BINLOG_MAGIC = b"\xfebin"
ENCRYPTED_BINLOG_MAGIC = b"\xfdbin"
ENCRYPTION_HEADER_SIZE = 512
# Bytes needed to decrypt the header of a MariaDB event: the first block of 16 bytes begins at offset 4.
ENCRYPTED_PREFIX_SIZE = 20
# The header of an event. In it: the type (1 byte), the size (4), the event's end in the file (4), the flags (2).
EVENT_HEADER_SIZE = 19
EVENT_TYPE_OFFSET = 4
EVENT_SIZE_OFFSET = 9
EVENT_END_OFFSET = 13
EVENT_FLAGS_OFFSET = 17
#: Event headers and COM_BINLOG_DUMP hold positions modulo 2**32.
POSITION_MASK = 0xFFFFFFFF
#: max_allowed_packet is at most 1 GiB; an event adds far less than 1 MiB to one row or statement. The default of
#: ``max_event_bytes``.
MAX_EVENT_SIZE = (1 << 30) + (1 << 20)
#: The columns that a table can have in both families (MAX_FIELDS).
MAX_COLUMNS = 4096
CHECKSUM_SIZE = 4
#: How statements begin that servers write around and between row changes. These statements change no tables.
STATEMENT_FRAME = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE SAVEPOINT", "XA ")
#: Statements that end a transaction.
ENDING_STATEMENTS = frozenset({"COMMIT", "ROLLBACK"})
MAX_FRAME_PAYLOAD = 0xFFFFFF
