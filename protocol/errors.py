"""The whole error tree, for both packages: what went wrong, by who must act on it.

    ReplicaError
    ├── ConfigurationError             the caller's options, DSN or arguments (also a ValueError)
    │   └── MissingExtraError          an optional extra is not installed; the message names it
    ├── ConnectionLostError            the network: refused, cut, timed out (retrying can help)
    │   └── SourceSilentError          connected, but nothing came for too long
    ├── ProtocolError                  the peer sent bytes that are not the client/server protocol
    ├── ServerError                    the server answered with an ERR packet: code, sqlstate, message
    │   ├── AuthenticationError        user, password or plugin refused
    │   ├── PrivilegeError             logged in, but not allowed to replicate
    │   ├── PositionError              the start position cannot be served
    │   │   ├── PositionPastEndError       it lies behind the end of its file
    │   │   ├── PositionInsideEventError   it is not the start of an event
    │   │   └── BinlogNotFoundError        the source has no such file
    │   ├── TransactionsUnavailableError   the source has purged, or never had, what is asked for
    │   └── DuplicateReplicaError      another replica with our id took the connection over
    ├── SourceConfigurationError       the source is set up so that rows cannot be streamed
    │   └── StatementFormatError       rows changed by a statement that the log holds instead of the rows
    ├── SourceChangedError             another server answers where a position is known of the one before only
    ├── LostEventsError                the source says that its own log lacks events
    ├── TransactionOutcomeError        a transaction has not ended as it must have for what is asked of it
    ├── RolledBackToSavepointError     changes of an open transaction that were delivered do not stand any more
    ├── CheckpointError                a store cannot load or save the checkpoint
    ├── SchemaMismatchError            column names known from elsewhere do not fit the logged table
    └── DecodeError                    the binary log itself: file, position, event_type
        ├── TruncatedError             the data ends inside of an event or value
        ├── ChecksumError              CRC32 differs
        ├── UnsupportedEventError      an event that is not known and not flagged ignorable
        └── MissingTableMapError       rows without the table map that describes them

It holds no logic beyond what an error needs to describe itself.
"""


class ReplicaError(Exception):
    """Base of everything that this library raises on purpose."""


class ConfigurationError(ReplicaError, ValueError):
    """An option, DSN or argument cannot be used; the message says which and why."""


class MissingExtraError(ConfigurationError):
    """The ``feature`` that was asked for needs an optional dependency that is not installed: ``extra`` names it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the extra [{extra}]: pip install 'mysql-replica[{extra}]'")
        self.feature = feature
        self.extra = extra

    def __reduce__(self) -> tuple[type["MissingExtraError"], tuple[str, str]]:
        return type(self), (self.feature, self.extra)


class ConnectionLostError(ReplicaError):
    """The connection could not be made, or ended; trying again may help."""


class SourceSilentError(ConnectionLostError):
    """The source sent neither events nor heartbeats for longer than it promised."""


class ProtocolError(ReplicaError):
    """The peer's bytes are not a conversation of the MySQL client/server protocol."""


class ServerError(ReplicaError):
    """An ERR packet of the server.

    Attributes: ``code`` (the server's error number), ``sqlstate`` (five characters, may be empty),
    ``message`` (the server's own words) and ``remedy`` (ours; may be empty).
    """

    def __init__(self, code: int, sqlstate: str, message: str, remedy: str = "") -> None:
        state = f" ({sqlstate})" if sqlstate else ""
        super().__init__(f"{code}{state}: {message}" + (f" -- {remedy}" if remedy else ""))
        self.code = code
        self.sqlstate = sqlstate
        self.message = message
        self.remedy = remedy

    def __reduce__(self) -> tuple[type["ServerError"], tuple[int, str, str, str]]:
        return type(self), (self.code, self.sqlstate, self.message, self.remedy)


class AuthenticationError(ServerError):
    """The server refused the user, the password or the authentication plugin."""


class PrivilegeError(ServerError):
    """The user may log in but lacks a privilege that replication needs."""


class PositionError(ServerError):
    """The source cannot serve the binlog position that was asked for."""


class PositionPastEndError(PositionError):
    """The position lies behind the end of its file."""


class PositionInsideEventError(PositionError):
    """The position is not the start of an event."""


class BinlogNotFoundError(PositionError):
    """The source has no binlog file of that name (purged, or another server's)."""


class TransactionsUnavailableError(ServerError):
    """Transactions that are needed were purged, or ours are unknown to the source."""


class DuplicateReplicaError(ServerError):
    """Another replica with the same identity connected; retrying would make both fight for ever."""


class SourceConfigurationError(ReplicaError):
    """The source's settings do not allow row events to be streamed; the message names the setting."""


class StatementFormatError(SourceConfigurationError):
    """A statement that changes rows stands in the log instead of the rows (binlog_format is not ROW)."""


class SourceChangedError(ReplicaError):
    """Another server answers, or the same one with another log, and only a position says where to go on."""


class LostEventsError(ReplicaError):
    """The source has logged an incident: changes were made that are missing from its log."""


class TransactionOutcomeError(ReplicaError):
    """A transaction was not committed, or not yet, and what was asked of it needs that."""


class RolledBackToSavepointError(ReplicaError):
    """Of the changes of this transaction that were delivered, only the first ``changes_kept`` still stand.

    The source has rolled back to a savepoint after they were logged. Undo the others and iterate the transaction
    again: it goes on behind this point.
    """

    def __init__(self, message: str, changes_kept: int) -> None:
        super().__init__(message, changes_kept)
        self.changes_kept = changes_kept

    def __str__(self) -> str:
        return str(self.args[0])


class CheckpointError(ReplicaError):
    """A checkpoint store cannot load or save; the message names the place and the remedy."""


class SchemaMismatchError(ReplicaError):
    """Column names from outside of the log disagree with the logged table in count or type."""


class DecodeError(ReplicaError):
    """Bytes of the binary log that cannot be what the format says.

    Attributes: ``reason``, and, once the decoder has added them, ``file``, ``position`` (byte offset of
    the event's start) and ``event_type`` (number).
    """

    def __init__(
        self, reason: str, file: str | None = None, position: int | None = None, event_type: int | None = None
    ) -> None:
        super().__init__(reason, file, position, event_type)
        self.reason = reason
        self.file = file
        self.position = position
        self.event_type = event_type

    def __str__(self) -> str:
        where = [] if self.file is None else [self.file]
        if self.position is not None:
            where.append(f"at {self.position}")
        if self.event_type is not None:
            where.append(f"event type {self.event_type}")
        return f"{self.reason} ({', '.join(where)})" if where else self.reason


class TruncatedError(DecodeError):
    """The data ends before the value or event does."""


class ChecksumError(DecodeError):
    """The event's CRC32 is not the one that stands behind it."""


class UnsupportedEventError(DecodeError):
    """An event type that this library does not know and the source did not flag as ignorable."""


class MissingTableMapError(DecodeError):
    """A rows event names a table id that no TABLE_MAP event has described."""
