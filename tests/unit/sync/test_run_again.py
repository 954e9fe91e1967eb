"""A second ``run()`` must not look like the end of the log: who tries again in a loop would take it for success."""

import socket

import pytest

import replica.sync
from protocol.errors import ConnectionLostError


def test_a_run_that_could_not_connect_is_no_end_when_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    stream = replica.sync.connect(f"mysql://repl:secret@127.0.0.1:{port}")
    with pytest.raises(ConnectionLostError):
        stream.run()
    with pytest.raises(RuntimeError, match="runs once: connect a new stream"):
        stream.run()
