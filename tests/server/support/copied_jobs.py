"""Jobs that begin with a copy of tables, and executors that log in with a password from a file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from protocol.position import file_number
from replica.spark.jobs import mirror
from replica.spark.jobs.spark_session import Pace
from replica.spool.offsets import Offset
from tests.spark.support.kept_tables import by_key
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


def check_states(
    found: list[dict[str, Any]], whole: list[dict[str, Any]], place: Offset, key: tuple[str, ...]
) -> None:
    """Whether the states of a history that began with a copy, at this place, are those of one of the whole log."""
    first = ((file_number(place.file) * 10**13) + place.position) * 10**10
    assert {row["_seq"] for row in found if row["_seq"] < first} <= {0}
    late = [[row for row in rows if row["_seq"] >= first] for rows in (found, whole)]
    assert late[0]
    assert by_key(late[0], "_seq", *key) == by_key(late[1], "_seq", *key)
    begun = max(row["valid_from"] for row in whole if row["_seq"] < first)
    early = [row for row in found if row["_seq"] == 0]
    assert {row["valid_from"] for row in early} == {None}
    past = [row | {"valid_from": None, "_seq": 0} for row in whole if row["_seq"] < first]
    assert all(row in past for row in early)
    lasting = [row for row in past if row["is_current"] or row["valid_to"] > begun + timedelta(seconds=1)]
    assert all(row in early for row in lasting)
    assert not [row for row in early if row["valid_to"] and row["valid_to"] < begun - timedelta(seconds=1)]
