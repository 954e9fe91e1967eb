"""Chunks of real tables: each row once, whatever the key; no row is looked at twice; errors on the way."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from protocol.errors import (
    ConnectionLostError,
    SchemaMismatchError,
    ServerError,
    SourceConfigurationError,
    SourceSilentError,
)
from replica.snapshot.chunk_reader import ChunkReader
from replica.snapshot.row_keys import KeyRange
from replica.source.process_list import Activity
from replica.source.session import Session
from tests.faults.proxy import Fault, FaultProxy
from tests.server.support.table_reading import plan_of, read_chunks, reading_session
from tests.support.column_kinds import dialect_of
from tests.support.servers import Server

ROWS = 300
LIMIT = 37
#: Definitions of keys, and values for row n.
KEYS = {
    "int": ("INT", "{n} - 100"),
    "bigint": ("BIGINT UNSIGNED", "18446744073709551615 - {n}"),
    "three": ("TINYINT", "{n} % 7 - 3"),
    "decimal": ("DECIMAL(20,9)", "({n} - 100) / 7"),
    "double": ("DOUBLE", "({n} - 100) / 7"),
    "float": ("FLOAT", "({n} - 100) / 7"),
    "year": ("YEAR", "1901 + {n} % 200"),
    "date": ("DATE", "DATE '2024-01-01' + INTERVAL {n} DAY"),
    "datetime": ("DATETIME(3)", "TIMESTAMP '2024-01-01 00:00:00' + INTERVAL {n} * 1001 MICROSECOND"),
    "timestamp": ("TIMESTAMP(6)", "FROM_UNIXTIME(1700000000 + {n}) + INTERVAL {n} MICROSECOND"),
    "time": ("TIME(2)", "SEC_TO_TIME({n} * 20.01 - 3000)"),
    "bit": ("BIT(33)", "{n} * 8589934"),
    "enum": (f"ENUM({','.join(repr(chr(97 + n % 26) + str(n)) for n in range(26, 0, -1))})", "1 + {n} % 26"),
    "set": ("SET('z','y','x','w','v')", "{n} % 32"),
    "char": ("CHAR(36)", "CONCAT({n}, '-', REPEAT('x', {n} % 30))"),
    "unicode": ("CHAR(9) CHARACTER SET utf8mb4", "CONCAT(_utf8mb4 X'C3A4E282AC', {n})"),
    "latin": ("CHAR(9) CHARACTER SET latin1", "CONCAT(_latin1 X'E4', {n})"),
    "binary": ("BINARY(9)", "UNHEX(LPAD(HEX({n} * 7919), 18, '0'))"),
    "blob": ("VARBINARY(20)", "CONCAT(CHAR({n} % 256), {n})"),
}
MARIADB_KEYS = {
    "uuid": (
        "UUID",
        "CONCAT(LPAD(HEX({n} * 7919), 8, '0'), '-0000-1000-8000-', LPAD(HEX({n} * 104729), 12, '0'))",
    ),
    "inet4": ("INET4", "CONCAT('10.', {n} % 200, '.1.1')"),
    "inet6": ("INET6", "CONCAT('2001:db8::', HEX({n} * 7919 % 65536))"),
}


def make_table(server: Server, schema: str, name: str, kind: str, value: str) -> None:
    """Rows whose key is a value of the kind, and the row's number."""
    with (
        server.connect(init_command="SET sql_mode = '', time_zone = '+00:00'") as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(
            f"CREATE TABLE {schema}.{name} (n INT NOT NULL, k {kind} NOT NULL, v VARCHAR(9), PRIMARY KEY (k, n))"
        )
        rows = ", ".join(f"({n}, {value.format(n=n)}, 'v{n}')" for n in range(ROWS))
        cursor.execute(f"INSERT INTO {schema}.{name} VALUES {rows}")


async def test_keys_of_every_type(server: Server, schema: str) -> None:
    kinds = KEYS | (MARIADB_KEYS if server.family == "mariadb" and server.version >= (10, 10) else {})
    async with reading_session(server) as session:
        for name, (kind, value) in kinds.items():
            make_table(server, schema, f"t_{name}", kind, value)
            plan = await plan_of(session, schema, f"t_{name}")
            before = await rows_looked_at(session)
            read = await read_chunks(session, plan, LIMIT)
            looked_at = await rows_looked_at(session) - before
            numbers = [row[0] for row in read]
            assert sorted(numbers) == list(range(ROWS)), name
            assert [row[2] for row in read] == [f"v{n}" for n in numbers]
            # Each chunk may look at the row before it and the row behind it; without a key it would be all rows.
            # Over a SET servers use a key for equality only.
            most = ROWS + 4 * (ROWS // LIMIT + 2)
            assert name == "set" or looked_at <= most, f"{name}: {looked_at} rows were looked at"


async def rows_looked_at(session: Session) -> int:
    rows = await session.query("SHOW SESSION STATUS LIKE 'Handler_read%'")
    return sum(int(value or 0) for _, value in rows)


async def test_text_keys_in_every_collation(server: Server, schema: str) -> None:
    """The order of the rows is the server's business: no row is lost or comes twice."""
    dialect = dialect_of(server, logs_labels=False)
    words = ["", "a", "A", "b", "B", "aa", "z", "0", "!", "~", " x", "é", "ß", "ä"]
    async with reading_session(server) as session:
        for number, (charset, collations) in enumerate(sorted(dialect.collations.items())):
            # The first and the last of each set; they differ in case, accents and padding.
            for place, collation in enumerate(sorted({collations[0], collations[-1]})):
                name = f"t_{number}_{place}"
                plain = f"CHARACTER SET {charset}" + ("" if charset == "binary" else f" COLLATE {collation}")
                server.query(
                    f"CREATE TABLE {schema}.{name} (k VARCHAR(9) {plain} NOT NULL PRIMARY KEY, n INT NOT NULL)"
                )
                for index, word in enumerate(words):
                    with_escapes = f"_utf8mb4 X'{word.encode().hex()}'"
                    server.query(f"INSERT IGNORE INTO {schema}.{name} VALUES ({with_escapes}, {index})")
                expected = [n for (n,) in server.query(f"SELECT n FROM {schema}.{name} ORDER BY k")]
                plan = await plan_of(session, schema, name)
                read = [row[1] for row in await read_chunks(session, plan, 2)]
                assert read == expected, (charset, collation)


async def test_a_unique_key_serves_where_there_is_no_primary_key(server: Server, schema: str) -> None:
    columns = "n INT NOT NULL, a INT, b INT NOT NULL, c INT NOT NULL"
    server.query(f"CREATE TABLE {schema}.t ({columns}, KEY (n), UNIQUE (a), UNIQUE (b, c))")
    rows = ", ".join(f"({n}, NULL, {n % 5}, {n})" for n in range(ROWS))
    server.query(f"INSERT INTO {schema}.t VALUES {rows}")
    async with reading_session(server) as session:
        plan = await plan_of(session, schema, "t")
        assert plan.key_names == ("b", "c")
        read = await read_chunks(session, plan, LIMIT)
        assert [row[2:] for row in read] == sorted((n % 5, n) for n in range(ROWS))
        assert plan.row_key(read[0]) == (0, 0)


async def test_a_condition_of_the_user(server: Server, schema: str) -> None:
    make_table(server, schema, "t", "INT", "{n}")
    async with reading_session(server) as session:
        plan = await plan_of(session, schema, "t", where="n % 3 = 0 OR n = 1")
        assert [row[0] for row in await read_chunks(session, plan, LIMIT)] == [
            n for n in range(ROWS) if n % 3 == 0 or n == 1
        ]


async def test_tables_without_rows_and_without_a_key(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.empty (id INT PRIMARY KEY)")
    server.query(f"CREATE TABLE {schema}.heap (id INT)")
    server.query(f"INSERT INTO {schema}.heap VALUES (2), (1), (2)")
    async with reading_session(server) as session:
        assert await ChunkReader(session, await plan_of(session, schema, "empty")).largest_key() is None
        plan = await plan_of(session, schema, "heap")
        assert sorted(await read_chunks(session, plan, None)) == [(1,), (2,), (2,)]
        with pytest.raises(SourceConfigurationError, match="no key"):
            await ChunkReader(session, plan).start(KeyRange(), 10)


async def test_a_table_that_was_changed_after_its_shape_was_read(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET latin1)")
    server.query(f"INSERT INTO {schema}.t VALUES (1, 'a')")
    async with reading_session(server) as session:
        plan = await plan_of(session, schema, "t")
        server.query(f"ALTER TABLE {schema}.t MODIFY v VARCHAR(9) CHARACTER SET utf8mb4")
        with pytest.raises(SchemaMismatchError, match="character set is utf8mb4"):
            await ChunkReader(session, plan).start(KeyRange())
    async with reading_session(server) as session:
        plan = await plan_of(session, schema, "t")
        server.query(f"ALTER TABLE {schema}.t MODIFY id INT UNSIGNED NOT NULL")
        with pytest.raises(SchemaMismatchError, match="its sign"):
            await ChunkReader(session, plan).largest_key()
    async with reading_session(server) as session:
        plan = await plan_of(session, schema, "t")
        server.query(f"DROP TABLE {schema}.t")
        with pytest.raises(ServerError, match="1146"):
            await ChunkReader(session, plan).start(KeyRange())
        # A refused statement leaves the session as it was.
        assert await session.query("SELECT 1") == [("1",)]


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
async def test_an_error_among_the_rows_is_the_servers_own(server: Server, schema: str) -> None:
    """A reader whose statement is killed gets the rows so far, then the error."""
    fill_large(server, schema)
    async with reading_session(server) as session:
        chunk = await ChunkReader(session, await plan_of(session, schema, "t")).start(KeyRange())
        await anext(chunk)
        server.query(f"KILL QUERY {session.connection_id}")
        with pytest.raises((ServerError, ConnectionLostError), match=r"1317|1927|closed"):
            async for _ in chunk:
                pass
        assert 0 < chunk.rows < 2000


async def check_slow_rows(server: Server, schema: str) -> None:
    """Read a row that takes the server longer than a silence that is looked into."""
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.t VALUES (1), (2)")
    async with reading_session(server) as session:
        plan = await plan_of(session, schema, "t", where="SLEEP(1) = 0 AND id = 2")
        chunk = await ChunkReader(session, plan, silence=0.2).start(KeyRange())
        assert [row async for rows in chunk for row in rows] == [(2,)]


async def test_a_server_at_work_is_waited_for(server: Server, schema: str) -> None:
    """A condition that few rows meet, as of snapshot_where, lets the server search for long."""
    await check_slow_rows(server, schema)


async def test_rows_that_come_while_the_server_is_asked(
    server: Server, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has sent all of them and is idle when it answers. They were taken for lost."""
    asked = Session.activity

    async def late(session: Session) -> Activity:
        await asyncio.sleep(3)
        return await asked(session)

    monkeypatch.setattr(Session, "activity", late)
    await check_slow_rows(server, schema)


async def test_a_silent_server_is_given_up(server: Server, schema: str) -> None:
    """The server has sent the rows, or waits until they can be sent, and nothing arrives."""
    fill_large(server, schema)
    async with (
        FaultProxy(server.port) as proxy,
        reading_session(replace(server, port=proxy.port), tls="disabled") as session,
    ):
        reader = ChunkReader(session, await plan_of(session, schema, "t"), silence=0.2)
        proxy.arm([Fault("stall", 100_000, is_seen=False)])
        with pytest.raises(SourceSilentError, match=r"sent no rows for 0\.2 s"):
            async for _ in await reader.start(KeyRange()):
                pass


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
@pytest.mark.parametrize("options", [{"compression": "zlib"}, {"tls": "required"}])
async def test_compression_and_tls(server: Server, schema: str, options: dict[str, str]) -> None:
    fill_large(server, schema)
    async with reading_session(server, **options) as session:
        assert session.uses_tls or session.compression == "zlib"
        rows = await read_chunks(session, await plan_of(session, schema, "t"), 700)
    assert [(row[0], len(row[1])) for row in rows] == [(n, 10_000) for n in range(2000)]


@pytest.mark.parametrize("server", ["mysql:5.6", "mysql:9.7"], indirect=True)
async def test_a_server_sends_rows_in_large_pieces(server: Server, schema: str) -> None:
    """Not in those of 16 KB with which each connection begins."""
    fill_large(server, schema)
    instruments = "performance_schema.setup_instruments SET enabled = '{}', timed = 'NO' WHERE name LIKE '{}'"
    name = "wait/io/socket/sql/client_connection"
    server.query(f"UPDATE {instruments.format('YES', name)}")
    try:
        async with reading_session(server, tls="disabled") as session:
            await read_chunks(session, await plan_of(session, schema, "t"), None)
            for _ in range(100):
                [(writes, size)] = server.query(
                    "SELECT count_write, sum_number_of_bytes_write "
                    "FROM performance_schema.socket_summary_by_instance "
                    "JOIN performance_schema.socket_instances USING (object_instance_begin) "
                    "JOIN performance_schema.threads USING (thread_id) "
                    f"WHERE processlist_id = {session.connection_id} ORDER BY sum_number_of_bytes_write DESC LIMIT 1"
                )
                if size > 20_000_000:
                    break
                # A write is counted behind it: the rows may be here before that.
                await asyncio.sleep(0.05)
    finally:
        server.query(f"UPDATE {instruments.format('NO', name)}")
    print(f"{server.name}: {size} bytes in {writes} writes")
    assert size > 20_000_000
    assert writes < 200


async def test_a_server_takes_small_packets_only(server: Server, schema: str) -> None:
    """It would close the connection at a larger one."""
    fill_large(server, schema)
    [(packet,)] = server.query("SELECT @@GLOBAL.max_allowed_packet")
    server.query("SET GLOBAL max_allowed_packet = 65536")
    try:
        async with reading_session(server) as session:
            rows = await read_chunks(session, await plan_of(session, schema, "t"), 700)
    finally:
        server.query(f"SET GLOBAL max_allowed_packet = {packet}")
    assert len(rows) == 2000


def fill_large(server: Server, schema: str) -> None:
    """2,000 rows of 10 KB: more than the sockets hold."""
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v LONGTEXT)")
    for first in range(0, 2000, 500):
        rows = ", ".join(f"({n}, REPEAT('x', 10000))" for n in range(first, first + 500))
        server.query(f"INSERT INTO {schema}.t VALUES {rows}")
