"""Checkpoint stores: the file is whole at any moment, foreign content is refused, a stream saves at its interval."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.errors import CheckpointError
from protocol.position import Checkpoint
from replica.config.checkpoint import CheckpointKeeper, CheckpointStore, FileCheckpointStore
from tests.support.checkpoints import FIRST, SECOND, checkpoint
from tests.support.places import ROOT

KILLED = -signal.SIGKILL
#: Of Linux's prctl.
SET_DUMPABLE = 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.ckpt"


def only_file(path: Path) -> bool:
    return os.listdir(path.parent) == [path.name]


# The file is replaced as a whole


def test_what_is_saved_is_loaded(path: Path) -> None:
    store = FileCheckpointStore(path)
    assert store.load() is None
    for saved in (FIRST, SECOND, Checkpoint("", 4)):
        store.save(saved)
        assert FileCheckpointStore(str(path)).load() == saved
        assert only_file(path)
    # The checksum stands in front of what it is of, so that its line can be removed by hand.
    content = json.loads(path.read_bytes())
    assert list(content.items())[1:] == list(Checkpoint("", 4).to_dict().items())
    # Programs that read the file without the store go on from it, too.
    assert Checkpoint.from_dict(content) == Checkpoint("", 4)


def test_a_new_file_is_for_its_owner_only_and_an_old_one_keeps_its_mode(path: Path) -> None:
    store = FileCheckpointStore(path)
    store.save(FIRST)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    store.save(SECOND)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_stays_one(tmp_path: Path, exists: bool) -> None:
    target, link = tmp_path / "data" / "shop.ckpt", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to(target)
    store = FileCheckpointStore(link)
    if exists:
        FileCheckpointStore(target).save(FIRST)
    assert store.load() == (FIRST if exists else None)
    store.save(SECOND)
    assert link.is_symlink()
    assert FileCheckpointStore(target).load() == store.load() == SECOND
    assert only_file(target)


def test_a_relative_path_is_of_the_directory_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = FileCheckpointStore("shop.ckpt")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    store.save(FIRST)
    assert os.listdir(tmp_path / "elsewhere") == []
    assert FileCheckpointStore(tmp_path / "shop.ckpt").load() == FIRST


def test_leftovers_of_this_file_only_are_removed(path: Path) -> None:
    store = FileCheckpointStore(path)
    store.save(FIRST)
    handle, leftover = tempfile.mkstemp(".tmp", ".shop.ckpt.", path.parent)
    os.close(handle)
    others = [".shop.ckpt.old.abc.tmp", "shop.ckpt.abc.tmp", ".shop.ckpt.abc", ".xshop.ckpt.abc.tmp"]
    for name in others:
        (path.parent / name).touch()
    assert store.load() == FIRST
    assert not os.path.exists(leftover)
    assert sorted(os.listdir(path.parent)) == sorted([*others, path.name])


# Refused content; errors name the path

VALID = FIRST.to_dict()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no valid JSON"),
        (b"\xff\xfe\x00", "no valid JSON"),
        (json.dumps(VALID).encode()[:-1], "no valid JSON"),
        (b"[" * 100_000, "no valid JSON"),
        (b'{"version": ' + b"1" * 5000 + b"}", "no valid JSON"),
        (b"[]", "no JSON object"),
        (b"{}", "version None"),
        (b'{"version": "1"}', "version '1'"),
        (b'{"version": 1}', "keys"),
        (
            json.dumps(VALID | {"extra": 1}).encode(),
            "no extra of a checkpoint: if a later mysql-replica wrote it",
        ),
        (json.dumps(VALID | {"position": -1}).encode(), "position"),
        (json.dumps(VALID | {"gtid_set": "nonsense"}).encode(), "nonsense"),
        (json.dumps(VALID | {"server_id": "97"}).encode(), "server_id"),
        (json.dumps(VALID | {"version": 2, "more": 1}).encode(), "later mysql-replica"),
    ],
)
def test_a_damaged_or_foreign_file(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        FileCheckpointStore(path).load()
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_every_truncation_of_a_file(path: Path) -> None:
    FileCheckpointStore(path).save(FIRST)
    whole = path.read_bytes()
    # Without the last newline the file is still whole.
    for size in range(len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match="not a checkpoint file"):
            FileCheckpointStore(path).load()


def test_a_changed_bit_is_seen(path: Path, seed: int) -> None:
    """A changed digit of a position or GTID set was another valid place: events were missing, or came twice."""
    FileCheckpointStore(path).save(FIRST)
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << random.Random(f"{seed} {place}").randrange(8)
        path.write_bytes(damaged)
        # A blank that became another one, or the case of a letter of an escape, changes nothing.
        with contextlib.suppress(CheckpointError):
            assert FileCheckpointStore(path).load() == FIRST


def test_a_file_that_was_edited_by_hand(path: Path) -> None:
    store = FileCheckpointStore(path)
    store.save(FIRST)
    edited = path.read_text().replace('"position": 1,', '"position": 157,')
    path.write_text(edited)
    with pytest.raises(CheckpointError, match=r'changed by hand.*remove its line "checksum"') as caught:
        store.load()
    assert str(path) in str(caught.value)
    path.write_text("".join(line for line in edited.splitlines(True) if '"checksum"' not in line))
    assert store.load() == replace(FIRST, position=157)


@pytest.mark.parametrize("rewrite", ["line ends", "byte order mark", "layout", "release before"])
def test_a_file_that_says_the_same_in_other_bytes(path: Path, rewrite: str) -> None:
    FileCheckpointStore(path).save(FIRST)
    whole = path.read_bytes()
    path.write_bytes(
        {
            "line ends": whole.replace(b"\n", b"\r\n"),
            "byte order mark": b"\xef\xbb\xbf" + whole,
            "layout": json.dumps(json.loads(whole), sort_keys=True).encode(),
            "release before": json.dumps(FIRST.to_dict(), indent=2).encode(),
        }[rewrite]
    )
    assert FileCheckpointStore(path).load() == FIRST


def test_a_directory_is_no_checkpoint_file(path: Path) -> None:
    path.mkdir()
    store = FileCheckpointStore(path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        store.load()
    with pytest.raises(CheckpointError, match="not a regular file"):
        store.save(FIRST)
    assert only_file(path)


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    with pytest.raises(CheckpointError, match="not a regular file"):
        FileCheckpointStore(link).save(FIRST)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    store = FileCheckpointStore(tmp_path / "nowhere" / "shop.ckpt")
    assert store.load() is None
    with pytest.raises(CheckpointError, match=r"nowhere/shop\.ckpt cannot be written: No such file"):
        store.save(FIRST)


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    """Root may write everywhere; run the block as user 65534."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        # Otherwise root in a container cannot see which files this process, and forks of it, have open.
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(SET_DUMPABLE, 1)


def test_a_directory_that_cannot_be_written() -> None:
    # Not within tmp_path, which other users cannot enter.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shop.ckpt"
        FileCheckpointStore(path).save(FIRST)
        path.chmod(0o644)
        os.chmod(folder, 0o555)
        store = FileCheckpointStore(path)
        with nobody():
            assert store.load() == FIRST
            with pytest.raises(CheckpointError, match=r"shop\.ckpt cannot be written: Permission denied"):
                store.save(SECOND)
            assert store.load() == FIRST
        os.chmod(folder, 0o700)
        assert only_file(path)


# Failures on the way: the old file stays


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_disk(path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int) -> None:
    store = FileCheckpointStore(path)
    store.save(FIRST)

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(CheckpointError, match=os.strerror(code)) as caught:
            store.save(SECOND)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.filename == os.path.realpath(path)
    assert only_file(path)
    assert store.load() == FIRST
    store.save(SECOND)
    assert store.load() == SECOND


@pytest.mark.parametrize(("code", "is_refused"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_directory_that_cannot_be_synced(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int, is_refused: bool
) -> None:
    real, calls = os.fsync, []

    def fsync(handle: int) -> None:
        calls.append(stat.S_ISDIR(os.fstat(handle).st_mode))
        if calls[-1]:
            raise OSError(code, os.strerror(code))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(CheckpointError) if is_refused else contextlib.nullcontext():
        FileCheckpointStore(path).save(FIRST)
    assert calls == [False, True]
    assert FileCheckpointStore(path).load() == FIRST


def run_child(path: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a child process, with the store and the checkpoints of this test."""
    lines = [
        "import os, sys, signal, resource",
        "from tests.support.checkpoints import checkpoint, FIRST, SECOND",
        "from replica.config.checkpoint import FileCheckpointStore",
        "store = FileCheckpointStore(sys.argv[1])",
    ]
    command = (sys.executable, "-c", "\n".join([*lines, code]), str(path))
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_a_full_disk(path: Path) -> None:
    # RLIMIT_FSIZE: Python ignores the signal, and the write fails in the middle.
    code = """
store.save(FIRST)
resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))
try:
    store.save(SECOND)
except Exception as error:
    print(type(error).__name__, error)
assert store.load() == FIRST
"""
    result = run_child(path, code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(
        f"CheckpointError the checkpoint file {path} cannot be written: File too large"
    )
    assert FileCheckpointStore(path).load() == FIRST
    assert only_file(path)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "call", ["tempfile.mkstemp", "os.fsync", "os.replace", "replica.config.checkpoint.sync_directory"]
)
def test_a_kill_around_each_step(path: Path, call: str, moment: str) -> None:
    FileCheckpointStore(path).save(FIRST)
    code = f"""
import tempfile
import replica.config.checkpoint
real = {call}
def dying(*arguments):
    {"real(*arguments)" if moment == "after" else "pass"}
    os.kill(os.getpid(), signal.SIGKILL)
{call} = dying
store.save(SECOND)
"""
    result = run_child(path, code)
    assert result.returncode == KILLED, result.stderr
    is_renamed = call.endswith("sync_directory") or (call, moment) == ("os.replace", "after")
    is_left = not is_renamed and (call, moment) != ("tempfile.mkstemp", "before")
    assert only_file(path) != is_left
    assert FileCheckpointStore(path).load() == (SECOND if is_renamed else FIRST)
    assert only_file(path)


def test_kills_at_random_moments(seed: int, path: Path, request: pytest.FixtureRequest) -> None:
    """A process saves 1, 2, 3... and prints each number before and after; the file always holds one of the two."""
    rng = random.Random(seed)
    code = """
from tests.support.checkpoints import checkpoint
number = int(sys.argv[2])
while True:
    number += 1
    os.write(1, b"%d begun\\n" % number)
    store.save(checkpoint(number))
    os.write(1, b"%d saved\\n" % number)
"""
    setup = (
        "import os, sys\nfrom replica.config.checkpoint import FileCheckpointStore\n"
        "store = FileCheckpointStore(sys.argv[1])"
    )
    number, leftovers = 0, 0
    kills = 60 if request.config.getoption("--long") else 8
    for _ in range(kills):
        command = (sys.executable, "-c", setup + code, str(path), str(number))
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            # However slow the machine is, one is saved.
            said = [process.stdout.readline().rstrip() for _ in range(2)]
            assert said == [f"{number + 1} begun", f"{number + 1} saved"]
            time.sleep(rng.uniform(0, 0.05))
            process.kill()
            said += process.stdout.read().splitlines()
        assert process.returncode == KILLED
        begun, saved = (
            max([number, *(int(line.split()[0]) for line in said if line.endswith(end))])
            for end in ("begun", "saved")
        )
        leftovers += len(os.listdir(path.parent)) - path.exists()
        loaded = FileCheckpointStore(path).load()
        assert loaded is not None
        assert saved <= loaded.position <= begun
        assert loaded == checkpoint(loaded.position)
        number = loaded.position
        assert len(os.listdir(path.parent)) == 1
    print(f"{number} saved, {leftovers} leftovers")
    assert number >= kills


# When a stream saves


class ListStore:
    """Keeps all checkpoints in a list; its methods are plain functions."""

    def __init__(self, held: Checkpoint | None = None) -> None:
        self.held = held
        self.saved: list[Checkpoint] = []
        self.error: Exception | None = None

    def load(self) -> Checkpoint | None:
        return self.held

    def save(self, checkpoint: Checkpoint) -> None:
        if self.error is not None:
            raise self.error
        self.saved.append(checkpoint)


class AsyncStore:
    def __init__(self, store: ListStore) -> None:
        self.store = store

    async def load(self) -> Checkpoint | None:
        return self.store.load()

    async def save(self, checkpoint: Checkpoint) -> None:
        self.store.save(checkpoint)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_keeper_saves_what_has_changed_when_it_is_due(is_async: bool) -> None:
    inner = ListStore(FIRST)
    store: CheckpointStore = AsyncStore(inner) if is_async else inner
    keeper = CheckpointKeeper(store, 1.0)
    assert await keeper.load() == FIRST
    assert keeper.should_save(100.0)
    await keeper.save(FIRST, 100.0)
    assert inner.saved == []
    await keeper.save(SECOND, 100.0)
    assert inner.saved == [SECOND]
    assert not keeper.should_save(100.9)
    assert keeper.should_save(101.0)
    await keeper.save(SECOND, 101.0)
    assert inner.saved == [SECOND]
    # An unchanged checkpoint is not saved, and does not delay the next one.
    assert keeper.should_save(101.1)
    # Forced, as at a clean exit.
    await keeper.save(FIRST, 101.2)
    await keeper.save(SECOND, 101.3)
    assert inner.saved == [SECOND, FIRST, SECOND]


async def test_an_interval_of_0_is_each_one() -> None:
    keeper = CheckpointKeeper(ListStore(), 0)
    assert await keeper.load() is None
    for number in range(3):
        assert keeper.should_save(5.0)
        await keeper.save(checkpoint(number), 5.0)
    assert keeper.should_save(5.0)


async def test_what_could_not_be_saved_is_still_to_be_saved() -> None:
    store = ListStore()
    keeper = CheckpointKeeper(store, 1.0)
    store.error = CheckpointError("full")
    with pytest.raises(CheckpointError, match="full"):
        await keeper.save(FIRST, 10.0)
    assert keeper.should_save(10.0)
    store.error = None
    await keeper.save(FIRST, 10.1)
    assert store.saved == [FIRST]


async def test_a_store_that_loads_something_else() -> None:
    store = ListStore()
    store.held = FIRST.to_dict()  # type: ignore[assignment]
    with pytest.raises(CheckpointError, match="Checkpoint or None"):
        await CheckpointKeeper(store, 1.0).load()
