"""A schema store with a copy: after a kill, and on another machine, file and copy are what the last driver wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from protocol.errors import CheckpointError, ConfigurationError
from replica.config.schema_store import FileSchemaStore
from replica.spool.copied_names import CopiedSchemaStore
from replica.spool.storage import NO_STORAGE, StoredFile


@pytest.fixture
def copy(tmp_path: Path) -> StoredFile:
    return StoredFile(f"file://{tmp_path}/shared/spool/schemas", NO_STORAGE)


def store(folder: Path, copy: StoredFile) -> CopiedSchemaStore:
    """That of a machine."""
    folder.mkdir(exist_ok=True)
    return CopiedSchemaStore(str(folder / "schemas"), copy)


def test_another_machine_has_all_lines(tmp_path: Path, copy: StoredFile) -> None:
    one, two = store(tmp_path / "one", copy), store(tmp_path / "two", copy)
    assert not one.fetch()
    assert one.load() is None
    one.save(["a", "b"])
    assert two.fetch()
    assert two.load() == ["a", "b"]
    two.append(["c"])
    # Back on the first machine, twice.
    assert one.fetch()
    assert one.load() == ["a", "b", "c"]
    assert not one.fetch()
    two.save(["x"])
    assert one.fetch()
    assert one.load() == ["x"]


def test_killed_before_the_copy_is_written(tmp_path: Path, copy: StoredFile) -> None:
    one = store(tmp_path / "one", copy)
    one.save(["a"])
    file = FileSchemaStore(tmp_path / "one" / "schemas")
    file.append(["b"])
    assert not one.fetch()
    assert copy.read() == b"a\nb\n"
    # A history that was written anew: the spool has nothing of what is new in it, so the copy is right, too.
    file.save(["x"])
    assert one.fetch()
    assert one.load() == ["a", "b"]


def test_a_store_of_before_gets_a_copy(tmp_path: Path, copy: StoredFile) -> None:
    one = store(tmp_path / "one", copy)
    FileSchemaStore(tmp_path / "one" / "schemas").save(["a"])
    assert not one.fetch()
    assert copy.read() == b"a\n"
    one.clear()
    one.clear()
    assert copy.read() is None


def test_a_copy_is_whole_at_any_time(tmp_path: Path, copy: StoredFile) -> None:
    copy.write(b"before")
    reader = open(tmp_path / "shared/spool/schemas", "rb")  # noqa: SIM115
    copy.write(b"after")
    with reader:
        assert reader.read() == b"before"
    assert copy.read() == b"after"
    assert [path.name for path in (tmp_path / "shared/spool").iterdir()] == ["schemas"]


def test_places_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    blocked = StoredFile(f"file://{tmp_path}/file/schemas", NO_STORAGE)
    for use in (blocked.read, blocked.delete, lambda: blocked.write(b"x")):
        with pytest.raises(CheckpointError, match="file/schemas"):
            use()
    with pytest.raises(ConfigurationError):
        StoredFile("nosuch://x/schemas", NO_STORAGE)
