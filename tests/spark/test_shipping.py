"""Pieces with their bytes, or in objects, give the same rows where their files cannot be seen. No Spark."""

from __future__ import annotations

import gzip
import pickle
import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from protocol.errors import CheckpointError, ConfigurationError
from replica.spark.piece_sender import PieceSender, spool_folder
from replica.spark.source_options import parse_options
from replica.spool import shipping
from replica.spool.pieces import LogPiece
from replica.spool.shipping import ObjectFolder, ship
from replica.spool.storage import NO_STORAGE, find_stored_logs
from tests.spark.support.generated_log import write_generated
from tests.spark.support.planned import plan, read_all


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder with the files of a log, one of them compressed."""
    folder = tmp_path / "logs"
    folder.mkdir()
    *_, last = write_generated(folder, 7, transactions=6)
    (folder / f"{last.name}.gz").write_bytes(gzip.compress(last.read_bytes()))
    last.unlink()
    return folder


def rows_elsewhere(pieces: list[LogPiece], logs: Path) -> list[dict[str, Any]]:
    """The rows that a machine reads that does not have the files."""
    copies = pickle.loads(pickle.dumps(pieces))
    hidden = logs.rename(logs.with_name("hidden"))
    try:
        return sorted(read_all(copies), key=lambda row: row["seq"])
    finally:
        hidden.rename(logs)


def objects_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_bytes_travel_with_the_pieces_or_in_objects(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = plan(f"{logs}/binlog.*", 2000)
    expected = sorted(read_all(pieces), key=lambda row: row["seq"])
    assert any(piece.is_whole for piece in pieces)
    objects = ObjectFolder(f"file://{tmp_path}/spool", NO_STORAGE)
    assert rows_elsewhere(ship(pieces, None), logs) == expected
    # A few bytes travel with the pieces, whatever else there is.
    assert rows_elsewhere(ship(pieces, objects), logs) == expected
    assert objects_of(tmp_path / "spool") == []
    monkeypatch.setattr(shipping, "SHIPPED_BYTES", 5000)
    shipped = ship(pieces, objects)
    assert [piece.data for piece in shipped] == [None] * len(pieces)
    assert rows_elsewhere(shipped, logs) == expected
    assert objects.size == sum(path.stat().st_size for path in (tmp_path / "spool").iterdir())
    monkeypatch.setattr(shipping, "_MOST_BYTES", 5000)
    with pytest.raises(ConfigurationError, match=r"spoolDir: .* give a folder that"):
        ship(pieces, None)


def test_objects_are_deleted_when_they_are_done(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "SHIPPED_BYTES", 0)
    spool = tmp_path / "spool"
    pieces = [piece for piece in plan(f"{logs}/binlog.*", 2000) if not piece.is_whole]
    objects = ObjectFolder(f"file://{spool}", NO_STORAGE)
    names = [piece.uri.rpartition("/")[2] for piece in ship(pieces, objects)]
    assert objects_of(spool) == sorted(names)
    piece = pieces[2]
    objects.delete_up_to((piece.epoch, piece.number, piece.position + piece.size))
    assert objects_of(spool) == sorted(names[3:])
    # What a run has left is of no use to the next one, as another server's log may have the same places.
    (spool / "of somebody else").touch()
    # It was killed while it wrote an object.
    (spool / f".{names[4]}").touch()
    assert ObjectFolder(f"file://{spool}", NO_STORAGE).size == 0
    assert objects_of(spool) == ["of somebody else"]
    with pytest.raises(
        CheckpointError, match=r"^spoolDir: .*\.piece: .* or another query has the same spoolDir"
    ):
        read_all([replace(pieces[0], uri=f"file://{spool}/{names[0]}")])


def test_a_full_disk_gets_its_room_back(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [piece for piece in plan(f"{logs}/binlog.*", 2000) if not piece.is_whole]
    objects = ObjectFolder(f"file://{tmp_path}/spool", NO_STORAGE)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
        with pytest.raises(CheckpointError, match=r"^spoolDir "):
            objects.put(pieces[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert objects_of(tmp_path / "spool") == []
    assert read_all([objects.put(pieces[0])]) == read_all(pieces[:1])


def test_objects_of_two_queries_with_one_folder(logs: Path, tmp_path: Path) -> None:
    """Their drivers are on two machines, and their sources have other rows at the same places of the log."""
    pieces = [piece for piece in plan(f"{logs}/binlog.*", 2000) if not piece.is_whole]
    expected = read_all(pieces[:1])
    first, second = (ObjectFolder(f"file://{tmp_path}/spool", NO_STORAGE) for _ in range(2))
    shipped = first.put(pieces[0])
    other = tmp_path / "other"
    other.write_bytes(bytes(pieces[0].start + pieces[0].size))
    again = second.put(replace(pieces[0], path=str(other)))
    assert read_all([shipped]) == expected
    second.delete_up_to(again.places[1])
    assert read_all([shipped]) == expected


def test_files_by_uri(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = find_stored_logs(f"file://{logs}", NO_STORAGE)
    assert [file.name for file in found] == ["binlog.000001", "binlog.000002", "binlog.000003"]
    found = find_stored_logs(f"file://{logs}/binlog.*", NO_STORAGE)
    assert [file.name for file in found] == ["binlog.000001", "binlog.000002", "binlog.000003"]
    with pytest.raises(ConfigurationError, match="no binlog files"):
        find_stored_logs(f"file://{logs}/other.*", NO_STORAGE)
    assert not caplog.records
    (logs / "binlog.000002").unlink()
    find_stored_logs(f"file://{logs}", NO_STORAGE)
    assert "binlog.000003 follows binlog.000001; files between them are missing" in caplog.text


def test_what_a_sender_does_where_folders_are_shared(logs: Path) -> None:
    pieces = plan(f"{logs}/binlog.*", 1 << 30)
    options = parse_options({"path": str(logs)})
    assert PieceSender(options, shares_folders=True).send(pieces) == pieces
    assert all(piece.data for piece in PieceSender(options, shares_folders=False).send(pieces))
    said = parse_options({"path": str(logs), "sharedFolders": "true"})
    assert PieceSender(said, shares_folders=False).send(pieces) == pieces


def test_where_the_driver_keeps_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    given = {"user": "u", "spoolDir": "s3://bucket/spool"}
    folder = Path(spool_folder(parse_options(given)))
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    assert spool_folder(parse_options(given | {"spoolDir": "s3://bucket/spool/"})) == str(folder)
    assert spool_folder(parse_options(given | {"spoolCache": "/cache"})) == "/cache"
    assert spool_folder(parse_options({"user": "u", "spoolDir": "/spool"})) == "/spool"
    folder.rmdir()
    folder.touch()
    with pytest.raises(CheckpointError, match="spoolCache"):
        spool_folder(parse_options(given))


def test_storage_options_are_a_secret() -> None:
    options = parse_options({"path": "s3://b/l", "storageOptions": '{"AWS_SECRET_ACCESS_KEY": "hidden"}'})
    assert options.settings.storage == {"AWS_SECRET_ACCESS_KEY": "hidden"}
    assert "hidden" not in repr(options)
    for text in ("[]", "{", '{"a": 1}'):
        with pytest.raises(ConfigurationError, match="storageOptions: must be a JSON object"):
            parse_options({"path": "/l", "storageOptions": text})
