"""Text result sets: their packets, and the answers to a query."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.constants import MAX_FRAME_PAYLOAD, Capability
from protocol.conversation.messages import Eof, Err, Ok, PackedRows, ResultSet, TextValue
from protocol.conversation.packets import FrameStream
from protocol.conversation.phases import NEED_DATA, Phase
from protocol.conversation.results import (
    ColumnDefinition,
    QueryAnswer,
    encode_row,
    parse_column_count,
    parse_row,
)
from protocol.errors import ProtocolError, ReplicaError, ServerError
from tests.support.fake_source import MYSQL_CAPABILITIES, OLD_CAPABILITIES, ask, ready
from tests.support.feeding import check_parser

EOF_AS_OK = Ok(ends_rows=True)
COLUMN = ColumnDefinition("a", 253).encode()
TRACKED = MYSQL_CAPABILITIES | Capability.DEPRECATE_EOF


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


ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
        st.one_of(st.none(), st.just(b"\xff\xfe"), st.just(""), st.just("x" * 250), st.just("x" * 251)),
    ),
    min_size=1,
    max_size=40,
)


def _frames_of(rows: Sequence[tuple[TextValue, ...]]) -> tuple[bytes, int]:
    """The frames of an answer with two columns, up to its end; and the number of packets."""
    server = FrameStream()
    packets = [b"\2", COLUMN, COLUMN, *map(encode_row, rows), EOF_AS_OK.encode(TRACKED)]
    return b"".join(map(server.encode, packets)), len(packets)


def _answer(
    data: bytes, cuts: Sequence[int], is_walking: bool, is_packed: bool = False
) -> tuple[object, int]:
    """The answer in these bytes, which come in pieces, and how many packets were read one by one."""
    frames, reads, answer = FrameStream(), 0, None
    query = QueryAnswer(TRACKED, frames if is_walking else None, is_packed=is_packed)
    for begin, end in pairwise([0, *sorted(cut % len(data) for cut in cuts), len(data)]):
        frames.receive(data[begin:end])
        while answer is None and (payload := frames.read()) is not None:
            reads += 1
            answer = query.receive(payload)
    return answer, reads


@given(ROWS, st.lists(st.integers(0, 10_000), max_size=6))
def test_rows_out_of_their_frames(rows: list[tuple[TextValue, ...]], cuts: list[int]) -> None:
    data, packets = _frames_of(rows)
    # The first bytes of another answer, whose frames are counted anew.
    following = FrameStream().encode(encode_row(("a", "b")))
    plain, reads = _answer(data + following, cuts, is_walking=False)
    assert reads == packets
    assert isinstance(plain, ResultSet)
    assert plain.rows == rows
    assert repr(_answer(data + following, cuts, is_walking=True)[0]) == repr(plain)


@given(ROWS, st.lists(st.integers(0, 10_000), max_size=6))
def test_packed_rows_are_the_payloads(rows: list[tuple[TextValue, ...]], cuts: list[int]) -> None:
    following = FrameStream().encode(encode_row(("a", "b")))
    answer, _ = _answer(_frames_of(rows)[0] + following, cuts, is_walking=True, is_packed=True)
    assert isinstance(answer, PackedRows)
    assert answer.rows == list(map(encode_row, rows))
    assert [parse_row(payload, 2) for payload in answer.rows] == rows


@given(ROWS, st.integers(0, 10_000), st.integers(1, 255))
def test_damaged_rows_out_of_their_frames(rows: list[tuple[TextValue, ...]], place: int, bits: int) -> None:
    data = bytearray(_frames_of(rows)[0])
    data[place % len(data)] ^= bits

    def outcome(is_walking: bool) -> str:
        try:
            return repr(_answer(bytes(data), (), is_walking)[0])
        except (ReplicaError, IndexError) as error:
            return repr(error)

    assert outcome(is_walking=True) == outcome(is_walking=False)


def test_rows_are_not_read_one_by_one() -> None:
    rows: list[tuple[TextValue, ...]] = [("shop", str(number)) for number in range(10_000)]
    data, packets = _frames_of(rows)
    answer, reads = _answer(data, (), is_walking=True)
    assert isinstance(answer, ResultSet)
    assert answer.rows == rows
    # The head, a row and the end; and a row at the end of each 64 KB.
    assert reads < packets // 500
