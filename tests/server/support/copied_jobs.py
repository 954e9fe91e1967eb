"""Jobs that begin with a copy of tables, and executors that log in with a password from a file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from replica.spark.jobs import mirror
from replica.spark.jobs.spark_session import Pace
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CopiedJob:
    """One mirror, or history, which may be started many times."""

    def __init__(
        self, session: SparkSession, server: Server, shop: str, folder: Path, job: ModuleType = mirror
    ) -> None:
        self.target = folder / "lake"
        self.session = session
        self._job = job
        folder.mkdir(exist_ok=True)
        secret = folder / "password"
        secret.write_text(server.replica_password)
        self.source = {
            "host": server.host,
            "port": str(server.port),
            "user": server.replica_user,
            "passwordFile": str(secret),
            "includeTables": f"{shop}.*",
            "heartbeat": "1",
            "snapshotParallelism": "2",
        }

    def run(self, **options: Any) -> None:
        """Do what is there now."""
        query = self._job.start(self.session, self.source, str(self.target), pace=Pace(once=True), **options)
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()
        assert query.exception() is None

    @contextlib.contextmanager
    def running(self, **options: Any) -> Iterator[None]:
        """Follow the source meanwhile."""
        query = self._job.start(self.session, self.source, str(self.target), **options)
        try:
            yield
        finally:
            query.stop()
        assert query.exception() is None
