"""Prepared statements: their packets, and the conversation from COM_STMT_PREPARE to the last row."""

from __future__ import annotations

import pytest

from protocol.constants import Capability, StatusFlag
from protocol.conversation.messages import Eof, Err, Ok
from protocol.conversation.phases import NEED_DATA, Phase
from protocol.conversation.prepared_statements import CloseStatement, Execute, Prepare, Prepared, RowsBegin
from protocol.conversation.replica_side import Connection
from protocol.conversation.results import ColumnDefinition
from protocol.errors import ConfigurationError, ProtocolError, ServerError
from tests.support.fake_source import MYSQL_CAPABILITIES, OLD_CAPABILITIES, FakeSource, ready
from tests.support.feeding import all_cuts, check_parser

COLUMNS = (ColumnDefinition("id", 3, flags=33), ColumnDefinition("name", 253, 255, 40))
ROWS = [b"\0\1\0\0\0\1a", b"\0\2\0\0\0\2bc", b"\4\3\0\0\0"]
EOF_AS_OK = Ok(ends_rows=True)


def test_commands() -> None:
    assert Prepare("SELECT 'é'").encode() == b"\x16SELECT '\xc3\xa9'"
    assert check_parser(Prepare.parse, Prepare("SELECT 1").encode(), shortest=1, open_ended=True) == Prepare(
        "SELECT 1"
    )
    # Statement 7, no cursor, one iteration.
    assert Execute(7).encode() == b"\x17\7\0\0\0\0\1\0\0\0"
    assert check_parser(Execute.parse, Execute(7).encode()) == Execute(7)
    assert CloseStatement(7).encode() == b"\x19\7\0\0\0"
    assert check_parser(CloseStatement.parse, CloseStatement(7).encode()) == CloseStatement(7)
    with pytest.raises(ProtocolError, match="the flags 1 and 1 iterations"):
        Execute.parse(b"\x17\7\0\0\0\1\1\0\0\0")
    with pytest.raises(ConfigurationError, match="statement id"):
        Execute(1 << 32).encode()


def test_the_answer_to_prepare() -> None:
    prepared = Prepared(7, 2, 0, 1)
    assert prepared.encode() == b"\0\7\0\0\0\2\0\0\0\0\1\0"
    assert check_parser(Prepared.parse, prepared.encode()) == prepared
    with pytest.raises(ProtocolError, match="begins with 0x01"):
        Prepared.parse(b"\1" + prepared.encode()[1:])


def prepare(client: Connection, source: FakeSource, *, eof: bool) -> None:
    client.send_prepare("SELECT id, name FROM t")
    assert Prepare.parse(source.read_command()) == Prepare("SELECT id, name FROM t")
    source.send(Prepared(7, len(COLUMNS)), *COLUMNS, *([Eof()] if eof else []))
    assert client.next_event() == Prepared(7, len(COLUMNS))
    assert client.phase is Phase.READY


def answer(*, eof: bool) -> list[Ok | Eof | ColumnDefinition | bytes]:
    middle: list[Eof] = [Eof()] if eof else []
    end: Ok | Eof = Eof() if eof else EOF_AS_OK
    return [bytes([len(COLUMNS)]), *COLUMNS, *middle, *(b"\0" + row for row in ROWS), end]


@pytest.mark.parametrize(("capabilities", "eof"), [(MYSQL_CAPABILITIES, False), (OLD_CAPABILITIES, True)])
def test_rows_of_a_statement(capabilities: Capability, eof: bool) -> None:
    client, source = ready(capabilities)
    prepare(client, source, eof=eof)
    client.send_execute(7)
    assert Execute.parse(source.read_command()) == Execute(7)
    source.send(*answer(eof=eof))
    assert client.next_event() == RowsBegin(COLUMNS)
    with pytest.raises(RuntimeError, match="the rows of a prepared statement"):
        client.next_event()
    assert client.next_rows() == ROWS
    assert not client.rows_ended
    assert client.next_rows() == []
    assert client.rows_ended
    client.send_close_statement(7)
    assert CloseStatement.parse(source.read_command()) == CloseStatement(7)
    # The next command may follow at once.
    client.send_query("SELECT 1")
    source.read_command()
    source.send(Ok())
    assert client.next_event() == Ok()


def test_rows_in_pieces() -> None:
    _, recorder = ready()
    recorder.frames.sequence = 1
    recorder.client.send_execute(7)
    before = len(recorder.sent)
    recorder.send(*answer(eof=False))
    data = recorder.sent[before:]
    for pieces in all_cuts(data, 16):
        client, source = ready()
        client.send_execute(7)
        source.read_command()
        begin: object = NEED_DATA
        rows: list[bytes] = []
        for piece in pieces:
            client.receive_data(piece)
            if begin is NEED_DATA:
                begin = client.next_event()
            if begin is not NEED_DATA:
                while found := client.next_rows():
                    rows += found
        assert begin == RowsBegin(COLUMNS)
        assert (rows, client.rows_ended) == (ROWS, True)


def test_an_error_among_the_rows() -> None:
    client, source = ready()
    client.send_execute(7)
    source.read_command()
    source.send(*answer(eof=False)[:5], Err(1317, "70100", "Query execution was interrupted"))
    client.next_event()
    assert client.next_rows() == ROWS[:2]
    with pytest.raises(ServerError, match="1317"):
        client.next_rows()
    assert client.phase is Phase.READY


@pytest.mark.parametrize("refused", ["prepare", "execute"])
def test_a_refused_statement(refused: str) -> None:
    client, source = ready()
    if refused == "prepare":
        client.send_prepare("SELECT")
    else:
        client.send_execute(7)
    source.read_command()
    source.send(Err(1146, "42S02", "Table 'shop.t' doesn't exist"))
    with pytest.raises(ServerError, match="1146"):
        client.next_event()
    assert client.phase is Phase.READY


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (b"\1", "unexpected packet in the rows"),
        (Eof(status=StatusFlag.MORE_RESULTS_EXISTS), "a further result"),
        (b"", "unexpected packet in the rows"),
    ],
)
def test_packets_that_no_server_sends_among_rows(packet: bytes | Eof, message: str) -> None:
    client, source = ready()
    client.send_execute(7)
    source.read_command()
    source.send(*answer(eof=False)[:3], packet)
    client.next_event()
    with pytest.raises(ProtocolError, match=message):
        client.next_rows()
    with pytest.raises(ProtocolError):
        client.send_query("SELECT 1")


@pytest.mark.parametrize(
    ("prepared", "message"), [(Prepared(7, 1, 1), "1 parameters"), (Prepared(7, 4097), "4097 columns")]
)
def test_statements_that_were_not_asked_for(prepared: Prepared, message: str) -> None:
    client, source = ready()
    client.send_prepare("SELECT 1")
    source.read_command()
    source.send(prepared)
    with pytest.raises(ProtocolError, match=message):
        client.next_event()


def test_a_statement_without_rows() -> None:
    client, source = ready()
    client.send_prepare("DO 1")
    source.read_command()
    source.send(Prepared(7, 0))
    assert client.next_event() == Prepared(7, 0)
    client.send_execute(7)
    source.read_command()
    source.send(Ok(affected_rows=1))
    assert client.next_event() == Ok(affected_rows=1)
    with pytest.raises(RuntimeError, match="after RowsBegin only"):
        client.next_rows()
