"""One streaming query of Spark on a live source, started as often as a test wants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SECONDS = 900


class Pipeline:
    """One streaming query that may be started many times: the same checkpoint, spool and Parquet."""

    def __init__(self, session: SparkSession, server: Server, folder: Path, table: str) -> None:
        self.session, self.server, self.folder, self.table = session, server, folder, table

    def options(self, **more: object) -> dict[str, str]:
        given: dict[str, object] = {
            "host": self.server.host,
            "port": self.server.port,
            "user": self.server.replica_user,
            "password": self.server.replica_password,
            "includeTables": self.table,
            "rowFormat": "json",
            "heartbeat": 1,
            "spoolDir": self.folder / "spool",
        }
        return {name: str(value) for name, value in (given | more).items()}

    def frame(self, **more: object) -> DataFrame:
        return self.session.readStream.format("mysql-binlog").options(**self.options(**more)).load()

    def run(self, **more: object) -> StreamingQuery:
        """Everything that is there now."""
        return self.write(self.frame(**more))

    def write(self, frame: DataFrame) -> StreamingQuery:
        query = self.start(frame, availableNow=True)
        try:
            assert query.awaitTermination(SECONDS)
        finally:
            query.stop()
        return query

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        writer = frame.writeStream.format("parquet")
        writer = writer.trigger(**trigger) if trigger else writer
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start(
            str(self.folder / "rows")
        )

    def table_frame(self) -> DataFrame:
        """The same in table mode, where the table's columns are those of the rows."""
        options = self.options(schemaMode="table", table=self.table)
        for name in ("includeTables", "rowFormat"):
            del options[name]
        return self.session.readStream.format("mysql-binlog").options(**options).load()

    def run_table(self) -> StreamingQuery:
        """Everything that is there now, in table mode."""
        return self.write(self.table_frame())

    def start_table(self) -> StreamingQuery:
        """Until it is stopped, in table mode."""
        return self.start(self.table_frame())

    def count(self) -> int:
        return self.session.read.parquet(str(self.folder / "rows")).count()

    def ids(self) -> list[int]:
        rows = self.session.read.parquet(str(self.folder / "rows")).orderBy("seq").collect()
        return [next(iter(json.loads(row["after"]).values())) for row in rows]

    def insert(self, first: int, count: int) -> None:
        rows = [(number, str(number)) for number in range(first, first + count)]
        with self.server.connect() as connection, connection.cursor() as cursor:
            for begin in range(0, count, 10):
                cursor.executemany(f"INSERT INTO {self.table} VALUES (%s, %s)", rows[begin : begin + 10])
