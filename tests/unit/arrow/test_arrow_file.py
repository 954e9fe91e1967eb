"""`BinlogFile.arrow`: the batches of a file equal its row tuples, with all options of `open_binlog`."""

from __future__ import annotations

import builtins
import io
import logging
import struct
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from protocol.binlog.events import DeleteRowsEvent, RowsEvent, WriteRowsEvent
from protocol.constants import EventType
from protocol.errors import (
    ChecksumError,
    ConfigurationError,
    DecodeError,
    MissingExtraError,
    ReplicaError,
    SchemaMismatchError,
    TruncatedError,
    UnsupportedEventError,
)
from protocol.gtid import GtidSet
from protocol.rows.description import ColumnDescription
from replica.arrow import BatchReader
from replica.files.binlog_file import open_binlog
from tests.support.arrow_rows import differences, has_lone_diffs, row_changes, text_cells
from tests.support.log_builder import SOURCE_ID, LogBuilder, numbered_log
from tests.support.places import CORPUS, corpus_index
from tests.support.raw_events import int_rows, int_table_map


def values_of(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def read(log: LogBuilder | bytes, table: str = "s.t", **options: Any) -> list[int]:
    data = log if isinstance(log, bytes) else bytes(log.data)
    return values_of(open_binlog(io.BytesIO(data), **options).arrow(table))


def compare(source: Any, *, both: bool = True, **options: Any) -> int:
    """All tables of a log; the number of rows. JSON diffs to documents that are not logged are refused."""
    with open_binlog(source, **options, cells=text_cells()) as log:
        changes = list(row_changes(log))
    tables = {str(change[3].table): change[3].table for change in changes}
    for name in tables:
        expected = [change for change in changes if str(change[3].table) == name]
        with open_binlog(source, **options) as log:
            reader = log.arrow(name, images="both" if both else "after", batch_rows=500)
            if any(map(has_lone_diffs, expected)):
                with pytest.raises(UnsupportedEventError, match="JSON diff"):
                    list(reader)
                continue
            batches = []
            for batch in reader:
                batch.validate(full=True)
                assert batch.schema == reader.schema
                batches.append(batch)
        assert not differences(batches, expected, both=both), name
    return len(changes)


# What is in the batches


def test_rows_with_their_transactions() -> None:
    log = numbered_log(3)
    log.transaction([4, 5])
    with open_binlog(io.BytesIO(log.data)) as file:
        reader = file.arrow("s.t")
        assert reader.schema is None
        [batch] = reader
        assert reader.schema == batch.schema
        assert list(reader) == []
    assert batch.column("@1").to_pylist() == [1, 2, 3, 4, 5]
    assert batch.column("_gtid").to_pylist() == [
        *(f"{SOURCE_ID}:{number}" for number in (1, 2, 3)),
        None,
        None,
    ]
    assert batch.column("_pos").to_pylist() == [log.offsets[index] for index in (4, 9, 14, 18, 18)]
    assert batch.column("_row").to_pylist() == [0, 0, 0, 0, 1]
    assert set(batch.column("_file").to_pylist()) == {"-"}


@pytest.mark.skipif(not corpus_index(), reason="the corpus is not there")
@pytest.mark.thorough
def test_files_of_real_servers() -> None:
    """Every log of the corpus: both families, every type, all images, compressed rows and transactions."""
    rows = read_whole = 0
    for record in corpus_index():
        path = CORPUS / record["file"]
        try:
            with open_binlog(path) as log:
                list(log)
        except ReplicaError:
            # Damaged, encrypted or too old: other tests cover these.
            continue
        rows += compare(path)
        read_whole += 1
    assert rows > 1000
    assert read_whole > 10


def test_compressed_transactions() -> None:
    log = LogBuilder()
    log.compressed_transaction([1, 2], sequence=1)
    log.transaction([3], sequence=2)
    assert read(log) == [1, 2, 3]
    [batch] = open_binlog(io.BytesIO(log.data)).arrow("s.t")
    assert batch.column("_gtid").to_pylist() == [f"{SOURCE_ID}:1"] * 2 + [f"{SOURCE_ID}:2"]
    # Events in a compressed transaction have the position of the TRANSACTION_PAYLOAD event.
    assert batch.column("_pos").to_pylist() == [log.offsets[2]] * 2 + [log.offsets[6]]


def test_compressed_rows() -> None:
    log = LogBuilder(version="11.8.6-MariaDB-log")
    log.add(EventType.TABLE_MAP, int_table_map()[19:])
    rows = b"".join(b"\0" + struct.pack("<i", value) for value in range(500))
    packed = b"\x82" + len(rows).to_bytes(2, "big") + zlib.compress(rows)
    head = (7).to_bytes(6, "little") + struct.pack("<H", 1) + b"\1\xff"
    log.add(EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1, head + packed)
    assert read(log) == list(range(500))


def test_the_transaction_without_a_gtid_behind_one_that_has_one() -> None:
    log = LogBuilder()
    log.transaction([1], sequence=7)
    log.statement("SAVEPOINT x")
    log.transaction([2])
    log.transaction([3], sequence=8)
    [batch] = open_binlog(io.BytesIO(log.data)).arrow("s.t", metadata=["_gtid"])
    assert batch.column("_gtid").to_pylist() == [f"{SOURCE_ID}:7", None, f"{SOURCE_ID}:8"]


def test_statements_inside_of_a_transaction_leave_its_gtid() -> None:
    log = LogBuilder()
    log.add(EventType.GTID, b"\1" + SOURCE_ID.bytes + struct.pack("<q", 5))
    for sql in ("BEGIN", "SAVEPOINT x", "INSERT INTO other VALUES (1)"):
        log.statement(sql)
    log.add(EventType.TABLE_MAP, int_table_map()[19:])
    log.add(EventType.WRITE_ROWS, int_rows([1])[19:])
    [batch] = open_binlog(io.BytesIO(log.data)).arrow("s.t", metadata=["_gtid"])
    assert batch.column("_gtid").to_pylist() == [f"{SOURCE_ID}:5"]


# Which rows


def test_one_table_of_several() -> None:
    log = LogBuilder()
    for number in range(9):
        log.transaction([number], name="orders" if number % 3 else "items")
    assert read(log, "s.orders") == [1, 2, 4, 5, 7, 8]
    assert read(log, "s.items") == [0, 3, 6]
    assert read(log, "s.o*") == []
    assert read(log, "s.orders", tables="s.*") == [1, 2, 4, 5, 7, 8]
    assert read(log, "s.orders", exclude_tables="s.o*") == []


def test_where_to_begin_and_end(tmp_path: Path) -> None:
    log = numbered_log(5)
    assert read(log, start=log.offsets[6]) == [2, 3, 4, 5]
    assert read(log, stop=log.offsets[11]) == [1, 2]
    assert read(log, start=GtidSet(f"{SOURCE_ID}:1-3")) == [4, 5]
    paths = [tmp_path / f"bin.{number:06}" for number in (1, 2)]
    paths[0].write_bytes(bytes(log.data))
    paths[1].write_bytes(bytes(numbered_log(2, first=6).data))
    with open_binlog(tmp_path / "bin.[0-9]*") as logs:
        [batch] = logs.arrow("s.t")
    assert values_of([batch]) == [1, 2, 3, 4, 5, 6, 7]
    assert batch.column("_file").to_pylist() == ["bin.000001"] * 5 + ["bin.000002"] * 2


def test_some_kinds_of_events() -> None:
    log = LogBuilder()
    log.transaction([1], sequence=1)
    log.add(EventType.TABLE_MAP, int_table_map()[19:])
    log.add(EventType.DELETE_ROWS, int_rows([1])[19:])
    assert read(log, events=DeleteRowsEvent) == [1]
    assert read(log, events=[WriteRowsEvent, DeleteRowsEvent]) == [1, 1]
    assert read(log, events=RowsEvent) == [1, 1]
    [batch] = open_binlog(io.BytesIO(log.data), events=WriteRowsEvent).arrow("s.t")
    assert batch.column("_op").to_pylist() == ["insert"]
    assert batch.column("_gtid").to_pylist() == [f"{SOURCE_ID}:1"]


def described(*names: str) -> list[ColumnDescription]:
    return [ColumnDescription(name, "int", "int unsigned") for name in names]


def test_names_that_the_log_does_not_have() -> None:
    data = bytes(numbered_log(2).data)
    with open_binlog(io.BytesIO(data), schema={"s.t": described("id")}) as log:
        [batch] = log.arrow("s.t", columns=["id"], metadata=[])
    assert batch.schema == pa.schema([pa.field("id", pa.uint32())])
    with (
        open_binlog(io.BytesIO(data), schema={"s.t": described("a", "b")}) as log,
        pytest.raises(SchemaMismatchError),
    ):
        list(log.arrow("s.t"))


def test_columns_chosen_twice() -> None:
    """`arrow` only has the columns chosen by `columns` of `open_binlog`."""
    log = LogBuilder()
    log.add(EventType.TABLE_MAP, int_table_map(columns=3)[19:])
    body = (
        (7).to_bytes(6, "little") + struct.pack("<HH", 1, 2) + b"\3\xff" + b"\0" + struct.pack("<3i", 1, 2, 3)
    )
    log.add(EventType.WRITE_ROWS, body)
    options: Any = {"schema": {"s.t": described("a", "b", "c")}, "columns": {"s.t": ["c", "b"]}}
    with open_binlog(io.BytesIO(log.data), **options) as file:
        [batch] = file.arrow("s.t", metadata=[])
        assert batch.to_pydict() == {"b": [2], "c": [3]}
    with open_binlog(io.BytesIO(log.data), **options) as file:
        assert values_of(file.arrow("s.t", columns=["c"])) == [3]
    with (
        open_binlog(io.BytesIO(log.data), **options) as file,
        pytest.raises(ConfigurationError, match="no column a"),
    ):
        list(file.arrow("s.t", columns=["a"]))


def test_the_table_changes() -> None:
    """A batch ends where the columns change, but not at statements that do not change them."""
    log = LogBuilder()
    log.transaction([1])
    log.statement("ANALYZE TABLE t")
    log.transaction([2])
    log.statement("ALTER TABLE t ADD b INT")
    log.add(EventType.TABLE_MAP, int_table_map(columns=2)[19:])
    body = (7).to_bytes(6, "little") + struct.pack("<HH", 1, 2) + b"\2\xff" + b"\0" + struct.pack("<2i", 3, 4)
    log.add(EventType.WRITE_ROWS, body)
    log.transaction([5])
    with open_binlog(io.BytesIO(log.data)) as file:
        reader = file.arrow("s.t", metadata=["_row"])
        seen = [(batch.column(0).to_pylist(), reader.schema.names) for batch in reader]  # type: ignore[union-attr]
    assert seen == [([1, 2], ["@1", "_row"]), ([3], ["@1", "@2", "_row"]), ([5], ["@1", "_row"])]


# As an Arrow stream


def test_a_stream_for_other_programs() -> None:
    """Whoever asks for the stream a second time before reading, as DuckDB does, misses nothing."""
    log = numbered_log(3)
    log.transaction([4, 5])

    def opened(**options: Any) -> BatchReader:
        return open_binlog(io.BytesIO(log.data)).arrow("s.t", **options)

    batches = list(opened(batch_rows=2))
    expected = pa.Table.from_batches(batches)
    assert len(batches) > 1
    assert pa.table(opened(batch_rows=2)) == expected
    reader = opened(batch_rows=2)
    unread = pa.RecordBatchReader.from_stream(reader)
    assert unread.schema == expected.schema
    assert pa.RecordBatchReader.from_stream(reader).read_all() == expected
    reader = opened(batch_rows=2)
    assert next(reader) == batches[0]
    assert pa.table(reader) == pa.Table.from_batches(batches[1:])
    with open_binlog(io.BytesIO(log.data)) as file:
        assert pa.table(file.arrow("s.none", metadata=["_op"])).schema.names == ["_op"]


def test_a_stream_has_one_schema_and_the_errors_of_the_log() -> None:
    log = LogBuilder()
    log.transaction([1])
    log.add(EventType.TABLE_MAP, int_table_map(columns=2)[19:])
    body = (7).to_bytes(6, "little") + struct.pack("<HH", 1, 2) + b"\2\xff" + b"\0" + struct.pack("<2i", 3, 4)
    log.add(EventType.WRITE_ROWS, body)
    with open_binlog(io.BytesIO(log.data)) as file:
        stream = pa.RecordBatchReader.from_stream(file.arrow("s.t"))
        assert stream.read_next_batch().num_rows == 1
        with pytest.raises(pa.ArrowException, match=r"columns of s\.t change within the log"):
            stream.read_next_batch()
    damaged = bytearray(numbered_log(3).data)
    damaged[-6] ^= 1
    with open_binlog(io.BytesIO(damaged)) as file, pytest.raises(pa.ArrowException, match="checksum"):
        pa.table(file.arrow("s.t"))


# How it is asked for


def test_options_that_cannot_be() -> None:
    log = open_binlog(io.BytesIO(numbered_log(1).data))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"table": "t"}, "table: schema and table with a dot between, such as 'shop.orders', not 't'"),
        ({"table": "s.t", "metadata": ["op"]}, "metadata: unknown column op; there are"),
        ({"table": "s.t", "images": "all"}, "images: "),
        ({"table": "s.t", "batch_rows": 0}, "batch_rows: must be at least 1, not 0"),
    ]
    for options, message in cases:
        with pytest.raises(ConfigurationError, match=message):
            log.arrow(**options)
    # The failed calls have not changed the log.
    assert any(isinstance(event, WriteRowsEvent) and event.rows == [(1,)] for event in log)


def test_rows_are_tuples_or_columns() -> None:
    log = open_binlog(io.BytesIO(numbered_log(2).data))
    next(log)
    with pytest.raises(ConfigurationError, match="open the log again"):
        log.arrow("s.t")
    log.close()
    with pytest.raises(ConfigurationError, match="open the log again"):
        log.arrow("s.t")


def test_leaving_the_loop_and_going_on() -> None:
    log = LogBuilder()
    for number in range(50):
        log.transaction([number] * 20)
    reader = open_binlog(io.BytesIO(log.data)).arrow("s.t", batch_rows=100)
    for batch in reader:
        first = batch
        break
    assert values_of([first, *reader]) == [number for number in range(50) for _ in range(20)]


@pytest.mark.parametrize("missing", ["numpy", "pyarrow"])
def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    original = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ImportError(name)
        return original(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.startswith("replica.arrow")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refuse)
    log = open_binlog(io.BytesIO(numbered_log(1).data))
    with pytest.raises(MissingExtraError, match=r"mysql-replica\[arrow\]"):
        log.arrow("s.t")
    monkeypatch.undo()
    assert values_of(log.arrow("s.t")) == [1]


def test_where_numbers_begin_with_their_highest_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("replica.arrow")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "byteorder", "big")
    with pytest.raises(ConfigurationError, match="little-endian"):
        open_binlog(io.BytesIO(numbered_log(1).data)).arrow("s.t")


# Damage


def damaged_rows(log: LogBuilder, index: int) -> bytes:
    """A log with a wrong NULL bit in the rows of one event, and a correct checksum."""
    data = bytearray(log.data)
    start, end = log.offsets[index], log.ends[index]
    assert data[start + 4] == EventType.WRITE_ROWS
    data[start + 19 + 12] |= 1
    data[end - 4 : end] = struct.pack("<I", zlib.crc32(data[start : end - 4]))
    return bytes(data)


def test_damage_is_an_error_that_stays() -> None:
    log = numbered_log(5)
    data = bytearray(log.data)
    data[log.offsets[14] + 30] ^= 1
    for damaged, error_class in ((bytes(data), ChecksumError), (damaged_rows(log, 14), DecodeError)):
        reader = open_binlog(io.BytesIO(damaged)).arrow("s.t")
        assert values_of([next(reader)]) == [1, 2]
        for _ in range(2):
            with pytest.raises(error_class) as raised:
                next(reader)
            error = raised.value
            assert (error.file, error.position, error.event_type) == ("-", log.offsets[14], 30)


def test_damage_is_skipped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    log = numbered_log(5)
    size = len(log.event(14))
    data = bytearray(log.data)
    data[log.offsets[14] + 30] ^= 1
    for damaged in (bytes(data), damaged_rows(log, 14)):
        caplog.clear()
        with (
            open_binlog(io.BytesIO(damaged), on_error="skip") as file,
            caplog.at_level(logging.WARNING, "replica"),
        ):
            assert values_of(file.arrow("s.t")) == [1, 2, 4, 5]
        assert (file.skipped.events, file.skipped.bytes) == (1, size)
        assert f"at {log.offsets[14]}" in caplog.text
        assert f"{size} bytes skipped" in caplog.text


def test_a_torn_tail() -> None:
    log = numbered_log(3)
    data = bytes(log.data[:-40])
    with open_binlog(io.BytesIO(data)) as file:
        assert values_of(file.arrow("s.t")) == [1, 2]
        assert file.torn_bytes
    reader = open_binlog(io.BytesIO(data), torn="raise").arrow("s.t")
    assert values_of([next(reader)]) == [1, 2]
    with pytest.raises(TruncatedError):
        next(reader)


def test_a_missing_column_of_the_table() -> None:
    reader = open_binlog(io.BytesIO(numbered_log(1).data)).arrow("s.t", columns=["id"])
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="no column id"):
            next(reader)
