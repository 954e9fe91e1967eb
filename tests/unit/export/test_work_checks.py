"""An unfinished export that is damaged, or whose files are of different times: an error, and no wrong rows."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from protocol.errors import CheckpointError
from tests.support.small_export import IDENTITY, PLACE, TABLE, change, finished, opened


@pytest.mark.parametrize("sound", [0, 100, 4096])
def test_a_damaged_state_is_told_with_its_remedy(sound: int, tmp_path: Path) -> None:
    """Bytes of ``state.sqlite`` behind the sound ones are overwritten."""
    work = opened(tmp_path)
    work.commit(PLACE)
    work.close()
    state = tmp_path / ".copy" / "state.sqlite"
    state.write_bytes(state.read_bytes()[:sound] + b"\x55" * 40_000)
    with pytest.raises(CheckpointError, match=r"damaged .*: remove the folder, and copy again"):
        opened(tmp_path)


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_lost_file_is_told(is_copied: bool, tmp_path: Path) -> None:
    """Its rows were left out of the export, without a word."""
    work = opened(tmp_path)
    work.add_rows(IDENTITY, TABLE, [(1, "a")])
    work.commit(PLACE)
    work.add_rows(IDENTITY, TABLE, [(2, "b")])
    work.complete(IDENTITY, TABLE, is_dropped=False)
    work.commit(PLACE, is_copied=is_copied)
    work.close()
    (tmp_path / ".copy" / "part-000001.jsonl").unlink()
    with pytest.raises(CheckpointError, match=r"lacks part-000001\.jsonl.*: remove .*, and copy again"):
        list(opened(tmp_path).finish())


@pytest.mark.parametrize("damage", [b"", b'{"id": 1, "v": "a"}\n' * 2], ids=["shorter", "longer"])
@pytest.mark.parametrize("suffix", ["", ".keys"])
@pytest.mark.parametrize("is_copied", [False, True])
def test_a_file_of_another_time_is_told(is_copied: bool, suffix: str, damage: bytes, tmp_path: Path) -> None:
    """As in a backup of a folder that was written meanwhile: rows were missing, or came twice."""
    work = opened(tmp_path)
    work.add_rows(IDENTITY, TABLE, [(1, "a")])
    change(work, (1, "a"), (1, "b"))
    work.complete(IDENTITY, TABLE, is_dropped=False)
    work.commit(PLACE, is_copied=is_copied)
    work.close()
    (tmp_path / ".copy" / f"part-000001.jsonl{suffix}").write_bytes(damage)
    with pytest.raises(
        CheckpointError, match=rf"part-000001\.jsonl{suffix} has .* bytes, and had .*copy again"
    ):
        list(opened(tmp_path).finish())


def test_an_export_that_an_earlier_release_began_goes_on(tmp_path: Path) -> None:
    work = opened(tmp_path)
    work.add_rows(IDENTITY, TABLE, [(1, "a")])
    work.commit(PLACE)
    work.close()
    with contextlib.closing(sqlite3.connect(tmp_path / ".copy" / "state.sqlite")) as database, database:
        database.execute("DROP TABLE sizes")
        place = json.dumps(PLACE.to_dict())
        database.execute("UPDATE meta SET value = ? WHERE name = 'checkpoint'", (place,))
    work = opened(tmp_path)
    assert work.checkpoint == PLACE
    work.add_rows(IDENTITY, TABLE, [(2, "b")])
    change(work, (1, "a"), (1, "changed"))
    assert sorted(finished(work, tmp_path)) == [(1, "changed"), (2, "b")]


def test_a_changed_digit_of_the_place_is_seen(tmp_path: Path) -> None:
    work = opened(tmp_path)
    work.commit(PLACE)
    work.close()
    with contextlib.closing(sqlite3.connect(tmp_path / ".copy" / "state.sqlite")) as database, database:
        database.execute("UPDATE meta SET value = replace(value, '500', '900')")
    with pytest.raises(
        CheckpointError, match=r"checksum is that of other content.*: remove .*, and copy again"
    ):
        _ = opened(tmp_path).checkpoint


def test_a_database_with_a_page_of_another_time(tmp_path: Path) -> None:
    """SQLite asked one index which parts a table has, and the export had none of their rows."""
    work = opened(tmp_path)
    work.commit(PLACE)
    state = tmp_path / ".copy" / "state.sqlite"
    before = state.read_bytes()
    work.add_rows(IDENTITY, TABLE, [(1, "a")])
    work.commit(PLACE)
    number = "SELECT rootpage FROM sqlite_master WHERE name = 'parts_of_tables'"
    [(page,)], [(size,)] = work._db.execute(number), work._db.execute("PRAGMA page_size")
    work.close()
    place = slice((page - 1) * size, page * size)
    now = bytearray(state.read_bytes())
    now[place] = before[place]
    state.write_bytes(now)
    with pytest.raises(CheckpointError, match=r"state of the unfinished export is damaged.*copy again"):
        opened(tmp_path)


def test_a_place_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """As that of a later release would be."""
    opened(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / ".copy" / "state.sqlite")) as database, database:
        database.execute("INSERT OR REPLACE INTO meta VALUES ('checkpoint', '{\"version\": 7}')")
    with pytest.raises(CheckpointError, match=r"version 7.*: remove the folder, and copy again"):
        _ = opened(tmp_path).checkpoint
