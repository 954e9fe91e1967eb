"""A MySQL and MariaDB replication client: typed row changes, live from the binary log or from binlog files.

    async with replica.connect("mysql://repl:secret@127.0.0.1:3306", tables=["shop.*"]) as stream:
        async for event in stream:
            ...

The public names are listed in ``__all__``; everything else may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from protocol.binlog.events import (
    AnnotateRowsEvent,
    AnonymousGtidEvent,
    AppendBlockEvent,
    BeginLoadQueryEvent,
    BinlogCheckpointEvent,
    CreateFileEvent,
    DeleteFileEvent,
    DeleteRowsEvent,
    Event,
    EventHeader,
    ExecuteLoadEvent,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    GtidEvent,
    HeartbeatEvent,
    IncidentEvent,
    IntvarEvent,
    LoadEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    PartialRowDataEvent,
    PreGaRowsEvent,
    PreviousGtidsEvent,
    QueryEvent,
    RandEvent,
    RotateEvent,
    RowsEvent,
    RowsQueryEvent,
    StartEncryptionEvent,
    StopEvent,
    TableMapEvent,
    TransactionContextEvent,
    TransactionPayloadEvent,
    UnknownEvent,
    UpdateRowsEvent,
    UserVarEvent,
    ViewChangeEvent,
    WriteRowsEvent,
    XaPrepareEvent,
    XidEvent,
)
from protocol.binlog.row_changes import Change, Delete, Insert, Read, Update
from protocol.errors import (
    AuthenticationError,
    BinlogNotFoundError,
    CheckpointError,
    ChecksumError,
    ConfigurationError,
    ConnectionLostError,
    DecodeError,
    DuplicateReplicaError,
    LostEventsError,
    MissingExtraError,
    MissingTableMapError,
    PositionError,
    PositionInsideEventError,
    PositionPastEndError,
    PrivilegeError,
    ProtocolError,
    ReplicaError,
    RolledBackToSavepointError,
    SchemaMismatchError,
    ServerError,
    SourceChangedError,
    SourceConfigurationError,
    SourceSilentError,
    StatementFormatError,
    TransactionOutcomeError,
    TransactionsUnavailableError,
    TruncatedError,
    UnsupportedEventError,
    WorkerError,
)
from protocol.gtid import Gtid, GtidSet, MariadbGtid, MariadbGtidSet
from protocol.position import BinlogPosition, Checkpoint
from protocol.rows.column import ABSENT, Column
from protocol.rows.description import ColumnDescription
from protocol.rows.table import Table

from .config.lazy import importer
from .config.selection import SchemaMismatch
from .files.binlog_file import BinlogFile, KeyFile, open_binlog

if TYPE_CHECKING:
    import ssl

    from .config.checkpoint import CheckpointStore, FileCheckpointStore
    from .config.open_metrics import open_metrics
    from .config.options import SnapshotLocking
    from .config.reconnect import Failure, ReconnectPolicy
    from .config.schema_store import FileSchemaStore, SchemaStore
    from .config.snapshot_status import SnapshotStatus
    from .config.status import StatusHook, StreamStatus
    from .config.tls import TlsMode
    from .schemas.catalog import Unknown
    from .schemas.change_event import SchemaChangeEvent
    from .schemas.shape import ColumnShape, Key, Period, Shape
    from .sql.xa import Xid
    from .statistics.collect import LogStatistics
    from .statistics.summaries import (
        LagStatistics,
        MinuteStatistics,
        RowCounts,
        StatementStatistics,
        TableStatistics,
        TransactionStatistics,
    )
    from .stream.arrow_batches import ArrowBatches
    from .stream.binlog_stream import BinlogStream
    from .stream.change_batches import Batches, ChangeBatch
    from .transactions.replay import TransactionRestarted
    from .transactions.snapshot_events import SnapshotCompleteEvent, SnapshotRestartedEvent, SnapshotRowsEvent
    from .transactions.transaction import FileTransaction, FileTransactions, Transaction, Transactions

__all__ = [
    "connect",
    "open_binlog",
    "BinlogStream",
    "BinlogFile",
    "KeyFile",
    "ColumnDescription",
    # events
    "Event",
    "EventHeader",
    "RowsEvent",
    "WriteRowsEvent",
    "UpdateRowsEvent",
    "DeleteRowsEvent",
    "TableMapEvent",
    "QueryEvent",
    "XidEvent",
    "GtidEvent",
    "AnonymousGtidEvent",
    "PreviousGtidsEvent",
    "RowsQueryEvent",
    "FormatDescriptionEvent",
    "RotateEvent",
    "StopEvent",
    "HeartbeatEvent",
    "UnknownEvent",
    "MariadbGtidEvent",
    "MariadbGtidListEvent",
    "AnnotateRowsEvent",
    "BinlogCheckpointEvent",
    "IntvarEvent",
    "RandEvent",
    "UserVarEvent",
    "LoadEvent",
    "CreateFileEvent",
    "AppendBlockEvent",
    "BeginLoadQueryEvent",
    "ExecuteLoadEvent",
    "DeleteFileEvent",
    "ExecuteLoadQueryEvent",
    "IncidentEvent",
    "XaPrepareEvent",
    "SnapshotRowsEvent",
    "SnapshotCompleteEvent",
    "SnapshotRestartedEvent",
    "TransactionContextEvent",
    "ViewChangeEvent",
    "TransactionPayloadEvent",
    "StartEncryptionEvent",
    "PartialRowDataEvent",
    "PreGaRowsEvent",
    # tables, columns, changes
    "Table",
    "Column",
    "Change",
    "Insert",
    "Update",
    "Delete",
    "Read",
    "ABSENT",
    # positions, checkpoints, GTIDs
    "BinlogPosition",
    "Checkpoint",
    "Gtid",
    "GtidSet",
    "MariadbGtid",
    "MariadbGtidSet",
    # reconnecting, checkpoints, status, transactions
    "ReconnectPolicy",
    "Failure",
    "CheckpointStore",
    "FileCheckpointStore",
    "SchemaStore",
    "FileSchemaStore",
    "SchemaChangeEvent",
    "Shape",
    "ColumnShape",
    "Key",
    "Period",
    "Unknown",
    "StreamStatus",
    "open_metrics",
    "SnapshotStatus",
    "TransactionRestarted",
    "Transaction",
    "Transactions",
    "ChangeBatch",
    "ArrowBatches",
    "Batches",
    "FileTransaction",
    "FileTransactions",
    "Xid",
    # statistics
    "LogStatistics",
    "RowCounts",
    "TableStatistics",
    "MinuteStatistics",
    "TransactionStatistics",
    "StatementStatistics",
    "LagStatistics",
    # errors
    "ReplicaError",
    "ConfigurationError",
    "MissingExtraError",
    "ConnectionLostError",
    "SourceSilentError",
    "ProtocolError",
    "ServerError",
    "AuthenticationError",
    "PrivilegeError",
    "PositionError",
    "PositionPastEndError",
    "PositionInsideEventError",
    "BinlogNotFoundError",
    "TransactionsUnavailableError",
    "DuplicateReplicaError",
    "SourceConfigurationError",
    "SourceChangedError",
    "CheckpointError",
    "SchemaMismatchError",
    "WorkerError",
    "DecodeError",
    "TruncatedError",
    "ChecksumError",
    "UnsupportedEventError",
    "MissingTableMapError",
    "StatementFormatError",
    "RolledBackToSavepointError",
    "TransactionOutcomeError",
    "LostEventsError",
]


# Names that reading files does not need are imported at first use: asyncio and TLS are two thirds of the import time.
_LATER: Final = MappingProxyType(
    {
        "CheckpointStore": "config.checkpoint",
        "FileCheckpointStore": "config.checkpoint",
        "FileSchemaStore": "config.schema_store",
        "SchemaStore": "config.schema_store",
        "SchemaChangeEvent": "schemas.change_event",
        "Shape": "schemas.shape",
        "ColumnShape": "schemas.shape",
        "Key": "schemas.shape",
        "Period": "schemas.shape",
        "Unknown": "schemas.catalog",
        "Xid": "sql.xa",
        "Failure": "config.reconnect",
        "ReconnectPolicy": "config.reconnect",
        "TransactionRestarted": "transactions.replay",
        "open_metrics": "config.open_metrics",
        "StreamStatus": "config.status",
        "SnapshotStatus": "config.snapshot_status",
        "SnapshotRowsEvent": "transactions.snapshot_events",
        "SnapshotCompleteEvent": "transactions.snapshot_events",
        "SnapshotRestartedEvent": "transactions.snapshot_events",
        "LogStatistics": "statistics.collect",
        "LagStatistics": "statistics.summaries",
        "MinuteStatistics": "statistics.summaries",
        "RowCounts": "statistics.summaries",
        "StatementStatistics": "statistics.summaries",
        "TableStatistics": "statistics.summaries",
        "TransactionStatistics": "statistics.summaries",
        "ArrowBatches": "stream.arrow_batches",
        "BinlogStream": "stream.binlog_stream",
        "Batches": "stream.change_batches",
        "ChangeBatch": "stream.change_batches",
        "FileTransaction": "transactions.transaction",
        "FileTransactions": "transactions.transaction",
        "Transaction": "transactions.transaction",
        "Transactions": "transactions.transaction",
    }
)


__getattr__ = importer(__name__, _LATER)


def __dir__() -> list[str]:
    return sorted(globals().keys() | _LATER.keys())


def connect(
    dsn: str | None = None,
    /,
    *,
    host: str | None = None,
    port: int | None = None,
    user: str | None = None,
    password: str | None = None,
    option_file: str | bool | None = None,
    unix_socket: str | None = None,
    server_id: int | None = None,
    report_host: str | None = None,
    report_port: int | None = None,
    start: str | BinlogPosition | GtidSet | MariadbGtidSet | Checkpoint | datetime | None = None,
    stop: str | BinlogPosition | GtidSet | MariadbGtidSet | datetime | None = None,
    tables: str | Iterable[str] | None = None,
    exclude_tables: str | Iterable[str] | None = None,
    events: type[Event] | Iterable[type[Event]] | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    row_values: bool | None = None,
    tls: TlsMode | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    ssl_context: ssl.SSLContext | None = None,
    server_public_key_path: str | None = None,
    get_server_public_key: bool | None = None,
    enable_cleartext_plugin: bool | None = None,
    compression: str | Sequence[str] | None = None,
    heartbeat: float | None = None,
    connect_timeout: float | None = None,
    verify_checksum: bool | None = None,
    on_schema_mismatch: SchemaMismatch | None = None,
    max_event_bytes: int | None = None,
    reconnect: ReconnectPolicy | bool | None = None,
    checkpoints: CheckpointStore | None = None,
    checkpoint_interval: float | None = None,
    schemas: SchemaStore | None = None,
    semi_sync: bool | None = None,
    on_status: StatusHook | None = None,
    status_interval: float | None = None,
    snapshot_connections: int | None = None,
    snapshot_chunk_rows: int | None = None,
    snapshot_where: Mapping[str, str] | None = None,
    snapshot_locking: SnapshotLocking | None = None,
) -> BinlogStream:
    """Create a stream of changes from a MySQL or MariaDB source. The stream connects when it is opened, not before.

    ``dsn`` is ``mysql://user:password@host:port/?option=value``. Every option below may stand in the DSN, except
    ``events``, ``columns``, ``snapshot_where``, ``ssl_context``, ``checkpoints``, ``schemas`` and ``on_status``.
    Arguments win over the DSN.

    The user needs REPLICATION SLAVE. SELECT on the tables is needed if the log has no column names, REPLICATION
    CLIENT (MariaDB: BINLOG MONITOR) to ask for the end of the log instead of reading the log. Logs have no names by
    default: the stream reads all tables when it is opened, and follows the DDL of the log (``names_from`` is
    ``"history"``). Without full table metadata in the log (binlog_row_metadata=FULL) and without SELECT, columns are
    named ``@1``, ``@2``..., and ENUM and SET values are numbers. A log without any metadata (MySQL 5.6 and 5.7,
    MariaDB's default) also lacks signs and character sets: then BIGINT UNSIGNED arrives signed, and text as bytes.

    Where:
        host, port: default localhost and 3306. Several hosts may be given (``"db1,db2:3307,[::1]"``, also in the
            DSN). Each connection attempt tries them in this order and takes the first that can serve the stream: with
            GTIDs any server that has all transactions read so far, without GTIDs only the server the stream began
            with.
        unix_socket: path of the server's socket, instead of host and port.
        user, password: the account. If no password is given anywhere, the environment variable ``MYSQL_PWD`` is used.
        option_file: True for ``~/.my.cnf``, or a path: an option file of the MySQL or MariaDB clients. Its groups
            ``[client]`` and ``[mysql-replica]`` supply host, port, socket, user, password, ssl-* and compression
            where neither an argument nor the DSN does. By default no file is read. A world-writable file is ignored
            with a warning.
        server_id: 1 to 4294967295, unique among the source's replicas; random by default.
        report_host, report_port: what SHOW REPLICAS prints for this replica; default this machine's name and the
            connection's port.
        tls: ``"disabled"``; ``"preferred"`` (default: encrypt if the server can) and ``"required"``, neither of which
            verifies the server; ``"verify-ca"`` (default with ``tls_ca``); ``"verify-identity"``;
            ``"verify-password"``: the server proves with the password that the certificate is its own (MariaDB 11.4
            and later).
        tls_ca, tls_cert, tls_key: paths of PEM files: the trusted authorities (default: the system's), and the
            client's certificate and key.
        ssl_context: an ``ssl.SSLContext`` of your own, instead of ``tls`` and the PEM files.
        server_public_key_path: PEM file with the server's RSA key (its ``public_key.pem``), which encrypts the
            password on connections without TLS.
        get_server_public_key: True asks the server for that key, as the MySQL clients' option of this name does: a
            machine in the middle could then send its own key, and read the password. By default the server is asked
            on this machine only (loopback addresses, Unix sockets); False never asks.
        enable_cleartext_plugin: send the password in cleartext if the server asks for that (PAM, LDAP), but only over
            TLS or a Unix socket.
        compression: compression of the connection: ``"zlib"``, ``"zstd"`` (MySQL 8.0.18 and later; extra ``[zstd]``),
            or several in order of preference (``"zstd,zlib"``). A source that supports none of them is refused,
            unless ``"uncompressed"`` (the default) is in the list.
    What:
        start: None or ``"now"``; ``"earliest"``; a position (``"binlog.000003:154"``); a GTID set: the transactions
            you already have; a ``Checkpoint``; an aware ``datetime``: the first transaction that began in that second
            or later.
            ``"snapshot"``: copy the tables first, and follow the log from before the copy on. The rows come as
            ``Read`` changes between those of the log, each with the values that it has at that place of the log:
            applied in order, as upserts, they give the exact table. Nothing is locked or written on the source.
            Needs SELECT and REPLICATION CLIENT (MariaDB: BINLOG MONITOR). Without GTIDs, on MySQL 5.6 and on MariaDB
            the stream begins at the start of the current log file, so changes of before the copy come first, unless
            there is a moment when no statement of others runs (not for MySQL 5.7 and later).
            ``stop`` waits for the end of the copy. A checkpoint keeps the state of the copy. After a
            ``SnapshotRestartedEvent`` (``tx.voided``) a table is read anew: delete the rows that came before it. A
            table that gets a selected name by RENAME is read anew, too, if ``tables`` did not select the name that it
            had. TRUNCATE, DROP and RENAME of tables whose rows have come are in ``tx.ddl``.
            With ``checkpoints`` a stream goes on where it was, and copies tables that ``tables`` did not select then.
        stop: None (never stop); ``"now"``: the end of the log at connect; a position; a GTID set: when all its
            transactions have arrived; an aware ``datetime``: before the first transaction that began then or later.
            An open transaction is finished first.
        tables, exclude_tables: patterns such as ``"shop.*"`` (a list, or one text with commas). They filter rows
            events and table maps only. The schema ends at the first dot. A name in backticks is taken as it is:
            `` `a.b`.* ``, `` `a``b`.`*` ``; so wherever an option or a command names tables.
        events: the event classes to yield; default all.
        columns: ``{"shop.orders": ["id", "status"]}`` decodes only these columns of these tables.
        row_values: False skips decoding the values, to count rows only: ``rows`` then has an empty tuple for each row
            (updates: a pair of them). Column names are not looked up.
    How:
        heartbeat: seconds of silence after which the source sends a heartbeat, 30 by default. After 2.5 times as many
            seconds without any data the connection counts as lost. 0 turns both off.
        connect_timeout: seconds for the login, and for each answer after the login, 10 by default. A source that says
            (SHOW PROCESSLIST) that it works on the answer, such as a list of its tables, has longer.
        verify_checksum: check each event's CRC32 (default).
        max_event_bytes: the largest event, also one inside a compressed transaction or what MariaDB compressed in an
            event: a larger one is a ``DecodeError`` before it takes memory. Default: 1 GiB and 1 MiB, as large as
            servers write them.
        on_schema_mismatch: what to do if the columns of a table are not known at its place in the log: ``"error"``
            (default), or ``"positional"``: name the columns ``@1``, ``@2``...
        reconnect: what to do when the connection is lost: a ``ReconnectPolicy`` (default: retry for ever, with
            growing delays), or False to raise. The first connection is tried once.
        checkpoints: a store such as ``FileCheckpointStore("shop.ckpt")``. A stored checkpoint wins over ``start``.
            The checkpoint is saved at most every ``checkpoint_interval`` seconds (1 by default; 0: after each
            transaction), and when the stream ends. An event counts as done when you ask for the next one: if you
            collect changes over several transactions, a kill loses what is collected. ``stream.batches()`` collects
            them with a checkpoint that waits.
        schemas: a store such as ``FileSchemaStore("shop.schemas")`` for the shapes that tables had at each place of
            the log; one for each stream. A log without names then has the names of its place, also for a stream that
            was stopped before a DDL and begins again behind it. ``FileCheckpointStore("shop.ckpt")`` implies one in
            ``shop.ckpt.schemas``. It may be ahead of a checkpoint that you keep yourself.
        semi_sync: acknowledge transactions to the source, as a semi-synchronous replica does. A commit on the source
            then waits until you ask for the next event and the checkpoint is saved (if there is a store), but never
            longer than the source's own timeout. A source without semi-synchronous replication is refused
            (``SourceConfigurationError``); after a reconnect only a warning is logged.
        snapshot_connections: connections that read tables for a copy at the same time, 1 by default. Up to three
            chunks more than that are in memory.
        snapshot_chunk_rows: the most rows of a chunk, 10,000 by default; fewer where rows are large.
        snapshot_where: ``{"shop.orders": "placed > '2026-01-01'"}`` copies only the rows of this condition in SQL.
            The log is not filtered by it.
        snapshot_locking: ``"none"`` (default), or ``"rows"``: the rows of a chunk are read with shared locks.
        on_status: a plain function, called with a ``StreamStatus`` when the stream's state changes and, while it is
            iterated, every ``status_interval`` seconds, 10 by default.

    Raises ``ConfigurationError``, naming the option, for a value that cannot be used.
    """
    given = locals()
    from .config.options import Options
    from .stream.binlog_stream import BinlogStream

    return BinlogStream(Options.build(given.pop("dsn"), given))
