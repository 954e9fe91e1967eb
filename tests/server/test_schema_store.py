"""Schema stores that are gone, damaged, old or of another server; and a log that was purged behind them."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import replica
from replica import BinlogPosition, Checkpoint, CheckpointError, FileCheckpointStore, FileSchemaStore, Insert
from replica.schemas.reading import TableReader
from tests.server.support.streams import PASSWORD, begin_log, user_of
from tests.support.servers import Server

Row = dict[str, Any]


async def rows_of(server: Server, user: str, schema: str, **options: Any) -> tuple[list[Row], Checkpoint]:
    """The rows up to the end of the log, under names that come from the history."""
    found: list[Row] = []
    dsn = server.dsn(user, PASSWORD)
    async with replica.connect(dsn, tables=f"{schema}.*", stop="now", **options) as stream:
        async for tx in stream.transactions():
            for change in await tx.collect():
                assert change.table.names_from == "history"
                assert isinstance(change, Insert)
                found.append(dict(change.after))
        checkpoint = stream.checkpoint
    assert checkpoint is not None
    return found, checkpoint


def begin(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT, b INT)")


def lose_labels(server: Server, schema: str) -> None:
    """Statements that make a column whose labels they do not tell."""
    server.query(f"ALTER TABLE {schema}.t ADD e ENUM('ä', 'b') CHARACTER SET latin1")
    server.query(f"ALTER TABLE {schema}.t CONVERT TO CHARACTER SET cp1251")


def go_on(server: Server, schema: str) -> list[Row]:
    """Statements that make the old names wrong ones, with rows before and behind; returns the rows."""
    server.query(f"INSERT INTO {schema}.t VALUES (1, 2)")
    server.query(f"ALTER TABLE {schema}.t CHANGE a b INT, CHANGE b a INT")
    server.query(f"INSERT INTO {schema}.t VALUES (3, 4)")
    return [{"a": 1, "b": 2}, {"b": 3, "a": 4}]


async def test_logs_behind_the_place_that_was_followed_may_be_purged(
    server: Server, schema: str, tmp_path: Path
) -> None:
    """The last DDL is in a file that is gone; a consumer was there until then."""
    begin(server, schema)
    store, beside = FileSchemaStore(tmp_path / "schemas"), FileCheckpointStore(tmp_path / "x.ckpt")
    with user_of(server) as user:
        _, place = await rows_of(server, user, schema, schemas=store)
        await rows_of(server, user, schema, checkpoints=beside)
        rows = go_on(server, schema)
        for number in range(3):
            server.query("FLUSH BINARY LOGS")
            server.query(f"INSERT INTO {schema}.t VALUES ({number}, 0)")
            rows.append({"b": number, "a": 0})
        found, place = await rows_of(server, user, schema, schemas=store, start=place)
        assert found == rows
        assert (await rows_of(server, user, schema, checkpoints=beside))[0] == rows
        begin_log(server)
        server.query(f"INSERT INTO {schema}.t VALUES (7, 8)")
        assert (await rows_of(server, user, schema, checkpoints=beside))[0] == [{"b": 7, "a": 8}]
        found, _ = await rows_of(server, user, schema, schemas=store, start=place)
        assert found == [{"b": 7, "a": 8}]


def line(text: str) -> bytes:
    return f"{text} {zlib.crc32(text.encode()):08x}\n".encode()


def of_version(version: int, data: bytes) -> bytes:
    """A store as another version would have written it."""
    first, _, rest = data.partition(b"\n")
    return line(first.decode().rpartition(" ")[0].replace('"version":2', f'"version":{version}')) + rest


def without_a_line(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join([*lines[:5], *lines[6:]])


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a letter": (lambda data: data.replace(b'"int"', b'"inT"'), "is damaged"),
    "binary": (lambda data: b"\xff" + data[1:], "is no schema store"),
    "a lost beginning": (lambda data: data[5:], "is damaged"),
    "empty": (lambda data: b"", "not a schema history: it is empty"),
    "a lost line": (without_a_line, "line 6 is damaged, or lines are missing before it"),
    "an unknown format": (lambda data: of_version(0, data), "it has no version up to 2"),
    "a later format": (lambda data: of_version(3, data), "written by a later mysql-replica"),
}


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_store_that_cannot_be_read_is_an_error_and_may_be_removed(
    server: Server, schema: str, tmp_path: Path, damage: str
) -> None:
    begin(server, schema)
    path = tmp_path / "schemas"
    store = FileSchemaStore(path)
    with user_of(server) as user:
        _, place = await rows_of(server, user, schema, schemas=store)
        rows = go_on(server, schema)
        change, problem = DAMAGES[damage]
        whole = path.read_bytes()
        path.write_bytes(change(whole))
        with pytest.raises(CheckpointError, match=rf"{problem}.*; restore it from a backup, or remove it"):
            await rows_of(server, user, schema, schemas=store, start=place)
        # Both remedies work.
        path.write_bytes(whole)
        assert (await rows_of(server, user, schema, schemas=store, start=place))[0] == rows
        path.unlink()
        assert (await rows_of(server, user, schema, schemas=store, start=place))[0] == rows


@pytest.mark.parametrize("server", ["mysql:5.6", "mariadb:11.8"], indirect=True)
async def test_a_store_of_another_server_is_an_error_and_may_be_removed(
    server: Server, mysql97: Server, schema: str, tmp_path: Path
) -> None:
    path = tmp_path / "schemas"
    store = FileSchemaStore(path)
    with user_of(mysql97) as user, mysql97.fresh_schema() as other:
        begin(mysql97, other)
        await rows_of(mysql97, user, other, schemas=store)
    begin(server, schema)
    with user_of(server) as user:
        _, place = await rows_of(server, user, schema)
        rows = go_on(server, schema)
        with pytest.raises(CheckpointError, match=r"schema history of server .*, or remove it"):
            await rows_of(server, user, schema, schemas=store, start=place)
        path.unlink()
        assert (await rows_of(server, user, schema, schemas=store, start=place))[0] == rows


async def test_a_checkpoint_of_the_version_before_loads(server: Server, schema: str, tmp_path: Path) -> None:
    """It has no schemas beside it: the names of its place come from the tables of now and the statements since."""
    begin(server, schema)
    path = tmp_path / "x.ckpt"
    with user_of(server) as user:
        _, place = await rows_of(server, user, schema)
        rows = go_on(server, schema)
        known = ("version", "file", "position", "gtid_set", "server_uuid", "server_id")
        data = place.to_dict()
        path.write_text(json.dumps({name: data[name] for name in known}))
        assert (await rows_of(server, user, schema, checkpoints=FileCheckpointStore(path)))[0] == rows
        # From then on there is a store.
        assert (tmp_path / "x.ckpt.schemas").exists()
        assert (await rows_of(server, user, schema, checkpoints=FileCheckpointStore(path)))[0] == []


@pytest.mark.parametrize("name", ["mysql:9.7", "mariadb:11.8"])
async def test_a_store_from_before_the_log_was_reset(
    name: str, extra_server: Callable[..., Server], tmp_path: Path
) -> None:
    """Beside a checkpoint of the new log, as in a backup: rows had names of the old log, without an error."""
    server = extra_server(name)
    server.query("CREATE DATABASE w")
    begin(server, "w")
    store, path = FileCheckpointStore(tmp_path / "x.ckpt"), tmp_path / "x.ckpt.schemas"

    with user_of(server) as user:
        go_on(server, "w")
        server.query("FLUSH BINARY LOGS")
        go_on(server, "w")
        assert (await rows_of(server, user, "w", start="earliest", checkpoints=store))[0]
        before = path.read_bytes()
        # The source tells in seconds when it began a file.
        await asyncio.sleep(1.1)
        server.query(server.reset_log)
        path.unlink()
        (tmp_path / "x.ckpt").unlink()
        server.query("DROP TABLE w.t")
        begin(server, "w")
        await rows_of(server, user, "w", start="earliest", checkpoints=store)
        expected = go_on(server, "w")
        now = path.read_bytes()
        path.write_bytes(before)
        with pytest.raises(CheckpointError, match=r"of a log that was reset .* or remove it: the tables"):
            await rows_of(server, user, "w", checkpoints=store)
        path.write_bytes(now)
        assert (await rows_of(server, user, "w", checkpoints=store))[0] == expected


async def test_labels_that_the_log_does_not_tell(server: Server, schema: str, tmp_path: Path) -> None:
    """A stream that ends at the log's end asks for them: before the next one the table may be changed, or gone."""
    begin(server, schema)
    store = FileSchemaStore(tmp_path / "schemas")
    with user_of(server) as user:
        _, place = await rows_of(server, user, schema, schemas=store)
        lose_labels(server, schema)
        _, place = await rows_of(server, user, schema, schemas=store, start=place)
        server.query(f"INSERT INTO {schema}.t VALUES (1, 2, 'b')")
        server.query(f"DROP TABLE {schema}.t")
        found, _ = await rows_of(server, user, schema, schemas=store, start=place)
    assert found == [{"a": 1, "b": 2, "e": "b"}]


async def test_a_stream_that_ends_in_an_older_file(
    server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns that statements did not tell are not worth reading all later files for."""
    asked: list[object] = []

    async def statements(*arguments: object) -> tuple[()]:
        asked.append(arguments)
        return ()

    begin(server, schema)
    store = FileSchemaStore(tmp_path / "schemas")
    with user_of(server) as user:
        _, place = await rows_of(server, user, schema, schemas=store)
        lose_labels(server, schema)
        end = BinlogPosition(*server.query(server.log_status)[0][:2])
        for _ in range(2):
            server.query("FLUSH BINARY LOGS")
        monkeypatch.setattr(TableReader, "statements", statements)
        async with replica.connect(
            server.dsn(user, PASSWORD), tables=f"{schema}.*", start=place, stop=end, schemas=store
        ) as stream:
            assert [event async for event in stream if isinstance(event, replica.RowsEvent)] == []
    assert asked == []
