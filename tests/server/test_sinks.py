"""Programs of `tests/examples` on real targets: they begin with a copy, are killed, and lose and repeat nothing."""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.examples.changes_to_nats import JetStream
from tests.examples.changes_to_redis import Redis
from tests.support.servers import Server

from .support.example_programs import eventually, running, work
from .support.sinks import nats, postgresql, redis
from .support.streams import MYSQL97_AND_MARIADB118

_BOTH = pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
_COPIED = range(300, 2000)
Rows = dict[int, str]


def make_table(server: Server, schema: str) -> None:
    """Rows that the copy finds, in a log file of their own: on MariaDB a copy begins where its file does."""
    server.query(f"CREATE TABLE {schema}.product (id INT PRIMARY KEY, price DECIMAL(9, 2), secret INT)")
    rows = ", ".join(f"({number}, {number}.5, 8)" for number in _COPIED)
    server.query("FLUSH BINARY LOGS")
    server.query(f"INSERT INTO {schema}.product VALUES {rows}")
    server.query("FLUSH BINARY LOGS")


def statements(number: int) -> list[str]:
    return [
        f"INSERT INTO product VALUES ({number}, 0.5, 7)",
        f"UPDATE product SET price = price + 1 WHERE id % 50 = {number % 50}",
        f"UPDATE product SET id = id + 5000 WHERE id = {number - 3}",
        f"DELETE FROM product WHERE id = {number + 5000 - 7}",
    ]


def table(server: Server, schema: str) -> Rows:
    return {key: str(price) for key, price in server.query(f"SELECT id, price FROM {schema}.product")}


Entry = tuple[str, Any, Any]


def applied(changes: list[Entry]) -> Rows:
    """The table that the changes give, as upserts and deletes."""
    rows: Rows = {}
    for operation, before, after in changes:
        assert operation != "voided"
        if before is not None:
            rows.pop(before["id"], None)
        if after is not None:
            rows[after["id"]] = after["price"]
    return rows


def check_once(changes: list[Entry], deleted: range) -> None:
    """Each insert and each delete of the log is there once."""
    found = [after["id"] for operation, _, after in changes if operation == "insert"]
    assert sorted(found) == list(range(200))
    found = [before["id"] for operation, before, _ in changes if operation == "delete"]
    assert sorted(found) == list(deleted)


def dsn_of(server: Server) -> str:
    return f"{server.dsn()}/?snapshot_chunk_rows=200"


@_BOTH
def test_postgresql(server: Server, schema: str, seed: int) -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    make_table(server, schema)
    with postgresql() as target, psycopg.connect(target, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"CREATE TABLE {schema}.product (id int PRIMARY KEY, price numeric(9, 2))")

        def copied() -> Rows:
            return {key: str(price) for key, price in connection.execute(f"SELECT * FROM {schema}.product")}

        arguments = [dsn_of(server), target, f"{schema}.product", "id", "price"]
        with running("mirror_to_postgresql.py", arguments, lambda: bool(copied())) as program:
            work(server, schema, program, seed, statements)
            wanted = table(server, schema)
            eventually(lambda: copied() == wanted)


@_BOTH
def test_redis(server: Server, schema: str, seed: int, tmp_path: Path) -> None:
    make_table(server, schema)
    with redis(tmp_path) as address, contextlib.closing(Redis(address)) as client:

        def length() -> int:
            found = client.run(("XLEN", "changes"))
            assert isinstance(found, int)
            return found

        def changes() -> list[Entry]:
            entries: Any = client.run(("XRANGE", "changes", "-", "+"))
            rows = [(operation, json.loads(row)) for _, (_, operation, _, _, _, row) in entries]
            return [(kind, row, None) if kind == "delete" else (kind, None, row) for kind, row in rows]

        arguments = [dsn_of(server), address, "changes", f"{schema}.product"]
        with running("changes_to_redis.py", arguments, lambda: length() > 0) as program:
            work(server, schema, program, seed, without_new_keys)
            wanted = table(server, schema)
            eventually(lambda: applied(changes()) == wanted)
        check_once(changes(), range(193))


def without_new_keys(number: int) -> list[str]:
    insert, update, _, _ = statements(number)
    return [insert, update, f"DELETE FROM product WHERE id = {number - 7}"]


@_BOTH
def test_nats(server: Server, schema: str, seed: int, tmp_path: Path) -> None:
    make_table(server, schema)
    with nats(tmp_path / "nats") as address, contextlib.closing(JetStream(address)) as client:
        checkpoint = tmp_path / "changes.ckpt"

        def ask(what: str, request: object) -> dict[str, Any]:
            subject = f"$JS.API.STREAM.{what}.CHANGES"
            [answer] = client.publish([(subject, "", request)])
            return answer

        def count() -> int:
            return int(ask("INFO", {})["state"]["messages"]) if checkpoint.exists() else 0

        arguments = [dsn_of(server), address, "CHANGES", str(checkpoint), f"{schema}.product"]
        with running("changes_to_nats.py", arguments, lambda: count() > 0) as program:
            work(server, schema, program, seed, statements)
            wanted = table(server, schema)
            changes: list[Entry] = []

            def is_all_there() -> bool:
                for number in range(len(changes) + 1, count() + 1):
                    stored = ask("MSG.GET", {"seq": number})["message"]["data"]
                    one = json.loads(base64.b64decode(stored))
                    changes.append((one["op"], one["before"], one["after"]))
                return applied(changes) == wanted

            eventually(is_all_there)
        check_once(changes, range(5000, 5193))
