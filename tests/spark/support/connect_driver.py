"""A client of Spark Connect that runs the demo's log through everything that works there.

    python -m tests.spark.support.connect_driver FOLDER short|long  ->  a line of JSON for each method of ``Runs``

Spark's server for it is on this machine, in a JVM of its own. The long form also loads files by jobs, writes Parquet,
and starts each stream a second time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import replica.spark
from replica.demo import DemoSource, recorded_log
from replica.demo.source import SERVED_NAME
from replica.spark.jobs import changelog, history, mirror
from replica.spark.jobs.spark_session import Pace, await_queries
from tests.spark.support.cluster import SHORT_LIVED, free_port
from tests.spark.support.demo_connection import connection_to
from tests.spark.support.spark_python import retried, spark_python
from tests.support.process_groups import process_group

ONCE = Pace(once=True)
TABLES = "shop.*"
SECONDS = 120
Start = Callable[..., StreamingQuery]
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class Runs:
    """What is run. Each method returns what only Spark can tell of it."""

    def __init__(
        self, session: SparkSession, folder: Path, source: DemoSource, path: str, *, is_long: bool
    ) -> None:
        self.session, self.folder, self.is_long = session, folder, is_long
        self.live = connection_to(source) | {"includeTables": TABLES, "startingOffsets": "earliest"}
        self.files = {"path": path, "includeTables": TABLES}

    def batch(self) -> dict[str, Any]:
        frame = self.session.read.format("mysql-binlog").options(**self.files).load()
        return {"rows": frame.count(), "columns": frame.columns}

    def changelog(self) -> dict[str, Any]:
        counts = {}
        format: Literal["parquet", "delta"]
        for format in ("delta", "parquet") if self.is_long else ("delta",):
            start = partial(changelog.start, format=format)
            loaded, streamed = f"load-{format}", f"stream-{format}"
            if self.is_long:
                changelog.load(self.session, self._json(self.files), self._target(loaded), format=format)
            self._follow(start, self._json(self.live), self._target(streamed))
            if format == "parquet":
                for name in (loaded, streamed):
                    counts[name] = self.session.read.parquet(self._target(name)).count()
        return counts

    def mirror(self) -> dict[str, Any]:
        if self.is_long:
            mirror.load(self.session, self.files, self._target("mirror-load"))
        self._follow(mirror.start, self.live, self._target("mirror"))
        return {}

    def history(self) -> dict[str, Any]:
        if self.is_long:
            history.load(self.session, self.files, self._target("history-load"))
        self._follow(history.start, self.live, self._target("history"))
        return {}

    def _follow(self, start: Start, source: dict[str, str], target: str) -> None:
        """Follow the source to its end; in the long form once more, which changes nothing."""
        for _ in range(1 + self.is_long):
            retried(lambda: await_queries(start(self.session, source, target, pace=ONCE)))

    def _json(self, source: dict[str, str]) -> dict[str, str]:
        return source | {"rowFormat": "json"}

    def _target(self, name: str) -> str:
        return str(self.folder / name)


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A server of Spark Connect with a local master; the value is its URL."""
    port = free_port()
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    command = [f"{pyspark.__path__[0]}/bin/spark-submit", "--master", "local[2]", "--class", _SERVER]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    log = folder / "server.log"
    with (
        open(log, "wb") as output,
        process_group([*command, "spark-internal"], output, folder=folder) as process,
    ):
        until = time.monotonic() + SECONDS
        while not _listens(port):
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < until, log.read_text()[-4000:]
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def main(folder: Path, form: str) -> None:
    python = spark_python(folder)
    os.environ |= {"PYSPARK_PYTHON": python, "LC_ALL": "C.UTF-8", "SPARK_LOCAL_IP": "127.0.0.1"}
    with connect_server(folder) as url:
        session = SparkSession.builder.remote(url).getOrCreate()
        replica.spark.register(session)
        assert replica.spark.is_local(session)
        # Under the name that the source gives it: numbers of changes have the file's.
        path = folder / SERVED_NAME
        with recorded_log() as log:
            shutil.copyfile(log, path)
        with DemoSource() as source:
            runs = Runs(session, folder, source, str(path), is_long=form == "long")
            for run in (runs.batch, runs.changelog, runs.mirror, runs.history):
                print(json.dumps({run.__name__: run()}), flush=True)
        session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
