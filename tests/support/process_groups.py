"""Processes that a test kills together with all that they have started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from tests.support.places import ROOT


@contextlib.contextmanager
def process_group(
    command: Sequence[str],
    output: BinaryIO,
    environment: Mapping[str, str] | None = None,
    folder: Path = ROOT,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes to `output`, until it and those that it has started are killed at the end."""
    process = subprocess.Popen(
        command, stdout=output, stderr=output, start_new_session=True, env=environment, cwd=folder
    )
    try:
        yield process
    finally:
        kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was started in a session of its own, and all in that; it may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
