"""python-mysql-replication in front of Spark: the rows of a live source, through `createDataFrame`, to Parquet.

The rows are those of our envelope with JSON text. They go to Spark in parts, which takes less time and memory than
all of them at once; types are not verified.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from replica.spark.envelope import envelope_schema
from replica.spark.table_mode import spark_ddl
from tests.benchmarks.readers import SERVER_ID

_ROWS_TOGETHER = 100_000


def peer_to_parquet(spark: SparkSession, setting: Mapping[str, Any], target: Path) -> None:
    """``setting`` is that of the readers: host, port, user, password, binlog."""
    schema = spark_ddl(envelope_schema("json"))
    rows: list[tuple[Any, ...]] = []

    def write() -> None:
        frame = spark.createDataFrame(rows, schema, verifySchema=False)
        frame.write.mode("append").parquet(str(target))
        rows.clear()

    for row in _rows(setting):
        rows.append(row)
        if len(rows) == _ROWS_TOGETHER:
            write()
    write()


def _rows(setting: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.event import GtidEvent, RotateEvent
    from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent

    binlog = setting["binlog"]
    login = {name: setting[name] for name in ("host", "port", "user", "password")}
    stream = BinLogStreamReader(
        connection_settings={**login, "ssl_disabled": True},
        server_id=SERVER_ID,
        log_file=binlog,
        log_pos=4,
        resume_stream=True,
        blocking=False,
        verify_checksum=True,
        enable_logging=False,
    )
    file_number = int(binlog.rpartition(".")[2])
    gtid = None
    for event in stream:
        if isinstance(event, GtidEvent):
            gtid = event.gtid
        elif isinstance(event, RotateEvent) and event.next_binlog != binlog:
            break
        if not isinstance(event, RowsEvent):
            continue
        end = event.packet.log_pos
        start = end - event.packet.event_size - 23
        kind = "update" if isinstance(event, UpdateRowsEvent) else "insert"
        kind = "delete" if isinstance(event, DeleteRowsEvent) else kind
        ts = datetime.fromtimestamp(event.timestamp, UTC)
        keys = event.primary_key or ()
        keys = (keys,) if isinstance(keys, str) else keys
        first = (file_number * 10**13 + start) * 10**10
        for number, row in enumerate(event.rows):
            before = row.get("before_values") or (row["values"] if kind == "delete" else None)
            after = row.get("after_values") or (row["values"] if kind == "insert" else None)
            image = after or before or {}
            source = (event.packet.server_id, None, binlog, start, number, None, None, "commit")
            yield (
                kind,
                event.schema,
                event.table,
                before and _json(before),
                after and _json(after),
                _json({key: image[key] for key in keys}),
                ts,
                gtid,
                source,
                Decimal(first + number),
                None,
            )
    stream.close()


def _json(values: Mapping[str, Any]) -> str:
    plain = {name: _document(value) if isinstance(value, dict) else value for name, value in values.items()}
    return json.dumps(plain, default=_text, ensure_ascii=False)


def _document(value: Mapping[Any, Any]) -> dict[str, Any]:
    """The names in JSON documents are bytes, too. The log's documents have one level."""
    return {_text(name): member for name, member in value.items()}


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
