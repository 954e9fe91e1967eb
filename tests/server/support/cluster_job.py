"""A job of kept tables whose driver is a process on this machine, with its tasks on a cluster; both may be killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.server.support.clusters import driver_environment
from tests.spark.support.cluster import Cluster
from tests.support.process_groups import process_group
from tests.support.servers import Server

SECONDS = 300


class KilledJob:
    """The command that keeps tables, with its driver on this machine and its tasks on a cluster."""

    def __init__(self, cluster: Cluster, server: Server, shop: str, job: str, folder: Path) -> None:
        self.target = cluster.shared / folder.name / "lake"
        self.target.parent.mkdir()
        secret = self.target.parent / "password"
        secret.write_text(server.replica_password)
        settings = folder / "conf"
        settings.mkdir()
        lines = [f"{name} {value}\n" for name, value in cluster.settings(folder / "local").items()]
        (settings / "spark-defaults.conf").write_text("".join(lines))
        self._environment = {
            **os.environ,
            **driver_environment(cluster, folder),
            "SPARK_CONF_DIR": str(settings),
        }
        self._log = folder / "log"
        self._command = [
            *(sys.executable, "-m", "replica", "spark", job),
            f"mysql://{server.replica_user}@{server.host}:{server.port}",
            *("--master", cluster.url, "--password-file", str(secret), "--target", str(self.target)),
            *("--tables", f"{shop}.*", "--option", "snapshotParallelism=2", "--merge-interval", "2"),
        ]

    @property
    def commits(self) -> int:
        """How many commits all tables have, those of copies included."""
        return len(list(self.target.glob("**/_delta_log/*.json")))

    @property
    def is_copied(self) -> bool:
        """Whether the copy has ended."""
        return (self.target / "_state" / "tables").is_dir()

    @contextlib.contextmanager
    def running(self, *more: str) -> Iterator[subprocess.Popen[bytes]]:
        """The process, until it is killed at the end."""
        with (
            open(self._log, "wb") as log,
            process_group([*self._command, *more], log, self._environment) as process,
        ):
            yield process

    def wait(self, process: subprocess.Popen[bytes], commits: int) -> None:
        """Wait until there are so many commits."""
        until = time.monotonic() + SECONDS
        while self.commits < commits:
            assert process.poll() is None, self._log.read_text()[-8000:]
            assert time.monotonic() < until, self._log.read_text()[-8000:]
            time.sleep(0.05)

    def finish(self) -> None:
        """Do what is there now."""
        with self.running("--once") as process:
            assert process.wait(SECONDS) == 0, self._log.read_text()[-8000:]
