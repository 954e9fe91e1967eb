"""A consumer that is killed again and again: with checkpoints of their own every change is there at least once, and
exactly once where the checkpoint lies in the same database transaction as the changes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from pathlib import Path

import pytest

from tests.faults.consumer import (
    DATABASE,
    DATABASE_BATCHES,
    FILE,
    FILE_BATCHES,
    DatabaseKeeper,
    FileKeeper,
)
from tests.faults.waiting import ended, until
from tests.faults.workload import Identity, Workload, first_difference
from tests.faults.writer import Writer
from tests.support.servers import Server

from .support.streams import SECONDS, end_of_log

# A Python process needs this long to get to its first row; kills come before and after it.
_LIFE_SECONDS = 1.2
# A consumer at work is killed this long after it has kept its first changes, at most.
_WORK_SECONDS = 0.1


class Pace:
    """Lets the writer write the same number of transactions each time: single ones may have any number of changes."""

    def __init__(self, writer: Writer, shares: int) -> None:
        self._writer = writer
        self._ends = [transaction.end for transaction in writer.workload.transactions]
        self._step = len(self._ends) // shares
        assert self._step, f"the workload has {len(self._ends)} transactions only"
        self._given = 0
        writer.limit = 0

    def write_more(self) -> None:
        self._given += self._step
        self._writer.limit = self._ends[self._given - 1]

    def write_all(self) -> None:
        self._writer.limit = self._ends[-1]


class Consumers:
    """Consumer processes, one after another, of the same directory.

    ``killed_at_work`` counts those that had kept changes when they were killed, with more to come.
    """

    def __init__(self, kind: str, server: Server, schema: str, last: int, directory: Path) -> None:
        start = end_of_log(server)
        self.killed_at_work = 0
        self._directory = directory
        self._keeper = FileKeeper if kind in (FILE, FILE_BATCHES) else DatabaseKeeper
        self._arguments = [kind, server.dsn(), schema, str(start), str(last), str(directory)]

    async def start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.faults.consumer", *self._arguments
        )

    async def start_and_kill(self, seconds: float) -> None:
        """Kill a consumer so many seconds after its start, which may be before its first change."""
        kept = self._keeper.count(self._directory)
        process = await self.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await process.wait()
        await self._kill(process, kept)

    async def start_and_kill_at_work(self, pace: Pace, seconds: float) -> None:
        """Kill a consumer so many seconds after it has kept changes, while more are being written."""
        kept = self._keeper.count(self._directory)
        process = await self.start()
        try:
            await until(
                lambda: process.returncode is not None or self._keeper.count(self._directory) > kept,
                seconds=SECONDS,
            )
        except TimeoutError:
            # It would be a replica of this server for all later tests.
            process.kill()
            raise
        pace.write_more()
        await asyncio.sleep(seconds)
        await self._kill(process, kept)

    async def _kill(self, process: asyncio.subprocess.Process, kept: int) -> None:
        assert process.returncode is None, "it has ended by itself"
        process.kill()
        await process.wait()
        self.killed_at_work += self._keeper.count(self._directory) > kept

    async def run(self) -> None:
        await ended(await self.start())


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        pytest.param("mysql:9.7", FILE, marks=pytest.mark.long),
        ("mysql:9.7", DATABASE),
        ("mariadb:11.8", FILE),
        pytest.param("mariadb:11.8", DATABASE, marks=pytest.mark.long),
        ("mysql:9.7", FILE_BATCHES),
        pytest.param("mysql:9.7", DATABASE_BATCHES, marks=pytest.mark.long),
        ("mariadb:11.8", DATABASE_BATCHES),
    ],
    indirect=["server"],
)
async def test_a_consumer_is_killed(
    seed: int, server: Server, schema: str, kind: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    kills, changes = (50, 200_000) if pytestconfig.getoption("long") else (5, 20_000)
    rng = random.Random(seed)
    workload = Workload(seed, changes)
    writer = Writer(server, schema, workload)
    writer.create_tables()
    consumers = Consumers(kind, server, schema, changes, tmp_path)
    # Each consumer finds a share of the changes, and while every other one is at work another share is written. The
    # rest is written after the last kill, so that no consumer is ever finished.
    pace = Pace(writer, 3 * kills)
    with contextlib.ExitStack() as stack:
        stack.callback(writer.stop)
        async with asyncio.timeout(kills * SECONDS):
            writing = asyncio.create_task(asyncio.to_thread(writer.run))
            for number in range(kills):
                pace.write_more()
                if number % 2:
                    await consumers.start_and_kill(rng.uniform(0.1, _LIFE_SECONDS))
                else:
                    await consumers.start_and_kill_at_work(pace, rng.uniform(0, _WORK_SECONDS))
            pace.write_all()
            await writing
            await consumers.run()
    print("killed at work", consumers.killed_at_work)
    assert consumers.killed_at_work >= (kills + 1) // 2
    expected = list(workload.identities())
    if kind in (DATABASE, DATABASE_BATCHES):
        [kept] = DatabaseKeeper.read(tmp_path)
        assert first_difference(kept, expected) == ""
        return
    parts = FileKeeper.read(tmp_path)
    print("kept by each process", [len(part) for part in parts])
    assert_each_goes_on(parts, expected)


def assert_each_goes_on(parts: list[list[Identity]], expected: list[Identity]) -> None:
    """Each process has kept a stretch of the changes without a gap, and the next one begins within or behind it."""
    numbers = {change: i for i, change in enumerate(expected)}
    end = 0
    for part in filter(None, parts):
        begin = numbers[part[0]]
        assert begin <= end, f"changes {end} to {begin} are missing"
        assert first_difference(part, expected[begin : begin + len(part)]) == ""
        end = begin + len(part)
    assert end == len(expected)


def test_gaps_are_found() -> None:
    expected = list(Workload(1, 100).identities())
    assert_each_goes_on([expected[:50], [], expected[20:70], expected[70:]], expected)
    for parts in (
        [expected[:50], expected[51:]],
        [expected[:99]],
        [expected[:30], [*expected[10:20], *expected[21:]]],
    ):
        with pytest.raises(AssertionError):
            assert_each_goes_on(parts, expected)
