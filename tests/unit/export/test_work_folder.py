"""An export's folder: changes get into files, a killed run goes on, tables with and without a key."""

from __future__ import annotations

import errno
import os
import resource
from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from protocol.constants import ColumnType
from protocol.errors import ConfigurationError, SchemaMismatchError, SourceConfigurationError
from protocol.rows.column import ABSENT, Column
from protocol.rows.table import Table
from replica.export import table_files
from replica.export.disk_errors import disk_errors
from replica.export.row_formats import FORMATS, row_format
from replica.export.work_folder import WorkFolder
from replica.render.json_values import JsonDocument
from tests.support.exported_files import exported_rows
from tests.support.small_export import IDENTITY, PLACE, TABLE, change, finished, opened

Row = tuple[Any, ...]
every_format = pytest.mark.parametrize("form", FORMATS)


@every_format
def test_rows_that_changed_after_they_were_read_have_their_last_state(form: str, tmp_path: Path) -> None:
    work = opened(tmp_path, form)
    change(work, None, (9, "inserted and read later"))
    work.add_rows(IDENTITY, TABLE, [(number, f'old "{number}"\n') for number in range(1, 8)])
    change(work, (1, "x"), (1, "updated"))
    change(work, (2, "x"), None)
    change(work, (3, "x"), (30, "moved"))
    change(work, (4, "x"), None)
    change(work, None, (4, "deleted and inserted"))
    change(work, None, (50, "inserted"))
    change(work, None, (60, "inserted and deleted"))
    change(work, (60, "x"), None)
    work.commit(PLACE)
    change(work, (7, "x"), (7, "of another file"))
    # These keys were changed before they are read: the row that is read is the newest.
    work.add_rows(IDENTITY, TABLE, [(9, "read"), (30, "read again"), (10, "plain")])
    assert sorted(finished(work, tmp_path)) == [
        (1, "updated"),
        (4, "deleted and inserted"),
        (5, 'old "5"\n'),
        (6, 'old "6"\n'),
        (7, "of another file"),
        (9, "read"),
        (10, "plain"),
        (30, "read again"),
        (50, "inserted"),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.json", "shop.t"]


@every_format
def test_a_table_without_a_key_is_a_multiset(form: str, tmp_path: Path) -> None:
    work = opened(tmp_path, form, key=())
    work.add_rows(IDENTITY, TABLE, [(1, "a"), (1, "a"), (1, "a"), (2, "b"), (3, "c")])
    work.commit(PLACE)
    change(work, (1, "a"), None)
    change(work, (2, "b"), (1, "a"))
    change(work, (1, "a"), None)
    change(work, None, (4, "d"))
    change(work, None, (4, "d"))
    assert Counter(finished(work, tmp_path)) == {(1, "a"): 2, (3, "c"): 1, (4, "d"): 2}


def test_names_that_are_longer_than_a_folder_s_name_may_be(tmp_path: Path) -> None:
    """An export of such a table ended with an error when all was read."""
    work = WorkFolder(str(tmp_path), row_format("jsonl"), {})
    tables = [("販売", f"{'注文' * 31}{end}") for end in "一二"]
    for number, identity in enumerate(tables):
        work.add_table(identity, ("id",))
        work.add_rows(identity, TABLE, [(number, "x")])
        work.complete(identity, TABLE, is_dropped=False)
    work.commit(PLACE, is_copied=True)
    assert [name for name, _ in work.finish()] == [".".join(identity) for identity in tables]
    found = {path.read_text() for path in tmp_path.glob("*/*.jsonl")}
    assert found == {f'{{"id": {number}, "v": "x"}}\n' for number in range(2)}


def test_a_dot_in_the_schema_s_name_is_not_the_end_of_it(tmp_path: Path) -> None:
    """`a.b`.`c` and `a`.`b.c` had one folder, and the rows of one of them."""
    tables = ("a.b", "c"), ("a", "b.c")
    work = WorkFolder(str(tmp_path), row_format("jsonl"), {})
    for number, identity in enumerate(tables):
        work.add_table(identity, ("id",))
        work.add_rows(identity, TABLE, [(number, "x")])
        work.complete(identity, TABLE, is_dropped=False)
    work.commit(PLACE, is_copied=True)
    assert list(work.finish()) == [("a.b.c", 1), ("a.b.c", 1)]
    for number, folder in enumerate(("a%2Eb.c", "a.b.c")):
        assert [row["id"] for row in exported_rows(tmp_path, folder)] == [number]


def test_a_deleted_row_that_was_never_read_is_an_error(tmp_path: Path) -> None:
    work = opened(tmp_path, key=())
    work.add_rows(IDENTITY, TABLE, [(1, "a")])
    change(work, (2, "b"), None)
    with pytest.raises(SchemaMismatchError, match=r"deletes a row of shop\.t that was not read"):
        finished(work, tmp_path)


@every_format
def test_a_killed_run_goes_on_at_its_last_commit(form: str, tmp_path: Path) -> None:
    work = opened(tmp_path, form)
    work.add_rows(IDENTITY, TABLE, [(1, "a"), (2, "b")])
    change(work, (1, "a"), (1, "changed"))
    work.keep_prepared("x1", work.operations(IDENTITY, TABLE, (2, "b"), None))
    work.commit(PLACE)
    change(work, None, (5, "lost"))
    work.add_rows(IDENTITY, TABLE, [(3, "lost")])
    work.close()
    work = opened(tmp_path, form)
    assert work.checkpoint == PLACE
    assert work.prepared == ["x1"]
    work.add_rows(IDENTITY, TABLE, [(3, "c")])
    work.apply(work.take_prepared("x1"))
    assert sorted(finished(work, tmp_path)) == [(1, "changed"), (3, "c")]


@every_format
def test_a_run_killed_at_its_end_does_the_rest(form: str, tmp_path: Path) -> None:
    work = opened(tmp_path, form)
    work.add_table(("shop", "u"), ("id",))
    other = Table("shop", "u", TABLE.columns, (), "information_schema")
    for number in range(3):
        work.add_rows(IDENTITY, TABLE, [(number, "t")])
        work.add_rows(("shop", "u"), other, [(number, "u")])
        work.commit(PLACE)
    change(work, None, (2, "changed"))
    change(work, None, (8, "new"))
    for identity, table in ((IDENTITY, TABLE), (("shop", "u"), other)):
        work.complete(identity, table, is_dropped=False)
    work.commit(PLACE, is_copied=True)
    ending = work.finish()
    assert next(ending) == ("shop.t", 4)
    work.close()
    assert not (tmp_path / "checkpoint.json").exists()
    work = opened(tmp_path, form)
    assert work.is_copied
    assert list(work.finish()) == [("shop.t", 4), ("shop.u", 3)]
    rows = sorted((int(row["id"]), row["v"]) for row in exported_rows(tmp_path, "shop.t"))
    assert rows == [(0, "t"), (1, "t"), (2, "changed"), (8, "new")]
    assert len(exported_rows(tmp_path, "shop.u")) == 3


def test_a_table_that_is_read_anew_forgets_what_it_had(tmp_path: Path) -> None:
    work = opened(tmp_path)
    work.add_rows(IDENTITY, TABLE, [(1, "old")])
    work.commit(PLACE)
    work.add_rows(IDENTITY, TABLE, [(2, "old")])
    change(work, None, (3, "old"))
    work.complete(IDENTITY, TABLE, is_dropped=False)
    work.restart(IDENTITY)
    assert not work.is_complete
    work.add_rows(IDENTITY, TABLE, [(1, "new")])
    assert finished(work, tmp_path) == [(1, "new")]


def test_a_row_that_comes_twice_in_a_copy_that_began_anew_is_there_once(tmp_path: Path) -> None:
    """Its key came by a change shortly before: it is read by its key, and with all the others. A kill between."""
    work = opened(tmp_path)
    work.add_rows(IDENTITY, TABLE, [(1, "old")])
    change(work, (1, "old"), (5, "moved"))
    change(work, None, (6, "gone"))
    work.restart(IDENTITY)
    work.commit(PLACE)
    work.close()
    work = opened(tmp_path)
    work.add_rows(IDENTITY, TABLE, [(5, "moved")])
    work.add_rows(IDENTITY, TABLE, [(2, "read"), (5, "moved"), (7, "read")])
    assert sorted(finished(work, tmp_path)) == [(2, "read"), (5, "moved"), (7, "read")]


def test_a_table_that_did_not_change_costs_no_commit_and_no_open_file(tmp_path: Path) -> None:
    """A commit waits for the disk, and a source may have more tables than a process may have files open."""
    work = opened(tmp_path, "jsonl")
    tables = {f"t{number}": Table("shop", f"t{number}", TABLE.columns, (), "log") for number in range(250)}
    ran: list[str] = []
    work._db.set_trace_callback(ran.append)
    for name, table in tables.items():
        work.add_table(("shop", name), ("id",))
        work.add_rows(("shop", name), table, [(1, "a")])
        work.complete(("shop", name), table, is_dropped=False)
        if name in ("t7", "t200"):
            work.apply(work.operations(("shop", name), table, (1, "a"), (1, "changed")))
        open_files = [one for one in work.tables.values() if one.part is not None]
        assert not open_files
    work.complete(IDENTITY, TABLE, is_dropped=False)
    work.commit(PLACE, is_copied=True)
    ran.clear()
    assert len(list(work.finish())) == 251
    # Two parts are written again, and the rest is committed at once.
    assert ran.count("COMMIT") == 3
    assert exported_rows(tmp_path, "shop.t200") == [{"id": 1, "v": "changed"}]
    assert exported_rows(tmp_path, "shop.t8") == [{"id": 1, "v": "a"}]


def test_a_part_that_cannot_be_brought_to_the_disk_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is synced while rows are read; the commit that counts on it tells."""

    def full(path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    work = opened(tmp_path)
    work.add_rows(IDENTITY, TABLE, [(1, "a")])
    with monkeypatch.context() as patch:
        patch.setattr(table_files, "sync_file", full)
        with pytest.raises(OSError, match="No space left"):
            work.commit(PLACE)
        work.close()
    work = opened(tmp_path)
    assert work.checkpoint is None
    work.add_rows(IDENTITY, TABLE, [(1, "b")])
    assert finished(work, tmp_path) == [(1, "b")]


def test_an_empty_table_has_a_file_and_a_dropped_one_has_none(tmp_path: Path) -> None:
    work = opened(tmp_path, "csv")
    work.add_table(("shop", "gone"), ("id",))
    work.complete(("shop", "gone"), Table("shop", "gone", ()), is_dropped=True)
    assert finished(work, tmp_path) == []
    assert (tmp_path / "shop.t" / "part-00000.csv").read_bytes() == b'"id","v"\n'
    assert not (tmp_path / "shop.gone").exists()


def test_no_rows_that_are_not_whole(tmp_path: Path) -> None:
    with pytest.raises(SourceConfigurationError, match="binlog_row_image=FULL"):
        change(opened(tmp_path), (1, "a"), (1, ABSENT))


def test_other_folders_are_refused(tmp_path: Path) -> None:
    work = opened(tmp_path / "export")
    with pytest.raises(ConfigurationError, match="another process writes this export"):
        opened(tmp_path / "export")
    work.commit(PLACE)
    work.close()
    with pytest.raises(ConfigurationError, match="unfinished export of something else"):
        opened(tmp_path / "export", "csv")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ConfigurationError, match=r"is not empty \(file\)"):
        opened(tmp_path / "other")
    with pytest.raises(ConfigurationError, match="'xml' is none of parquet, jsonl, csv"):
        row_format("xml")


KINDS: dict[str, tuple[Column, Any, Any, str]] = {
    "decimal": (
        Column("c", ColumnType.NEWDECIMAL, 5 << 8 | 2, True),
        Decimal("1.50"),
        Decimal("1.50"),
        "1.50",
    ),
    "double": (Column("c", ColumnType.DOUBLE, 8, True), 1.5, 1.5, "1.5"),
    "date": (Column("c", ColumnType.DATE, 0, True), date(2026, 1, 2), date(2026, 1, 2), '"2026-01-02"'),
    "zero": (Column("c", ColumnType.DATE, 0, True), "0000-00-00", None, '"0000-00-00"'),
    "datetime": (
        Column("c", ColumnType.DATETIME2, 0, True),
        datetime(2026, 1, 2, 3, 4, 5),
        datetime(2026, 1, 2, 3, 4, 5),
        '"2026-01-02T03:04:05"',
    ),
    "time": (
        Column("c", ColumnType.TIME2, 0, True),
        timedelta(hours=-30),
        timedelta(hours=-30),
        '"-30:00:00"',
    ),
    "bytes": (Column("c", ColumnType.BLOB, 2, True, charset="binary"), b"\x00\xff", b"\x00\xff", "00ff"),
    "no bytes": (Column("c", ColumnType.BLOB, 2, True, charset="binary"), b"", b"", '""'),
    "text": (Column("c", ColumnType.BLOB, 2, True, charset="utf8mb4"), "a\udcff", "a\ufffd", '"a?"'),
    "json": (
        Column("c", ColumnType.JSON, 4, True),
        JsonDocument({"a": [1, "x"]}),
        '{"a": [1, "x"]}',
        '"{""a"": [1, ""x""]}"',
    ),
    "set": (Column("c", ColumnType.SET, 1, True, labels=("x", "y")), "x,y", "x,y", '"x,y"'),
    "null": (Column("c", ColumnType.LONG, 0, True), None, None, ""),
    "empty": (Column("c", ColumnType.VARCHAR, 9, True, charset="utf8mb4"), "", "", '""'),
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_in_parquet_and_csv(kind: str, tmp_path: Path) -> None:
    column, value, in_parquet, in_csv = KINDS[kind]
    table = Table("shop", "t", (column,), (), "log")
    for name in ("parquet", "csv"):
        form = row_format(name)
        prepared = form.prepare(table, [0], [(value,)])
        assert form.of_bytes(form.to_bytes(prepared[0])) == prepared[0]
        file = form.create(str(tmp_path / name), table, [0])
        file.write(prepared)
        file.close()
    assert pq.read_table(tmp_path / "parquet").to_pylist() == [{"c": in_parquet}]
    assert (tmp_path / "csv").read_text() == f'"c"\n{in_csv}\n'


def change_much(work: WorkFolder, folder: Path) -> None:
    with disk_errors(str(folder)):
        for number in range(10_000):
            change(work, None, (number + 10, "x" * 50))


def test_a_full_disk_is_an_error_of_the_system_and_the_export_goes_on_later(tmp_path: Path) -> None:
    """SQLite's own limit stands for the disk's. The command line prints such errors with the folder's name."""
    work = opened(tmp_path)
    work.add_rows(IDENTITY, TABLE, [(1, "a"), (2, "b")])
    work.commit(PLACE)
    work._db.execute("PRAGMA max_page_count = 20")
    with pytest.raises(OSError, match="No space left on device") as raised:
        change_much(work, tmp_path)
    assert raised.value.filename == str(tmp_path)
    work.close()
    again = opened(tmp_path)
    change(again, (1, "a"), (1, "changed"))
    assert sorted(finished(again, tmp_path)) == [(1, "changed"), (2, "b")]


def add_much(work: WorkFolder, folder: Path) -> None:
    with disk_errors(str(folder)):
        for number in range(1000):
            work.add_rows(IDENTITY, TABLE, [(number, os.urandom(1000).hex())])
        work.commit(PLACE)


@every_format
def test_a_full_disk_is_told_with_the_folder_where_rows_are_written(form: str, tmp_path: Path) -> None:
    """A write to an open file does not name it: it was "No space left on device" alone."""
    work = opened(tmp_path, form)
    work.commit(PLACE)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, hard))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            add_much(work, tmp_path)
        work.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.filename == str(tmp_path)
