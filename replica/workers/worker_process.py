"""A process of a ``WorkerPool``: takes tasks from a socket until that is closed, and answers each.

``python -m replica.workers.worker_process DESCRIPTOR`` is such a process; on Linux a pool may also fork it.
"""

import pickle
import signal
import socket
import sys
from collections.abc import Callable
from typing import IO, cast

from .task_messages import receive_task, send_answer, shared_file

#: Does one task: writes bytes to the file, and returns facts that can be pickled.
Work = Callable[[object, object, IO[bytes]], object]


def serve(connection: socket.socket) -> None:
    """Answer tasks until the pool closes the connection. The first message has the function and its setting."""
    # Ctrl-C reaches all processes of a terminal; the pool ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        work, setting = cast("tuple[Work, object]", receive_task(connection))
        while True:
            _answer(connection, work, setting, receive_task(connection))
    except (EOFError, OSError):
        return


def _answer(connection: socket.socket, work: Work, setting: object, task: object) -> None:
    facts: object = None
    failed: Exception | None = None
    with shared_file() as output:
        try:
            facts = work(setting, task, output)
        except Exception as error:
            failed = _portable(error)
        send_answer(connection, facts, failed, output)


def _portable(error: Exception) -> Exception:
    """The error, or one with its text if it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
