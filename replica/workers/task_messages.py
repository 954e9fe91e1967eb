"""Messages between a pool and its processes: a pickled object on a socket, and bytes in memory that both share.

The memory is a file without a name: it is freed when the last process that has it mapped lets it go, however that
process ends.
"""

import mmap
import os
import pickle
import socket
import struct
import tempfile
from typing import IO, Final

from protocol.records import record

_HEAD: Final = struct.Struct("<QQ")
_WRITE_SIZE: Final = 1 << 18


@record(frozen=True, slots=True)
class Answer:
    """What a task gave: ``facts``, or the ``error`` that ended it, and the bytes that it wrote until then."""

    facts: object
    error: Exception | None
    data: mmap.mmap | bytes = b""


def send_task(connection: socket.socket, task: object) -> None:
    """Send a task."""
    body = pickle.dumps(task)
    connection.sendall(_HEAD.pack(len(body), 0) + body)


def receive_task(connection: socket.socket) -> object:
    """Receive a task. Raises ``EOFError`` if there will be none."""
    size, _ = _HEAD.unpack(_receive(connection, _HEAD.size))
    return pickle.loads(_receive(connection, size))


def send_answer(connection: socket.socket, facts: object, error: Exception | None, output: IO[bytes]) -> None:
    """Send what a task gave; ``output`` is a file that ``shared_file`` made."""
    body = pickle.dumps((facts, error))
    output.flush()
    head = _HEAD.pack(len(body), output.tell())
    socket.send_fds(connection, [head], [output.fileno()])
    connection.sendall(body)


def receive_answer(connection: socket.socket) -> Answer:
    """Receive an answer. Raises ``EOFError`` or ``OSError`` if the process has ended."""
    head, descriptors, _, _ = socket.recv_fds(connection, _HEAD.size, 1)
    try:
        head += _receive(connection, _HEAD.size - len(head)) if head else b""
        if len(head) < _HEAD.size:
            raise EOFError
        size, length = _HEAD.unpack(head)
        facts, error = pickle.loads(_receive(connection, size))
        data = mmap.mmap(descriptors[0], length, access=mmap.ACCESS_READ) if length else b""
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return Answer(facts, error, data)


def shared_file() -> IO[bytes]:
    """An empty file in memory, which ``send_answer`` shares."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("mysql-replica"), "wb", buffering=_WRITE_SIZE)
    return tempfile.TemporaryFile(buffering=_WRITE_SIZE)


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, _WRITE_SIZE))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
