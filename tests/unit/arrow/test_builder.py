"""The batch builder: columns of a row, ends of batches, partial row images, damaged rows, chosen columns."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from protocol.constants import ColumnType
from protocol.errors import ConfigurationError, DecodeError, TruncatedError, UnsupportedEventError
from protocol.rows.table import Table
from replica.arrow import METADATA_COLUMNS, BatchBuilder, arrays, batch_schema
from tests.support.arrow_tables import NUMBER, TEXT, TableRows, column, number, short

OAK, ASH, ELM = short(b"oak"), short(b"ash"), short(b"elm")


def rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return list(zip(*(values.to_pylist() for values in batch.columns), strict=True))


def changes(**options: Any) -> TableRows:
    """Two inserts, one update, one delete, one more update."""
    rows = TableRows([NUMBER, TEXT], **options)
    rows.add("insert", [[number(1), OAK], [number(2), None]])
    rows.add("update", [[number(1), OAK, number(1), ASH]])
    rows.add("delete", [[number(2), None]])
    rows.add("update", [[number(1), ASH, number(-1), ELM]])
    return rows


# What is in a row


def test_a_row_for_each_row_change() -> None:
    batch = changes().batch(metadata=["_op"])
    assert batch.schema.names == ["number", "text", "_op"]
    assert rows_of(batch) == [
        (1, "oak", "insert"),
        (2, None, "insert"),
        (1, "ash", "update"),
        (2, None, "delete"),
        (-1, "elm", "update"),
    ]


def test_metadata() -> None:
    rows = changes()
    builder = BatchBuilder(rows.table, columns=[])
    for event, gtid in zip(rows.events, ["a:1", None, None, "a:2"], strict=True):
        assert not builder.append(event, gtid)
    [batch] = builder.flush()
    assert batch.schema.names == list(METADATA_COLUMNS)
    file = "binlog.000007"
    moments = [datetime.fromtimestamp(1_700_000_000 + event, UTC) for event in range(4)]
    assert rows_of(batch) == [
        ("insert", moments[0], "a:1", file, 0, 0, None),
        ("insert", moments[0], "a:1", file, 0, 1, None),
        ("update", moments[1], None, file, 100, 0, None),
        ("delete", moments[2], None, file, 200, 0, None),
        ("update", moments[3], "a:2", file, 300, 0, None),
    ]
    assert not list(builder.flush())


def test_both_images() -> None:
    batch = changes().batch(metadata=[], images="both")
    before = [{"number": 1, "text": "oak"}, {"number": 1, "text": "ash"}]
    assert rows_of(batch) == [
        (1, "oak", None, None),
        (2, None, None, None),
        (1, "ash", before[0], None),
        (2, None, None, None),
        (-1, "elm", before[1], None),
    ]
    inserts = TableRows([NUMBER])
    inserts.add("insert", [[number(1)]])
    assert rows_of(inserts.batch(metadata=[], images="both")) == [(1, None, None)]


def test_choosing_columns() -> None:
    rows = changes()
    batch = rows.batch(columns=["text"], metadata=["_row", "_op"], images="both")
    # In the order of the table and of METADATA_COLUMNS.
    assert batch.schema.names == ["text", "_op", "_row", "_before", "_before_absent"]
    assert batch.schema.field("_before").type == pa.struct([pa.field("text", pa.string())])
    assert batch.schema == rows.builder(columns=["text"], metadata=["_op", "_row"], images="both").schema
    assert rows_of(rows.batch(columns=["text"], metadata=[])) == [
        ("oak",),
        (None,),
        ("ash",),
        (None,),
        ("elm",),
    ]


def test_columns_that_the_decoder_left_out_already() -> None:
    """The layout has the decoder's choice of columns, by their indexes in the logged table."""
    rows = TableRows([NUMBER, TEXT])
    event = rows.add("insert", [[number(1), OAK]])
    raw = event.rows[0]  # type: ignore[attr-defined]
    event.rows = [replace(raw, layout=replace(raw.layout, shown=(1,)))]  # type: ignore[attr-defined]
    builder = BatchBuilder(Table("s", "t", (TEXT,)), metadata=[])
    builder.append(event)
    assert [rows_of(batch) for batch in builder.flush()] == [[("oak",)]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["text", "size", "age"]}, "columns: s.t has no column age, size"),
        ({"metadata": ["_op", "_time"]}, "metadata: unknown column _time; there are _op, _ts"),
        ({"images": "before"}, "images: must be 'after' or 'both', not 'before'"),
        ({"batch_rows": 0}, "batch_rows: must be at least 1, not 0"),
    ],
)
def test_choices_that_there_are_not(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        BatchBuilder(Table("s", "t", (NUMBER, TEXT)), **options)


def test_a_table_with_a_column_called_as_one_of_ours() -> None:
    table = Table("s", "t", (column("_op", ColumnType.LONG), column("_before", ColumnType.LONG)))
    with pytest.raises(ConfigurationError, match="the table has a column called _op"):
        batch_schema(table)
    with pytest.raises(ConfigurationError, match="_before"):
        batch_schema(table, metadata=["_ts"], images="both")
    assert batch_schema(table, metadata=["_ts"]).names == ["_op", "_before", "_ts"]


def test_names_are_unicode_and_hidden_indexes_are_left_out() -> None:
    columns = (column("g\udcffne", ColumnType.LONG), column("!hidden", ColumnType.TYPED_ARRAY, 3))
    assert batch_schema(Table("s", "t", columns), metadata=[]).names == ["g\ufffdne"]


# Images that leave columns out


def test_minimal_images() -> None:
    """A column that only the after image lacks has not changed; a column that no image holds is absent."""
    rows = TableRows([NUMBER, TEXT, column("age", ColumnType.TINY)])
    only_number, only_text = [True, False, False], [False, True, False]
    rows.add("update", [[number(7), None, None, None, OAK, None]], images=[only_number, only_text])
    rows.add("delete", [[number(8), None, None]], images=[only_number])
    rows.add("insert", [[number(9), None, b"\5"]], images=[[True, True, True]])
    rows.add("insert", [[None, ASH, None]], images=[only_text])
    batch = rows.batch(metadata=["_op", "_absent"])
    assert rows_of(batch) == [
        (7, "oak", None, "update", ["age"]),
        (8, None, None, "delete", ["text", "age"]),
        (9, None, 5, "insert", None),
        (None, "ash", None, "insert", ["number", "age"]),
    ]
    before = rows.batch(metadata=[], columns=["number", "text"], images="both")
    assert before.column("_before").to_pylist() == [{"number": 7, "text": None}, None, None, None]
    assert before.column("_before_absent").to_pylist() == [["text"], ["text"], None, ["number"]]


def test_images_without_any_column() -> None:
    rows = TableRows([NUMBER])
    rows.add_bytes("insert", b"", images=[[False]])
    rows.add_bytes("insert", b"", images=[[False]])
    assert rows_of(rows.batch(metadata=["_row", "_absent"])) == [(None, 0, ["number"])] * 2
    rows.add_bytes("insert", b"xy", images=[[False]])
    with pytest.raises(DecodeError, match="2 bytes are left"):
        list(rows.builder().flush())


DOCUMENT = column("document", ColumnType.JSON, 4)


def long(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


# {"aa": 1, "b": 2}, as the server sorts its members; in it $.aa becomes -1, and $.c new.
BEFORE = bytes.fromhex("00 0200 1500 1200 0100 1300 0200 05 0200 05 0100 62 6161")
DIFF = b"\0\4$.aa\3\x05\xff\xff" + b"\1\3$.c\3\x05\3\0"


def test_partial_updates_of_documents() -> None:
    rows = TableRows([NUMBER, DOCUMENT])
    images = [[True, True], [False, True]]
    head = b"\0" + number(1) + long(BEFORE)
    # Value options with or without diff bits, then the NULL bits.
    rows.add_bytes("update", head + b"\1\1" + b"\0" + long(DIFF), images=images, diffs=(1,))
    rows.add_bytes("update", head + b"\1\0" + b"\0" + long(b"\x04\x01"), images=images, diffs=(1,))
    rows.add_bytes("update", head + b"\0" + b"\0" + long(b"\x04\x02"), images=images, diffs=(1,))
    rows.add_bytes("update", head + b"\1\1" + b"\1", images=images, diffs=(1,))
    rows.add("insert", [[number(2), long(BEFORE)]])
    batch = rows.batch(metadata=[], images="both")
    assert batch.column("document").to_pylist() == [
        '{"b": 2, "c": 3, "aa": -1}',
        "true",
        "false",
        None,
        '{"b": 2, "aa": 1}',
    ]
    before = {"number": 1, "document": '{"b": 2, "aa": 1}'}
    assert batch.column("_before").to_pylist() == [*[before] * 4, None]


def test_a_partial_update_without_the_document_before() -> None:
    rows = TableRows([NUMBER, DOCUMENT])
    images = [[True, False], [False, True]]
    rows.add_bytes("update", b"\0" + number(1) + b"\1\1\0" + long(DIFF), images=images, diffs=(1,))
    with pytest.raises(UnsupportedEventError, match="columns="):
        list(rows.builder().flush())
    assert rows_of(rows.batch(columns=["number"], metadata=[])) == [(1,)]
    # Also among rows of another layout.
    rows.add("insert", [[number(2), long(BEFORE)]])
    builder = rows.builder(metadata=[])
    with pytest.raises(UnsupportedEventError, match="columns="):
        list(builder.flush())
    assert [rows_of(batch) for batch in builder.flush()] == [[(2, '{"b": 2, "aa": 1}')]]


# Where batches end


def many_rows(events: int, rows_per_event: int) -> TableRows:
    rows = TableRows([NUMBER, TEXT])
    for event in range(events):
        first = event * rows_per_event
        rows.add("insert", [[number(first + row), OAK] for row in range(rows_per_event)])
    return rows


def test_batches_have_about_so_many_rows() -> None:
    builder = BatchBuilder(many_rows(1, 1).table, batch_rows=1000)
    sizes, values = [], []
    for event in many_rows(500, 50).events:
        if builder.append(event):
            for batch in builder.flush():
                sizes.append(batch.num_rows)
                values += batch.column("number").to_pylist()
    for batch in builder.flush():
        sizes.append(batch.num_rows)
        values += batch.column("number").to_pylist()
    assert values == list(range(25_000))
    # Before the first batch the size of a row is a guess.
    assert all(500 <= size <= 1500 for size in sizes[1:-1]), sizes


def test_an_event_that_is_many_batches() -> None:
    rows = many_rows(1, 1000)
    batches = list(rows.builder(batch_rows=300).flush())
    assert [batch.num_rows for batch in batches] == [333, 333, 334]
    assert [value for batch in batches for value in batch.column(0).to_pylist()] == list(range(1000))
    assert [batch.column("_row")[0].as_py() for batch in batches] == [0, 333, 666]


def test_batches_of_bounded_bytes() -> None:
    rows = TableRows([column("c", ColumnType.BLOB, 2, charset="binary")])
    for _ in range(20):
        rows.add("insert", [[(60_000).to_bytes(2, "little") + bytes(60_000)]])
    builder = BatchBuilder(rows.table, batch_bytes=250_000)
    due = [builder.append(event) for event in rows.events[:5]]
    assert due == [False, False, False, False, True]
    assert sum(batch.num_rows for batch in builder.flush()) == 5
    assert not builder.append(rows.events[0])


def test_more_than_an_array_can_hold_is_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MAX_BYTES", 400)
    rows = many_rows(7, 25)
    batches = list(rows.builder().flush())
    assert [value for batch in batches for value in batch.column(0).to_pylist()] == list(range(175))
    assert len(batches) > 1
    one_event = many_rows(1, 200)
    with pytest.raises(UnsupportedEventError, match="2 GiB") as raised:
        list(one_event.builder().flush())
    assert raised.value.position == 0


def test_events_without_rows() -> None:
    rows = TableRows([NUMBER])
    rows.add("insert", [])
    assert list(rows.builder().flush()) == []
    rows.add("insert", [[number(1)]])
    rows.add("insert", [])
    assert rows_of(rows.batch(metadata=["_pos"])) == [(1, 100)]


def test_which_tables_fit() -> None:
    builder = BatchBuilder(Table("s", "t", (NUMBER, TEXT)))
    assert builder.fits(builder.table)
    assert builder.fits(Table("s", "t", (NUMBER, replace(TEXT)), names_from="log"))
    for table in (
        Table("s", "u", (NUMBER, TEXT)),
        Table("s", "t", (TEXT, NUMBER)),
        Table("s", "t", (NUMBER,)),
    ):
        assert not builder.fits(table)


# Damage


def test_damage_comes_behind_what_is_before_it_and_is_left_out_then() -> None:
    for bad in range(9):
        rows = TableRows([NUMBER, TEXT])
        for event in range(9):
            data = b"\0" + number(event) + (b"\x09oak" if event == bad else OAK)
            rows.add_bytes("insert", data, images=[[True, True]])
        builder = rows.builder(metadata=[])
        found: list[Any] = []
        with pytest.raises(TruncatedError) as raised:
            found.extend(builder.flush())
        error = raised.value
        assert (error.file, error.position, error.event_type) == ("binlog.000007", 100 * bad, 30)
        assert builder.failed_bytes == 49
        found += builder.flush()
        values = [row for batch in found for row in rows_of(batch)]
        assert values == [(event, "oak") for event in range(9) if event != bad]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0" + number(1) + b"\x03oa", "needs 1 bytes more"),
        (b"\0" + number(1) + OAK + b"\0" + number(1), "inside|more"),
        (b"\0" + number(1)[:3], "inside|more"),
        (b"\0" + number(1) + OAK + b"\0", "inside|more"),
    ],
)
@pytest.mark.parametrize("events", [1, 30])
def test_rows_that_do_not_end_where_their_event_does(data: bytes, message: str, events: int) -> None:
    rows = TableRows([NUMBER, TEXT])
    for _ in range(events):
        rows.add("insert", [[number(1), OAK]] * 2)
    rows.add_bytes("insert", data, images=[[True, True]])
    builder = rows.builder()
    batches: list[pa.RecordBatch] = []
    with pytest.raises(TruncatedError, match=message) as raised:
        batches.extend(builder.flush())
    assert raised.value.position == 100 * events
    assert sum(batch.num_rows for batch in batches) == 2 * events


def test_bytes_behind_the_rows() -> None:
    rows = TableRows([NUMBER])
    rows.add_bytes("insert", (b"\0" + number(1)) * 3 + b"\0", images=[[True]])
    with pytest.raises(DecodeError):
        list(rows.builder().flush())


def test_losses_are_those_of_the_batches() -> None:
    rows = TableRows([column("c", ColumnType.DATE), TEXT])
    rows.add("insert", [[bytes(3), short(b"\xff")]] * 3)
    rows.add_bytes("insert", b"\0\0", images=[[True, True]])
    rows.add("insert", [[None, None], [bytes(3), None]])
    builder = rows.builder()
    with pytest.raises(TruncatedError):
        list(builder.flush())
    assert (builder.losses.dates, builder.losses.texts) == (3, 3)
    assert len(list(builder.flush())) == 1
    assert (builder.losses.dates, builder.losses.texts) == (4, 3)


def test_any_order_of_layouts() -> None:
    """The rows of all layouts end up in the order of the log."""
    rng = random.Random(1)
    rows = TableRows([NUMBER, TEXT])
    expected = []
    for event in range(200):
        images = rng.choice([[True, True], [True, False]])
        count = rng.randint(0, 3)
        rows.add("insert", [[number(event), short(b"%d" % event)]] * count, images=[images])
        expected += [(event, str(event) if images[1] else None)] * count
    assert rows_of(rows.batch(metadata=[])) == expected
