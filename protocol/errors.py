"""The error tree of both packages, sorted by who has to act: the caller, the network, the source's administrator.

    ReplicaError
    ├── ConfigurationError             the caller's options, DSN or arguments (also a ValueError)
    │   └── MissingExtraError          an optional extra is not installed; the message names it
    ├── ConnectionLostError            the network: refused, cut, timed out (retrying can help)
    │   └── SourceSilentError          connected, but no event or heartbeat for too long
    ├── ProtocolError                  the peer sent bytes that are not the client/server protocol
    ├── ServerError                    the server answered with an ERR packet: code, sqlstate, message
    │   ├── AuthenticationError        user, password or plugin refused
    │   ├── PrivilegeError             logged in, but not allowed to replicate
    │   ├── PositionError              the start position cannot be served
    │   │   ├── PositionPastEndError       the position is past the end of its file
    │   │   ├── PositionInsideEventError   the position is not the start of an event
    │   │   └── BinlogNotFoundError        the source has no such file
    │   ├── TransactionsUnavailableError   the source purged, or never had, the transactions asked for
    │   └── DuplicateReplicaError      another replica with the same id took over the connection
    ├── SourceConfigurationError       the source is set up so that rows cannot be streamed
    │   └── StatementFormatError       the log holds a statement that changes rows, not the rows
    ├── SourceChangedError             another server answers, and the known position is in the previous server's log
    ├── LostEventsError                the source says that its own log lacks events
    ├── TransactionOutcomeError        the request needs a transaction that is committed, and this one is not
    ├── RolledBackToSavepointError     the source rolled back changes of an open transaction after their delivery
    ├── CheckpointError                a store cannot load or save the checkpoint
    ├── WorkerError                    a process that read a part of the log (workers=) was killed
    ├── SchemaMismatchError            column names from outside the log do not fit the logged table
    └── DecodeError                    the binary log itself: file, position, event_type
        ├── TruncatedError             the data ends inside an event or value
        ├── ChecksumError              the computed CRC32 differs from the stored one
        ├── UnsupportedEventError      an unknown event type that the source did not flag as ignorable
        └── MissingTableMapError       rows without the table map that describes them

An error describes itself; nothing here decides when it is raised.
"""

# A server sends 512 bytes at most (MYSQL_ERRMSG_SIZE), but a damaged packet may have 16 MB, and a GTID set a million
# intervals.
_LONGEST_TEXT = 8192


def _shortened(text: str) -> str:
    """A text of at most ``_LONGEST_TEXT`` characters; the remedy stands at its end."""
    if len(text) <= _LONGEST_TEXT:
        return text
    half = _LONGEST_TEXT // 2
    return f"{text[: half - 5]} ... {text[-half:]}"


class ReplicaError(Exception):
    """Base of everything that this library raises on purpose.

    Of a very long text, such as one that quotes a damaged file, ``str`` gives the beginning and the end.
    """

    def __str__(self) -> str:
        return _shortened(super().__str__())


class ConfigurationError(ReplicaError, ValueError):
    """An option, DSN or argument cannot be used; the message says which and why."""


class MissingExtraError(ConfigurationError):
    """``feature`` needs an optional dependency that is not installed; ``extra`` names the extra that brings it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the extra [{extra}]: pip install 'mysql-replica[{extra}]'")
        self.feature = feature
        self.extra = extra

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.feature, self.extra), self.__dict__


class ConnectionLostError(ReplicaError):
    """The connection could not be made, or it was lost; trying again may help."""


class SourceSilentError(ConnectionLostError):
    """The source sent neither events nor heartbeats for longer than the agreed heartbeat period allows."""


class ProtocolError(ReplicaError):
    """The peer's bytes are not a conversation of the MySQL client/server protocol."""


class ServerError(ReplicaError):
    """An ERR packet of the server.

    Attributes: ``code`` (the server's error number), ``sqlstate`` (five characters, may be empty),
    ``message`` (the server's own words) and ``remedy`` (this library's advice; may be empty).
    """

    def __init__(self, code: int, sqlstate: str, message: str, remedy: str = "") -> None:
        state = f" ({sqlstate})" if sqlstate else ""
        super().__init__(f"{code}{state}: {message}" + (f" -- {remedy}" if remedy else ""))
        self.code = code
        self.sqlstate = sqlstate
        self.message = message
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        # With the notes that were added to it.
        return type(self), (self.code, self.sqlstate, self.message, self.remedy), self.__dict__


class AuthenticationError(ServerError):
    """The server refused the user, the password or the authentication plugin."""


class PrivilegeError(ServerError):
    """The user may log in but lacks a privilege that replication needs."""


class PositionError(ServerError):
    """The source cannot serve the binlog position that was asked for."""


class PositionPastEndError(PositionError):
    """The position is past the end of its file."""


class PositionInsideEventError(PositionError):
    """The position is not the start of an event."""


class BinlogNotFoundError(PositionError):
    """The source has no binlog file of that name (purged, or another server's)."""


class TransactionsUnavailableError(ServerError):
    """The source purged transactions that the replica needs, or lacks transactions that the replica has."""


class DuplicateReplicaError(ServerError):
    """Another replica with the same identity connected; after a retry each would cut off the other for ever."""


class SourceConfigurationError(ReplicaError):
    """The source's settings do not allow row events to be streamed; the message names the setting."""


class StatementFormatError(SourceConfigurationError):
    """The log holds a statement that changes rows instead of the changed rows (binlog_format is not ROW)."""


class SourceChangedError(ReplicaError):
    """Another server answers, or the same server with another log, and the position is valid in the old log only."""


class LostEventsError(ReplicaError):
    """The source has logged an incident: changes were made that are missing from its log."""


class TransactionOutcomeError(ReplicaError):
    """The request needs a committed transaction; this one has another outcome, or has not ended yet."""


class RolledBackToSavepointError(ReplicaError):
    """Only the first ``changes_kept`` of this transaction's delivered changes are still valid.

    The source rolled back to a savepoint after it had logged the others. Undo those and iterate the transaction
    again: it continues after the rollback.
    """

    def __init__(self, message: str, changes_kept: int) -> None:
        super().__init__(message, changes_kept)
        self.changes_kept = changes_kept

    def __str__(self) -> str:
        return str(self.args[0])


class CheckpointError(ReplicaError):
    """A checkpoint store cannot load or save; the message names the place and the remedy."""


class WorkerError(ReplicaError):
    """A process that read a part of a log (``workers=``) has ended before its work was done; the message says how."""


class SchemaMismatchError(ReplicaError):
    """Column names from outside the log do not fit the logged table: the number of columns or a type differs."""


class DecodeError(ReplicaError):
    """Bytes of the binary log do not follow its format.

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
        return _shortened(f"{self.reason} ({', '.join(where)})" if where else self.reason)


class TruncatedError(DecodeError):
    """The data ends before the value or event does."""


class ChecksumError(DecodeError):
    """The CRC32 of an event's bytes differs from the checksum at the event's end.

    ``damage`` is the CRC32 of the bytes that were read, checksum included: the same bytes have the same.
    """

    damage: int | None = None


class UnsupportedEventError(DecodeError):
    """An event type that this library does not know and the source did not flag as ignorable."""


class MissingTableMapError(DecodeError):
    """A rows event names a table id that no TABLE_MAP event has described."""
