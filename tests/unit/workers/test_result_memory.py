"""The memory of results: a process writes over those that nobody looks at any more, and over no others."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import IO

import pytest

from replica.workers.pool import TASKS_AHEAD, WorkerPool

SIZE = 100_000

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process is forked")


def write(setting: object, task: object, output: IO[bytes]) -> None:
    """A result of its own for each task."""
    assert isinstance(task, int)
    output.write(bytes([task]) * SIZE)


def test_results_that_are_held_stay_as_they_are() -> None:
    with WorkerPool(2, write, None) as pool:
        answers = list(pool.answers(range(40)))
        assert [bytes(answer.data) for answer in answers] == [bytes([task]) * SIZE for task in range(40)]


def test_released_memory_is_used_again() -> None:
    """The process has as many files of results as tasks may be in flight, however many there were."""
    # The process may inherit files of earlier results, and close them at any time.
    others = files_of(os.getpid())
    with WorkerPool(1, write, None) as pool:
        most = 0
        for task, answer in enumerate(pool.answers(range(40))):
            assert bytes(answer.data) == bytes([task]) * SIZE
            assert answer.output
            most = max(most, len(files_of(pool.process_ids[0]) - others))
            del answer
    assert 0 < most <= TASKS_AHEAD + 1


def files_of(process_id: int) -> set[int]:
    """The inodes of the files in memory that a process has open."""
    found = set()
    for link in Path(f"/proc/{process_id}/fd").iterdir():
        with contextlib.suppress(OSError):
            if "memfd" in os.readlink(link):
                found.add(link.stat().st_ino)
    return found


def test_a_copy_of_this_process_keeps_its_results() -> None:
    """Processes that are forked from this one see the memory, too: it is not written again."""
    with WorkerPool(1, write, None) as pool:
        answers = pool.answers(range(20))
        data = next(answers).data
        begun, go_on = os.pipe(), os.pipe()
        child = os.fork()
        if not child:
            os.write(begun[1], b".")
            os.read(go_on[0], 1)
            os._exit(bytes(data) != bytes(SIZE))
        os.read(begun[0], 1)
        del data
        for answer in answers:
            del answer
        os.write(go_on[1], b".")
        assert os.waitpid(child, 0)[1] == 0
