"""Many tables, many images: what is compiled, parsed and kept, counted in calls and bytes, not in seconds."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterable

import pytest

from protocol.binlog import known_tables
from protocol.binlog.batch_decoder import BatchDecoder
from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import TableMapEvent, UpdateRowsEvent, WriteRowsEvent
from protocol.binlog.known_tables import KnownTables
from protocol.constants import ColumnType, EventType
from protocol.errors import DecodeError
from protocol.records import replace
from protocol.rows.bounded_cache import BoundedCache
from protocol.rows.column import ABSENT
from protocol.rows.compiler import Image, RowCompiler, RowReader
from protocol.rows.row_interpreter import ImageSteps, count_rows
from protocol.rows.table import TableShape, parse_shape
from tests.support import binlog_encoder as encoder
from tests.support.raw_events import format_description, query, raw_event

WIDTH = 100


class CountingCompiler(RowCompiler):
    """Counts what it compiles."""

    count = 0

    def reader(self, *images: Image) -> RowReader:
        self.count += 1
        return super().reader(*images)


def started(compiler: RowCompiler | None = None, **options: int) -> EventDecoder:
    decoder = EventDecoder(row_compiler=compiler, **options)  # type: ignore[arg-type]
    decoder.decode(format_description("9.7.4", 0))
    return decoder


def table_map(table_id: int, types: bytes, name: bytes, optional: dict[int, bytes] | None = None) -> bytes:
    body = encoder.table_map(table_id, b"shop", name, types, b"", [True] * len(types), optional or {})
    return raw_event(EventType.TABLE_MAP, body)


def insert(table_id: int, values: list[bytes]) -> bytes:
    width = len(values)
    body = encoder.rows_event(
        EventType.WRITE_ROWS,
        table_id,
        width,
        [[True] * width],
        encoder.row_image([True] * width, list(values)),
    )
    return raw_event(EventType.WRITE_ROWS, body[:6] + b"\1\0" + body[8:])


def minimal_update(columns: set[int], number: int) -> bytes:
    """An update of some INT columns of a wide table, with the key in the before image."""
    before, after = [index == 0 for index in range(WIDTH)], [index in columns for index in range(WIDTH)]
    values: list[bytes | None] = [struct.pack("<i", number)] * WIDTH
    rows = encoder.row_image(before, values) + encoder.row_image(after, values)
    body = encoder.rows_event(EventType.UPDATE_ROWS, 7, WIDTH, [before, after], rows)
    return raw_event(EventType.UPDATE_ROWS, body[:6] + b"\1\0" + body[8:])


def decode_all(decoder: EventDecoder, events: Iterable[bytes]) -> int:
    """The bytes that stay in memory after decoding."""
    tracemalloc.start()
    try:
        for raw in events:
            decoder.decode(raw)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def varying_updates(count: int) -> Iterable[bytes]:
    rng = random.Random(5)
    types = bytes([ColumnType.LONG]) * WIDTH
    for number in range(count):
        yield table_map(7, types, b"wide")
        yield minimal_update(set(rng.sample(range(1, WIDTH), 10)), number)


def test_images_that_do_not_recur_are_not_compiled() -> None:
    """With MINIMAL images each combination of updated columns is another image."""
    compiler = CountingCompiler()
    few = decode_all(started(CountingCompiler()), varying_updates(200))
    many = decode_all(started(compiler), varying_updates(3000))
    assert compiler.count == 0
    print(f"{few} and {many} bytes")
    assert many < few + (2 << 20)


def test_images_that_recur_are_compiled() -> None:
    compiler = CountingCompiler()
    decoder = started(compiler)
    types = bytes([ColumnType.LONG]) * WIDTH
    for number in range(200):
        decoder.decode(table_map(7, types, b"wide"))
        event = decoder.decode(minimal_update({3, 5}, number))
        assert isinstance(event, UpdateRowsEvent)
        assert event.rows[0][1][2:6] == (ABSENT, number, ABSENT, number)
    assert compiler.count == 1


def test_tables_with_one_shape_share_what_is_parsed_and_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds over 5,000 tables: the names differ, nothing else."""
    parsed = []

    def counting(*arguments: object) -> TableShape:
        parsed.append(1)
        return parse_shape(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(known_tables, "parse_shape", counting)
    compiler = CountingCompiler()
    decoder = started(compiler)
    types = bytes([ColumnType.LONG]) * 8
    size = 0
    for _ in range(2):
        raws = [
            raw
            for number in range(5000)
            for raw in (table_map(number, types, b"table_%d" % number), insert(number, [b"abcd"] * 8))
        ]
        size = decode_all(decoder, raws)
    assert len(parsed) == 1
    assert compiler.count == 1
    print(f"{size} bytes more after the second round")
    assert size < 1 << 20


def test_rotating_tables_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """6,000 shapes in rotation; before, 4,096 emptied the cache."""
    parsed = []

    def counting(*arguments: object) -> TableShape:
        parsed.append(1)
        return parse_shape(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(known_tables, "parse_shape", counting)
    decoder = started()
    rng = random.Random(3)
    shapes = {
        bytes(rng.choices([ColumnType.TINY, ColumnType.SHORT, ColumnType.LONG], k=12)) for _ in range(6000)
    }
    maps = [table_map(1, types, b"t%d" % number) for number, types in enumerate(sorted(shapes))]
    for _ in range(3):
        for raw in maps:
            decoder.decode(raw)
    assert len(parsed) == len(shapes)


def labels(number: int) -> dict[int, bytes]:
    return {6: encoder.label_lists([[b"label %d of %d" % (index, number) for index in range(50)]])}


@pytest.mark.thorough
def test_label_sets_are_kept_within_a_limit() -> None:
    """20,000 tables with an ENUM each took 216 MB; here 6,000 and the limits of a tenth."""
    decoder = started()
    readers, known = decoder._row_readers, decoder._known_tables
    for cache in (known.tables, known._shapes, known._columns, readers._cells._cells, readers._layouts):
        cache.limit //= 20
    enum = encoder.table_map

    def events() -> Iterable[bytes]:
        for number in range(6000):
            body = enum(
                7,
                b"shop",
                b"t%d" % number,
                bytes([ColumnType.STRING]),
                bytes([ColumnType.ENUM, 1]),
                [True],
                labels(number),
            )
            yield raw_event(EventType.TABLE_MAP, body)
            yield insert(7, [b"\1"])

    size = decode_all(decoder, events())
    print(f"{size} bytes")
    assert size < 16 << 20


def test_tables_of_a_statement_without_an_end() -> None:
    """The limit of an event holds for the tables that one statement names, as they take as much memory."""
    decoder = started(max_event_bytes=1 << 20)
    types = bytes([ColumnType.LONG])

    def run() -> None:
        for number in range(100_000):
            decoder.decode(table_map(number, types, b"t%d" % number))

    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="max_event_bytes"):
            run()
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_table_ids_of_one_table_without_the_end_of_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protocol.binlog.decoder.MAX_STATEMENT_TABLES", 100)
    decoder = started()
    types = bytes([ColumnType.LONG])
    for number in range(100):
        decoder.decode(table_map(number, types, b"t"))
    with pytest.raises(DecodeError, match="101 table maps came without the end of a statement"):
        decoder.decode(table_map(100, types, b"t"))


def test_tables_with_other_ids_though_no_statement_is_between() -> None:
    """A hundred of them at most; and none whose names the log has, or that a statement may have changed."""
    decoder, types = started(), bytes([ColumnType.LONG])
    names = [b"t%d" % number for number in range(200)]

    def opened(first: int) -> list[str]:
        for number, name in enumerate(names, first):
            event = decoder.decode(table_map(number, types, name))
            assert isinstance(event, TableMapEvent)
            if event.table.names_from is None:
                decoder.name_table(number, replace(event.table, names_from="history"))
            decoder.decode(insert(number, [b"abcd"]))
        found = [str(table) for table, *_ in decoder.renumbered]
        decoder.renumbered.clear()
        return found

    assert opened(1) == opened(1) == []
    assert opened(1000) == [f"shop.t{number}" for number in range(100)]
    decoder.decode(query("FLUSH TABLES"))
    assert opened(2000) == []


def test_few_columns_of_wide_rows() -> None:
    """Two bytes of a row make a tuple of 4,096 items: 100 KB of rows would take 1.6 GB."""
    width = 4096
    decoder = started(max_event_bytes=1 << 20)
    decoder.decode(table_map(7, bytes([ColumnType.TINY]) * width, b"wide"))
    present = [index == 0 for index in range(width)]
    body = encoder.rows_event(EventType.WRITE_ROWS, 7, width, [present], b"\0\1" * 50_000)
    raw = raw_event(EventType.WRITE_ROWS, body)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="more than 127 rows of 4096 columns take more than 4 times"):
            decoder.decode(raw)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_rows_are_counted_up_to_their_limit() -> None:
    """All rows of a gigabyte were: that took minutes."""
    images = [ImageSteps(1, [])]
    assert count_rows(images, bytes(1000), 0, 1000, 5) == 5
    assert count_rows(images, bytes(1000), 0, 1000, 5000) == 1000


def test_wide_tables_are_not_compiled_where_that_takes_too_much() -> None:
    """Compiling takes some 100 KB a column at its peak."""
    compiler = CountingCompiler()
    width = 200
    for limit, count in ((1 << 20, 0), (64 << 20, 1)):
        decoder = started(compiler, max_event_bytes=limit)
        decoder.decode(table_map(7, bytes([ColumnType.TINY]) * width, b"wide"))
        rows = encoder.row_image([True] * width, [b"\1"] * width) * 600
        body = encoder.rows_event(EventType.WRITE_ROWS, 7, width, [[True] * width], rows)
        decoder.decode(raw_event(EventType.WRITE_ROWS, body))
        assert compiler.count == count


# The cache


def test_the_oldest_entries_make_room() -> None:
    gone: list[tuple[str, int]] = []
    cache: BoundedCache[str, int] = BoundedCache(3 * 300, lambda key, value: gone.append((key, value)))
    for number, key in enumerate("abcd"):
        cache.keep(key, number, 50)
    assert dict(cache.items()) == {"b": 1, "c": 2, "d": 3}
    assert gone == [("a", 0)]
    cache.keep("b", 7, 50)
    cache.keep("e", 8, 350)
    assert dict(cache.items()) == {"b": 7, "e": 8}
    cache.keep("large", 9, 5000)
    assert dict(cache.items()) == {"large": 9}
    cache.drop("none")
    cache.clear()
    assert not cache
    assert cache.total == 0


def test_a_forgotten_shape_takes_its_tables_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_tables, "_SHAPES_BYTES", 4000)
    decoder = started()
    assert isinstance(decoder._known_tables, KnownTables)
    for number in range(50):
        types = bytes([ColumnType.LONG]) * (number + 1)
        decoder.decode(table_map(number, types, b"t"))
        assert len(decoder._known) <= len(decoder._known_tables._shapes)
    assert len(decoder._known) < 5


def test_a_decoder_says_that_documents_have_come() -> None:
    """Streams then decode shorter runs: documents are many objects."""
    decoder = BatchDecoder()
    decoder.decode(format_description("9.7.4", 0))
    for kind, metadata, value, expected in (
        (ColumnType.LONG, b"", b"\1\0\0\0", False),
        (ColumnType.JSON, b"\4", b"\2\0\0\0\4\1", True),
    ):
        body = encoder.table_map(7, b"shop", b"t", bytes([kind]), metadata, [True], {})
        decoder.decode(raw_event(EventType.TABLE_MAP, body))
        event = decoder.decode(insert(7, [value]))
        assert isinstance(event, WriteRowsEvent)
        assert event.rows == [(1,)]
        assert decoder.has_documents is expected
