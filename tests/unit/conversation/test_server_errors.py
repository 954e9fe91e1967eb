"""The servers' own error texts: each becomes the right error class with a remedy."""

from __future__ import annotations

import pickle

import pytest

from protocol.conversation.messages import Err
from protocol.conversation.phases import Phase
from protocol.conversation.server_errors import server_error
from protocol.errors import (
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

# Recorded: MySQL 9.7.4, MySQL 5.6.24, MariaDB 10.11.18 and 11.8.6 (shortened where the text goes on).
DUMPS: list[tuple[type[ReplicaError], int, str]] = [
    (PositionPastEndError, 1236, "Client requested source to start replication from position > file size"),
    (
        PositionPastEndError,
        1236,
        "Client requested master to start replication from position > file size; the first event 'binlog.000001' at"
        " 2439, the last event read from './binlog.000001' at 4",
    ),
    (
        PositionPastEndError,
        1236,
        "Client requested master to start replication from impossible position; the first event 'binlog.000001' at"
        " 2436",
    ),
    (
        PositionInsideEventError,
        1236,
        "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source; the first event",
    ),
    (
        PositionInsideEventError,
        1236,
        "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on master",
    ),
    (
        PositionInsideEventError,
        1236,
        "binlog truncated in the middle of event; consider out of disk space on source;",
    ),
    (
        PositionInsideEventError,
        1236,
        "bogus data in log event; the first event 'binlog.000001' at 260, the last event",
    ),
    (PositionInsideEventError, 1236, "event read from binlog did not pass crc check; the first event"),
    (PositionInsideEventError, 1236, "Client requested source to start replication from position < 4"),
    (BinlogNotFoundError, 1236, "Could not find first log file name in binary log index file"),
    (
        BinlogNotFoundError,
        1236,
        "could not find next log; the first event '' at 4, the last event read from ...",
    ),
    (BinlogNotFoundError, 1236, "Could not open log file"),
    (
        TransactionsUnavailableError,
        1236,
        "Cannot replicate because the source purged required binary logs. Replicate the missing transactions from",
    ),
    (
        TransactionsUnavailableError,
        1236,
        "The slave is connecting using CHANGE MASTER TO MASTER_AUTO_POSITION = 1, but the master has purged binary"
        " logs containing GTIDs that the slave requires.",
    ),
    (
        TransactionsUnavailableError,
        1236,
        "Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old and"
        " required binlog files have been purged.",
    ),
    (
        TransactionsUnavailableError,
        1236,
        "Replica has more GTIDs than the source has, using the source's SERVER_UUID. This may indicate that the",
    ),
    (
        TransactionsUnavailableError,
        1236,
        "Slave has more GTIDs than the master has, using the master's SERVER_UUID.",
    ),
    (
        TransactionsUnavailableError,
        1236,
        "Error: connecting slave requested to start from GTID 0-1011-700, which is not in the master's binlog",
    ),
    (
        TransactionsUnavailableError,
        1236,
        "Error: connecting slave requested to start from GTID 0-77-2, which is not in the master's binlog. Since the"
        " master's binlog contains GTIDs with higher sequence numbers, it probably means that the slave has diverged",
    ),
    (
        PositionError,
        1236,
        "Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file ./binlog.000036, position 198.",
    ),
    (SourceConfigurationError, 1236, "Binary log is not open"),
    (SourceConfigurationError, 1236, "Misconfigured source - source server_id is 0"),
    (SourceConfigurationError, 1236, "Misconfigured master - server_id was not set"),
    (
        SourceConfigurationError,
        1236,
        "The replication sender thread cannot start in AUTO_POSITION mode: this server has GTID_MODE = OFF instead of"
        " ON.",
    ),
    (
        DuplicateReplicaError,
        1236,
        "A replica with the same server_uuid/server_id as this replica has connected to the source; the first event",
    ),
    (
        DuplicateReplicaError,
        1236,
        "A slave with the same server_uuid/server_id as this slave has connected to the master",
    ),
    (
        DuplicateReplicaError,
        4052,
        "A slave with the same server_uuid/server_id is already connected; the first event",
    ),
    (
        DuplicateReplicaError,
        4052,
        "A slave with the same server_id is already connected; the first event 'binlog",
    ),
    (
        PrivilegeError,
        1227,
        "Access denied; you need (at least one of) the REPLICATION SLAVE privilege(s) for this operation",
    ),
]
LOGINS = [
    (1045, "Access denied for user 'repl'@'172.17.0.1' (using password: YES)"),
    (1698, "Access denied for user 'sock'@'172.17.0.1'"),
    (1044, "Access denied for user 'repl'@'%' to database 't'"),
    (1130, "Host '172.17.0.1' is not allowed to connect to this MySQL server"),
    (
        1275,
        "Server is running in --secure-auth mode, but 'old'@'172.17.0.1' has a password in the old format",
    ),
    (
        1862,
        "Your password has expired. To log in you must change it using a client that supports expired passwords.",
    ),
    (3118, "Access denied for user 'locked'@'172.17.0.1'. Account is locked."),
    (3159, "Connections using insecure transport are prohibited while --require_secure_transport=ON."),
    (4151, "Access denied, this account is locked"),
]


@pytest.mark.parametrize(("error_class", "code", "text"), DUMPS)
def test_dump_refusals(error_class: type[ReplicaError], code: int, text: str) -> None:
    error = server_error(Err(code, "HY000", text), Phase.DUMP)
    assert type(error) is error_class
    assert text in str(error)
    assert str(code) in str(error)
    assert " -- " in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    if isinstance(error, ServerError):
        assert error.remedy
        assert (error.code, error.sqlstate, error.message) == (code, "HY000", text)


@pytest.mark.parametrize(("code", "text"), LOGINS)
def test_login_refusals(code: int, text: str) -> None:
    error = server_error(Err(code, "28000", text), Phase.AUTHENTICATION)
    assert type(error) is AuthenticationError
    assert error.remedy


def test_the_phase_decides_what_access_denied_means() -> None:
    err = Err(1045, "28000", "Access denied for user 'none'@'%' (using password: YES)")
    assert type(server_error(err, Phase.AUTHENTICATION)) is AuthenticationError
    registering = server_error(err, Phase.REGISTER)
    assert type(registering) is PrivilegeError
    assert "GRANT REPLICATION SLAVE ON *.* TO" in registering.remedy
    assert type(server_error(err, Phase.QUERY)) is ServerError


def test_an_expired_password_may_show_at_the_first_command() -> None:
    err = Err(1820, "HY000", "You must SET PASSWORD before executing this statement")
    assert type(server_error(err, Phase.QUERY)) is AuthenticationError


@pytest.mark.parametrize("phase", Phase)
def test_what_is_not_known_is_a_plain_server_error(phase: Phase) -> None:
    for err in (
        Err(1193, "HY000", "Unknown system variable 'x'"),
        Err(1236, "HY000", "something new"),
        Err(0, "", ""),
    ):
        error = server_error(err, phase)
        assert type(error) is ServerError
        assert (error.code, error.sqlstate, error.message) == (err.code, err.sqlstate, err.message)


@pytest.mark.parametrize(
    ("text", "phase"),
    [("x", Phase.AUTHENTICATION), ("find first log file name", Phase.DUMP), ("GTID_MODE", Phase.DUMP)],
)
def test_a_text_without_end(text: str, phase: Phase) -> None:
    """Servers send 512 bytes; one of 16 MB was a message of 16 MB, in each log."""
    error = server_error(Err(1236, "HY000", text + "x" * (1 << 20)), phase)
    assert len(str(error)) == 8192
    assert str(error).endswith("file and position" if text == "GTID_MODE" else getattr(error, "remedy", "x"))
    assert len(str(pickle.loads(pickle.dumps(error)))) == len(str(error))
