"""The memory of the driver's Python process does not grow with a transaction, nor with the batches that wait."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from replica.server import BinlogServer
from tests.spark.support.numbered_log import write_numbered
from tests.support.places import ROOT

#: A rows event and the text before it; so many of them make the transaction, and each of the batches behind it.
EVENT_BYTES = 55_000
TRANSACTION, BATCH, BATCHES = 1 << 30, 64 << 20, 10
#: The short form is so many times smaller.
SHARE = 8
MOST_BYTES = 500_000_000
#: What a process may take more than before it has read anything.
MOST_GROWTH = 120_000_000


def run(folder: Path, **options: object) -> dict[str, int]:
    pairs = [f"{name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "tests.spark.support.driver_memory", str(folder), *pairs]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    print(found)
    return found


@pytest.fixture
def sizes(pytestconfig: pytest.Config) -> tuple[int, int]:
    """The bytes of the transaction, and of each batch."""
    share = 1 if pytestconfig.getoption("long") else SHARE
    return TRANSACTION // share, BATCH // share


async def test_a_large_transaction_and_batches_that_wait(tmp_path: Path, sizes: tuple[int, int]) -> None:
    transaction, batch = sizes
    path = tmp_path / "bin.000001"
    write_numbered(path, [transaction // EVENT_BYTES, *[batch // EVENT_BYTES] * BATCHES], filler=50_000)
    files = await asyncio.to_thread(run, tmp_path / "files", path=path)
    async with BinlogServer(path, user="u", password="secret", host="127.0.0.1") as server:
        stream = await asyncio.to_thread(
            run,
            tmp_path / "stream",
            host="127.0.0.1",
            port=server.port,
            user="u",
            password="secret",
            startingOffsets="earliest",
            maxBytesPerTrigger=batch,
            maxSpoolBytes="4g",
        )
    assert stream["waiting"] >= BATCHES * (batch // EVENT_BYTES) * 50_000
    assert min(files["pieces"], stream["pieces"]) >= transaction >> 25
    for found in (files, stream):
        assert found["after"] < MOST_BYTES
        assert found["after"] - found["before"] < MOST_GROWTH
