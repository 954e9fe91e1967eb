"""Text result sets: their packets, and the answers to a query."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.constants import MAX_FRAME_PAYLOAD, Capability
from protocol.conversation.messages import Eof, Err, Ok, ResultSet
from protocol.conversation.phases import NEED_DATA, Phase
from protocol.conversation.results import ColumnDefinition, encode_row, parse_column_count, parse_row
from protocol.errors import ProtocolError, ServerError
from tests.support.fake_source import MYSQL_CAPABILITIES, OLD_CAPABILITIES, ask, ready
from tests.support.feeding import check_parser

EOF_AS_OK = Ok(ends_rows=True)
COLUMN = ColumnDefinition("a", 253).encode()


def test_column_definition() -> None:
    column = ColumnDefinition("n", 253, 45, 80, 1, 31, "name", "t", "table", "shop")
    assert check_parser(ColumnDefinition.parse, column.encode()) == column
    with pytest.raises(ProtocolError, match="11 fixed bytes"):
        ColumnDefinition.parse(column.encode().replace(b"\x0c\x2d\0", b"\x0b\x2d\0"))


def test_column_count() -> None:
    assert check_parser(parse_column_count, b"\x07") == 7
    assert check_parser(parse_column_count, b"\xfc\0\x10") == 4096
    for payload in (b"\0", b"\xfc\x01\x10", b"\xfb", b"\xff", b"\xfe" + b"\xff" * 8):
        with pytest.raises(ProtocolError):
            parse_column_count(payload)


@given(
    st.lists(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"])), st.just(b"\xff\xfe")))
)
def test_rows(values: list[str | bytes | None]) -> None:
    row = tuple(values)
    assert check_parser(lambda payload: parse_row(payload, len(row)), encode_row(row)) == row


@pytest.mark.parametrize("capabilities", [MYSQL_CAPABILITIES, OLD_CAPABILITIES])
def test_a_result_set(capabilities: Capability) -> None:
    client, source = ready(capabilities)
    end = EOF_AS_OK if Capability.DEPRECATE_EOF in capabilities else Eof()
    for _ in range(2):
        ask(client, source, "SELECT a, b FROM t")
        assert client.next_event() is NEED_DATA
        source.send(b"\x02", ColumnDefinition("a", 253), ColumnDefinition("b", 252))
        if isinstance(end, Eof):
            source.send(end)
        source.send(encode_row(("é", None)), encode_row((b"\xff\xfe", "")))
        assert client.next_event() is NEED_DATA
        source.send(end)
        assert client.next_event() == ResultSet(("a", "b"), [("é", None), (b"\xff\xfe", "")])
    assert client.phase is Phase.READY


def test_an_empty_result_set() -> None:
    client, source = ready(OLD_CAPABILITIES)
    ask(client, source, "SHOW VARIABLES LIKE 'x'")
    source.send(b"\x01", ColumnDefinition("a", 253), Eof(), Eof())
    assert client.next_event() == ResultSet(("a",), [])


@pytest.mark.parametrize("capabilities", [MYSQL_CAPABILITIES, OLD_CAPABILITIES])
def test_a_large_value_does_not_end_the_rows(capabilities: Capability) -> None:
    client, source = ready(capabilities)
    ask(client, source)
    source.send(b"\x01", ColumnDefinition("a", 253))
    if Capability.DEPRECATE_EOF not in capabilities:
        source.send(Eof())
    value = "x" * (MAX_FRAME_PAYLOAD + 1)
    row = encode_row((value,))
    assert row[0] == 0xFE
    source.send(row, EOF_AS_OK if Capability.DEPRECATE_EOF in capabilities else Eof())
    result = client.next_event()
    assert isinstance(result, ResultSet)
    assert result.rows == [(value,)]


def test_ok_and_err_answer_a_query() -> None:
    client, source = ready()
    ask(client, source, "SET @x = 1")
    source.send(Ok(status=0))
    assert client.next_event() == Ok(status=0)
    ask(client, source, "SELECT @@nonsense")
    source.send(Err(1193, "HY000", "Unknown system variable 'nonsense'"))
    with pytest.raises(ServerError, match="1193"):
        client.next_event()
    ask(client, source)
    source.send(b"\x01", ColumnDefinition("a", 3), encode_row(("1",)), Err(1317, "70100", "interrupted"))
    with pytest.raises(ServerError, match="1317"):
        client.next_event()
    ask(client, source)
    source.send(Ok())
    assert client.next_event() == Ok()


@pytest.mark.parametrize(
    "payloads",
    [
        [b""],
        [b"\xfblocal.file"],
        [b"\xfe\0\0\x02\0"],
        [b"\xfc\xff\xff"],
        [Ok(status=0x000A).encode()],
        [b"\x01", b"\x03def"],
        [b"\x01", COLUMN, b""],
        [b"\x01", COLUMN, b"\x05abc"],
        [b"\x01", COLUMN, encode_row(("a", "b"))],
        [b"\x02", COLUMN, COLUMN, encode_row(("a",))],
        [b"\x01", COLUMN, Ok(status=0x000A, ends_rows=True).encode()],
        [b"\x01", COLUMN, b"\xfe"],
    ],
)
def test_what_is_not_an_answer(payloads: list[bytes]) -> None:
    client, source = ready()
    ask(client, source)
    source.send(*payloads)
    with pytest.raises(ProtocolError):
        client.next_event()
    assert client.phase is Phase.CLOSED
