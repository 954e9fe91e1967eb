"""Servers that answer the SELECTs of a first copy with keys, numbers and rows that cannot be."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import pytest

from protocol.conversation.packets import FrameStream
from protocol.errors import CheckpointError, ProtocolError
from replica.schemas.shape import ColumnShape, Key, Shape
from replica.snapshot.chunk_reader import ChunkReader
from replica.snapshot.key_rows import rows_of_keys
from replica.snapshot.key_splits import key_ranges
from replica.snapshot.read_plan import ReadPlan
from replica.snapshot.row_keys import KeyRange
from replica.snapshot.table_list import key_columns_of
from replica.source.session import Session
from tests.support.result_rows import row, string


def plan_of(kind: str, *numbers: int, **options: Any) -> ReadPlan:
    column = ColumnShape("id", kind, numbers, nullable=False, **options)
    return ReadPlan("s", "t", Shape((column,), Key("PRIMARY", "primary", (("id", 0),))), is_mariadb=True)


class LyingSession:
    """Answers each SELECT with these rows, again and again if it is ``endless``."""

    def __init__(self, *rows: bytes, is_endless: bool = False) -> None:
        self._rows, self._is_endless = rows, is_endless
        self._left: list[bytes] = []

    async def start_rows(self, sql: str, silence: float) -> tuple[()]:
        self._left = list(self._rows)
        return ()

    async def read_rows(self, silence: float) -> list[bytes]:
        found, self._left = self._left, list(self._rows) if self._is_endless else []
        return found

    async def take_rows(
        self, take: Callable[[FrameStream], list[Any]], *given: Any, **options: Any
    ) -> list[Any]:
        frames = FrameStream()
        for payload in await self.read_rows(0):
            frames.receive(FrameStream().encode(b"\0" + payload) if not frames.buffered else b"")
        return take(frames)


def reader_of(plan: ReadPlan, *rows: bytes, is_endless: bool = False) -> ChunkReader:
    select = cast("Any", plan.select)
    select.check = select.check_key = lambda definitions: None
    return ChunkReader(cast("Session", LyingSession(*rows, is_endless=is_endless)), plan)


@pytest.mark.parametrize("plan", [plan_of("int"), plan_of("varchar", 5, charset="utf8mb4")])
async def test_a_key_that_is_null(plan: ReadPlan) -> None:
    """It was the key b"None": of text, rows before it were never read."""
    with pytest.raises(ProtocolError, match=r"sends NULL for the key of s\.t"):
        await reader_of(plan, row([None])).largest_key()
    cast("Any", plan.select).check_key = lambda definitions: None
    with pytest.raises(ProtocolError, match="sends NULL"):
        await key_ranges(cast("Session", LyingSession(row([None]))), plan, 4, 100)


def test_a_key_column_whose_name_is_no_text() -> None:
    """A copy ended in a UnicodeEncodeError."""
    shape = Shape(
        (ColumnShape("\udcff", "int", nullable=False),), Key("PRIMARY", "primary", (("\udcff", 0),))
    )
    assert key_columns_of(ReadPlan("s", "t", shape, is_mariadb=True)).names == ("\udcff",)


async def test_more_rows_than_were_asked_for() -> None:
    """They were kept for as long as they came."""
    plan = plan_of("int")
    with pytest.raises(ProtocolError, match="more rows than the 1 that were asked for"):
        await reader_of(plan, row([b"\1\0\0\0"]), is_endless=True).largest_key()
    chunk = await reader_of(plan, row([b"\1\0\0\0"]), is_endless=True).start(KeyRange(), 3)
    rows: list[Any] = []

    async def read() -> None:
        async for some in chunk:
            rows.extend(some)

    with pytest.raises(ProtocolError, match="more rows than the 3 that were asked for"):
        await read()
    assert len(rows) == 3


async def test_a_chunk_that_ends_where_it_was_to_begin() -> None:
    """As of a server that compares a key with a literal otherwise than it sorts: the copy never ended."""
    chunk = await reader_of(plan_of("int"), row([b"\1\0\0\0"])).start(KeyRange((b"1",)), 1)
    with pytest.raises(ProtocolError, match=r"rows of s\.t up to the key behind which it was to send rows"):
        _ = [some async for some in chunk]


async def test_a_count_that_ends_where_it_was_to_begin() -> None:
    """Its bounds were counted for ever, and kept."""
    plan = plan_of("varchar", 5, charset="utf8mb4")
    select = cast("Any", plan.select)
    select.check = select.check_key = lambda definitions: None
    one, last = row([string(b"b")]), row([string(b"z")])

    class Same(LyingSession):
        async def start_rows(self, sql: str, silence: float) -> tuple[()]:
            self._rows = (last,) if "DESC" in sql else (one,)
            return await super().start_rows(sql, silence)

    with pytest.raises(ProtocolError, match=r"rows of s\.t up to the key behind which it was to send rows"):
        await key_ranges(cast("Session", Same()), plan, 4, 100)


async def test_rows_of_keys_without_end() -> None:
    plan = plan_of("int")
    reader = reader_of(plan, row([b"\1\0\0\0"]), is_endless=True)
    with pytest.raises(ProtocolError, match="more rows than the 32 that were asked for"):
        await rows_of_keys(reader._session, plan, [(1,), (2,)])
    with pytest.raises(ProtocolError, match="more rows than the 1 that were asked for"):
        await reader.touch(KeyRange())
    honest = reader_of(plan, row([b"\1\0\0\0"]), row([b"\2\0\0\0"]))
    assert await rows_of_keys(honest._session, plan, [(1,), (2,)]) == [(1,), (2,)]
    assert await rows_of_keys(reader_of(plan)._session, plan, [(1,), (2,)]) == []


async def test_the_number_of_a_label_that_there_is_not() -> None:
    """A condition listed all numbers up to it."""
    plan = plan_of("enum", labels=("a", "b"), charset="utf8mb4")
    key = await reader_of(plan, row([(10**18).to_bytes(8, "little")])).largest_key()
    assert key == (b"1000000000000000000",)
    assert "WHERE (`id` IN (0, 1, 2))" in plan.key_sql(KeyRange(None, key), 5)
    assert "WHERE (1 = 0)" in plan.key_sql(KeyRange(key), 5)


@pytest.mark.parametrize("kind", ["inet4", "inet6"])
def test_an_address_of_another_size(kind: str) -> None:
    with pytest.raises(CheckpointError, match=r"b'abc' cannot be a value of the key column 'id'"):
        plan_of(kind).key_sql(KeyRange((b"abc",)), 5)


@pytest.mark.parametrize("scale", [0, 2, 4, 6, 30])
@pytest.mark.parametrize(
    "text", ["1e999999999", "-1E-999999999", "0e99999999", "NaN", "sNaN", "-Infinity", "exponent"]
)
def test_decimals_that_are_none(text: str, scale: int) -> None:
    """Written out, which a key is, the first takes a gigabyte. The last has the point where the column has it."""
    if text == "exponent":
        text = f"1.e{'99999'.rjust(max(scale, 6) - 1, '0')}"
    plan = plan_of("decimal", 65, scale)
    tracemalloc.start()
    try:
        for read in (plan.select.key_alone, lambda payload: plan.select.rows([payload])):
            with pytest.raises(ProtocolError, match="cannot be a DECIMAL"):
                read(row([string(text.encode())]))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_decimals_at_their_limits() -> None:
    for value in ("9" * 65, "-" + "9" * 35 + "." + "9" * 30, "0." + "0" * 29 + "1", "0", "0.00"):
        assert plan_of("decimal", 65, 30).select.rows([row([string(value.encode())])]) == [(Decimal(value),)]


@pytest.mark.parametrize("text", ["1e400", "-1.0000000000000000e99999999"])
def test_numbers_of_a_document_that_are_none(text: str) -> None:
    shape = Shape((ColumnShape("a", "json"),))
    select = ReadPlan("s", "t", shape, is_mariadb=False).select
    with pytest.raises(ProtocolError, match="cannot be a number of a JSON document"):
        select.rows([row([string(f"[{text}]".encode())])])
    assert select.rows([row([string(b"[1e300, 1.7976931348623157e308]")])]) == [
        ([1e300, 1.7976931348623157e308],)
    ]
