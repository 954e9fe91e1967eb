"""JSON documents that a copy has read from MySQL have the log's types, as far as a SELECT tells them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

import replica.sync
from protocol.rows.result_cells import selected_document
from tests.server.support.streams import SECONDS
from tests.support.servers import Server

VALUES = [
    "'null'",
    "NULL",
    '\'{"$date": "2026-01-02"}\'',
    "JSON_ARRAY(CAST('1234567890.12345678901' AS DECIMAL(30, 11)), CAST(1.50 AS DECIMAL(9, 2)), 1e15, 1e-5)",
    "CAST(CAST(-7 AS DECIMAL(9)) AS JSON)",
    "JSON_OBJECT('t', CAST('-00:00:00.5' AS TIME(2)), 'd', CAST('2026-01-02' AS DATE), 'b', x'00ff')",
    "JSON_ARRAY(CAST('0000-00-00' AS DATETIME), CAST('2026-01-02 03:04:05' AS DATETIME(3)))",
]


def lines(server: Server, schema: str, start: str) -> dict[int, object]:
    command = [sys.executable, "-m", "replica", "tail", server.dsn(), "--from", start, "--stop", "now"]
    options = ["--changes", "--tables", f"{schema}.*", "-f", "json"]
    done = subprocess.run([*command, *options], capture_output=True, timeout=2 * SECONDS, check=True)
    rows = [json.loads(line)["after"] for line in done.stdout.splitlines()]
    return {row["id"]: row["j"] for row in rows}


@pytest.fixture
def schema(mysql97: Server) -> Iterator[str]:
    with mysql97.fresh_schema() as name:
        yield name


def test_documents_that_were_read(mysql97: Server, schema: str) -> None:
    """JSON's null came as NULL, a DECIMAL as a string, and an object with "$date" could not be told from a date."""
    file, position, *_ = mysql97.query(mysql97.log_status)[0]
    mysql97.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, j JSON)")
    rows = ", ".join(f"({number}, {value})" for number, value in enumerate(VALUES))
    with mysql97.connect(init_command="SET sql_mode = ''") as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {schema}.t VALUES {rows}")
    images = {}
    place = f"{file}:{position}"
    for start in (place, "snapshot"):
        with replica.sync.connect(mysql97.dsn(), tables=f"{schema}.*", start=start, stop="now") as stream:
            found = [change.after for tx in stream.transactions() for change in tx]
            images[start] = {image["id"]: image["j"] for image in found if image}
    assert images["snapshot"] == {key: selected_document(value) for key, value in images[place].items()}
    read, logged = lines(mysql97, schema, "snapshot"), lines(mysql97, schema, place)
    assert [read[number] for number in range(3)] == [
        {"$json": None},
        None,
        {"$json": {"$date": "2026-01-02"}},
    ]
    assert [read[number] for number in range(3)] == [logged[number] for number in range(3)]
    assert read[3] == [{"$decimal": "1234567890.12345678901"}, 1.5, 1e15, 1e-5]
    assert read[4] == -7
