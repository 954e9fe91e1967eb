"""Locks of stores' files: one holder, who is named; the lock ends with its process, and leaves no file behind."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.errors import CheckpointError
from replica.config.checkpoint import FileCheckpointStore
from replica.config.file_lock import FileLock, locks_of
from replica.config.schema_store import FileSchemaStore
from tests.support.checkpoints import FIRST
from tests.support.places import ROOT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.ckpt"


def lock_of(path: Path) -> FileLock:
    return FileLock("checkpoint file", str(path))


def take_and_release(path: Path) -> None:
    lock = lock_of(path)
    lock.take()
    lock.release()


def take_elsewhere(path: Path) -> None:
    """Take the lock in another process. Raises the ``CheckpointError`` of that process."""
    code = (
        "import sys\nfrom protocol.errors import CheckpointError\nfrom replica.config.file_lock import FileLock\n"
        "try: FileLock('checkpoint file', sys.argv[1]).take()\nexcept CheckpointError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    if done.stdout:
        raise CheckpointError(done.stdout.strip())


@contextmanager
def holder_of(path: Path, code: str = "") -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until it is killed, or reads a line."""
    lines = [
        "import os, sys",
        "from replica.config.file_lock import FileLock",
        "lock = FileLock('checkpoint file', sys.argv[1])",
        "lock.take()",
        code or "print('held', flush=True); sys.stdin.readline(); lock.release()",
    ]
    command = (sys.executable, "-c", "\n".join(lines), str(path))
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_one_is_told_which_file_and_who_holds_it(path: Path) -> None:
    with holder_of(path) as process:
        with pytest.raises(CheckpointError) as caught:
            lock_of(path).take()
        assert str(caught.value) == (
            f"the checkpoint file {path} is in use by process {process.pid} on {os.uname().nodename}: give each "
            "stream a file of its own, or end the other one"
        )
        # Whoever only reads needs no lock.
        FileCheckpointStore(path).save(FIRST)
        assert FileCheckpointStore(path).load() == FIRST
        process.communicate("end\n", timeout=60)
    assert os.listdir(path.parent) == [path.name]


def test_a_killed_holder_holds_nothing(path: Path) -> None:
    with holder_of(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert os.listdir(path.parent) == [".shop.ckpt.lock"]
    take_and_release(path)
    assert os.listdir(path.parent) == []


def test_the_newest_stream_of_a_process_has_the_lock(path: Path) -> None:
    """One that was left without being closed keeps nobody from it, and may not save any more."""
    first, second = lock_of(path), lock_of(path)
    for _ in range(2):
        first.take()
        first.check()
        second.take()
        second.check()
        with pytest.raises(CheckpointError, match="in use by another stream of this process"):
            first.check()
        first.release()
        first.release()
        second.check()
        with pytest.raises(CheckpointError, match=f"in use by process {os.getpid()} on"):
            take_elsewhere(path)
        second.release()
    assert os.listdir(path.parent) == []


def test_the_newest_stream_ends_first(path: Path) -> None:
    first, second = lock_of(path), lock_of(path)
    first.take()
    second.take()
    second.release()
    with pytest.raises(CheckpointError, match="in use by another process"):
        first.check()
    first.release()
    take_and_release(path)
    assert os.listdir(path.parent) == []


def test_a_link_to_the_file_is_the_file(path: Path) -> None:
    link = path.parent / "link"
    link.symlink_to(path)
    lock = lock_of(path)
    lock.take()
    with pytest.raises(CheckpointError, match="in use"):
        take_elsewhere(link)
    lock.release()


def test_a_forked_process_neither_releases_the_lock_nor_keeps_it(path: Path) -> None:
    code = """
if os.fork() == 0:
    lock.release()
    os._exit(0)
os.wait()
ended = os.pipe()
if os.fork() == 0:
    os.close(ended[1])
    os.read(ended[0], 1)
    os._exit(0)
print("held", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""
    with holder_of(path, code) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with pytest.raises(CheckpointError, match=f"in use by process {process.pid} on"):
            lock_of(path).take()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "released\n"
        take_and_release(path)


def test_a_process_of_the_same_name_and_number_is_another_one(path: Path) -> None:
    """As in two containers that have the network, and so the name, of their host: each process has the number 1."""
    code = f"""
lock.release()
os.getpid = lambda: {os.getpid()}
lock.take()
print("held", flush=True)
sys.stdin.readline()
"""
    with (
        holder_of(path, code),
        pytest.raises(CheckpointError, match=f"in use by another process {os.getpid()} on"),
    ):
        lock_of(path).take()


def test_the_lock_ends_with_its_process_though_a_forked_one_lives_on(path: Path) -> None:
    """As the workers of a multiprocessing pool do after their parent is killed."""
    code = """
ended = os.pipe()
if (child := os.fork()) == 0:
    os.close(ended[1])
    # The parent's end is gone with it; the test's end of the standard input is not.
    os.read(ended[0], 1)
    sys.stdin.readline()
    os._exit(0)
print("held", flush=True)
os.waitpid(child, 0)
"""
    with holder_of(path, code) as process:
        with pytest.raises(CheckpointError, match=f"in use by process {process.pid} on"):
            take_elsewhere(path)
        process.send_signal(signal.SIGKILL)
        process.wait()
        take_elsewhere(path)
        take_and_release(path)


def test_one_that_opened_the_lock_file_before_it_was_removed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It locks a file that is gone, notices, and opens the one that is there."""
    held, real, calls = lock_of(path), fcntl.flock, 0
    held.take()

    def flock(*given: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            monkeypatch.setattr(fcntl, "flock", real)
            held.release()
            monkeypatch.setattr(fcntl, "flock", flock)
        real(*given)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = lock_of(path)
    lock.take()
    assert calls == 2
    with pytest.raises(CheckpointError, match="in use"):
        take_elsewhere(path)
    lock.release()


def test_a_file_system_without_locks(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = lock_of(path)
    with caplog.at_level(logging.WARNING):
        lock.take()
    assert f"{path} cannot be locked (No locks available)" in caplog.text
    lock.release()


def test_a_folder_that_is_not_there(path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"shop\.ckpt cannot be written: No such file"):
        lock_of(path / "shop.ckpt").take()


def test_which_stores_have_locks(path: Path) -> None:
    assert locks_of(None, None) == []
    for _ in range(2):
        both = locks_of(FileCheckpointStore(path), FileSchemaStore(path.with_suffix(".schemas")))
        for lock in both:
            lock.take()
        assert sorted(os.listdir(path.parent)) == [".shop.ckpt.lock", ".shop.schemas.lock"]
        for lock in both:
            lock.release()
