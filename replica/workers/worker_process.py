"""A process of a ``WorkerPool``: takes tasks from a socket until the socket is closed, and answers each.

``python -m replica.workers.worker_process DESCRIPTOR`` is such a process; on Linux a pool may also fork it.
"""

import gc
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from typing import IO, Final, cast

from protocol.binlog.freed_blocks import LARGEST_KEPT_BLOCK, keep_freed_blocks

from .task_messages import receive_task, send_answer, shared_file

# Files of results that are kept for later ones: the tasks of a process that are in flight, and the one in use.
_FILES_KEPT: Final = 4
_LARGEST_KEPT: Final = 64 << 20

#: Does one task: writes bytes to the file, and returns facts that can be pickled.
Work = Callable[[object, object, IO[bytes]], object]


def serve(connection: socket.socket) -> None:
    """Answer tasks until the pool closes the connection. The first message has the function and its setting."""
    # Freeze the objects inherited by the fork: a garbage collection that visits them would copy their pages.
    gc.freeze()
    # Otherwise each task gets new memory from the system: thousands of page faults in a section of 3 MB, for JSON
    # documents as columns.
    keep_freed_blocks(LARGEST_KEPT_BLOCK)
    # Ctrl-C reaches all processes of a terminal; the pool ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        work, setting = cast("tuple[Work, object]", receive_task(connection)[0])
        outputs = _Outputs()
        while True:
            task, released = receive_task(connection)
            outputs.release(released)
            _answer(connection, work, setting, task, outputs)
    except (EOFError, OSError):
        return


class _Outputs:
    """The files that results are written to. Their memory is used again once the pool has released it."""

    def __init__(self) -> None:
        self._free: list[IO[bytes]] = []
        self._lent: dict[int, IO[bytes]] = {}
        self._count = 0

    def take(self) -> IO[bytes]:
        """A file to write to."""
        if not self._free:
            return shared_file()
        file = self._free.pop()
        file.seek(0)
        return file

    def lend(self, file: IO[bytes]) -> int:
        """The number by which the pool will release a file; 0 for one that is not kept."""
        if len(self._lent) + len(self._free) >= _FILES_KEPT or file.tell() > _LARGEST_KEPT:
            return 0
        self._count += 1
        self._lent[self._count] = file
        return self._count

    def release(self, numbers: Iterable[int]) -> None:
        """Take back these files."""
        self._free += (self._lent.pop(number) for number in numbers)


def _answer(connection: socket.socket, work: Work, setting: object, task: object, outputs: _Outputs) -> None:
    facts: object = None
    failed: Exception | None = None
    output = outputs.take()
    try:
        facts = work(setting, task, output)
    except Exception as error:
        failed = _portable(error)
    number = outputs.lend(output)
    send_answer(connection, facts, failed, output, number)
    if not number:
        output.close()


def _portable(error: Exception) -> Exception:
    """The error, or one with its text if it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
