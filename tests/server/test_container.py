"""The image of the command: it follows the demo's source, not as root, and its health is that of its connection."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from replica.demo import DemoSource
from tests.support.places import ROOT

SECONDS = 120
TAG = "mysql-replica:test"


def docker(*arguments: str) -> str:
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image() -> str:
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        pytest.skip("Docker does not answer")
    done = subprocess.run(
        [ROOT / "docker" / "image.sh", TAG], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return TAG


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.2)


@contextlib.contextmanager
def running(image: str, dsn: str, port: int) -> Iterator[str]:
    """A container that follows the source, with nothing that it can write to."""
    name = f"mysql-replica-test-{uuid.uuid4().hex[:12]}"
    options = ["--detach", "--name", name, "--network=host", "--read-only", "--cap-drop=ALL"]
    options += ["--security-opt=no-new-privileges", "--env", f"METRICS_PORT={port}"]
    options += ["--health-interval=1s", "--health-retries=1"]
    command = ["tail", dsn, "--from=earliest", "--changes", f"--metrics=127.0.0.1:{port}"]
    try:
        docker("run", *options, image, *command)
        yield name
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", name], capture_output=True, check=False)


def test_it_follows_the_demo(image: str) -> None:
    assert docker("run", "--rm", image, "--version").startswith("mysql-replica 0.")
    port = free_port()

    def health() -> str:
        return docker("inspect", "--format", "{{.State.Health.Status}}", name)

    def lines() -> list[str]:
        return [line for line in docker("logs", name).splitlines() if line.startswith("{")]

    with contextlib.ExitStack() as serving:
        source = serving.enter_context(DemoSource(tls=False))
        with running(image, source.dsn, port) as name:
            eventually(lambda: len(lines()) >= 405)
            eventually(lambda: health() == "healthy")
            processes = docker("top", name, "-eo", "pid,uid,args").splitlines()[1:]
            assert [line.split()[1] for line in processes if "-m replica" in line] == ["10001"]
            assert json.loads(lines()[0])["op"] == "insert"
            serving.close()
            eventually(lambda: health() == "unhealthy")
            docker("stop", "--time=60", name)
            assert docker("inspect", "--format", "{{.State.ExitCode}}", name) == "0"
