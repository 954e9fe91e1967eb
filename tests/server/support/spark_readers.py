"""Readers of Spark's streaming source on live sources, called as Spark's runner calls them."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable

from replica.spark.data_source import BinlogDataSource, LocalBinlogDataSource, arrow_schema
from replica.spark.source_options import parse_options
from replica.spark.stream_reader import BinlogStreamReader
from tests.support.servers import Server

ALL = ReadAllAvailable()
Json = dict[str, Any]


class Readers:
    """Readers of one query, one after another, as one source process dies and the next begins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[BinlogStreamReader] = []

    def __call__(self, server: Server, **more: object) -> BinlogStreamReader:
        given = {
            "host": server.host,
            "port": server.port,
            "user": server.replica_user,
            "password": server.replica_password,
            "heartbeat": 1,
            "spoolDir": self.folder,
            **more,
        }
        source = LocalBinlogDataSource({name: str(value) for name, value in given.items()})
        schema = spark_schema(source)
        reader = source.streamReader(schema)
        self.opened.append(reader)
        return reader

    def close(self) -> None:
        for reader in self.opened:
            reader.stop()


def spark_schema(source: BinlogDataSource) -> Any:
    """As Spark has it from the words of the schema, which only a session can read."""
    source.schema()
    return from_arrow_schema(arrow_schema(parse_options(source.options)))


def next_offset(reader: BinlogStreamReader, start: Json, limit: Any = ALL) -> Json:
    until = time.monotonic() + 60
    while (end := reader.latestOffset(start, limit)) == start:
        assert time.monotonic() < until
    return end


def batch(reader: BinlogStreamReader, start: Json, end: Json) -> list[Json]:
    """The rows of a micro-batch, read in what another process has of the reader."""
    partitions = reader.partitions(start, end)
    copy = pickle.loads(pickle.dumps(reader))
    rows = [row for one in partitions for found in copy.read(one) for row in found.to_pylist()]
    return sorted(rows, key=lambda row: row.get("seq", row.get("_seq")))
