"""The chunks by which executors read ranges of a table grow, as each takes five queries beside its rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest

pytest.importorskip("pyarrow")

from replica.config.options import Options
from replica.snapshot import range_reader, source_marks
from replica.snapshot.range_reader import RangeChunk, read_ranges
from replica.snapshot.row_keys import KeyRange
from tests.support.servers import Server


async def sizes(options: Options, table: tuple[str, str]) -> list[int]:
    found = read_ranges(options, table, [KeyRange(None, None)])
    return [chunk.rows.num_rows async for chunk in found]


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
def test_chunks_have_some_megabytes(server: Server) -> None:
    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.d (n INT PRIMARY KEY)")
        server.query(f"INSERT INTO {schema}.d VALUES {', '.join(f'({number})' for number in range(100))}")
        server.query(f"CREATE TABLE {schema}.small (id INT PRIMARY KEY, v INT)")
        server.query(f"INSERT INTO {schema}.small SELECT a.n * 100 + b.n, 1 FROM {schema}.d a, {schema}.d b")
        server.query(f"CREATE TABLE {schema}.large (id INT PRIMARY KEY, v MEDIUMTEXT)")
        server.query(f"INSERT INTO {schema}.large SELECT n, REPEAT('x', 1000000) FROM {schema}.d")
        options = Options.build(server.dsn(), {"snapshot_chunk_rows": 1000})
        assert asyncio.run(sizes(options, (schema, "small"))) == [1000, 9000]
        options = Options.build(server.dsn(), {"snapshot_chunk_rows": 20})
        assert asyncio.run(sizes(options, (schema, "large"))) == [20, *[8] * 10]
        # More than 32 MB are not read to their end.
        options = Options.build(server.dsn(), {})
        found = asyncio.run(sizes(options, (schema, "large")))
        assert sum(found) == 100
        assert max(found) == 8


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
def test_a_table_without_a_key_is_one_view_and_several_chunks(server: Server) -> None:
    """It was one chunk: all of the table was in the memory of one task."""

    async def read(options: Options, table: tuple[str, str]) -> list[RangeChunk]:
        return [chunk async for chunk in read_ranges(options, table, [KeyRange()])]

    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.t (n INT, v MEDIUMTEXT)")
        for number in range(30):
            server.query(f"INSERT INTO {schema}.t VALUES ({number}, REPEAT('{number % 10}', 1000000))")
        found = asyncio.run(read(Options.build(server.dsn(), {}), (schema, "t")))
        assert len({chunk.high for chunk in found}) == 1
        assert max(chunk.rows.nbytes for chunk in found) < 8 << 20
        values = {
            number: text
            for chunk in found
            for number, text in zip(*(column.to_pylist() for column in chunk.rows.columns), strict=True)
        }
        assert values == {number: str(number % 10) * 1_000_000 for number in range(30)}
        assert sum(chunk.rows.num_rows for chunk in found) == 30


@pytest.mark.parametrize("keys", ["PRIMARY KEY", "NOT NULL"])
@pytest.mark.parametrize("count", [3, 0])
@pytest.mark.parametrize("change", ["rebuild", "swap"])
def test_a_change_of_the_table_between_read_view_and_rows(
    server: Server, change: str, count: int, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for the chunk before, and comes before the next one has opened the table.

    Servers refuse a view that is older than a rebuilt table (error 1412). Of a table that has taken the place of
    another one they show what it had when the view was opened.
    """
    with server.fresh_schema() as schema:
        for name, rows in (("t", count), ("other", 1)):
            server.query(f"CREATE TABLE {schema}.{name} (id INT {keys})")
            for number in range(rows):
                server.query(f"INSERT INTO {schema}.{name} VALUES ({number})")
        statements = {
            "rebuild": [f"ALTER TABLE {schema}.t ENGINE=InnoDB"],
            "swap": [
                f"INSERT INTO {schema}.other VALUES (1), (2)",
                f"RENAME TABLE {schema}.t TO {schema}.old, {schema}.other TO {schema}.t",
            ],
        }
        real, refused = source_marks.high_mark, list[str]()

        async def high_mark(*given: Any) -> Any:
            """The change comes as soon as the read view is open."""
            with server.connect(init_command="SET lock_wait_timeout = 1") as connection:
                for sql in (*statements[change], f"INSERT INTO {schema}.t VALUES (7)"):
                    try:
                        connection.cursor().execute(sql)
                    except pymysql.err.MySQLError as error:
                        refused.append(str(error))
            return await real(*given)

        monkeypatch.setattr(range_reader, "high_mark", high_mark)
        options = Options.build(server.dsn(), {"snapshot_chunk_rows": 10})
        assert asyncio.run(sizes(options, (schema, "t"))) == ([count] if count else [])
        assert server.query(f"SELECT COUNT(*) FROM {schema}.t") == [(count + 1,)]
        assert "Lock wait timeout exceeded" in " ".join(refused)


@pytest.fixture
def three_chunks(server: Server) -> Iterator[tuple[Options, tuple[str, str]]]:
    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v MEDIUMTEXT)")
        for number in range(6):
            server.query(f"INSERT INTO {schema}.t VALUES ({number}, REPEAT('x', 4000000))")
        yield Options.build(server.dsn(), {"snapshot_chunk_rows": 2}), (schema, "t")


def steps(monkeypatch: pytest.MonkeyPatch, note: Callable[[str, Any], None]) -> None:
    """Have ``note`` called before each step of a reader."""
    reading, raw = range_reader._Reading, range_reader._RawChunk
    start, read, in_columns = reading.start, reading.read, raw.in_columns

    async def noted_start(self: Any, keys: KeyRange) -> Any:
        note("start", self)
        return await start(self, keys)

    async def noted_read(self: Any, started: Any) -> Any:
        found = await read(self, started)
        note("read", self)
        return found

    def noted_in_columns(self: Any) -> RangeChunk:
        note("columns", self)
        return in_columns(self)

    monkeypatch.setattr(reading, "start", noted_start)
    monkeypatch.setattr(reading, "read", noted_read)
    monkeypatch.setattr(raw, "in_columns", noted_in_columns)


async def ids(options: Options, table: tuple[str, str], ran: list[str]) -> list[list[int]]:
    found = []
    async for chunk in read_ranges(options, table, [KeyRange(None, None)]):
        ran.append("given")
        found.append(chunk.rows.column("id").to_pylist())
    return found


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
def test_the_server_reads_while_columns_are_made(
    three_chunks: tuple[Options, tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no chunk is handed on while a read view is open: the consumer may take its time."""
    ran: list[str] = []
    steps(monkeypatch, lambda step, _: ran.append(step))
    assert asyncio.run(ids(*three_chunks, ran)) == [[0, 1], [2, 3], [4, 5]]
    pipelined = ["start", "columns", "read", "given"]
    # The last chunk is a full one, so that one more is asked for.
    assert ran == ["start", "read", *pipelined * 3, "columns"]


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
@pytest.mark.parametrize("at", ["start", "columns", "read"])
def test_a_connection_that_is_lost_at_any_step(
    server: Server,
    three_chunks: tuple[Options, tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    at: str,
) -> None:
    """Each row comes once."""
    monkeypatch.setattr(range_reader, "_RETRY_PAUSE", 0.01)
    sessions: list[int] = []
    ran: list[str] = []

    def cut(step: str, one: Any) -> None:
        ran.append(step)
        if step == "start":
            sessions.append(one.session.connection_id)
        if step == at and len(sessions) == 2:
            server.query(f"KILL {sessions[-1]}")
            sessions.append(0)

    steps(monkeypatch, cut)
    assert asyncio.run(ids(*three_chunks, [])) == [[0, 1], [2, 3], [4, 5]]
    assert 0 in sessions
    assert ran.count("start") > 4
