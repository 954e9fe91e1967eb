"""The spool: published offsets are fsynced, remains of a crash do no harm, and no loss is silent."""

from __future__ import annotations

import itertools
import json
import os
import resource
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from protocol.constants import ColumnType
from protocol.errors import CheckpointError, ConfigurationError, SourceChangedError
from protocol.rows.column import Column
from protocol.rows.table import Table
from replica.schemas.shape import ColumnShape, Shape
from replica.spark.envelope import envelope_schema
from replica.spark.read_task import ReadPlan, read_piece
from replica.spool.offsets import Offset, parse_offset
from replica.spool.pieces import LogPiece, ReadSettings
from replica.spool.placed_shapes import PlacedShapes, between, named
from replica.spool.spool import Segment, Spool
from tests.support.log_builder import LogBuilder

PLAN = ReadPlan(ReadSettings(), envelope_schema("json"), row_format="json")


def offset(position: int, file: str = "bin.000001", *, epoch: int = 0) -> Offset:
    return Offset(file, position, None, f"server-{epoch}", 1, epoch)


class Writer:
    """Writes the transactions of a made log to a spool, as the follower does."""

    def __init__(self, folder: Path, *, transactions: int = 20, segment_bytes: int = 600) -> None:
        self.folder = folder
        self.segment_bytes = segment_bytes
        self.log = LogBuilder()
        for number in range(transactions):
            self.log.transaction([number], sequence=number + 1)
        self.ends = [self.log.offsets[1 + 5 * number] for number in range(transactions)] + [
            len(self.log.data)
        ]
        self.spool = Spool(str(folder), segment_bytes)

    def offset(self, transaction: int) -> Offset:
        return offset(self.ends[transaction])

    def write(self, first: int, last: int) -> None:
        for number in range(first, last):
            for index in range(1 + 5 * number, 6 + 5 * number):
                position, raw = self.log.offsets[index], self.log.event(index)
                if not self.spool.continues("bin.000001", position, 0) and index == 1 + 5 * number:
                    self.spool.begin(self.segment(position), self.log.event(0))
                self.spool.append(raw)
            self.spool.mark()

    def segment(self, position: int, *, epoch: int = 0) -> Segment:
        return Segment(
            number=0,
            path="",
            after=offset(position),
            file="bin.000001",
            position=position,
            epoch=epoch,
            server_uuid=f"server-{epoch}",
            server_id=1,
            head=0,
            has_gtids=True,
        )

    def again(self) -> Spool:
        self.spool.close()
        self.spool = Spool(str(self.folder), self.segment_bytes)
        return self.spool


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path / "spool")
    yield writer
    writer.spool.close()


def numbers(pieces: list[LogPiece]) -> list[int]:
    rows = [row for piece in pieces for batch in read_piece(piece, PLAN) for row in batch.to_pylist()]
    return [json.loads(row["after"])["@1"] for row in sorted(rows, key=lambda row: row["seq"])]


def test_any_range_of_transactions(writer: Writer) -> None:
    writer.write(0, 20)
    writer.spool.sync()
    assert len(writer.spool.segments) > 3
    for first in range(20):
        for last in range(first + 1, 21, 3):
            for size in (1, 1 << 30):
                pieces = writer.spool.pieces(writer.offset(first), writer.offset(last), size)
                assert numbers(pieces) == list(range(first, last))


def test_what_is_synced_can_be_read_whatever_is_written_meanwhile(seed: int, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "spool", transactions=400, segment_bytes=20_000)
    done = 0
    failures: list[str] = []
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            end = done
            writer.spool.sync()
            if end:
                segment = next(
                    one for one in reversed(writer.spool.segments) if one.after.key < writer.offset(end).key
                )
                size = os.path.getsize(segment.path)
                if segment.end(size) < writer.offset(end).key:
                    failures.append(f"{end}: {size}")

    thread = threading.Thread(target=publish)
    thread.start()
    for number in range(400):
        writer.write(number, number + 1)
        done = number + 1
    stop.set()
    thread.join()
    writer.spool.close()
    assert failures == []


def test_what_was_taken_back_is_written_and_synced_anew(writer: Writer) -> None:
    writer.write(0, 1)
    segment = writer.spool.segments[0]
    writer.spool.append(b"x" * 100)
    writer.spool.sync()
    writer.spool.roll_back()
    size = os.path.getsize(segment.path)
    writer.spool.append(b"y" * 50)
    writer.spool.sync()
    assert Path(segment.path).read_bytes()[size:] == b"y" * 50


def test_taken_up_again_behind_its_last_boundary(writer: Writer) -> None:
    writer.write(0, 10)
    writer.spool.append(writer.log.event(1 + 5 * 10))
    writer.spool.sync()
    spool = writer.again()
    assert spool.covers(writer.offset(4))
    assert not spool.covers(offset(writer.ends[4], "bin.000002"))
    assert not spool.covers(offset(writer.ends[12]))
    assert not spool.covers(offset(writer.ends[4], epoch=1))
    segments = list(spool.resume(writer.offset(4)))
    assert all(one.after.key <= writer.offset(4).key for one, _ in segments[:1])
    last = segments[-1][0]
    spool.keep(last, last.head + writer.ends[10] - last.position)
    writer.write(10, 20)
    spool.sync()
    assert numbers(spool.pieces(writer.offset(4), writer.offset(20), 1 << 30)) == list(range(4, 20))


def test_what_was_committed_is_deleted(writer: Writer) -> None:
    writer.write(0, 20)
    writer.spool.sync()
    before = writer.spool.size
    writer.spool.trim(writer.offset(10))
    assert writer.spool.size < before
    assert numbers(writer.spool.pieces(writer.offset(10), writer.offset(20), 1 << 30)) == list(range(10, 20))
    assert len(list(writer.folder.iterdir())) == 2 * len(writer.spool.segments) + 1


def test_segments_that_go_while_their_size_is_asked(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that reads the log asks for the size while Spark's thread deletes segments."""
    writer.write(0, 20)
    writer.spool.sync()
    threads: list[threading.Thread] = []
    getsize = os.path.getsize

    def trim_and_get(path: str) -> int:
        if not threads:
            threads.append(threading.Thread(target=writer.spool.trim, args=[writer.offset(20)]))
            threads[0].start()
            threads[0].join(0.2)
        return getsize(path)

    before = writer.spool.size
    monkeypatch.setattr("replica.spool.spool.os.path.getsize", trim_and_get)
    assert writer.spool.size == before
    threads[0].join()
    assert writer.spool.size < before


def test_a_segment_that_has_lost_its_end_is_no_short_batch(writer: Writer) -> None:
    writer.write(0, 20)
    writer.spool.sync()
    pieces = writer.spool.pieces(writer.offset(0), writer.offset(20), 1 << 30)
    last = writer.spool.segments[-1]
    os.truncate(last.path, os.path.getsize(last.path) - 40)
    with pytest.raises(CheckpointError, match="has lost its end"):
        writer.spool.pieces(writer.offset(0), writer.offset(20), 1 << 30)
    with pytest.raises(Exception, match=r"has lost its last \d+ bytes"):
        numbers(pieces)


def test_segments_that_a_crash_cut_short_are_none(writer: Writer) -> None:
    writer.write(0, 3)
    (writer.folder / "0000000099.json").write_text('{"number": 99, "pa')
    (writer.folder / "0000000098.json").write_text("{}")
    assert [segment.number for segment in writer.again().segments] == [1]


def test_behind_a_missing_segment_the_log_does_not_go_on(writer: Writer) -> None:
    writer.write(0, 20)
    gone = writer.spool.segments[1]
    os.unlink(gone.path)
    spool = writer.again()
    assert spool.segments[0].number == gone.number + 1
    assert not spool.covers(writer.offset(0))
    assert spool.covers(writer.offset(20))


def test_a_batch_of_the_server_before_is_not_read_from_the_next(writer: Writer) -> None:
    writer.spool.begin(writer.segment(writer.ends[0], epoch=1), writer.log.event(0))
    with pytest.raises(SourceChangedError, match="go back to that server"):
        writer.spool.pieces(writer.offset(0), writer.offset(1), 1)


def test_what_is_missing_belongs_to_the_batch_it_begins_in(writer: Writer) -> None:
    """The source has purged transactions 2 to 5, among them a planned batch of 2 to 4."""
    writer.write(0, 2)
    gap = replace(writer.segment(writer.ends[6]), after=writer.offset(2), gap="purged")
    writer.spool.begin(gap, writer.log.event(0))
    writer.write(6, 8)
    writer.spool.sync()
    for spool in (writer.spool, writer.again()):
        for first, last, expected in (
            (0, 2, []),
            (0, 4, ["purged"]),
            (2, 4, ["purged"]),
            (4, 5, []),
            (4, 8, []),
            (6, 8, []),
            (2, 8, ["purged"]),
        ):
            pieces = spool.pieces(writer.offset(first), writer.offset(last), 1 << 30)
            assert [piece.gap for piece in pieces if piece.gap] == expected
            rows = numbers([piece for piece in pieces if not piece.gap])
            assert rows == [number for number in range(first, last) if number < 2 or number > 5]
        # A query that has committed 2 to 4 continues after the gap, which it sees once.
        assert spool.covers(writer.offset(4))
    resumed = list(spool.resume(writer.offset(4)))
    assert [(segment.gap, place) for segment, place in resumed][:1] == [("purged", spool.segments[0].head)]


def test_a_full_disk_is_named_and_the_folder_is_free_again(writer: Writer) -> None:
    writer.write(0, 1)
    writer.spool.sync()
    writer.write(1, 2)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file may grow any more: the system refuses that as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(CheckpointError, match=rf"^spoolDir {writer.folder}: File too large$"):
            writer.spool.sync()
        writer.spool.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    spool = writer.again()
    assert numbers(spool.pieces(writer.offset(0), writer.offset(1), 1 << 30)) == [0]


def test_only_the_owner_can_read_the_spool(tmp_path: Path) -> None:
    """It holds all data of the log's tables."""
    before = os.umask(0)
    try:
        writer = Writer(tmp_path / "new" / "spool")
        writer.write(0, 6)
    finally:
        os.umask(before)
    folder = writer.folder
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    modes = {name: stat.S_IMODE(os.stat(folder / name).st_mode) for name in os.listdir(folder)}
    assert len(modes) > 3
    assert set(modes.values()) == {0o600}
    writer.spool.close()


def test_shapes_hold_from_their_place_on() -> None:
    """Columns of the same types have other names there."""
    old, new = (Shape(tuple(ColumnShape(name, "int") for name in names)) for names in ("ab", "ba"))
    shapes: PlacedShapes = {"s.t": (((0, 1, 120), new), ((0, 1, 100), None), ((0, 1, 50), old))}
    columns = tuple(Column(f"@{number}", ColumnType.LONG, 0, True) for number in (1, 2))
    table = Table("s", "t", columns)

    def names(of: PlacedShapes, *place: int) -> tuple[str, ...] | None:
        found = named(table, of, (place[0], place[1], place[2]))
        return None if found is None else found.column_names

    places = [(0, 1, 49), (0, 1, 50), (0, 1, 99), (0, 1, 110), (0, 1, 120), (0, 2, 4), (1, 1, 4)]
    expected = [None, ("a", "b"), ("a", "b"), None, ("b", "a"), ("b", "a"), ("b", "a")]
    assert [names(shapes, *place) for place in places] == expected
    assert named(Table("s", "t", columns[:1]), shapes, (0, 1, 60)) is None
    assert named(Table("s", "u", columns), shapes, (0, 1, 60)) is None
    # A piece has the shapes of its own places.
    for first, last in itertools.combinations_with_replacement(range(len(places)), 2):
        part = between(shapes, places[first], places[last])
        assert [names(part, *place) for place in places[first : last + 1]] == expected[first : last + 1]
    assert between(shapes, (0, 1, 60), (0, 1, 99)) == {"s.t": (((0, 1, 50), old),)}
    assert between(shapes, (0, 1, 4), (0, 1, 49)) == {}


def test_offsets_are_canonical() -> None:
    one = offset(4)
    assert json.dumps(one.to_dict()) == (
        '{"version": 1, "server_uuid": "server-0", "server_id": 1, "epoch": 0, "file": "bin.000001", "position": 4, '
        '"gtid_set": null}'
    )
    assert Offset.from_dict(one.to_dict()) == one
    assert parse_offset("startingOffsets", json.dumps(one.to_dict())) == one
    assert parse_offset("startingOffsets", "latest") is None
    assert offset(9).key < offset(4, "bin.000002").key < offset(4, epoch=1).key


def test_whose_log_an_offset_is_of() -> None:
    one = offset(4)
    assert one.is_of_log(replace(one, server_id=9, epoch=3))
    assert not one.is_of_log(offset(4, epoch=1))
    mariadb = replace(one, server_uuid=None)
    assert mariadb.is_of_log(replace(mariadb, file="bin.000009"))
    assert not mariadb.is_of_log(replace(mariadb, server_id=2))
    assert not one.is_sought_by_gtid(offset(9))
    assert one.is_sought_by_gtid(offset(4, epoch=1))
    assert offset(4, "").is_sought_by_gtid(one)


def test_what_lies_before_an_offset() -> None:
    few, many = replace(offset(4), gtid_set="0-1-5"), replace(offset(4), gtid_set="0-1-7,1-1-1")
    assert many.has_all_of(few)
    assert not few.has_all_of(many)
    mysql = replace(few, gtid_set="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")
    assert mysql.has_all_of(mysql)
    assert not any(one.has_all_of(other) for one, other in ((mysql, few), (few, mysql), (few, offset(4))))


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 2},
        {"position": "4"},
        {"position": -1},
        {"epoch": True},
        {"gtid_set": "x"},
        {"more": 1},
        {"file": None},
    ],
)
def test_what_is_no_offset(changed: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        Offset.from_dict(offset(4).to_dict() | changed)


def test_a_changed_digit_of_a_segment_s_place_is_seen(writer: Writer) -> None:
    """Events had the places of others: the segment's log is fetched from the source again."""
    writer.write(0, 20)
    writer.spool.sync()
    damaged, *later = writer.spool.segments[1:]
    path = writer.folder / f"{damaged.number:010d}.json"
    path.write_text(path.read_text().replace(f'"position": {damaged.position},', '"position": 4,'))
    assert writer.again().segments == later


def test_a_description_of_another_segment(writer: Writer) -> None:
    """As a backup tool that mixes files up may leave it: events had the places of others."""
    writer.write(0, 20)
    writer.spool.sync()
    first, second, *later = writer.spool.segments
    names = [writer.folder / f"{segment.number:010d}.json" for segment in (first, second)]
    names[1].write_bytes(names[0].read_bytes())
    assert writer.again().segments == later
