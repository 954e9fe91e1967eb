"""Consumers that are killed between and while statements change tables: every row under the names of its place.

``TEST_SEED`` repeats when they are killed. The user may only read; servers are at their defaults.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from pathlib import Path

import pytest

from tests.faults.waiting import ended, until
from tests.server.support.ddl_runs import Running, difference
from tests.server.support.schema_consumer import DATABASE, FILE, Kept, read
from tests.server.support.streams import PASSWORD, SECONDS, user_of
from tests.support.ddl_cases import CASES
from tests.support.servers import Server

KILLS, MOST_KILLS = 3, 25
# The short form has every fourth case.
_SHARE = 4
_LONGEST_WAIT = 1.0


async def consumer(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.server.support.schema_consumer", *arguments
    )


def count(kind: str, directory: Path) -> int:
    return sum(map(len, read(kind, directory)))


async def run(*arguments: str) -> None:
    """A consumer that ends at the end of the log."""
    process = await consumer(*arguments, "now")
    async with asyncio.timeout(SECONDS * 4):
        await ended(process)


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        ("mysql:9.7", DATABASE),
        pytest.param("mysql:9.7", FILE, marks=pytest.mark.long),
        ("mysql:5.6", FILE),
        pytest.param("mysql:5.6", DATABASE, marks=pytest.mark.long),
        ("mariadb:10.11", DATABASE),
        pytest.param("mariadb:10.11", FILE, marks=pytest.mark.long),
        ("mariadb:11.8", FILE),
        pytest.param("mariadb:11.8", DATABASE, marks=pytest.mark.long),
    ],
    indirect=["server"],
)
async def test_a_consumer_is_killed_while_tables_change(
    seed: int, server: Server, kind: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    is_long = pytestconfig.getoption("long")
    kills = MOST_KILLS if is_long else KILLS
    rng = random.Random(f"{seed} {server.name} {kind}")
    with user_of(server) as user, contextlib.ExitStack() as schemas:
        running = Running(server, schemas, CASES if is_long else CASES[rng.randrange(_SHARE) :: _SHARE])
        arguments = [kind, server.dsn(user, PASSWORD), ",".join(running.patterns), str(tmp_path)]
        # From here on.
        await run(*arguments)
        for number in range(kills):
            process = await consumer(*arguments)
            writing = asyncio.create_task(asyncio.to_thread(running.run, number, kills + 1))
            try:
                if number % 2 == 0:
                    # Killed at work; some cases have no rows for this server.
                    had = count(kind, tmp_path)
                    await until(
                        lambda process=process, had=had, writing=writing: (  # type: ignore[misc]
                            process.returncode is not None or count(kind, tmp_path) > had or writing.done()
                        ),
                        seconds=SECONDS * 4,
                    )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(rng.uniform(0, _LONGEST_WAIT)):
                        await process.wait()
                assert process.returncode is None, "it has ended by itself"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                await writing
        await asyncio.to_thread(running.run, kills, kills + 1)
        await run(*arguments)
        assert running.rows
        parts = [part for part in read(kind, tmp_path) if part]
        print("rows of each process", [len(part) for part in parts])
        found = joined(parts, running.rows)
        assert found == running.rows, running.problem(found)


def joined(parts: list[list[Kept]], rows: list[Kept]) -> list[Kept]:
    """The rows of all processes, each of which goes on behind the one before, or with rows that it had kept."""
    found: list[Kept] = []
    for part in parts:
        for begin in range(len(found), max(len(found) - 100, -1), -1):
            if rows[begin : begin + len(part)] == part:
                found = [*found[:begin], *part]
                break
        else:
            raise AssertionError(difference(part, rows[len(found) :]))
    return found
