"""Random tables and rows through both decoders: the compiled one must return the same as the plain one.

For damaged rows both must raise ``DecodeError`` or return the same rows. For a damaged table map any error must be a
``DecodeError``; the results may differ, because contradictory metadata can be read in more than one way.
"""

from __future__ import annotations

import contextlib
import random
import struct
from array import array
from collections.abc import Callable
from dataclasses import fields, replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import DeleteRowsEvent, TableMapEvent, UpdateRowsEvent, WriteRowsEvent
from protocol.constants import ColumnType, EventType
from protocol.errors import DecodeError
from protocol.rows.column import ABSENT, Column
from protocol.rows.compiler import RowCompiler
from tests.support import binlog_encoder as encoder
from tests.support import plain_decoder
from tests.support.examples import times
from tests.support.plain_decoder import PlainTable, plain_rows, plain_table_map
from tests.support.random_logs import KINDS, TABLE_ID, Log, random_form, random_log, random_rows, random_table

EVENT_CLASSES = {
    EventType.WRITE_ROWS_V1: WriteRowsEvent,
    EventType.UPDATE_ROWS_V1: UpdateRowsEvent,
    EventType.DELETE_ROWS_V1: DeleteRowsEvent,
    EventType.WRITE_ROWS: WriteRowsEvent,
    EventType.UPDATE_ROWS: UpdateRowsEvent,
    EventType.DELETE_ROWS: DeleteRowsEvent,
}

# Hypothesis chooses the columns, which it can remove one by one, and a seed for everything else.
LOGS = st.builds(
    lambda kinds, seed: random_log(random.Random(seed), kinds),
    st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=24),
    st.integers(0, 1 << 64),
)


def compiled(log: Log, columns: dict[str, list[str]] | None = None) -> tuple[TableMapEvent, list[object]]:
    return decoded(log, EventDecoder(columns=columns, row_compiler=RowCompiler(None)))


def interpreted(log: Log, columns: dict[str, list[str]] | None = None) -> list[object]:
    """The second of two equal events, which is read straight from its bytes where that is possible."""
    decoder = EventDecoder(columns=columns, row_compiler=RowCompiler(1 << 30))
    with contextlib.suppress(DecodeError):
        decoded(log, decoder)
    return decoded(log, decoder)[1]


def decoded(log: Log, decoder: EventDecoder) -> tuple[TableMapEvent, list[object]]:
    version = "11.8.6-MariaDB-log" if log.mariadb else "9.7.4"
    decoder.decode(encoder.format_description(version, checksum=log.checksum))
    table_event = decoder.decode(encoder.event(EventType.TABLE_MAP, log.table_map, checksum=log.checksum))
    rows_event = decoder.decode(encoder.event(log.kind, log.rows, checksum=log.checksum))
    assert isinstance(table_event, TableMapEvent)
    assert isinstance(rows_event, WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent)
    assert type(rows_event) is EVENT_CLASSES[log.kind]
    assert rows_event.table is table_event.table
    return table_event, list(rows_event.rows)


def plain(log: Log) -> tuple[PlainTable, list[object]]:
    table = plain_table_map(log.table_map, log.mariadb)
    return table, plain_rows(log.rows, log.kind, table)


def same(mine: object, others: object) -> bool:
    """Whether values are equal and of one type at every level; floats are compared by bits, so NaN equals NaN."""
    if others is plain_decoder.ABSENT:
        return mine is ABSENT
    if type(mine) is not type(others):
        return False
    if isinstance(others, float):
        assert isinstance(mine, float)
        return struct.pack("<d", mine) == struct.pack("<d", others)
    if isinstance(others, array):
        assert isinstance(mine, array)
        return mine.tobytes() == others.tobytes()
    if isinstance(others, Decimal):
        assert isinstance(mine, Decimal)
        return mine.as_tuple() == others.as_tuple()
    if isinstance(others, list | tuple):
        assert isinstance(mine, list | tuple)
        return len(mine) == len(others) and all(map(same, mine, others))
    if isinstance(others, dict):
        assert isinstance(mine, dict)
        return mine.keys() == others.keys() and all(same(mine[key], others[key]) for key in others)
    return mine == others


def same_table(event: TableMapEvent, plain: PlainTable) -> None:
    table = event.table
    assert event.table_id == plain.table_id
    assert (table.schema, table.name) == (plain.schema, plain.name)
    assert table.names_from == plain.names_from
    assert list(table.primary_key) == plain.primary_key
    for mine, others in zip(table.columns, plain.columns, strict=True):
        for attribute in fields(Column):
            assert getattr(mine, attribute.name) == getattr(others, attribute.name), (attribute.name, mine)


@given(LOGS)
@times(4)
def test_what_servers_could_write(log: Log) -> None:
    table, rows = plain(log)
    event, compiled_rows = compiled(log)
    same_table(event, table)
    assert same(compiled_rows, rows), (compiled_rows, rows)
    assert same(interpreted(log), rows)


@pytest.mark.parametrize("kind", KINDS)
def test_each_type_between_others(kind: str, thorough: bool) -> None:
    """A type that uses up wrong signs, character sets or bytes changes the columns next to it."""
    for seed in range(40 if thorough else 8):
        log = random_log(random.Random(seed), ["TINY", "VARCHAR", kind, "TINY", "VARCHAR", "ENUM"])
        table, rows = plain(log)
        event, compiled_rows = compiled(log)
        same_table(event, table)
        assert same(compiled_rows, rows), (seed, compiled_rows, rows)
        assert same(interpreted(log), rows), seed


@given(LOGS, st.integers(0, 1 << 64))
@times(2)
def test_chosen_columns(log: Log, seed: int) -> None:
    table, rows = plain(log)
    chosen = [index for index in range(len(table.columns)) if random.Random(seed + index).random() < 0.3]
    # Columns can only be chosen by name.
    if table.names_from is None:
        return
    names = [table.columns[index].name for index in chosen]
    chosen_names = {f"{table.schema}.{table.name}": names}
    _, compiled_rows = compiled(log, chosen_names)

    def of_chosen(row: object) -> object:
        assert isinstance(row, tuple)
        is_pair = isinstance(row[0], tuple)
        return tuple(map(of_chosen, row)) if is_pair else tuple(row[index] for index in chosen)

    expected = list(map(of_chosen, rows))
    assert same(compiled_rows, expected), (compiled_rows, expected)
    assert same(interpreted(log, chosen_names), expected)


NUMBERS = (
    "TINY",
    "SHORT",
    "LONG",
    "LONGLONG",
    "FLOAT",
    "DOUBLE",
    "YEAR",
    "ENUM",
    "SET",
    "DATE",
    "TIMESTAMP2",
)


@pytest.mark.parametrize("width", [1, 7, 8, 9, 16, 17, 24, 25, 31, 32, 33, 56, 57, 61, 64, 65, 100, 257])
def test_each_size_of_the_null_bitmap(width: int, thorough: bool) -> None:
    """Tables of any types; of numbers, whose rows may have one size; and with the longest lengths first."""
    for seed in range(12 if thorough else 4):
        rng = random.Random(seed)
        kinds = rng.choices(NUMBERS if seed % 2 else sorted(KINDS), k=width)
        if seed % 3 == 0:
            kinds[0] = "MEDIUM_BLOB"
        log = random_log(rng, kinds)
        assert same(compiled(log)[1], plain(log)[1]), seed
        assert same(interpreted(log), plain(log)[1]), seed


@pytest.mark.parametrize("seed", range(24))
def test_frequent_patterns_of_nulls(seed: int) -> None:
    """A reader that often reads similar rows is compiled again; other rows come in between and afterwards."""
    rng = random.Random(seed)
    table = random_table(rng, rng.choices(sorted(KINDS), k=rng.choice([12, 20, 40])))
    form = random_form(rng, table)
    plain_table = plain_table_map(table.table_map, table.mariadb)
    bodies = [random_rows(rng, table, form, 3, nulls=rng.choice([0.0, 0.1, 0.5])) for _ in range(4)]
    expected = [plain_rows(body, form.event, plain_table) for body in bodies]
    decoder = EventDecoder(row_compiler=RowCompiler(None))
    decoder.decode(encoder.format_description("9.7.4-MariaDB" if table.mariadb else "9.7.4", checksum=True))
    table_map = encoder.event(EventType.TABLE_MAP, table.table_map, checksum=True)
    for number in (*[0] * 40, 3, *[1, 0] * 40, 2, 3, 1, 0):
        decoder.decode(table_map)
        event = decoder.decode(encoder.event(form.event, bodies[number], checksum=True))
        assert isinstance(event, WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent)
        assert same(list(event.rows), expected[number]), number


def outcome(decode: Callable[[Log], tuple[object, list[object]]], log: Log) -> list[object] | None:
    """The rows, or None after a ``DecodeError``; any other exception fails the test."""
    try:
        return decode(log)[1]
    except DecodeError:
        return None


def agree_on(log: Log) -> None:
    of_compiled, of_plain = outcome(compiled, log), outcome(plain, log)
    assert same(of_compiled, of_plain), (of_compiled, of_plain)
    assert same(outcome(lambda log: (None, interpreted(log)), log), of_plain)


@given(LOGS, st.data())
@times(2.5)
def test_truncated_events(log: Log, data: st.DataObject) -> None:
    agree_on(replace(log, rows=log.rows[: data.draw(st.integers(0, len(log.rows) - 1))]))
    short = replace(log, table_map=log.table_map[: data.draw(st.integers(0, len(log.table_map) - 1))])
    outcome(compiled, short)
    outcome(plain, short)


@given(LOGS, st.integers(0, 1 << 64))
@times(4)
def test_damaged_events(log: Log, seed: int) -> None:
    rng = random.Random(seed)
    agree_on(replace(log, rows=damaged(rng, log.rows)))
    other = replace(log, table_map=damaged(rng, log.table_map))
    outcome(compiled, other)
    outcome(plain, other)


def damaged(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def test_rows_without_columns_take_no_bytes() -> None:
    for kind, rows in (
        (EventType.WRITE_ROWS, [(ABSENT,)]),
        (EventType.UPDATE_ROWS, [((ABSENT,), (ABSENT,))]),
    ):
        images = [[False]] * (2 if kind is EventType.UPDATE_ROWS else 1)
        body = encoder.rows_event(kind, TABLE_ID, 1, images, b"")
        table_map = encoder.table_map(TABLE_ID, b"s", b"t", bytes([ColumnType.TINY]), b"", [True], {})
        log = Log(False, True, table_map, kind, body)
        assert compiled(log)[1] == interpreted(log) == rows
        assert same(compiled(log)[1], plain(log)[1])


def test_a_table_of_4096_columns() -> None:
    """A table with as many columns as a server allows still compiles."""
    width = 4096
    types = bytes([ColumnType.LONG, ColumnType.VARCHAR] * (width // 2))
    metadata = b"\x10\0" * (width // 2)
    table_map = encoder.table_map(TABLE_ID, b"s", b"t", types, metadata, [True] * width, {})
    values: list[bytes | None] = [
        None if n % 7 == 0 else b"\1\0\0\0" if n % 2 == 0 else b"\2ab" for n in range(width)
    ]
    image = encoder.row_image([True] * width, values)
    body = encoder.rows_event(EventType.WRITE_ROWS, TABLE_ID, width, [[True] * width], image * 2)
    log = Log(False, False, table_map, EventType.WRITE_ROWS, body)
    assert same(compiled(log)[1], plain(log)[1])
