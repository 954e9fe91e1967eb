"""Programs of `tests/examples` as processes that are killed while rows are written."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from tests.support.places import ROOT
from tests.support.servers import Server

from .streams import SECONDS

EXAMPLES = ROOT / "tests" / "examples"
_KILLS = 4


def eventually(holds: Callable[[], bool], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


class Program:
    """An example as a process, to be killed and started again. From ``begun`` on it misses nothing."""

    def __init__(self, name: str, arguments: list[str], begun: Callable[[], bool]) -> None:
        self._command = [sys.executable, str(EXAMPLES / name), *arguments]
        self._begun = begun
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)
        eventually(self._has_begun)

    def _has_begun(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "it has ended by itself"
        return self._begun()

    def await_error(self) -> None:
        """Wait until the program has ended by itself, with an error."""
        assert self._process is not None
        assert self._process.wait(SECONDS) == 1

    def stop(self, number: int = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()


@contextlib.contextmanager
def running(name: str, arguments: list[str], begun: Callable[[], bool]) -> Iterator[Program]:
    program = Program(name, arguments, begun)
    program.start()
    try:
        yield program
    finally:
        program.stop()


def work(
    server: Server, schema: str, program: Program, seed: int, statements: Callable[[int], list[str]]
) -> None:
    """Transactions 0 to 199, during which the program is killed some times, at any place."""
    rng = random.Random(seed)
    kills = set(rng.sample(range(200), _KILLS))
    with server.connect(database=schema, autocommit=False) as connection, connection.cursor() as cursor:
        for number in range(200):
            for statement in statements(number):
                cursor.execute(statement)
            connection.commit()
            if number in kills:
                time.sleep(rng.choice([0, 0.02, 0.3]))
                program.stop()
                program.start()
