"""Sources that say of their tables what cannot be: a table is ``Unknown`` then, or the answer an error of the tree.

Shapes are made when a table is first looked at: a ValueError there came out of the stream.
"""

from __future__ import annotations

import json
import random
import tracemalloc
import zlib
from collections.abc import Callable
from typing import cast

import pytest

from protocol.binlog.decoder import EventDecoder
from protocol.constants import ColumnType, EventType
from protocol.conversation.messages import TextValue
from protocol.conversation.results import encode_row
from protocol.errors import ConfigurationError, DecodeError, ProtocolError, ReplicaError, SchemaMismatchError
from protocol.position import BinlogPosition
from protocol.rows.column import Column
from protocol.rows.description import ColumnDescription, describe_table
from protocol.rows.table import Table
from replica.schemas.baseline import Row, baseline, described_shape, packed_baseline
from replica.schemas.catalog import Catalog, Statement, Unknown
from replica.schemas.proof import first_difference, with_shape
from replica.schemas.shape import Shape
from replica.schemas.timeline import SchemaHistory
from replica.source.column_lookup import _hidden_columns
from replica.sql.token_reader import TableName
from tests.support.raw_events import format_description, int_table_map, raw_event
from tests.support.shape_text import MYSQL, catalog_of

HOSTILE: list[str | None] = [
    None, "", "x", "0", "-1", "9" * 5000, "((((", "varchar(,)", "decimal( )", "decimal(5)", "decimal(5,2,1)",
    "enum('", "set()", "varchar", "varchar(999999999)", "bit(,)", "vector", "time(,)", "int(²)", "decimal(٣,٤)",
    "\udcff", "PRI", "HASH", "FULLTEXT", "utf8mb4", "nothing", "point", "ROW START", "ROW END", "STORED GENERATED",
    "SYSTEM VERSIONED", "VIEW", "PRIMARY", "n" * 300, "a", "c1", "char", "enum", "set", "decimal", "bit", "datetime",
]  # fmt: skip
TYPES = [
    "int",
    "varchar(5)",
    "decimal(5,2)",
    "enum('a','b')",
    "blob",
    "point",
    "datetime(3)",
    "bit(5)",
    "vector(3)",
]


def hostile(rng: random.Random, *values: str | None) -> list[str | None]:
    return [rng.choice(HOSTILE) if rng.random() < 0.2 else value for value in values]


def payloads(rows: list[list[str | None]], rng: random.Random) -> list[bytes]:
    encoded = [encode_row(cast("tuple[TextValue, ...]", tuple(row))) for row in rows]
    if rng.random() < 0.2:
        number = rng.randrange(len(encoded))
        row = bytearray(encoded[number])
        row[rng.randrange(len(row))] = rng.randrange(256)
        encoded[number] = bytes(row[: rng.randrange(1, len(row) + 1)])
    return encoded


def logged(rng: random.Random, count: int) -> Table:
    kinds = [ColumnType.LONG, ColumnType.VARCHAR, ColumnType.NEWDECIMAL, ColumnType.ENUM, ColumnType.BIT]
    columns = [Column(f"@{number}", rng.choice(kinds), 5, True) for number in range(1, count + 1)]
    return Table("shop", "t", tuple(columns))


def test_random_answers(seed: int) -> None:
    for number in range(2000):
        rng = random.Random(f"{seed}/{number}")
        types = [rng.choice(TYPES) for _ in range(3)]
        schemas = [hostile(rng, "shop", "utf8mb4")]
        tables = [hostile(rng, "shop", "t", "BASE TABLE", "InnoDB", "utf8mb4_bin")]
        columns = [
            hostile(
                rng,
                "shop",
                "t",
                str(at),
                f"c{at}",
                kind.partition("(")[0],
                kind,
                "YES",
                "utf8mb4",
                "",
                "",
                "",
            )
            for at, kind in enumerate(types, 1)
        ]
        keys = [
            hostile(rng, "shop", "t", rng.choice(["PRIMARY", "u"]), str(at), f"c{at}", "5", "0", "BTREE")
            for at in (1, 2)
        ]
        reads: list[Callable[[], Catalog]] = [
            lambda: packed_baseline(schemas, tables, payloads(columns, rng), payloads(keys, rng)),  # noqa: B023
            lambda: baseline(schemas, tables, columns, keys),  # noqa: B023
        ]
        for read in reads:
            try:
                catalog = read()
            except ReplicaError:
                continue
            for shape in map(catalog.get, catalog.tables):
                if (
                    isinstance(shape, Shape)
                    and first_difference(shape, table := logged(rng, len(shape.columns))) is None
                ):
                    with_shape(table, shape)


COLUMN: Row = ("shop", "t", "1", "a", "varchar", "varchar(5)", "YES", "utf8mb4", "", "", "")
TABLE: Row = ("shop", "t", "BASE TABLE", "InnoDB", "utf8mb4_bin")


def changed(row: Row, place: int, value: str) -> Row:
    return (*row[:place], value, *row[place + 1 :])


@pytest.mark.parametrize(
    "kind", ["varchar(,)", "varchar", "varchar(1,2)", "varchar(99999999999)", "varchar(²)"]
)
def test_types_without_their_numbers(kind: str) -> None:
    catalog = baseline((), [TABLE], [changed(COLUMN, 5, kind)], ())
    assert isinstance(catalog.get(TableName("shop", "t")), Unknown)
    with pytest.raises(ConfigurationError, match="column a has the type"):
        described_shape([ColumnDescription("a", "varchar", kind)])


def test_two_columns_of_one_name() -> None:
    """A change had one of their values: its images are dictionaries."""
    again = changed(COLUMN, 2, "2")
    shape = baseline((), [TABLE], [COLUMN, again], ()).get(TableName("shop", "t"))
    assert isinstance(shape, Unknown)
    assert "two columns have the name 'a'" in shape.reason
    twice = [ColumnDescription("a", "varchar", "varchar(5)")] * 2
    with pytest.raises(ConfigurationError, match="two columns have the name 'a'"):
        described_shape(twice)
    with pytest.raises(SchemaMismatchError, match="two columns of the name 'a'"):
        describe_table(logged(random.Random(1), 2), twice)
    event = int_table_map(columns=2)[19:] + b"\x04\x04\x01a\x01a"
    decoder = EventDecoder()
    decoder.decode(format_description(algorithm=0))
    with pytest.raises(DecodeError, match="two columns of the name 'a'"):
        decoder.decode(raw_event(EventType.TABLE_MAP, event))


def test_rows_of_another_form() -> None:
    for columns in ([changed(COLUMN, 2, "first")], [COLUMN[:1]]):
        with pytest.raises(ProtocolError, match="rows that are no tables"):
            baseline((), [TABLE], columns, ())
    for payload in (b"\xfb", b"\4shop", b"\xfc"):
        with pytest.raises(ProtocolError, match="rows that are no tables"):
            packed_baseline((), [TABLE], [payload], ())
    with pytest.raises(ProtocolError, match="rows that are no tables"):
        packed_baseline((), [changed(TABLE, 1, "t" * 300)], (), ())


@pytest.mark.parametrize("kind", ["decimal(,)", "decimal( )", "decimal(9,,)", f"decimal({'9' * 5000})"])
def test_a_description_without_numbers_says_nothing(kind: str) -> None:
    table = Table("shop", "t", (Column("@1", ColumnType.NEWDECIMAL, 5 << 8 | 2, True),))
    assert describe_table(table, [ColumnDescription("a", "decimal", kind)]).column_names == ("a",)
    with pytest.raises(SchemaMismatchError):
        describe_table(table, [ColumnDescription("a", "decimal", "decimal(9,9)")])


def test_a_number_of_hidden_columns_that_there_are_not() -> None:
    """A description was made for each: a number of nine digits took all memory."""
    tracemalloc.start()
    try:
        assert _hidden_columns(3, is_versioned=False, hashes=10**9) == []
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert [column.name for column in _hidden_columns(1, is_versioned=False, hashes=1)] == ["DB_ROW_HASH_1"]


# Histories: a source that says that it serves a relay's files is asked for theirs.


def lines_of(rows: list[object]) -> list[str]:
    checksum, lines = 0, []
    for text in map(json.dumps, rows):
        checksum = zlib.crc32(text.encode(), checksum)
        lines.append(f"{text} {checksum:08x}")
    return lines


def history() -> list[object]:
    catalog = catalog_of(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(5), b DECIMAL(5,2), c ENUM('x'), UNIQUE u (a(2), b))"
    )
    made = SchemaHistory("uuid", BinlogPosition("binlog.000001", 4), catalog)
    return [json.loads(line.rpartition(" ")[0]) for line in made.to_lines()]


def test_a_nested_line() -> None:
    text = "[" * 100_000
    with pytest.raises(ConfigurationError, match="not a schema history"):
        SchemaHistory.from_lines([f"{text} {zlib.crc32(text.encode()):08x}"])


def lie(value: object, rng: random.Random) -> object:
    """The same with one thing in it changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        return value | {key: lie(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        return [*value[:place], lie(value[place], rng), *value[place + 1 :]]
    return rng.choice(
        [None, 0, -1, 10**12, 1.5, True, "", "x", "varchar", "decimal", [], [[]], {}, ["x"], [0], [1, 2]]
    )


def test_random_histories(seed: int) -> None:
    """Values of other kinds got into shapes, and what compared them later raised an AttributeError."""
    good = history()
    assert SchemaHistory.from_lines(lines_of(good))
    for number in range(4000):
        rng = random.Random(f"{seed}/{number}")
        rows = list(good)
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(rows))
            rows[place] = lie(rows[place], rng)
        try:
            made = SchemaHistory.from_lines(lines_of(rows))
        except ConfigurationError:
            continue
        _use(made, rng)


def _use(made: SchemaHistory, rng: random.Random) -> None:
    for name, timeline in made.tables.items():
        shape = timeline.last
        if isinstance(shape, Shape):
            repr((name, shape.primary_key))
            first_difference(shape, logged(rng, len(shape.columns)))
    made.apply(Statement("ALTER TABLE t ADD d INT, ADD UNIQUE (a, d)", "shop", MYSQL), made.head)
