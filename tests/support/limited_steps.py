"""Runs the steps of a fuzzer in a process of its own with limits: so much CPU a step, so much memory altogether.

A fuzzer is a generator ``steps(seed) -> Iterator[Step]`` in a module of the tests, endless if it likes.
``run_limited`` starts a process, which takes its steps one after another until the time is over:

    run_limited("tests.faults.log_fuzzer:steps", seed=7, seconds=20)

The kernel ends a step that takes more CPU (``RLIMIT_CPU``), and memory beyond ``RLIMIT_AS`` is a ``MemoryError``. So
a step that is too slow or too large fails, as does one that raises: the assertion names the seed, the step and its
number, and has what the process wrote to its standard error. Give the same seed and ``first_step`` to start there.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, islice
from typing import Final

from tests.support.places import ROOT

#: A description for messages, and what to do. A step raises if it finds a fault.
Step = tuple[str, Callable[[], object]]

CPU_SECONDS: Final = 2
#: Bytes of address space of the whole process.
MEMORY: Final = 512 << 20
_PROCESS_SECONDS: Final = 30
_CHARACTERS_SHOWN: Final = 4000
_NAME_SIZE: Final = 400


def chosen(seed: int, makers: Sequence[tuple[str, Callable[[random.Random], object]]]) -> Iterator[Step]:
    """Endless; each step is one of ``makers``, and depends on the seed and on its number only."""
    for number in count():
        rng = random.Random(f"{seed} {number}")
        name, run = rng.choice(makers)
        yield name, partial(run, rng)


def run_limited(
    steps: str, *, seed: int, seconds: float = 0, most_steps: int | None = None, first_step: int = 0
) -> int:
    """Run the steps of ``"module:function"`` for ``seconds``, or ``most_steps`` of them; returns their number.

    Raises ``AssertionError`` for a step that breaks a limit or raises. One process after another does it: the kernel
    compares the limit with CPU time that it counts in ticks, which goes astray in a process of many minutes.
    """
    if not seconds:
        return _run_process(steps, seed, 0, most_steps, first_step)
    count, end = 0, time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and count != most_steps:
        most = None if most_steps is None else most_steps - count
        count += _run_process(steps, seed, min(left, _PROCESS_SECONDS), most, first_step + count)
    return count


def _run_process(steps: str, seed: int, seconds: float, most_steps: int | None, first_step: int) -> int:
    with tempfile.TemporaryFile() as place:
        job = json.dumps([steps, seed, seconds, most_steps, first_step, place.fileno()])
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.limited_steps", job],
            cwd=ROOT,
            pass_fds=[place.fileno()],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        last_step = os.pread(place.fileno(), _NAME_SIZE, 0).decode(errors="replace").strip() or "none"
    if done.returncode == 0:
        return int(done.stdout.splitlines()[-1])
    reason = f"exit code {done.returncode}"
    if done.returncode == -signal.SIGXCPU:
        reason = f"more than {CPU_SECONDS} s of CPU"
    raise AssertionError(
        f"{steps}, seed {seed}, step {last_step}: {reason}\n{done.stderr[-_CHARACTERS_SHOWN:]}"
    )


def _run(steps: Iterator[Step], seconds: float, most_steps: int | None, first_step: int, place: int) -> int:
    count = 0
    end = time.monotonic() + seconds
    for name, step in islice(steps, first_step, None if most_steps is None else first_step + most_steps):
        if seconds and time.monotonic() >= end:
            break
        # The file keeps the name of the last step, whatever becomes of the process.
        os.pwrite(place, f"{first_step + count} ({name})".encode().ljust(_NAME_SIZE)[:_NAME_SIZE], 0)
        _renew_cpu()
        step()
        count += 1
    return count


def _renew_cpu() -> None:
    """Allow ``CPU_SECONDS`` from now on; the limit is a number of whole seconds of the process's CPU time."""
    used = time.process_time()
    limit = math.ceil(used) + CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def main(job: str) -> None:
    """The process: the limits, then the steps."""
    name, seed, seconds, most_steps, first_step, place = json.loads(job)
    module, _, function = name.partition(":")
    steps = getattr(importlib.import_module(module), function)(seed)
    faulthandler.register(signal.SIGXCPU, chain=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print(_run(steps, seconds, most_steps, first_step, place))


if __name__ == "__main__":
    main(sys.argv[1])
