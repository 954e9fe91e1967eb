"""BinlogServer's answers to the SQL of replicas, tools and clients, in the order and form in which they send it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pymysql
import pytest

import replica
from protocol.errors import ServerError
from replica.server import BinlogServer
from replica.server.identity import read_server_uuid, write_server_uuid
from replica.server.replica_sql import SqlError, tokenize
from tests.support.log_builder import SOURCE_ID
from tests.support.served import (
    PASSWORD,
    SECONDS,
    USER,
    gtids,
    logged_in,
    mariadb_log,
    mariadb_transaction,
    mysql_log,
    read_for_ever,
    serving,
    write_mysql_files,
)
from tests.support.socket_source import until

UUID = "0b139cf6-e5f4-11f1-8f60-0242ac110005"


@pytest.fixture
def mysql_files(tmp_path: Path) -> Path:
    write_mysql_files(tmp_path)
    return tmp_path


@pytest.fixture
def mariadb_file(tmp_path: Path) -> Path:
    log = mariadb_log()
    mariadb_transaction(log, 1)
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    return path


async def test_what_a_mysql_replica_sends(mysql_files: Path) -> None:
    """The statements of a MySQL 9.7 replica, in the recorded order."""
    async with serving(mysql_files, server_uuid=UUID) as server, logged_in(server) as session:
        now = int(await session.query_value("SELECT UNIX_TIMESTAMP()"))
        assert abs(now - time.time()) < 60
        assert await session.query_value("SELECT @@GLOBAL.SERVER_ID") == "1"
        assert not await session.query(
            "SET @master_heartbeat_period = 30000001024, @source_heartbeat_period = 30000001024"
        )
        assert not await session.query(
            "SET @master_binlog_checksum = @@global.binlog_checksum, "
            "@source_binlog_checksum = @@global.binlog_checksum"
        )
        assert await session.query_value("SELECT @source_binlog_checksum") == "CRC32"
        assert await session.query_value("SELECT @@GLOBAL.GTID_MODE") == "ON"
        assert await session.query_value("SELECT @@GLOBAL.SERVER_UUID") == UUID
        assert not await session.query("SET @slave_uuid = 'u1', @replica_uuid = 'u1'")
        with pytest.raises(ServerError, match=r"1193.*'rpl_semi_sync_source_enabled'"):
            await session.query("SELECT @@global.rpl_semi_sync_source_enabled")
        await session.register()
        session.start_dump("", 4, 77, 0)
        await session.read_events(SECONDS)
        [connected] = server.replicas
        assert (connected.uuid, connected.server_id, connected.user) == ("u1", 77, USER)


async def test_what_a_mariadb_replica_sends(mariadb_file: Path) -> None:
    """The statements of a MariaDB 11.8 replica, in the recorded order."""
    async with serving(mariadb_file, semi_sync=True) as server, logged_in(server) as session:
        await session.query("SET NAMES utf8mb4")
        await session.query("SELECT UNIX_TIMESTAMP()")
        assert await session.query("SHOW VARIABLES LIKE 'SERVER_ID'") == [("server_id", "1")]
        await session.query("SET @master_heartbeat_period= 30000001024")
        await session.query("SET @master_binlog_checksum= @@global.binlog_checksum")
        assert await session.query_value("SELECT @master_binlog_checksum") == "CRC32"
        await session.query("SET @mariadb_slave_capability=4")
        assert await session.query_value("SELECT @@GLOBAL.gtid_domain_id") == "0"
        for statement in (
            "SET @slave_connect_state='0-21-4'",
            "SET @slave_gtid_strict_mode=0",
            "SET @slave_gtid_ignore_duplicates=0",
        ):
            await session.query(statement)
        assert await session.query_value("SELECT binlog_gtid_pos('bin.000001',4)") == ""
        enabled = await session.query("SHOW VARIABLES LIKE 'rpl_semi_sync_master_enabled'")
        assert enabled == [("rpl_semi_sync_master_enabled", "ON")]
        await session.query("SET @rpl_semi_sync_slave= 1")


async def test_no_semi_sync_is_an_empty_result_on_mariadb(mariadb_file: Path) -> None:
    async with serving(mariadb_file) as server, logged_in(server) as session:
        assert await session.query("SHOW VARIABLES LIKE 'rpl_semi_sync_master_enabled'") == []


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT VERSION()", [("9.7.4",)]),
        ("select @@version_comment limit 1", [("mysql-replica",)]),
        ("SELECT 1", [("1",)]),
        ("SELECT 'a''b\\n', NULL, X'C3A9', _utf8mb4 X'c3a9', \"q\", 1.5;", [("a'b\n", None, "é", "é", "q", "1.5")]),
        ("SELECT @unset, @@log_bin, @@read_only", [(None, "1", "1")]),
        ("SELECT DATABASE(), CURRENT_USER() AS me", [(None, f"{USER}@%")]),
        ("SELECT @@global.gtid_executed", [(str(gtids(1, 6)),)]),
        ("SELECT @@GLOBAL.gtid_purged", [("",)]),
        ("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('x', 'GTID_MODE')", [("gtid_mode", "ON")]),
        ("SHOW VARIABLES WHERE Variable_name = 'server\\_id'", []),
        ("SHOW SESSION VARIABLES LIKE 'server\\_i%'", [("server_id", "1")]),
        ("SHOW STATUS LIKE 'Ssl_cipher'", [("Ssl_cipher", "")]),
        ("SHOW BINARY LOG STATUS", [("bin.000003", "1026", "", "", str(gtids(1, 6)))]),
        ("show master status", [("bin.000003", "1026", "", "", str(gtids(1, 6)))]),
        ("SHOW WARNINGS", []),
        ("SELECT MICROSECOND('a.b'), MICROSECOND('now.5')", [("0", "5")]),
        ("SHOW REPLICAS", []),
        ("SELECT COLUMN_NAME, COLUMN_KEY FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = _utf8mb4 X'73'", []),
        ("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE'", []),
        ("/* from a tool */ SELECT 2 -- two", [("2",)]),
        ("SET autocommit = 0", []),
        ("SET SESSION sql_mode = 'ANSI'", []),
        ("SET @a := 5, @`b c` = 'x'", []),
    ],
)  # fmt: skip
async def test_answers(mysql_files: Path, sql: str, expected: list[tuple[str | None, ...]]) -> None:
    size = (mysql_files / "bin.000003").stat().st_size
    expected = [tuple(str(size) if value == "1026" else value for value in row) for row in expected]
    async with serving(mysql_files) as server, logged_in(server) as session:
        assert await session.query(sql) == expected


async def test_numbers_are_numbers_to_clients(mysql_files: Path) -> None:
    """Clients pack positions into binary packets, so they must get numbers; a quoted '5' must stay text."""
    sizes = [(mysql_files / f"bin.00000{number}").stat().st_size for number in (1, 2, 3)]
    expected = {
        "SHOW MASTER STATUS": [("bin.000003", sizes[2], "", "", str(gtids(1, 6)))],
        "SHOW BINARY LOGS": [(f"bin.00000{i}", size, "No") for i, size in enumerate(sizes, 1)],
        "SELECT @@server_id, 5, '5', @@version, @@log_bin": [(1, 5, "5", "9.7.4", 1)],
        "SHOW VARIABLES LIKE 'server_id'": [("server_id", "1")],
    }

    def ask(port: int) -> dict[str, list[tuple[object, ...]]]:
        given: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": port,
            "user": USER,
            "password": PASSWORD.encode(),
        }
        with pymysql.connect(**given) as connection, connection.cursor() as cursor:
            found = {}
            for sql in expected:
                cursor.execute(sql)
                found[sql] = list(cursor.fetchall())
            return found

    async with serving(mysql_files) as server:
        assert await asyncio.to_thread(ask, server.port) == expected


async def test_user_variables(mysql_files: Path) -> None:
    async with serving(mysql_files) as server:
        async with logged_in(server, "SET @A = 'x', @b = NULL, @c = @a") as session:
            assert await session.query("SELECT @a, @B, @c") == [("x", None, "x")]
            await session.query("SET @a = X'ff'")
            assert await session.query("SELECT @a") == [(b"\xff",)]
        async with logged_in(server) as session:
            assert await session.query("SELECT @a") == [(None,)]


async def test_user_variables_are_limited(mysql_files: Path) -> None:
    """3,000 variables of 60,000 characters took 227 MB."""
    async with serving(mysql_files) as server, logged_in(server) as session:
        for number in range(4):
            await session.query(f"SET @v{number} = '{'x' * 60_000}'")
        with pytest.raises(ServerError, match="1041"):
            await session.query(f"SET @v4 = '{'x' * 60_000}'")
        await session.query("SET @v0 = 'y', @v1 = NULL, @v2 = NULL, @v3 = NULL")
        with pytest.raises(ServerError, match="1041"):
            await session.query(f"SET {', '.join(f'@w{number} = 1' for number in range(200))}")
        assert await session.query_value("SELECT @v0") == "y"
        await session.query(f"SET @v0 = '{'x' * 60_000}'")
        with pytest.raises(ServerError, match="1041"):
            await session.query("SELECT " + ", ".join(["@v0"] * 1000))


async def test_heartbeat_periods_of_any_length(mysql_files: Path) -> None:
    statement = f"SET @master_heartbeat_period = {'9' * 5000}, @source_heartbeat_period = {'9' * 5000}"
    async with serving(mysql_files) as server, logged_in(server, statement) as session:
        session.start_dump("", 4, 0, 0)
        assert await session.read_events(10)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("", 1064),
        (";", 1064),
        ("SELECT", 1064),
        ("SELECT 1,", 1064),
        ("SELECT 1 2", 1064),
        ("SELECT (1", 1064),
        ("SELECT 1 + 1", 1064),
        ("SELECT 'open", 1064),
        ("SELECT UNIX_TIMESTAMP(", 1064),
        ("SELECT * FROM t", 1064),
        ("SELECT * FROM information_schema.TABLES", 1064),
        ("INSERT INTO t VALUES (1)", 1064),
        ("DROP TABLE t", 1064),
        ("SHOW TABLES", 1064),
        ("SET", 1064),
        ("SET @a", 1064),
        ("SET @a =", 1064),
        ("SELECT SLEEP(5)", 1305),
        ("SELECT " + "NOW(" * 2000, 1064),
        ("SELECT " + "/*" * 30_000, 1064),
        ("SELECT '" + "''" * 30_000, 1064),
        ("SELECT '" + "x" * 1_000_000 + "'", 1153),
        ("SELECT BINLOG_GTID_POS('bin.000001', 4)", 1305),
        ("SELECT @@nothing", 1193),
        ("SELECT @@gtid_binlog_pos", 1193),
        ("SET GLOBAL read_only = 0", 1227),
        ("SET @@global.read_only = 0", 1227),
        ("KILL 99999", 1094),
        ("KILL x", 1064),
        ("KILL -1", 1064),
        ("KILL " + "9" * 5000, 1094),
        ("SHOW VARIABLES LIKE " + "'a' " * 9, 1041),
        ("SELECT " + "BINLOG_GTID_POS('', '9')," * 2000 + "1", 1305),
        ("\x00", 1064),
    ],
)
async def test_refusals(mysql_files: Path, sql: str, code: int) -> None:
    async with serving(mysql_files) as server, logged_in(server) as session:
        with pytest.raises(ServerError) as caught:
            await session.query(sql)
        assert caught.value.code == code
        assert await session.query_value("SELECT 1") == "1"


async def test_binary_logs(mysql_files: Path) -> None:
    names = ["bin.000001", "bin.000002", "bin.000003"]
    async with serving(mysql_files) as server, logged_in(server) as session:
        sizes = [str((mysql_files / name).stat().st_size) for name in names]
        for sql in ("SHOW BINARY LOGS", "SHOW MASTER LOGS"):
            assert await session.query(sql) == [
                (name, size, "No") for name, size in zip(names, sizes, strict=True)
            ]


async def test_processes_and_replicas(mysql_files: Path) -> None:
    async with serving(mysql_files, server_uuid=UUID) as server:
        statements = ("SET @replica_uuid = 'u1'", "SET @source_binlog_checksum = 'CRC32'")
        async with logged_in(
            server, *statements, report_host="here", report_port=3307, server_id=77
        ) as dumping:
            await dumping.register()
            dumping.start_dump("", 4, 77, 0)
            await until(lambda: server.replicas and server.replicas[0].is_waiting)
            async with logged_in(server) as session:
                rows = await session.query("SHOW PROCESSLIST")
                assert [(row[0], row[1], row[4]) for row in rows] == [
                    (str(dumping.connection_id), USER, "Binlog Dump"),
                    (str(session.connection_id), USER, "Query"),
                ]
                assert "has sent all" in str(rows[0][6])
                assert await session.query("SHOW REPLICAS") == [("77", "here", "3307", "1", "u1")]
                assert len((await session.query("SHOW SLAVE HOSTS"))[0]) == 5
                await session.query(f"KILL {dumping.connection_id}")
                with pytest.raises(replica.ConnectionLostError):
                    await read_for_ever(dumping)
                await until(lambda: not server.replicas)
                assert await session.query("SHOW REPLICAS") == []


def test_the_identity_of_a_log(mysql_files: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"user": USER, "password": PASSWORD}
    first, again = BinlogServer(mysql_files, **given), BinlogServer(mysql_files, **given)
    assert first.server_uuid == again.server_uuid != ""
    assert BinlogServer(mysql_files, **given, server_id=5).server_uuid != first.server_uuid
    assert BinlogServer(mysql_files, **given, server_uuid=UUID).server_uuid == UUID
    write_server_uuid(str(mysql_files), UUID)
    assert BinlogServer(mysql_files, **given).server_uuid == UUID == read_server_uuid(str(mysql_files))
    (mysql_files / "auto.cnf").write_text("[auto]\nserver-uuid=nonsense\n")
    with pytest.raises(replica.ConfigurationError, match=r"auto\.cnf"):
        BinlogServer(mysql_files, **given)
    assert str(SOURCE_ID) != first.server_uuid


@pytest.mark.parametrize(
    ("version", "greeting", "plugin"),
    [
        ("9.7.4", "9.7.4", "caching_sha2_password"),
        ("8.0.36-log", "8.0.36-log", "caching_sha2_password"),
        ("5.7.44-log", "5.7.44-log", "mysql_native_password"),
        ("11.8.6-MariaDB-log", "11.8.6-MariaDB-log", "mysql_native_password"),
        ("10.11.18-MariaDB-log", "5.5.5-10.11.18-MariaDB-log", "mysql_native_password"),
    ],
)
async def test_greetings(tmp_path: Path, version: str, greeting: str, plugin: str) -> None:
    path = tmp_path / "bin.000001"
    path.write_bytes(mysql_log(version=version).data)
    async with serving(path) as server, logged_in(server) as session:
        assert session.handshake.server_version == greeting
        assert session.handshake.auth_plugin == plugin
        assert session.handshake.is_mariadb == ("MariaDB" in version)
        assert await session.query_value("SELECT VERSION()") == version


async def test_another_client(mysql_files: Path) -> None:
    """PyMySQL logs in and asks with statements of its own."""

    def ask(port: int) -> list[tuple[object, ...]]:
        options: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": port,
            "user": USER,
            "password": PASSWORD.encode(),
            "charset": "utf8mb4",
        }
        with pymysql.connect(**options) as connection, connection.cursor() as cursor:
            connection.ping()
            cursor.execute("SHOW BINARY LOGS")
            return list(cursor.fetchall())

    for options in ({"tls": True}, {"tls": False}, {"tls": True, "full_authentication": True}):
        async with serving(mysql_files, **options) as server:
            rows = await asyncio.to_thread(ask, server.port)
            assert [row[0] for row in rows] == ["bin.000001", "bin.000002", "bin.000003"]


def test_words() -> None:
    assert [token.text for token in tokenize("SET @a='x;' , @@Global . b = 1;;")] == [
        "SET", "@a", "=", "'x;'", ",", "@@Global . b", "=", "1"
    ]  # fmt: skip
    for sql in ("SELECT \x01", "SELECT 'x", "SELECT `x"):
        with pytest.raises(SqlError):
            tokenize(sql)
