"""``WorkerPool``: processes that do tasks of one kind side by side; results come in the order of the tasks.

    answers   tasks -> (to the process with the fewest) -> processes -> answers, in order
    parts     tasks -> processes -> answers -> parts of the results, in order
                    -> this process, between looking after the others -> parts

At most ``TASKS_AHEAD`` tasks for each process are handed out and not yet answered to the caller: that bounds memory.
"""

import contextlib
import mmap
import os
import selectors
import signal
import socket
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Final, Generic, Self, TypeVar, cast

from protocol.errors import ConfigurationError, WorkerError

from .task_messages import Answer, receive_answer, send_task
from .worker_process import serve

if TYPE_CHECKING:
    import subprocess

#: Tasks of a process: the one it does, and two more so that it need not wait for the caller, who takes answers in
#: order.
TASKS_AHEAD: Final = 3
_MOST_WORKERS: Final = 256
_NO_TASK: Final = object()

#: The same if the pool's own process does tasks, too: the task that a process does, and one that lies ready. The own
#: process hands out tasks and takes answers between two parts of its work.
_TASKS_EACH: Final = 2

Setting = TypeVar("Setting")
Task = TypeVar("Task")
Part = TypeVar("Part")


def check_workers(workers: object) -> None:
    """Raise ``ConfigurationError`` unless this is a number of processes that can be used."""
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= _MOST_WORKERS:
        raise ConfigurationError(f"workers: a number of processes from 1 to {_MOST_WORKERS}, not {workers!r}")
    if workers > 1 and not hasattr(socket, "send_fds"):
        raise ConfigurationError("workers: this platform has no sockets that share memory: leave it out")


class WorkerPool:
    """Processes that call ``work(setting, task, output)``, a function of a module, for each task.

    Close it, at best with ``with``. ``in_flight`` is the number of tasks that were handed out and not yet answered.
    ``takes_part``: this process is one of the ``workers``, and does tasks between those of the others (``parts``).
    """

    def __init__(
        self,
        workers: int,
        work: Callable[[Setting, Task, IO[bytes]], object],
        setting: Setting,
        *,
        takes_part: bool = False,
    ) -> None:
        self.in_flight = 0
        self._workers = workers
        self._processes: list[_Process] = []
        try:
            for _ in range(workers - takes_part):
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
        processes, iterator = list(self._processes), enumerate(tasks)
        found: dict[int, Answer] = {}
        due = given = 0
        while True:
            while given - due < TASKS_AHEAD * len(processes):
                [number, task] = next(iterator, (given, _NO_TASK))
                if task is _NO_TASK:
                    break
                min(processes, key=lambda process: len(process.tasks)).give(number, task)
                given += 1
            self.in_flight = given - due
            if due == given:
                return
            while due not in found:
                self._receive(processes, found, due)
            yield found.pop(due)
            due += 1

    def parts(
        self,
        tasks: Iterable[Task],
        here: Callable[[Task], Iterator[Part | None]],
        there: Callable[[Answer], Iterator[Part]],
    ) -> Iterator[Part]:
        """The parts of each task's result, in order. This process does tasks, too. Can be called once.

        ``here`` does a task in this process: it yields parts, and None if the rest of the task has to wait until the
        parts of all earlier tasks are handed out. ``there`` makes parts of an answer. Raises ``WorkerError`` if a
        process has ended.

        Each other process has two tasks, and this one takes the next task when it has nothing else to do. With more
        tasks for each, the last tasks would be shared less evenly.
        """
        processes, iterator = list(self._processes), enumerate(tasks)
        found: dict[int, Answer] = {}
        own: dict[int, _OwnTask[Part]] = {}
        due = given = 0
        is_over = False
        most = TASKS_AHEAD * self._workers

        def take() -> tuple[int, Task] | None:
            """The next task, unless too many wait to be handed out."""
            nonlocal given, is_over
            if is_over or given - due >= most:
                return None
            [number, task] = next(iterator, (given, _NO_TASK))
            is_over = task is _NO_TASK
            if is_over:
                for process in processes:
                    process.end_tasks()
                return None
            given += 1
            return number, cast("Task", task)

        begun: _OwnTask[Part] | None = None
        while True:
            for process in processes:
                while len(process.tasks) < _TASKS_EACH and (taken := take()):
                    process.give(*taken)
            self.in_flight = given - due
            if due in own:
                task = own[due]
                yield from task.ready()
                if task.waits:
                    del own[due]
                    due += 1
                    yield from task.rest()
                    continue
            elif due in found:
                yield from there(found.pop(due))
                due += 1
                continue
            if begun is None and (taken := take()):
                begun = own[taken[0]] = _OwnTask(here(taken[1]))
            if begun is None and is_over and due == given:
                return
            self._receive(processes, found, due, waits=begun is None)
            if begun is not None and begun.step():
                begun = None

    def _receive(
        self, processes: "Sequence[_Process]", found: dict[int, Answer], due: int, *, waits: bool = True
    ) -> None:
        """Take answers, or wait for one. Raises ``WorkerError`` if the process of the task ``due`` has ended."""
        at_work = {process.connection: process for process in processes if process.tasks and process.answers}
        if waits and not any(due in process.tasks for process in at_work.values()):
            [ended] = [process for process in processes if due in process.tasks]
            raise WorkerError(f"a worker process (workers={self._workers}) has ended: {ended.end_text()}")
        for connection in _ready([*at_work], None if waits else 0):
            process = at_work[connection]
            try:
                answer = receive_answer(connection)
            except (EOFError, OSError):
                process.has_ended = True
                continue
            process.lend(answer)
            found[process.tasks.popleft()] = answer

    def close(self) -> None:
        """End the processes, also in the middle of a task."""
        processes, self._processes = self._processes, []
        for process in processes:
            process.connection.close()
            process.kill()
        for process in processes:
            process.wait()


def _ready(connections: Sequence[socket.socket], seconds: float | None) -> list[socket.socket]:
    """Wait until some of these can be read, so many seconds at most."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        return [cast("socket.socket", key.fileobj) for key, _ in selector.select(seconds)]


class _OwnTask(Generic[Part]):
    """A task that the pool's own process does, step by step; ``waits``: the rest of the task waits for its turn."""

    def __init__(self, steps: Iterator[Part | None]) -> None:
        self.waits = False
        self._steps = steps
        self._parts: deque[Part] = deque()

    def step(self) -> bool:
        """Do a part of the task; returns ``waits``."""
        part = next(self._steps, None)
        if part is None:
            self.waits = True
        else:
            self._parts.append(part)
        return self.waits

    def ready(self) -> Iterator[Part]:
        """The parts that have been made."""
        while self._parts:
            yield self._parts.popleft()

    def rest(self) -> Iterator[Part]:
        """Do the rest of the task."""
        for part in self._steps:
            assert part is not None
            yield part


class _Process:
    """One process: spawned, or forked (``spawned`` is None)."""

    def __init__(self, connection: socket.socket, id: int, spawned: "subprocess.Popen[bytes] | None") -> None:
        self.connection = connection
        self.id = id
        # The numbers of the tasks that the process has not answered.
        self.tasks: deque[int] = deque()
        self.has_ended = False
        self._spawned = spawned
        self._status: int | None = None
        self._released: deque[int] = deque()

    @property
    def answers(self) -> bool:
        """Whether an answer can come: neither has the process ended, nor has the pool been closed."""
        return not self.has_ended and self.connection.fileno() >= 0

    def give(self, number: int, task: object) -> None:
        """Send a task to the process, and give back the memory of answers that are no longer used."""
        # If the process has ended, the pool notices when its answer is due.
        with contextlib.suppress(OSError):
            released = [self._released.popleft() for _ in range(len(self._released))]
            send_task(self.connection, task, released)
        self.tasks.append(number)

    def end_tasks(self) -> None:
        """Tell the process that no more tasks come: it ends after those it has, while this process goes on."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)

    def lend(self, answer: Answer) -> None:
        """Let the process use the memory of an answer again, as soon as nothing here refers to the memory.

        Not if this process was forked in between: its copy may still use the memory.
        """
        if answer.output and isinstance(answer.data, mmap.mmap):
            weakref.finalize(
                answer.data, _release, self._released, answer.output, _Forks.count
            ).atexit = False
        elif answer.output:
            self._released.append(answer.output)

    def kill(self) -> None:
        """End the process, if it has not ended. It may be killed at any time."""
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.id, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for the process to end; the exit status, or the negative number of the signal that ended it."""
        if self._status is None and self._spawned is not None:
            self._status = self._spawned.wait()
        elif self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.id, 0)[1])
        return self._status

    def end_text(self) -> str:
        """How the process ended, as text."""
        self.kill()
        status = self.wait()
        return f"signal {-status}" if status < 0 else f"exit status {status}"


class _Forks:
    """Counts the forks of this process."""

    count = 0

    @classmethod
    def add(cls) -> None:
        """Count a fork."""
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
        # Imported here, as it takes 2 ms.
        import subprocess

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
        # Exit without the caller's exit handlers, such as writing its buffers.
        os._exit(status)
