"""The programs of `tests/examples`, run as users run them, and killed: what they feed ends right.

Each example is a process of its own in front of a real server. It is killed with SIGKILL while rows are written, and
started again; then what it has fed is compared with the tables.
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import sqlite3
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import Server

from .support.example_programs import EXAMPLES, eventually, running, work
from .support.streams import MYSQL97_AND_MARIADB118

_BOTH = pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)


class Memcached(socketserver.ThreadingTCPServer):
    """As much of one as the example asks for; ``cache`` is filled by the test."""

    allow_reuse_address = daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _MemcachedConnection)
        self.cache: dict[str, object] = {}
        self.flushes = 0


class _MemcachedConnection(socketserver.StreamRequestHandler):
    server: Memcached

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            for line in self.rfile:
                command, _, key = line.decode().strip().partition(" ")
                if command == "flush_all":
                    self.server.cache.clear()
                    self.server.flushes += 1
                    answer = b"OK\r\n"
                else:
                    answer = b"NOT_FOUND\r\n" if self.server.cache.pop(key, None) is None else b"DELETED\r\n"
                self.wfile.write(answer)


class SearchIndex(ThreadingHTTPServer):
    """As much of an index as the example asks for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _SearchRequest)
        self.documents: dict[str, Any] = {}


class _SearchRequest(BaseHTTPRequestHandler):
    server: SearchIndex

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        lines = iter(json.loads(line) for line in body.splitlines())
        items = []
        for line in lines:
            [(action, meta)] = line.items()
            if action == "index":
                self.server.documents[meta["_id"]] = next(lines)
                items.append({"index": {"status": 201}})
            else:
                found = self.server.documents.pop(meta["_id"], None)
                items.append({"delete": {"status": 404 if found is None else 200}})
        answer = json.dumps({"items": items}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is printed."""


@contextlib.contextmanager
def served(server: Any) -> Iterator[Any]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@_BOTH
def test_cache_invalidation(server: Server, schema: str, seed: int, tmp_path: Path) -> None:
    """Whatever a reader cached is either deleted or what the table holds."""
    server.query(f"CREATE TABLE {schema}.item (id INT, part VARCHAR(9), n INT, PRIMARY KEY (id, part))")
    checkpoint = tmp_path / "cache.ckpt"

    def read(memcached: Memcached) -> dict[str, object]:
        return {
            f"{schema}.item:{id},{part.replace('ä', '%C3%A4')}": n
            for id, part, n in server.query(f"SELECT * FROM {schema}.item")
        }

    def statements(number: int) -> list[str]:
        # A reader that has found nothing in the cache.
        memcached.cache.update(read(memcached)) if not number % 10 else None
        return [
            f"INSERT INTO item VALUES ({number}, 'ä', {number})",
            f"UPDATE item SET n = n + 1 WHERE id % 7 = {number % 7}",
            f"UPDATE item SET id = id + 1000 WHERE id = {number - 3}",
            f"DELETE FROM item WHERE id = {number - 5}",
        ]

    with served(Memcached()) as memcached:
        memcached.cache["old"] = 1
        arguments = [server.dsn(), f"127.0.0.1:{memcached.server_address[1]}", f"{schema}.*", str(checkpoint)]
        with running("cache_invalidation.py", arguments, checkpoint.exists) as program:
            assert (memcached.cache, memcached.flushes) == ({}, 1)
            work(server, schema, program, seed, statements)
            memcached.cache["sentinel"] = 1
            server.query(f"INSERT INTO {schema}.item VALUES (-1, 'x', 0)")
            memcached.cache[f"{schema}.item:-1,x"] = "stale"
            server.query(f"DELETE FROM {schema}.item WHERE id = -1")
            eventually(lambda: f"{schema}.item:-1,x" not in memcached.cache)
            held = {key: value for key, value in memcached.cache.items() if key != "sentinel"}
            now = read(memcached)
            assert held.items() <= now.items()
            assert memcached.flushes == 1
            assert "sentinel" in memcached.cache
            server.query(f"TRUNCATE TABLE {schema}.item")
            eventually(lambda: not memcached.cache)


@_BOTH
def test_outbox_to_queue(server: Server, schema: str, seed: int, tmp_path: Path) -> None:
    """Each message once, in the order of the commits; what was rolled back never."""
    server.query(
        f"CREATE TABLE {schema}.outbox (id INT PRIMARY KEY AUTO_INCREMENT, topic VARCHAR(20), payload JSON)"
    )
    path = tmp_path / "queue.db"

    def begun() -> bool:
        with contextlib.suppress(sqlite3.OperationalError):
            return bool(sqlite3.connect(path).execute("SELECT * FROM resume").fetchall())
        return False

    def statements(number: int) -> list[str]:
        insert = f"INSERT INTO outbox (topic, payload) VALUES ('order', '{{\"n\": {number}}}')"
        undone = (
            ["SAVEPOINT s", insert.replace("order", "undone"), "ROLLBACK TO s"] if not number % 20 else []
        )
        return [*undone, insert, insert.replace("order", "mail"), f"DELETE FROM outbox WHERE id < {number}"]

    with running("outbox_to_queue.py", [server.dsn(), str(path), f"{schema}.outbox"], begun) as program:
        work(server, schema, program, seed, statements)
        query = "SELECT topic, payload FROM message ORDER BY rowid"
        eventually(lambda: len(sqlite3.connect(path).execute(query).fetchall()) >= 400)
        found = [(topic, json.loads(payload)["n"]) for topic, payload in sqlite3.connect(path).execute(query)]
    assert found == [(topic, number) for number in range(200) for topic in ("order", "mail")]


@_BOTH
def test_audit_log(server: Server, schema: str, seed: int, tmp_path: Path) -> None:
    """A line for each transaction, none twice; a torn last line is cut off."""
    server.query(
        f"CREATE TABLE {schema}.account (id INT PRIMARY KEY, balance DECIMAL(9, 2), raw VARBINARY(9))"
    )
    path = tmp_path / "audit.jsonl"

    def statements(number: int) -> list[str]:
        return [
            f"INSERT INTO account VALUES ({number}, {number}.5, 0xFF00)",
            f"UPDATE account SET balance = balance - 1 WHERE id = {number // 2}",
        ]

    def lines() -> list[dict[str, Any]]:
        return [
            json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")
        ]

    arguments = [server.dsn(), str(path), f"{schema}.*"]
    with running("audit_log.py", arguments, lambda: path.exists() and b"\n" in path.read_bytes()) as program:
        work(server, schema, program, seed, statements)
        eventually(lambda: len(lines()) >= 201)
        program.stop()
        with path.open("ab") as file:
            file.write(b'{"gtid": "torn')
        program.start()
        server.query(f"ALTER TABLE {schema}.account ADD COLUMN note TEXT")
        eventually(lambda: bool(lines()[-1].get("statements")))
    first, *rest, last = lines()
    assert first.keys() == {"checkpoint"}
    assert len({line["gtid"] for line in rest}) == len(rest) == 200
    for number, line in enumerate(rest):
        inserted, updated = line["changes"]
        after = {"id": number, "balance": f"{number}.50", "raw": "ff00"}
        assert inserted == ["insert", f"{schema}.account", None, after]
        assert (updated[0], updated[2]["id"]) == ("update", number // 2)
        assert float(updated[3]["balance"]) == float(updated[2]["balance"]) - 1
    assert last["statements"] == [f"ALTER TABLE {schema}.account ADD COLUMN note TEXT"]


@_BOTH
def test_search_index(server: Server, schema: str, seed: int, tmp_path: Path) -> None:
    """The index ends as the table, keys that changed included."""
    server.query(f"CREATE TABLE {schema}.product (id INT PRIMARY KEY, secret INT, name VARCHAR(80))")
    values = ", ".join(f"({number}, 8, 'old {number}')" for number in range(190, 700))
    server.query("FLUSH BINARY LOGS")
    server.query(f"INSERT INTO {schema}.product VALUES {values}")
    checkpoint = tmp_path / "index.ckpt"

    def statements(number: int) -> list[str]:
        return [
            f"REPLACE INTO product VALUES ({number}, 7, 'Zoë {number}')",
            f"UPDATE product SET name = CONCAT(name, '!') WHERE id % 5 = {number % 5}",
            f"UPDATE product SET id = id + 1000 WHERE id = {number - 3}",
            f"DELETE FROM product WHERE id = {number - 7}",
        ]

    with served(SearchIndex()) as index:
        url = f"http://127.0.0.1:{index.server_address[1]}/products"
        arguments = [server.dsn(), url, str(checkpoint), f"{schema}.product", "id", "name"]
        with running("search_index.py", arguments, checkpoint.exists) as program:
            work(server, schema, program, seed, statements)
            rows = server.query(f"SELECT id, name FROM {schema}.product")
            wanted = {str(key): {"id": key, "name": name} for key, name in rows}
            eventually(lambda: index.documents == wanted)


@_BOTH
def test_mirror_to_sqlite(
    server: Server, schema: str, seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is killed while it copies and while it follows, and ends as the table."""
    server.query(f"CREATE TABLE {schema}.product (id INT PRIMARY KEY, secret INT, price DECIMAL(9, 2))")
    rows = ", ".join(f"({number}, 8, {number}.5)" for number in range(190, 3000))
    server.query("FLUSH BINARY LOGS")
    server.query(f"INSERT INTO {schema}.product VALUES {rows}")
    path = tmp_path / "shop.db"

    def mirrored() -> dict[int, str]:
        with (
            contextlib.suppress(sqlite3.OperationalError),
            contextlib.closing(sqlite3.connect(path)) as target,
        ):
            return dict(target.execute(f'SELECT * FROM "{schema}.product"').fetchall())
        return {}

    def statements(number: int) -> list[str]:
        return [
            f"REPLACE INTO product VALUES ({number}, 7, 0.5)",
            f"UPDATE product SET price = price + 1 WHERE id % 50 = {number % 50}",
            f"UPDATE IGNORE product SET id = id + 5000 WHERE id = {number - 3}",
            f"DELETE FROM product WHERE id = {number - 7}",
        ]

    arguments = [f"{server.dsn()}/?snapshot_chunk_rows=200", str(path), f"{schema}.product", "id", "price"]
    with running("mirror_to_sqlite.py", arguments, lambda: bool(mirrored())) as program:
        work(server, schema, program, seed, statements)
        wanted = {key: str(price) for key, price in server.query(f"SELECT id, price FROM {schema}.product")}
        eventually(lambda: mirrored() == wanted)
        server.query(f"CREATE TABLE {schema}.new_product (id INT)")
        server.query(f"DROP TABLE {schema}.new_product")
        server.query(f"INSERT INTO {schema}.product VALUES (9999, 1, 1.5)")
        eventually(lambda: mirrored() == wanted | {9999: "1.50"})
        server.query(f"TRUNCATE {schema}.product")
        program.await_error()
        program.start()
        program.await_error()
        assert capfd.readouterr().err.count(f"rows of {schema}.product are gone: remove {path}") == 2


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("[a-z]*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path: Path) -> None:
    assert path.read_text().count("\n") < 80
