"""ERR packets as typed errors: finds the error class and the remedy for a server's error.

One table. Servers report almost every failure of a dump with code 1236 (ER_SOURCE_FATAL_ERROR_READING_BINLOG), so
the table tells these apart by the servers' texts (MySQL: ``rpl_binlog_sender.cc``, ``rpl_source.cc``,
``errmsg``; MariaDB: ``sql_repl.cc``). An error that is not in the table becomes a plain ``ServerError`` with the
server's own words.
"""

import re

from ..errors import (
    AuthenticationError,
    BinlogNotFoundError,
    DuplicateReplicaError,
    PositionError,
    PositionInsideEventError,
    PositionPastEndError,
    PrivilegeError,
    ReplicaError,
    ServerError,
    SourceConfigurationError,
    TransactionsUnavailableError,
)
from ..records import record
from .messages import Err
from .phases import Phase

_LOGIN = frozenset({Phase.HANDSHAKE, Phase.AUTHENTICATION})
_REPLICATION = frozenset({Phase.REGISTER, Phase.DUMP})
_ANY = frozenset(Phase)

#: ER_SOURCE_FATAL_ERROR_READING_BINLOG: the code with which a source refuses a dump.
CANNOT_READ_BINLOG = 1236

_GRANT = "as an administrator: GRANT REPLICATION SLAVE ON *.* TO this user"
_INSIDE_EVENT = (
    "start at the end position of an event, or at 4 for the file's beginning; if the position is surely right, "
    "the file is damaged"
)

#: What to do where transactions without GTIDs are to be read: a source whose gtid_mode is ON sends none of them.
WITHOUT_GTIDS = (
    "gtid_mode was not ON for a while, and the log has transactions without GTIDs, which no dump sends while it is "
    "ON: SET GLOBAL gtid_mode = ON_PERMISSIVE on the source, and start again: of a checkpoint, file and position "
    "count then"
)


@record(frozen=True, slots=True)
class _Refusal:
    codes: frozenset[int]
    phases: frozenset[Phase]
    error: type[ReplicaError]
    remedy: str
    pattern: str = ""

    def fits(self, err: Err, phase: Phase) -> bool:
        return (
            err.code in self.codes
            and phase in self.phases
            and re.search(self.pattern, err.message, re.IGNORECASE) is not None
        )


def _binlog(pattern: str, error: type[ReplicaError], remedy: str) -> _Refusal:
    return _Refusal(frozenset({CANNOT_READ_BINLOG}), _REPLICATION, error, remedy, pattern)


def _login(error: type[ReplicaError], remedy: str, *codes: int) -> _Refusal:
    return _Refusal(frozenset(codes), _LOGIN, error, remedy)


# The first row that fits an ERR packet counts.
_REFUSALS = (
    # ER_ACCESS_DENIED_ERROR, ER_ACCESS_DENIED_NO_PASSWORD_ERROR
    _login(
        AuthenticationError,
        "check user and password, from which hosts the account may log in, and whether it requires TLS or tls_cert",
        1045,
        1698,
    ),
    # ER_DBACCESS_DENIED_ERROR
    _login(AuthenticationError, "grant the user access to the database, or leave the database out", 1044),
    # ER_HOST_IS_BLOCKED
    _login(
        AuthenticationError,
        "as an administrator: TRUNCATE performance_schema.host_cache or FLUSH HOSTS",
        1129,
    ),
    # ER_HOST_NOT_PRIVILEGED
    _login(AuthenticationError, "create the account for this host, or for '%'", 1130),
    # ER_NOT_SUPPORTED_AUTH_MODE, ER_SERVER_IS_IN_SECURE_AUTH_MODE
    _login(AuthenticationError, "set the account's password again, with a current plugin", 1251, 1275),
    # ER_PLUGIN_IS_NOT_LOADED
    _login(
        AuthenticationError,
        "load the account's authentication plugin, or change the account to another one",
        1524,
    ),
    # ER_SECURE_TRANSPORT_REQUIRED
    _login(AuthenticationError, "turn TLS on: the server accepts encrypted connections only", 3159),
    # ER_WRONG_COMPRESSION_ALGORITHM_CLIENT
    _login(
        AuthenticationError,
        "the server accepts compressed connections only: give compression='zstd,zlib'",
        3922,
    ),
    # ER_ACCOUNT_HAS_BEEN_LOCKED, ER_USER_ACCESS_DENIED_FOR_USER_ACCOUNT_BLOCKED_BY_PASSWORD_LOCK; MariaDB's
    # own 4151
    _login(AuthenticationError, "as an administrator: ALTER USER ... ACCOUNT UNLOCK", 3118, 3955, 4151),
    # ER_MUST_CHANGE_PASSWORD answers the first command, ER_MUST_CHANGE_PASSWORD_LOGIN the login
    _Refusal(frozenset({1820, 1862}), _ANY, AuthenticationError, "the password has expired: set a new one"),
    # ER_ACCESS_DENIED_ERROR when registering, ER_SPECIFIC_ACCESS_DENIED_ERROR when dumping
    _Refusal(frozenset({1045, 1227}), _REPLICATION, PrivilegeError, _GRANT),
    # MariaDB: ER_SLAVE_SAME_ID
    _Refusal(
        frozenset({4052}),
        _REPLICATION,
        DuplicateReplicaError,
        "give each replica of this source a server_id of its own",
    ),
    _binlog(
        "(slave|replica) with the same server_(uu)?id",
        DuplicateReplicaError,
        "give each replica of this source a server_id and a replica uuid of its own",
    ),
    _binlog(
        "position > file size|impossible position",
        PositionPastEndError,
        "the position belongs to another server's file, or the source lost the file's end in a crash: choose a new "
        "start",
    ),
    _binlog(
        "log event entry exceeded max_allowed_packet|truncated in the middle of event|bogus data in log event"
        "|did not pass crc check|crc check failed|position < 4"
        "|not correspond to the location of any binlog event",
        PositionInsideEventError,
        _INSIDE_EVENT,
    ),
    _binlog(
        "purged (required )?binary logs|GTID state requested by slave",
        TransactionsUnavailableError,
        "the source has purged transactions that the replica needs: copy the data again and start from the new "
        "copy's GTID set; to keep binlog files longer, raise binlog_expire_logs_seconds",
    ),
    _binlog(
        "has more GTIDs than|which is not in the master's binlog|slave GTID state not found",
        TransactionsUnavailableError,
        "the source never had, or has lost, transactions of the replica's GTID set: it is another server, or was "
        "restored to an earlier state; copy the data again and start from the new copy's GTID set",
    ),
    _binlog(
        "while looking for the oldest binary log|binary log without GTIDs",
        TransactionsUnavailableError,
        "no binlog file of the source reaches back to the replica's GTID set: copy the data again and start from the "
        "new copy's GTID set",
    ),
    _binlog(
        "find first log file name|Could not open log file",
        BinlogNotFoundError,
        "the file was purged, or belongs to another server: SHOW BINARY LOGS lists what the source has",
    ),
    _binlog(
        "find next log",
        BinlogNotFoundError,
        "the source's log was deleted while it was read (RESET), or its index file lacks a file: copy the data "
        "again, or choose a new start",
    ),
    _binlog(
        "Binary log is not open",
        SourceConfigurationError,
        "the source writes no binary log: start it with log_bin (--log-bin)",
    ),
    _binlog(
        "server_id (is 0|was not set)",
        SourceConfigurationError,
        "set server_id on the source to a number above 0",
    ),
    _binlog(
        "Cannot replicate anonymous transaction",
        PositionError,
        WITHOUT_GTIDS,
    ),
    _binlog(
        "GTID_MODE",
        SourceConfigurationError,
        "set gtid_mode=ON on the source, or start from a file and position",
    ),
)


def server_error(err: Err, phase: Phase) -> ReplicaError:
    """The error to raise for an ERR packet received in this phase.

    The error is a ``ServerError`` or a subclass of it. An error that only a changed setting of the source can remove
    is a ``SourceConfigurationError``.
    """
    for refusal in _REFUSALS:
        if refusal.fits(err, phase):
            if issubclass(refusal.error, ServerError):
                return refusal.error(err.code, err.sqlstate, err.message, refusal.remedy)
            return refusal.error(f"{err.message} ({err.code}) -- {refusal.remedy}")
    return ServerError(err.code, err.sqlstate, err.message)
