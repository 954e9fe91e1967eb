"""Commands encode as servers read them, parse back, and refuse values that do not fit their fields."""

from __future__ import annotations

import pytest

from protocol.conversation.commands import (
    BinlogDump,
    BinlogDumpGtid,
    Query,
    Quit,
    RegisterReplica,
    SemiSyncAck,
)
from protocol.errors import ConfigurationError, ProtocolError
from tests.support.feeding import check_parser


def test_quit() -> None:
    assert Quit().encode() == b"\x01"
    assert check_parser(Quit.parse, b"\x01") == Quit()


def test_query() -> None:
    query = Query("SELECT 'é'")
    assert query.encode() == b"\x03SELECT '\xc3\xa9'"
    assert check_parser(Query.parse, query.encode(), shortest=1, open_ended=True) == query


def test_register_replica() -> None:
    command = RegisterReplica(4711, "thishost", "me", "pw", 3306, 1, 97)
    # The layout, as recorded on real replicas: id, three short strings, port, rank, source id.
    assert command.encode() == b"\x15\x67\x12\0\0\x08thishost\x02me\x02pw\xea\x0c\x01\0\0\0\x61\0\0\0"
    assert check_parser(RegisterReplica.parse, command.encode()) == command
    assert "pw" not in repr(command)


def test_binlog_dump() -> None:
    command = BinlogDump("binlog.000002", 0x01020304, 4711, 2)
    assert command.encode() == b"\x12\x04\x03\x02\x01\x02\0\x67\x12\0\0binlog.000002"
    assert check_parser(BinlogDump.parse, command.encode(), shortest=11, open_ended=True) == command


def test_binlog_dump_gtid() -> None:
    command = BinlogDumpGtid(b"a set", 4711, 2, "f", 1 << 40)
    assert command.encode() == (
        b"\x1e\x02\0\x67\x12\0\0\x01\0\0\0f" + (1 << 40).to_bytes(8, "little") + b"\x05\0\0\0a set"
    )
    assert check_parser(BinlogDumpGtid.parse, command.encode()) == command


def test_names_end_at_a_zero_byte() -> None:
    """python-mysql-replication sends three zero bytes for an empty file name."""
    dump = BinlogDumpGtid.parse(b"\x1e\0\0\x05\0\0\0\x03\0\0\0\0\0\0\x04" + bytes(7) + b"\x01\0\0\0x")
    assert dump == BinlogDumpGtid(b"x", 5)


def test_semi_sync_ack() -> None:
    ack = SemiSyncAck("binlog.000002", 1 << 33)
    assert ack.encode() == b"\xef" + (1 << 33).to_bytes(8, "little") + b"binlog.000002"
    assert check_parser(SemiSyncAck.parse, ack.encode(), shortest=9, open_ended=True) == ack


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (Query("\ud800"), "statement"),
        (RegisterReplica(1 << 32), "server id 4294967296"),
        (RegisterReplica(-1), "server id -1"),
        (RegisterReplica(1, host="x" * 256), "host name"),
        (RegisterReplica(1, port=65536), "port 65536"),
        (BinlogDump("f", 1 << 32, 1), "binlog position 4294967296"),
        (BinlogDump("f\0", 4, 1), "binlog file name"),
        (BinlogDump("\udfff", 4, 1), "binlog file name"),
        (BinlogDumpGtid(b"", 1, 1 << 16), "dump flags"),
        (SemiSyncAck("f", 1 << 64), "binlog position"),
    ],
)
def test_what_does_not_fit_is_the_callers_error(
    command: Query | RegisterReplica | BinlogDump | BinlogDumpGtid | SemiSyncAck, complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        command.encode()


def test_another_command_is_refused() -> None:
    with pytest.raises(ProtocolError, match="is 0x03, not 0x12"):
        BinlogDump.parse(Query("SELECT 1 FROM dual").encode())
