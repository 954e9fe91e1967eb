"""Files that real servers wrote, as RecordBatches: equal to the tuples of the same files, and to SELECT.

`TEST_SEED` repeats a run.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import replica.sync
from protocol.constants import EventType
from tests.server.support.random_streams import MATRIX, run_tables
from tests.server.support.streams import end_of_log
from tests.support.arrow_rows import differences, has_lone_diffs, row_changes, text_cells
from tests.support.random_tables import quote_name
from tests.support.servers import Server

TABLES = 40
# A pymysql cursor gives what the server says of these as Python values; FLOAT is shown rounded, BIT is bytes.
COLUMNS = {
    "id": "BIGINT UNSIGNED PRIMARY KEY",
    "tiny": "TINYINT",
    "small": "SMALLINT UNSIGNED",
    "medium": "MEDIUMINT",
    "normal": "INT UNSIGNED",
    "short_decimal": "DECIMAL(10,2)",
    "long_decimal": "DECIMAL(38,10)",
    "longest_decimal": "DECIMAL(65,30)",
    "real_number": "DOUBLE",
    "day": "DATE",
    "moment": "DATETIME(6)",
    "stamp": "TIMESTAMP(3) NULL",
    "clock": "TIME(2)",
    "that_year": "YEAR",
    "letters": "CHAR(10) CHARACTER SET latin1",
    "words": "VARCHAR(100) CHARACTER SET utf8mb4",
    "cyrillic": "TEXT CHARACTER SET cp1251",
    "wide": "VARCHAR(100) CHARACTER SET utf16",
    "bytes": "BINARY(8)",
    "some_bytes": "VARBINARY(50)",
    "label": "ENUM('new','paid','größer')",
    "labels": "SET('hot','new','sale')",
}
ROWS = 3000


@contextmanager
def file_of(server: Server) -> Iterator[io.BytesIO]:
    """A binlog file with what is done meanwhile."""
    server.query("FLUSH BINARY LOGS")
    [*_, (name, *_)] = server.query("SHOW BINARY LOGS")
    file = io.BytesIO()
    yield file
    server.query("FLUSH BINARY LOGS")
    [(basename,)] = server.query("SELECT @@log_bin_basename")
    file.write(server.read_file(f"{basename.rpartition('/')[0]}/{name}"))
    file.seek(0)


def batches_of(file: io.BytesIO, table: str, **options: Any) -> list[pa.RecordBatch]:
    file.seek(0)
    with replica.open_binlog(file) as log:
        batches = list(log.arrow(table, **options))
    for batch in batches:
        batch.validate(full=True)
    return batches


def columns_of(batches: list[pa.RecordBatch]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = pa.Table.from_batches(batches).to_pydict()
    return columns


@pytest.mark.parametrize(("server", "metadata"), MATRIX, indirect=True)
def test_random_tables_as_columns(seed: int, server: Server, schema: str, metadata: str | None) -> None:
    rng = random.Random(f"{seed} {server.name} {metadata} columns")
    with file_of(server) as file:
        tables = run_tables(rng, server, schema, full=metadata == "FULL", number=TABLES)
    with replica.open_binlog(file, tables=f"{schema}.*", cells=text_cells()) as log:
        changes = list(row_changes(log))
    compared = 0
    for table in tables:
        expected = [change for change in changes if change[3].table.name == table.name]
        if any(map(has_lone_diffs, expected)):
            continue
        batches = batches_of(file, f"{schema}.{table.name}", images="both")
        assert not differences(batches, expected, both=True), table.create
        compared += len(expected) * len(table.columns)
    print(f"{server.name} {metadata}: about {compared} values compared")
    assert compared > 1000


def fill(server: Server, schema: str, rng: random.Random) -> None:
    """A table with a column of each kind; every fourth value or so is NULL."""

    def row(number: int) -> tuple[Any, ...]:
        moment = datetime.fromtimestamp(rng.randint(0, 2**31 - 2), UTC).replace(
            tzinfo=None, microsecond=rng.randrange(10**6)
        )
        sign = rng.choice(["", "-"])
        values = [
            rng.randint(-128, 127),
            rng.randrange(1 << 16),
            rng.randint(-1 << 23, (1 << 23) - 1),
            rng.randrange(1 << 32),
            f"{sign}{rng.randrange(10**10) / 100:.2f}",
            f"{sign}{rng.randrange(10**28)}.{rng.randrange(10**10):010}",
            f"{sign}{rng.randrange(10**35)}.{rng.randrange(10**30):030}",
            rng.uniform(-1e9, 1e9),
            moment.date(),
            moment,
            moment,
            f"{sign}{rng.randrange(839)}:{rng.randrange(60)}:{rng.randrange(60)}.{rng.randrange(100):02}",
            rng.choice([0, rng.randint(1901, 2155)]),
            "".join(rng.choices("abc äß€", k=rng.randint(0, 10))).strip(),
            "".join(rng.choices("abc äß€日😀'\\\n", k=rng.randint(0, 40))),
            "".join(rng.choices("abc Жя№", k=rng.randint(0, 300))),
            "".join(rng.choices("ab Жя日😀", k=rng.randint(0, 30))),
            rng.randbytes(rng.randint(0, 7)) + rng.choice([b"", b"\0"]),
            rng.randbytes(rng.randint(0, 50)),
            rng.randint(1, 3),
            rng.randrange(8),
        ]
        return (number, *(None if rng.random() < 0.25 else value for value in values))

    definitions = ", ".join(f"{quote_name(name)} {definition}" for name, definition in COLUMNS.items())
    with server.connect(database=schema, charset="utf8mb4") as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"CREATE TABLE t ({definitions})")
        insert = f"INSERT INTO t VALUES ({', '.join(['%s'] * len(COLUMNS))})"
        cursor.executemany(insert, [row(number) for number in range(ROWS)])
        connection.commit()


def selected(server: Server, schema: str) -> dict[str, list[Any]]:
    with server.connect(database=schema, charset="utf8mb4") as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute("SELECT * FROM t ORDER BY id")
        rows = cursor.fetchall()
    found = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    found["stamp"] = [moment and moment.replace(tzinfo=UTC) for moment in found["stamp"]]
    return found


COMPRESSED = {EventType.TRANSACTION_PAYLOAD, EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1}
SETTINGS = [
    ("mysql:9.7", "binlog_transaction_compression", "OFF"),
    ("mysql:9.7", "binlog_transaction_compression", "ON"),
    ("mariadb:10.11", "log_bin_compress", "OFF"),
    ("mariadb:11.8", "log_bin_compress", "ON"),
]


@pytest.mark.parametrize(("server", "variable", "value"), SETTINGS, indirect=["server"])
def test_inserted_rows_equal_select(
    seed: int, server: Server, schema: str, variable: str, value: str
) -> None:
    variables = {variable: value, "binlog_row_metadata": "FULL"}
    usual = {name: server.query(f"SELECT @@GLOBAL.{name}")[0][0] for name in variables}
    for name, wanted in variables.items():
        server.query(f"SET GLOBAL {name} = %s", wanted)
    try:
        with file_of(server) as file:
            start = end_of_log(server)
            fill(server, schema, random.Random(f"{seed} {server.name}"))
            with replica.sync.connect(server.dsn(), start=start, stop="now") as stream:
                live = pa.table(stream.arrow(f"{schema}.t", metadata=["_op"]))
    finally:
        for name, setting in usual.items():
            server.query(f"SET GLOBAL {name} = %s", setting)
    file.seek(0)
    types = {event.header.type for _, _, event in replica.open_binlog(file).raw_events()}
    assert bool(types & COMPRESSED) == (value == "ON")
    batches = batches_of(file, f"{schema}.t", metadata=["_op"])
    assert live == pa.Table.from_batches(batches)
    found = columns_of(batches)
    assert found.pop("_op") == ["insert"] * ROWS
    expected = selected(server, schema)
    for name in COLUMNS:
        assert found[name] == expected[name], name


def test_partial_updates_of_documents(mysql97: Server) -> None:
    [(usual,)] = mysql97.query("SELECT @@GLOBAL.binlog_row_metadata")
    mysql97.query("SET GLOBAL binlog_row_metadata = 'FULL'")
    with mysql97.fresh_schema() as schema, mysql97.connect(database=schema) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, j JSON)")
        cursor.execute("SET binlog_row_value_options = PARTIAL_JSON")
        with file_of(mysql97) as file:
            for number in range(30):
                members = ", ".join(f"'member {index}', REPEAT('x', {index})" for index in range(20))
                cursor.execute(f"INSERT INTO t VALUES ({number}, JSON_OBJECT('n', {number}, {members}))")
            connection.commit()
            cursor.execute("UPDATE t SET j = JSON_SET(j, '$.n', -1.5, '$.m', CAST(id AS DECIMAL(5,2)))")
            cursor.execute(
                "UPDATE t SET j = JSON_REMOVE(JSON_SET(j, '$.zz', id), '$.\"member 3\"') WHERE id % 2"
            )
            connection.commit()
            cursor.execute("SELECT id, CAST(j AS CHAR) FROM t")
            expected = dict(cursor.fetchall())
    mysql97.query(f"SET GLOBAL binlog_row_metadata = '{usual}'")
    file.seek(0)
    assert any(event.header.type == EventType.PARTIAL_UPDATE_ROWS for event in replica.open_binlog(file))
    found = columns_of(batches_of(file, f"{schema}.t"))
    assert dict(zip(found["id"], found["j"], strict=True)) == expected


@pytest.mark.parametrize("server", ["mysql:9.7", "mysql:5.6", "mariadb:11.8"], indirect=True)
def test_minimal_images(server: Server, schema: str) -> None:
    """The row after an update has what both images say; the rest is absent."""
    with server.connect(database=schema) as connection, file_of(server) as file:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
        cursor.execute("SET binlog_row_image = MINIMAL")
        cursor.execute("INSERT INTO t VALUES (1, 10, 100), (2, 20, 200)")
        cursor.execute("UPDATE t SET a = a + 1")
        cursor.execute("DELETE FROM t WHERE id = 2")
        connection.commit()
    batches = batches_of(file, f"{schema}.t", metadata=["_op", "_absent"])
    id_name, a_name, b_name = batches[0].schema.names[:3]
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert rows == [
        (1, 10, 100, "insert", None),
        (2, 20, 200, "insert", None),
        (1, 11, None, "update", [b_name]),
        (2, 21, None, "update", [b_name]),
        (2, None, None, "delete", [a_name, b_name]),
    ]
    assert id_name in ("id", "@1")
