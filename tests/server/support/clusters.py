"""The cluster of a test run, and an object store beside it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import spark_missing
from tests.spark.support.cluster import Cluster, cluster_missing, free_port, running_cluster
from tests.support.places import ROOT

SECONDS = 60
_DRIVER_SECONDS = 900
BUCKET = "lake"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := spark_missing() or cluster_missing():
        pytest.skip(reason)
    with running_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The storage options of an S3 store of moto's server, which has the bucket ``lake``."""
    pytest.importorskip("moto.server")
    port = free_port()
    log = tmp_path_factory.mktemp("store") / "log"
    options = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | options)
    try:
        _create_bucket(options["AWS_ENDPOINT_URL"], process, log)
        yield options
    finally:
        process.kill()
        process.wait()


def _create_bucket(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        with contextlib.suppress(OSError):
            urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")).close()
            return
        time.sleep(0.1)


def driver_environment(cluster: Cluster, folder: Path, **targets: str) -> dict[str, str]:
    """The environment of ``tests.spark.support.killed_query`` on the cluster."""
    found = {"CLUSTER": json.dumps(cluster.settings(folder / "local")), "PYSPARK_PYTHON": cluster.python}
    return found | ({"TARGETS": json.dumps(targets)} if targets else {})


def run_driver(cluster: Cluster, folder: Path, *reads: dict[str, Any]) -> list[dict[str, Any]]:
    """Have one driver do all that: see ``tests.spark.support.cluster_driver``."""
    command = [sys.executable, "-m", "tests.spark.support.cluster_driver", json.dumps(reads)]
    done = subprocess.run(
        ["timeout", str(_DRIVER_SECONDS), *command],
        cwd=ROOT,
        env=os.environ | driver_environment(cluster, folder),
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    # Without the lines of Java's stacks, which hide what happened.
    errors = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("\tat "))
    assert done.returncode == 0, f"{done.stdout}{errors[-8000:]}"
    print(done.stdout)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
