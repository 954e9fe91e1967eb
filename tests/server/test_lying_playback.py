"""What real servers say, played back with lies to everything that reads it: only errors of the tree come out."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

import replica.sync
from tests.faults.lying_playback import VARIABLE, Liar, playing
from tests.faults.recording import HOST, Recording
from tests.server.support.recorded_server import record
from tests.support.limited_steps import run_limited
from tests.support.servers import Server


@pytest.fixture
def recording(server: Server, schema: str, tmp_path: Path) -> Path:
    path = tmp_path / "recording"
    asyncio.run(record(server, schema, tmp_path)).save(path)
    return path


def read(recording: Recording) -> list[str]:
    """The types of the events of the whole log, from a source that does not lie."""
    with playing(Liar(random.Random(1), recording, [], rarity=1, wire=0, targets=b"")) as port:
        dsn = f"mysql://repl:secret@{HOST}:{port}/?tls=disabled"
        with replica.sync.connect(dsn, start="earliest", stop="now", reconnect=False) as stream:
            return [type(event).__name__ for event in stream]


@pytest.mark.parametrize("server", ["mysql:9.7", "mysql:5.6", "mariadb:11.8"], indirect=True)
def test_a_recording_with_lies(
    recording: Path, seed: int, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    assert read(Recording.load(recording)).count("WriteRowsEvent") > 5
    monkeypatch.setenv(VARIABLE, str(recording))
    # Each thread's own arena counts as 64 MB of address space.
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    seconds = 900 if pytestconfig.getoption("long") else 6
    assert run_limited("tests.faults.lying_playback:steps", seed=seed, seconds=seconds) > 0
