"""Where the reading of binlog files starts and stops."""

from __future__ import annotations

import io
import struct
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from protocol.binlog.events import (
    FormatDescriptionEvent,
    MariadbGtidEvent,
    QueryEvent,
    WriteRowsEvent,
    XidEvent,
)
from protocol.constants import EventType
from protocol.errors import ConfigurationError
from protocol.gtid import GtidSet
from protocol.position import BinlogPosition, Checkpoint
from replica.files.binlog_file import open_binlog
from tests.support.log_builder import NOON, SOURCE_ID, LogBuilder, numbered_log, numbers, write_logs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "binlog.000001"
    path.write_bytes(numbered_log().data)
    return path


# Start and stop


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (None, [1, 2, 3, 4, 5]),
        ("earliest", [1, 2, 3, 4, 5]),
        (4, [1, 2, 3, 4, 5]),
        (0, [1, 2, 3, 4, 5]),
        (lambda log: log.offsets[6], [2, 3, 4, 5]),
        (lambda log: BinlogPosition("binlog.000001", log.offsets[11]), [3, 4, 5]),
        (lambda log: f"binlog.000001:{log.offsets[16]}", [4, 5]),
        (lambda log: Checkpoint("binlog.000001", log.offsets[16]), [4, 5]),
        (lambda log: len(log.data), []),
        (f"{SOURCE_ID}:1-2:5", [3, 4]),
        (GtidSet(f"{SOURCE_ID}:1-2:5"), [3, 4]),
        (Checkpoint("other.000001", 999, f"{SOURCE_ID}:1-3"), [4, 5]),
        (GtidSet(), [1, 2, 3, 4, 5]),
        (NOON, [1, 2, 3, 4, 5]),
        (NOON + timedelta(minutes=3), [3, 4, 5]),
        (NOON + timedelta(minutes=3, seconds=1), [4, 5]),
        ("2024-05-01T14:04:00+02:00", [4, 5]),
        (NOON + timedelta(hours=3), []),
    ],
)
@pytest.mark.parametrize("checksum", [True, False])
def test_start(tmp_path: Path, start: Any, expected: list[int], checksum: bool) -> None:
    log = numbered_log(checksum=checksum)
    path = tmp_path / "binlog.000001"
    path.write_bytes(log.data)
    start = start(log) if callable(start) else start
    assert numbers(open_binlog(path, start=start)) == expected
    # The format description is always yielded.
    assert isinstance(next(open_binlog(path, start=start)), FormatDescriptionEvent)


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (None, [1, 2, 3, 4, 5]),
        ("now", [1, 2, 3, 4, 5]),
        (4, []),
        (lambda log: log.offsets[6], [1]),
        (lambda log: log.offsets[7], [1, 2]),
        (lambda log: log.offsets[10] + 3, [1, 2]),
        (lambda log: BinlogPosition("binlog.000001", log.offsets[11]), [1, 2]),
        (lambda log: f"binlog.000001:{log.offsets[16]}", [1, 2, 3]),
        (lambda log: len(log.data), [1, 2, 3, 4, 5]),
        (1 << 40, [1, 2, 3, 4, 5]),
        (f"{SOURCE_ID}:1-2", [1, 2]),
        (GtidSet(f"{SOURCE_ID}:2:4"), [1, 2, 3, 4]),
        (f"{SOURCE_ID}:1-9", [1, 2, 3, 4, 5]),
        (NOON, []),
        (NOON + timedelta(minutes=3), [1, 2]),
        (NOON + timedelta(minutes=3, seconds=1), [1, 2, 3]),
    ],
)
def test_stop(path: Path, stop: Any, expected: list[int]) -> None:
    log = numbered_log()
    assert numbers(open_binlog(path, stop=stop(log) if callable(stop) else stop)) == expected


def test_start_and_stop_without_gtids(tmp_path: Path) -> None:
    log = numbered_log(gtids=False)
    log.statement("CREATE TABLE u (a INT)", timestamp=int(NOON.timestamp()) + 3600)
    log.statement("CREATE TABLE v (a INT)", timestamp=int(NOON.timestamp()) + 3600)
    path = tmp_path / "binlog.000001"
    path.write_bytes(log.data)
    second = log.offsets[5]
    assert numbers(open_binlog(path, start=second, stop=second + 1)) == [2]
    assert numbers(
        open_binlog(path, start=NOON + timedelta(minutes=2), stop=NOON + timedelta(minutes=4))
    ) == [2, 3]
    assert numbers(open_binlog(path, start=f"{SOURCE_ID}:1-5")) == [1, 2, 3, 4, 5]
    with open_binlog(path, start=NOON + timedelta(minutes=5), stop=log.offsets[-1]) as file:
        assert [event.sql for event in file if isinstance(event, QueryEvent)] == [
            "BEGIN",
            "CREATE TABLE u (a INT)",
        ]


def test_start_between_table_map_and_rows(path: Path) -> None:
    log = numbered_log()
    with open_binlog(path, start=log.offsets[4], stop=log.offsets[4]) as file:
        # The open transaction is read to its end.
        assert [event.position for event in file] == [4, *log.offsets[4:6]]
    with open_binlog(path, start=log.offsets[4], stop=log.offsets[6]) as file:
        assert [event.position for event in file] == [4, *log.offsets[4:6]]


def test_start_and_stop_in_several_files(tmp_path: Path) -> None:
    paths = write_logs(tmp_path)
    second = numbered_log(2, first=3).offsets[6]
    log_of = {"start": f"bin.999999:{second}"}
    assert numbers(open_binlog(paths, **log_of)) == [4, 5, 6]  # type: ignore[arg-type]
    assert numbers(open_binlog(paths, start="bin.999999:4")) == [3, 4, 5, 6]
    assert numbers(open_binlog(paths, start=second)) == [2, 3, 4, 5, 6]
    assert numbers(open_binlog(paths, stop=f"bin.999999:{second}")) == [1, 2, 3]
    assert numbers(open_binlog(paths, stop="bin.999999:4")) == [1, 2]
    assert numbers(open_binlog(paths, stop=second)) == [1, 2, 3, 4, 5]
    assert numbers(open_binlog(paths, start=f"{SOURCE_ID}:1-3", stop=f"{SOURCE_ID}:4-5")) == [4, 5]
    # A file after the stop is not opened.
    paths[2].unlink()
    assert numbers(open_binlog(paths, stop=f"{SOURCE_ID}:1-3")) == [1, 2, 3]


def test_stops_in_files_without_numbers(tmp_path: Path) -> None:
    """Files are read in the given order, whatever their names are."""
    paths = [tmp_path / name for name in ("monday.log", "a.log", "m.gz.000001")]
    for index, path in enumerate(paths):
        path.write_bytes(numbered_log(2, first=index * 2 + 1).data)
    second = numbered_log(2, first=3).offsets[6]
    assert numbers(open_binlog(paths, stop=second)) == [1, 2, 3, 4, 5]
    assert numbers(open_binlog(paths, stop=BinlogPosition("a.log", second))) == [1, 2, 3]
    assert numbers(open_binlog(paths, stop=BinlogPosition("a.log", 1 << 40))) == [1, 2, 3, 4]
    assert numbers(open_binlog(paths[1:], start=second, stop=4)) == [4]


@pytest.mark.parametrize("left", [3, 25, None])
def test_start_where_a_torn_event_begins(path: Path, left: int | None) -> None:
    """A file still being written was read up to this place. None: the file ends in zeros, as after a power loss."""
    log = numbered_log()
    start = log.offsets[-1]
    path.write_bytes(log.data[:start] + (bytes(50) if left is None else log.event(-1)[:left]))
    with open_binlog(path, start=start) as file:
        assert [type(event) for event in file] == [FormatDescriptionEvent]
        assert file.torn_bytes == (left or 50)
    with pytest.raises(ConfigurationError, match=f"is after the end of the file, {start}"):
        list(open_binlog(path, start=start + 1))


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (5, "no event begins at binlog.000001:5"),
        (1 << 33, "is after the end of the file"),
        ("binlog.000002:4", "binlog.000002 is not among the files binlog.000001"),
        ("now", "nothing comes after it"),
        ("0-1-5", "is not a MySQL GTID set"),
        (datetime(2024, 5, 1), "has no time zone"),
        ("2024-11-22", "2024-11-22 is a date without time and zone: write 2024-11-22T00:00:00Z"),
    ],
)
def test_a_start_that_is_no_place(path: Path, start: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        list(open_binlog(path, start=start))


def test_mariadb_gtids() -> None:
    log = LogBuilder(version="11.8.6-MariaDB-log")
    for number in range(1, 5):
        log.add(EventType.MARIADB_GTID, struct.pack("<QIB6x", number, 0, 4))
        log.add(EventType.XID, struct.pack("<Q", number))

    def xids(**options: Any) -> list[int]:
        with open_binlog(io.BytesIO(log.data), **options) as file:
            events = list(file)
        gtids = [event.gtid.sequence for event in events if isinstance(event, MariadbGtidEvent)]
        assert gtids == [event.xid for event in events if isinstance(event, XidEvent)]
        return gtids

    assert xids(start="0-1-2") == [3, 4]
    assert xids(stop="0-1-3") == [1, 2, 3]
    assert xids(start="0-7-1", stop="0-1-2") == [2]
    assert xids(start="1-1-100") == [1, 2, 3, 4]
    # The empty set in a checkpoint has the same text for MySQL and MariaDB.
    assert xids(start=Checkpoint("bin.000001", 4, "")) == [1, 2, 3, 4]
    for option in ("start", "stop"):
        with pytest.raises(ConfigurationError, match=f"{option}: .* not a MariaDB GTID set"):
            xids(**{option: f"{SOURCE_ID}:1-2"})


@pytest.mark.parametrize(
    ("damaged", "expected"),
    [
        (9, [3, 4, 5]),  # rows of a skipped transaction
        (10, [3, 4, 5]),  # its end
        (11, [3, 4, 5]),  # the GTID of the first wanted transaction
        (15, [3, 4, 5]),  # its end
    ],
)
def test_damage_does_not_shift_what_is_passed_over(damaged: int, expected: list[int]) -> None:
    log = numbered_log()
    log.data[log.offsets[damaged] + 20] ^= 1
    with open_binlog(io.BytesIO(log.data), start=f"{SOURCE_ID}:1-2", on_error="skip") as file:
        rows = [event.rows[0][0] for event in file if isinstance(event, WriteRowsEvent)]
    assert rows == expected
    assert file.skipped.events == (0 if damaged == 9 else 1)
