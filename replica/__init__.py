"""A MySQL and MariaDB replication client: typed row changes, live from the binary log.

    async with replica.connect("mysql://repl:secret@127.0.0.1:3306", tables=["shop.*"]) as stream:
        async for event in stream:
            ...

The public names are those of ``__all__``; everything else may change.
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
    Change,
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
)
from protocol.gtid import Gtid, GtidSet, MariadbGtid, MariadbGtidSet
from protocol.lazy import importer
from protocol.position import BinlogPosition, Checkpoint
from protocol.rows.column import ABSENT, Column
from protocol.rows.description import ColumnDescription
from protocol.rows.table import Table

from .config.selection import SchemaMismatch
from .files.binlog_file import BinlogFile, KeyFile, open_binlog

if TYPE_CHECKING:
    import ssl

    from .config.checkpoint import CheckpointStore, FileCheckpointStore
    from .config.reconnect import Failure, ReconnectPolicy
    from .config.status import StatusHook, StreamStatus
    from .config.tls import TlsMode
    from .statistics.collect import LogStatistics
    from .statistics.summaries import (
        LagStatistics,
        MinuteStatistics,
        RowCounts,
        StatementStatistics,
        TableStatistics,
        TransactionStatistics,
    )
    from .stream.binlog_stream import BinlogStream
    from .transactions.replay import TransactionRestarted
    from .transactions.transaction import FileTransaction, FileTransactions, Transaction, Transactions
    from .transactions.units import Xid

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
    "TransactionContextEvent",
    "ViewChangeEvent",
    "TransactionPayloadEvent",
    "StartEncryptionEvent",
    "PartialRowDataEvent",
    "PreGaRowsEvent",
    # what they hold
    "Table",
    "Column",
    "Change",
    "ABSENT",
    # places
    "BinlogPosition",
    "Checkpoint",
    "Gtid",
    "GtidSet",
    "MariadbGtid",
    "MariadbGtidSet",
    # a stream that lives long
    "ReconnectPolicy",
    "Failure",
    "CheckpointStore",
    "FileCheckpointStore",
    "StreamStatus",
    "TransactionRestarted",
    "Transaction",
    "Transactions",
    "FileTransaction",
    "FileTransactions",
    "Xid",
    # what is in a log
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


# What reading files does not take is imported when it is asked for: asyncio and TLS are two thirds of it all.
_LATER: Final = MappingProxyType(
    {
        "CheckpointStore": "config.checkpoint",
        "FileCheckpointStore": "config.checkpoint",
        "Xid": "transactions.units",
        "Failure": "config.reconnect",
        "ReconnectPolicy": "config.reconnect",
        "TransactionRestarted": "transactions.replay",
        "StreamStatus": "config.status",
        "LogStatistics": "statistics.collect",
        "LagStatistics": "statistics.summaries",
        "MinuteStatistics": "statistics.summaries",
        "RowCounts": "statistics.summaries",
        "StatementStatistics": "statistics.summaries",
        "TableStatistics": "statistics.summaries",
        "TransactionStatistics": "statistics.summaries",
        "BinlogStream": "stream.binlog_stream",
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
    reconnect: ReconnectPolicy | bool | None = None,
    checkpoints: CheckpointStore | None = None,
    checkpoint_interval: float | None = None,
    semi_sync: bool | None = None,
    on_status: StatusHook | None = None,
    status_interval: float | None = None,
) -> BinlogStream:
    """A stream of the changes of a MySQL or MariaDB source; nothing is connected before it is opened.

    ``dsn`` is ``mysql://user:password@host:port/?option=value``, with the options below but ``events``, ``columns``,
    ``ssl_context``, ``checkpoints`` and ``on_status``; arguments win over it. The user needs REPLICATION SLAVE;
    SELECT where the log has no column names, REPLICATION CLIENT (MariaDB: BINLOG MONITOR) to find the log's end
    without reading.

    Where:
        host, port: default localhost and 3306. Several hosts (``"db1,db2:3307,[::1]"``, also in the DSN) are tried in
            this order whenever a connection is made, and the first one that can serve the stream does: with GTIDs any
            that has all transactions read so far, without them only the server that it has begun with.
        unix_socket: the path of a socket instead.
        user, password: who logs in. Without a password anywhere, ``MYSQL_PWD`` of the environment is taken.
        option_file: True for ``~/.my.cnf``, or a path: what a file of MySQL's or MariaDB's clients has in the group
            ``[client]`` (or ``[mysql-replica]``) of host, port, socket, user, password, ssl-* and compression, for
            what neither an argument nor the DSN says. None is read unless asked for; one that everybody can write to
            is ignored, with a warning.
        server_id: 1 to 4294967295, unique among the source's replicas; random by default.
        report_host, report_port: what SHOW REPLICAS prints of us; default this machine's name, the connection's port.
        tls: ``"disabled"``; ``"preferred"`` (the default: encrypt if the server can), ``"required"``, both without
            verifying; ``"verify-ca"`` (the default with ``tls_ca``), ``"verify-identity"``; ``"verify-password"``:
            the server proves by the password that the certificate is its own, as MariaDB does from 11.4 on.
        tls_ca, tls_cert, tls_key: PEM files: whom to trust (default: the system's authorities), and our certificate.
        ssl_context: TLS with a context of your own instead.
        server_public_key_path: the server's RSA key (PEM), which encrypts the password where TLS does not. Without it
            the server is asked for its key, and whoever answers can read the password; not so with
            ``get_server_public_key=False``.
        enable_cleartext_plugin: send the password as it is to a server that wants it so (PAM, LDAP), over TLS or a
            Unix socket only.
        compression: how the connection is compressed: ``"zlib"``, ``"zstd"`` (MySQL 8.0.18 and later; extra
            ``[zstd]``), or several, the best first (``"zstd,zlib"``). A source that has none of them is refused,
            unless ``"uncompressed"`` (the default) is among them.
    What:
        start: None or ``"now"``; ``"earliest"``; a position (``"binlog.000003:154"``); a GTID set of what you already
            have; a ``Checkpoint``; an aware time: the first transaction that began in that second, or later.
        stop: None (follow for ever); ``"now"``: what the source holds at connect; a position; a GTID set: when all of
            it has come; an aware time: before the first transaction that began then or later. The open transaction
            is finished first.
        tables, exclude_tables: globs such as ``"shop.*"`` (a list, or one text with commas) for rows and table maps.
        events: the event classes to yield; default all.
        columns: ``{"shop.orders": ["id", "status"]}`` decodes only these columns of these tables.
        row_values: False leaves values unread: ``rows`` has an empty tuple for each row (updates: a pair), to count.
    How:
        heartbeat: seconds of silence after which the source sends a sign of life, 30 by default; after 2.5 times as
            many without one the connection counts as dead. 0 turns both off.
        connect_timeout: seconds for the login and for each answer after it, 10 by default.
        verify_checksum: check each event's CRC32 (default).
        on_schema_mismatch: ``"error"`` (default), or ``"positional"``: names ``@1``, ``@2``... where column
            names from information_schema do not fit the log.
        reconnect: what to do when the connection is lost: a ``ReconnectPolicy``, which by default waits ever longer
            and tries for ever, or False to raise. The first connection is tried once.
        checkpoints: a store such as ``FileCheckpointStore("shop.ckpt")``. What it holds wins over ``start``. The
            checkpoint is saved at most every ``checkpoint_interval`` seconds (1 by default; 0: at each
            transaction), and at the end.
        semi_sync: acknowledge to the source what is done, as its semi-synchronous replicas do: its commits wait
            until you have come back for more, and the checkpoint is saved, if there is a store. A source that cannot
            wait is refused (``SourceConfigurationError``); after a reconnect only a warning is logged.
        on_status: called with a ``StreamStatus`` when the stream's state changes and, while it is iterated, every
            ``status_interval`` seconds, 10 by default.

    Raises ``ConfigurationError``, which names the option, for what cannot be used.
    """
    given = locals()
    from .config.options import Options
    from .stream.binlog_stream import BinlogStream

    return BinlogStream(Options.build(given.pop("dsn"), given))
