"""``WorkerPool``: processes that do tasks of one kind side by side; results come in the order of the tasks.

    tasks -> (round robin) -> processes -> answers, in order

At most ``TASKS_AHEAD`` tasks for each process are handed out and not yet answered to the caller: that bounds memory.
"""

import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Final, Self, TypeVar

from protocol.errors import ConfigurationError, WorkerError

from .task_messages import Answer, receive_answer, send_task
from .worker_process import serve

#: One task that a process does, and one that waits, so that it never waits for the caller.
TASKS_AHEAD: Final = 2
_MOST_WORKERS: Final = 256

Setting = TypeVar("Setting")
Task = TypeVar("Task")


def check_workers(workers: object) -> None:
    """Raise ``ConfigurationError`` unless this is a number of processes that can be used."""
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= _MOST_WORKERS:
        raise ConfigurationError(f"workers: a number of processes from 1 to {_MOST_WORKERS}, not {workers!r}")
    if workers > 1 and not hasattr(socket, "send_fds"):
        raise ConfigurationError("workers: this platform has no sockets that share memory: leave it out")


class WorkerPool:
    """Processes that call ``work(setting, task, output)``, a function of a module, for each task.

    Close it, at best with ``with``. ``in_flight`` is the number of tasks that were handed out and not yet answered.
    """

    def __init__(
        self, workers: int, work: Callable[[Setting, Task, IO[bytes]], object], setting: Setting
    ) -> None:
        self.in_flight = 0
        self._processes: list[_Process] = []
        try:
            for _ in range(workers):
                self._processes.append(_start(self._processes))
            for process in self._processes:
                send_task(process.connection, (work, setting))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def process_ids(self) -> list[int]:
        """The ids of the processes."""
        return [process.id for process in self._processes]

    def answers(self, tasks: Iterable[Task]) -> Iterator[Answer]:
        """The answer to each task, in order; a task is taken from ``tasks`` when a process has room for it.

        Raises ``WorkerError`` if a process has ended.
        """
        waiting: deque[_Process] = deque()
        iterator, number = iter(tasks), 0
        while True:
            while len(waiting) < TASKS_AHEAD * len(self._processes):
                process = self._processes[number % len(self._processes)]
                try:
                    task = next(iterator)
                except StopIteration:
                    break
                # What has ended shows when its answer is due.
                with contextlib.suppress(OSError):
                    send_task(process.connection, task, process.taken_back())
                waiting.append(process)
                number += 1
            self.in_flight = len(waiting)
            if not waiting:
                return
            process = waiting.popleft()
            try:
                answer = receive_answer(process.connection)
                process.lend(answer)
            except (EOFError, OSError):
                raise WorkerError(
                    f"a worker process (workers={len(self._processes)}) has ended: {process.end_text()}"
                ) from None
            yield answer

    def close(self) -> None:
        """End the processes, also in the middle of a task."""
        processes, self._processes = self._processes, []
        for process in processes:
            process.connection.close()
            process.kill()
        for process in processes:
            process.wait()


class _Process:
    """One process: spawned, or forked (``spawned`` is None)."""

    def __init__(self, connection: socket.socket, id: int, spawned: "subprocess.Popen[bytes] | None") -> None:
        self.connection = connection
        self.id = id
        self._spawned = spawned
        self._status: int | None = None
        self._released: deque[int] = deque()

    def lend(self, answer: Answer) -> None:
        """Have the process use the memory of an answer again, as soon as nothing here refers to it.

        Not after a fork in between: the copy of this process may still look at it.
        """
        if answer.output and isinstance(answer.data, mmap.mmap):
            weakref.finalize(
                answer.data, _release, self._released, answer.output, _Forks.count
            ).atexit = False
        elif answer.output:
            self._released.append(answer.output)

    def taken_back(self) -> list[int]:
        """The numbers of the files that the process may write again; each is told once."""
        return [self._released.popleft() for _ in range(len(self._released))]

    def kill(self) -> None:
        """End it, if it has not ended; nothing is left undone by that."""
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.id, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end; the exit status, or the negative number of the signal that ended it."""
        if self._status is None and self._spawned is not None:
            self._status = self._spawned.wait()
        elif self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.id, 0)[1])
        return self._status

    def end_text(self) -> str:
        """How it ended."""
        self.kill()
        status = self.wait()
        return f"signal {-status}" if status < 0 else f"exit status {status}"


class _Forks:
    """Counts the forks of this process."""

    count = 0

    @classmethod
    def add(cls) -> None:
        """Another fork."""
        cls.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_Forks.add)


def _release(released: deque[int], output: int, forks: int) -> None:
    if forks == _Forks.count:
        released.append(output)


def _start(others: list[_Process]) -> _Process:
    ours, theirs = socket.socketpair()
    with theirs:
        # A fork has everything imported already: 10 ms instead of 400. Only without other threads, which might hold
        # locks, is a copy of the process sound.
        if sys.platform == "linux" and threading.active_count() == 1:
            return _Process(ours, _fork(ours, theirs, others), None)
        command = [sys.executable, "-m", "replica.workers.worker_process", str(theirs.fileno())]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        spawned = subprocess.Popen(command, pass_fds=(theirs.fileno(),), env=environment)
        return _Process(ours, spawned.pid, spawned)


def _fork(ours: socket.socket, theirs: socket.socket, others: list[_Process]) -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns of threads of native libraries, such as those of numpy, which survive a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        # As long as a copy is open here, the end of the pool would not be seen there.
        for connection in (ours, *(other.connection for other in others)):
            connection.close()
        serve(theirs)
        status = 0
    finally:
        # Nothing that the caller's process would do at its end, such as writing its buffers.
        os._exit(status)
