"""PostgreSQL, Redis and NATS as Debian packages have them, started for one test on a free port of this machine.

A test is skipped, with the program's name, where that is not installed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .streams import SECONDS

_FOLDERS = os.pathsep.join(
    [os.environ.get("PATH", ""), "/usr/sbin", *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
)


def program(name: str) -> str:
    found = shutil.which(name, path=_FOLDERS)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def _serving(command: list[str], port: int) -> Iterator[None]:
    """The process, once its port answers."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + SECONDS
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                output.seek(0)
                assert process.poll() is None, output.read().decode()
                assert time.monotonic() < deadline, f"{command[0]} does not answer"
                time.sleep(0.05)
            yield
        finally:
            # PostgreSQL would wait for its clients after SIGTERM.
            process.send_signal(signal.SIGINT)
            process.wait(SECONDS)


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """The DSN of a new PostgreSQL."""
    initdb, postgres, port = program("initdb"), program("postgres"), free_port()
    # PostgreSQL refuses to run as root.
    as_owner = (
        ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.geteuid() == 0 else []
    )
    with tempfile.TemporaryDirectory(prefix="mysql-replica-pg-") as folder:
        if as_owner:
            shutil.chown(folder, "postgres")
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
        subprocess.run(
            [*as_owner, initdb, f"--pgdata={folder}/data", *options],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
        )
        settings = ["-h", "127.0.0.1", "-p", str(port), "-k", folder, "-c", "fsync=off"]
        with _serving([*as_owner, postgres, "-D", f"{folder}/data", *settings], port):
            asks = [program("pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={port}"]
            deadline = time.monotonic() + SECONDS
            while subprocess.run(asks, check=False).returncode:
                assert time.monotonic() < deadline, "PostgreSQL does not get ready"
                time.sleep(0.05)
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[str]:
    """The address of a new Redis."""
    port = free_port()
    options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", ""]
    with _serving([program("redis-server"), *options], port):
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def nats(folder: Path) -> Iterator[str]:
    """The address of a new NATS with JetStream."""
    port = free_port()
    options = ["--jetstream", "--store_dir", str(folder), "--addr", "127.0.0.1", "--port", str(port)]
    with _serving([program("nats-server"), *options], port):
        yield f"127.0.0.1:{port}"
