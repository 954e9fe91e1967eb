"""``open_binlog``: which sources can be opened, start and stop, decoding options, damage."""

from __future__ import annotations

import contextlib
import gzip
import io
import logging
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.binlog.events import (
    FormatDescriptionEvent,
    GtidEvent,
    QueryEvent,
    RotateEvent,
    TableMapEvent,
    WriteRowsEvent,
    XidEvent,
)
from protocol.constants import EventFlag, EventType
from protocol.errors import (
    ChecksumError,
    ConfigurationError,
    DecodeError,
    MissingTableMapError,
    SchemaMismatchError,
    TruncatedError,
)
from protocol.rows.description import ColumnDescription
from replica.files.binlog_file import KeyFile, open_binlog
from tests.support.encrypted_logs import MASTER_KEY, json_keyring, mysql_encrypted
from tests.support.log_builder import LogBuilder, numbered_log, numbers, write_logs
from tests.support.raw_events import format_description, rotate


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "binlog.000001"
    path.write_bytes(numbered_log().data)
    return path


def test_events_of_a_file(path: Path) -> None:
    log = numbered_log()
    with open_binlog(path) as file:
        events = list(file)
    assert [event.position for event in events] == log.offsets
    assert {event.file for event in events} == {"binlog.000001"}
    assert [event.header.type for event in events[:6]] == [15, 33, 2, 19, 30, 16]
    rows = [event for event in events if isinstance(event, WriteRowsEvent)]
    assert [event.rows for event in rows] == [[(number,)] for number in range(1, 6)]
    assert str(rows[0].table) == "s.t"


def test_leaving_the_loop_and_going_on(path: Path) -> None:
    with open_binlog(path) as log:
        for event in log:
            if isinstance(event, XidEvent):
                break
        assert isinstance(next(log), GtidEvent)
        raw, position, event = next(log.raw_events())
        assert (raw[4], position) == (EventType.QUERY, event.position)
        assert isinstance(next(log), TableMapEvent)
    assert list(log) == []


def test_raw_events(path: Path) -> None:
    log = numbered_log()
    with open_binlog(path) as file:
        found = list(file.raw_events())
    assert b"\xfebin" + b"".join(raw for raw, _, _ in found) == log.data
    assert [position for _, position, _ in found] == log.offsets
    assert all(event.position == position for _, position, event in found)


def test_any_mixture_of_both_gives_each_event_once(seed: int) -> None:
    log = LogBuilder()
    for number in range(1, 200):
        log.transaction([number], sequence=number)
        if number % 50 == 0:
            log.append(rotate("b.000002", next_position=0, flags=EventFlag.ARTIFICIAL, checksum=True))
    log.add(EventType.HEARTBEAT, b"b.000001")
    generator = random.Random(seed)
    for _ in range(20):
        file = open_binlog(io.BytesIO(log.data))
        positions: list[int] = []
        hidden = {offset for offset in log.offsets if log.data[offset + 4] in (4, 27)}
        while True:
            before = len(positions)
            way = generator.randrange(3)
            for _ in range(generator.choice((1, 2, 7, 100))):
                if way == 0:
                    event = next(file, None)
                    positions += [] if event is None else [event.position]
                elif way == 1:
                    for event in file:
                        positions.append(event.position)
                        break
                else:
                    for raw, position, event in file.raw_events():
                        assert event.position == position
                        assert raw == log.event(log.offsets.index(position))
                        positions.append(position)
                        break
            if len(positions) == before:
                break
        assert len(set(positions)) == len(positions)
        assert positions == sorted(positions)
        assert set(log.offsets) - set(positions) <= hidden


def test_closing_ends_the_iteration(path: Path) -> None:
    for count in range(1, 12):
        log = open_binlog(path)
        assert [next(log).position for _ in range(count)] == numbered_log().offsets[:count]
        iterator = iter(log)
        log.close()
        assert [*log, *iterator, *log.raw_events()] == []


def test_progress(path: Path) -> None:
    size = path.stat().st_size
    with open_binlog([path, path]) as log:
        assert (log.bytes_read, log.bytes_total) == (0, size * 2)
        next(log)
        assert log.bytes_read == size
        list(log)
        assert (log.bytes_read, log.bytes_total) == (size * 2, size * 2)
    with open_binlog(io.BytesIO(path.read_bytes())) as log:
        assert log.bytes_total is None


# What can be opened


def test_file_objects_and_standard_input(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert numbers(open_binlog(io.BytesIO(path.read_bytes()))) == [1, 2, 3, 4, 5]
    with path.open("rb") as file:
        assert next(event.file for event in open_binlog(file)) == "binlog.000001"
        assert not file.closed
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert numbers(open_binlog("-")) == [1, 2, 3, 4, 5]
    monkeypatch.setattr(sys, "stdin", None)  # as below a shell's <&-
    with pytest.raises(ConfigurationError, match="standard input is closed"):
        list(open_binlog("-"))
    with path.open(encoding="latin-1") as text, pytest.raises(ConfigurationError, match="not bytes"):
        list(open_binlog(text))


def test_standard_input_that_is_a_pipe(path: Path) -> None:
    script = "from replica.files.binlog_file import open_binlog; print(sum(1 for _ in open_binlog('-')))"
    done = subprocess.run(
        [sys.executable, "-c", script], input=path.read_bytes(), capture_output=True, check=True
    )
    assert int(done.stdout) == len(numbered_log().offsets)


def test_gzip(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    zipped = tmp_path / "binlog.000001.gz"
    zipped.write_bytes(gzip.compress(data))
    with open_binlog(zipped) as log:
        events = list(log)
    assert [event.position for event in events] == numbered_log().offsets
    assert events[0].file == "binlog.000001"
    # Several gzip files joined as by `cat`, with padding.
    zipped.write_bytes(gzip.compress(data[:333]) + gzip.compress(data[333:]) + bytes(512))
    assert numbers(open_binlog(zipped)) == [1, 2, 3, 4, 5]
    assert numbers(open_binlog(io.BytesIO(zipped.read_bytes()))) == [1, 2, 3, 4, 5]


def test_damaged_gzip(path: Path) -> None:
    zipped = gzip.compress(path.read_bytes())
    for size in range(2, len(zipped)):
        list(open_binlog(io.BytesIO(zipped[:size])))
        with pytest.raises(TruncatedError):
            list(open_binlog(io.BytesIO(zipped[:size]), torn="raise"))
    for position in range(2, len(zipped)):
        data = bytearray(zipped)
        data[position] ^= 0x10
        with contextlib.suppress(DecodeError):
            list(open_binlog(io.BytesIO(data), on_error="skip"))
        # The time and the system in the header do not matter.
        if position not in range(4, 10):
            with pytest.raises(DecodeError):
                list(open_binlog(io.BytesIO(data), torn="raise"))


def test_lists_patterns_and_index_files(tmp_path: Path) -> None:
    paths = write_logs(tmp_path)
    index = tmp_path / "bin.index"
    index.write_text(f"./bin.999998\n/var/lib/mysql/bin.999999\n{paths[2]}\n\n")
    for name in ("bin.999998.idx", "bin.999999.idx", "bin.state"):
        # MariaDB's.
        (tmp_path / name).write_bytes(b"\xfe\xfe\x0c\x01")
    for source in (paths, [str(path) for path in paths], str(tmp_path / "bin.*"), index, [index], tmp_path):
        assert numbers(open_binlog(source)) == [1, 2, 3, 4, 5, 6]
    assert numbers(open_binlog([paths[2], paths[0]])) == [5, 6, 1, 2]
    mixed: list[Any] = [paths[0], io.BytesIO(paths[1].read_bytes())]
    assert numbers(open_binlog(mixed)) == [1, 2, 3, 4]
    with open_binlog(index) as log:
        files = [event.file for event in log if isinstance(event, FormatDescriptionEvent | RotateEvent)]
    assert files == ["bin.999998", "bin.999998", "bin.999999", "bin.999999", "bin.1000000"]
    index.unlink()
    assert numbers(open_binlog(tmp_path)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("source", [[], "nothing-here.*", "nothing-here.index", 5, None, [3]])
def test_no_files(source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError):
        open_binlog(source)


def test_a_path_that_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path, "with\0zero"):
        with pytest.raises(ConfigurationError, match=re.escape(str(path))):
            list(open_binlog(path))
    with pytest.raises(ConfigurationError, match="missing"):
        open_binlog("x", keyring=tmp_path / "missing")
    with pytest.raises(ConfigurationError, match="missing"):
        open_binlog("x", key_file=KeyFile(tmp_path / "missing"))


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "binlog.000001"
    path.touch()
    assert list(open_binlog(path)) == []


@pytest.mark.parametrize(
    "options", [{"torn": "no"}, {"on_error": 1}, {"tables": "t"}, {"start": "x"}, {"stop": True}]
)
def test_wrong_options(path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(options))}:"):
        open_binlog(path, **options)


def test_an_encrypted_file(tmp_path: Path) -> None:
    path, keyring = tmp_path / "binlog.000001", tmp_path / "keyring"
    log = numbered_log()
    path.write_bytes(mysql_encrypted(bytes(log.data)))
    name = "MySQLReplicationKey_3e11fa47-71ca-11e1-9e33-c80aa9429562_2"
    keyring.write_bytes(json_keyring((name, MASTER_KEY)))
    for keys in (keyring, str(keyring), {name: MASTER_KEY}, MASTER_KEY):
        with open_binlog(path, keyring=keys, start=log.offsets[6]) as file:
            assert [event.position for event in file] == [4, *log.offsets[6:]]
    with pytest.raises(ConfigurationError, match="keyring"):
        list(open_binlog(path))


# Relay logs and pieces


def test_a_relay_log() -> None:
    log = LogBuilder()
    log.append(rotate("master-bin.000007", 4000, flags=EventFlag.ARTIFICIAL, checksum=True))
    log.append(format_description("5.7.20"))
    log.shift = 4000
    log.transaction([1])
    log.transaction([2])
    with open_binlog(io.BytesIO(log.data)) as file:
        events = list(file)
    assert [event.position for event in events] == [4, *log.offsets[2:]]
    assert {event.file for event in events} == {"-"}
    assert events[-1].header.next_position == len(log.data) + 4000
    with open_binlog(io.BytesIO(log.data)) as file:
        assert isinstance([event for _, _, event in file.raw_events()][1], RotateEvent)
    start = log.offsets[7]
    assert numbers(open_binlog(io.BytesIO(log.data), start=start)) == [2]


@pytest.mark.parametrize("checksum", [True, False])
def test_a_piece_without_its_beginning(checksum: bool) -> None:
    log = numbered_log(checksum=checksum)
    piece = bytes(log.data[log.offsets[6] :])
    assert numbers(open_binlog(io.BytesIO(piece))) == [2, 3, 4, 5]
    # A part of a log that begins between a table map and its rows.
    piece = bytes(log.data[log.offsets[4] :])
    with pytest.raises(MissingTableMapError):
        list(open_binlog(io.BytesIO(piece)))
    with open_binlog(io.BytesIO(piece), on_error="skip") as file:
        assert len(list(file)) == len(log.offsets) - 5
        assert (file.skipped.events, file.skipped.bytes) == (1, len(log.event(4)))


# What is decoded


def test_filters(path: Path) -> None:
    log = LogBuilder()
    log.transaction([1], name="orders")
    log.transaction([2], name="items")
    data = bytes(log.data)
    for options in ({"tables": "s.o*"}, {"exclude_tables": ["*.items"]}):
        with open_binlog(io.BytesIO(data), **options) as file:
            events = list(file)
        assert [
            str(event.table) for event in events if isinstance(event, TableMapEvent | WriteRowsEvent)
        ] == [
            "s.orders",
            "s.orders",
        ]
        assert sum(isinstance(event, XidEvent) for event in events) == 2
    with open_binlog(io.BytesIO(data), events=[XidEvent, QueryEvent]) as file:
        assert [type(event) for event in file] == [QueryEvent, XidEvent] * 2
    with open_binlog(io.BytesIO(data), events=XidEvent) as file:
        assert [raw[4] for raw, _, _ in file.raw_events()] == [EventType.XID] * 2


def described(*names: str, column_type: str = "int unsigned") -> list[ColumnDescription]:
    return [ColumnDescription(name, column_type.split()[0], column_type) for name in names]


def test_schema(path: Path) -> None:
    schema = {"s.t": described("id"), "s.other": described("a", "b")}
    with open_binlog(path, schema=schema) as log:
        events = [event for event in log if isinstance(event, TableMapEvent | WriteRowsEvent)]
    for event in events:
        assert event.table.column_names == ("id",)
        assert event.table.columns[0].unsigned is True
    with open_binlog(path, schema=schema, columns={"s.t": ["id"]}) as log:
        assert [
            change.after for event in log if isinstance(event, WriteRowsEvent) for change in event.changes()
        ] == [{"id": number} for number in range(1, 6)]
    with pytest.raises(ConfigurationError, match="no column nothing"):
        list(open_binlog(path, columns={"s.t": ["nothing"]}))
    wrong = {"s.t": described("id", "more")}
    with pytest.raises(SchemaMismatchError):
        list(open_binlog(path, schema=wrong))
    with open_binlog(path, schema=wrong, on_schema_mismatch="positional") as log:
        assert {event.table.column_names for event in log if isinstance(event, TableMapEvent)} == {("@1",)}


# Damage


def test_damage_is_an_error_that_stays(path: Path) -> None:
    log = numbered_log()
    data = bytearray(log.data)
    data[log.offsets[4] + 25] ^= 1
    path.write_bytes(data)
    with open_binlog(path) as file:
        assert [next(file).position for _ in range(4)] == log.offsets[:4]
        for _ in range(2):
            with pytest.raises(ChecksumError) as caught:
                next(file)
            error = caught.value
            assert (error.file, error.position, error.event_type) == ("binlog.000001", log.offsets[4], 30)
    with open_binlog(path) as file:
        iterator = iter(file)
        assert [next(iterator).position for _ in range(4)] == log.offsets[:4]
        for again in (iterator, file, iter(file), file.raw_events()):
            with pytest.raises(ChecksumError):
                next(again)
    with open_binlog(path, verify_checksum=False) as file:
        assert len(list(file)) == len(log.offsets)


def test_damage_is_skipped_and_counted(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = numbered_log()
    data = bytearray(log.data)
    for index in (4, 9, 10, 17):
        data[log.offsets[index] + 10] ^= 0x41
    path.write_bytes(data)
    with open_binlog(path, on_error="skip") as file, caplog.at_level(logging.WARNING, "replica"):
        found = [event.position for event in file]
    assert found == [offset for index, offset in enumerate(log.offsets) if index not in (4, 9, 10, 17)]
    # Two damaged events side by side count as one place.
    assert file.skipped.events == 3
    assert file.skipped.bytes == sum(len(log.event(index)) for index in (4, 9, 10, 17))
    assert len(caplog.records) == 3
    assert f"at {log.offsets[4]}" in caplog.text
    assert f"{len(log.event(4))} bytes skipped" in caplog.text


@pytest.mark.parametrize("checksum", [True, False])
def test_a_damaged_format_description(checksum: bool) -> None:
    log = numbered_log(checksum=checksum)
    for offset in (19 + 2 + 50, len(log.event(0)) - 5, len(log.event(0)) - 6):
        data = bytearray(log.data)
        data[4 + offset] ^= 1
        with open_binlog(io.BytesIO(data), on_error="skip") as file:
            events = [event for event in file if not isinstance(event, FormatDescriptionEvent)]
        assert [event.position for event in events] == log.offsets[1:]
        assert {event.sql for event in events if isinstance(event, QueryEvent)} == {"BEGIN"}


def test_a_torn_tail(path: Path) -> None:
    log = numbered_log()
    path.write_bytes(log.data[:-3])
    with open_binlog(path) as file:
        assert [event.position for event in file] == log.offsets[:-1]
        assert file.torn_bytes == len(log.event(-1)) - 3
    for on_error in ("raise", "skip"):
        with open_binlog(path, torn="raise", on_error=on_error) as file:
            for _ in log.offsets[:-1]:
                next(file)
            with pytest.raises(TruncatedError):
                next(file)


def test_files_that_are_missing_in_between(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody has deleted one: a folder and a pattern told nothing, and its changes did not come."""
    for number in (9, 10, 12):
        (tmp_path / f"bin.{number:06}").write_bytes(numbered_log(1, first=number).data)
    for source in (tmp_path, tmp_path / "bin.*"):
        caplog.clear()
        assert numbers(open_binlog(source)) == [9, 10, 12]
        assert "bin.000012 follows bin.000010; files between them are missing" in caplog.text
    caplog.clear()
    assert numbers(open_binlog([tmp_path / "bin.000009", tmp_path / "bin.000012"])) == [9, 12]
    assert not caplog.records
