"""``decode --events`` equals SHOW BINLOG EVENTS, line by line, as the servers' own clients print it."""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest

from replica.cli import main
from tests.support.servers import ROOT_PASSWORD, Server

STATEMENTS = [
    "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(30)) ENGINE = MyISAM",
    "CREATE TABLE `i n` (id INT PRIMARY KEY, a INT)",
    r"INSERT INTO t (a) VALUES ('x\ty'), ('\\n')",
    "SET foreign_key_checks = 0, unique_checks = 0",
    "INSERT INTO `i n` VALUES (1, 2)",
    "CREATE TABLE unchecked (a INT)",
    "SET foreign_key_checks = 1, unique_checks = 1",
    "BEGIN",
    "INSERT INTO `i n` VALUES (2, 3)",
    "SAVEPOINT `a b`",
    "UPDATE `i n` SET a = 5 /* two\nlines */",
    "ROLLBACK TO `a b`",
    "DELETE FROM `i n`",
    "COMMIT",
    "XA START 'x', 'y', 3",
    "INSERT INTO `i n` VALUES (7, 7)",
    "XA END 'x', 'y', 3",
    "XA COMMIT 'x', 'y', 3 ONE PHASE",
    "XA START 'x'",
    "INSERT INTO `i n` VALUES (8, 8)",
    "XA END 'x'",
    "XA PREPARE 'x'",
    "XA ROLLBACK 'x'",
    "SET binlog_format = STATEMENT",
    "SET @v = 'text', @number = 5, @decimal = 1.50, @double = 0.5e0, @negative = -7, @nothing = NULL",
    "INSERT INTO t (a) VALUES (@v), (@number), (@decimal), (@double), (@negative), (@nothing)",
    "SET @whole = 1e14, @large = 1e15, @small = 1e-7, @precise = 1.2345678901234567e0, @zero = -0e0",
    "INSERT INTO t (a) VALUES (@whole), (@large), (@small), (@precise), (@zero)",
    "INSERT INTO t (a) VALUES (RAND())",
    "INSERT INTO t (a) SELECT LAST_INSERT_ID()",
    "SET binlog_format = ROW",
    "CREATE PROCEDURE p() BEGIN SELECT 1; SELECT 2; END",
    "CREATE TABLE copied AS SELECT * FROM `i n`",
]
ON_MYSQL = [
    "SET binlog_rows_query_log_events = ON",
    "INSERT INTO `i n` VALUES (20, 20)",
    "SET binlog_rows_query_log_events = OFF",
    "SET gtid_next = 'AUTOMATIC:tagged'",
    "INSERT INTO `i n` VALUES (21, 21)",
    "SET gtid_next = 'AUTOMATIC'",
    "CREATE TABLE j (id INT PRIMARY KEY, j JSON)",
    """INSERT INTO j VALUES (1, '{"a": 1, "b": "a text that is longer than the change of a part of it"}')""",
    "SET binlog_row_value_options = PARTIAL_JSON",
    "UPDATE j SET j = JSON_SET(j, '$.a', 2)",
    "SET binlog_transaction_compression = ON",
    "INSERT INTO `i n` VALUES (22, 22), (23, 23)",
    "SET binlog_transaction_compression = OFF",
]
ON_MARIADB = [
    "SET GLOBAL log_bin_compress = 1, GLOBAL log_bin_compress_min_len = 10",
    "INSERT INTO `i n` VALUES (1000, 1000), (1001, 1), (1002, 1), (1003, 1)",
    "UPDATE `i n` SET a = 0 WHERE id >= 1000",
    "DELETE FROM `i n` WHERE id >= 1000",
    "CREATE TABLE compressed (a INT) /* a comment that is worth compressing, compressing, compressing */",
    "SET GLOBAL log_bin_compress = 0, GLOBAL log_bin_compress_min_len = 256",
    "SET check_constraint_checks = 0, sql_auto_is_null = 1",
    "CREATE TABLE less_checked (a INT)",
    "SET check_constraint_checks = 1, sql_auto_is_null = 0",
    "SET sql_if_exists = 1, system_versioning_insert_history = 1",
    "DROP TABLE less_checked",
    "SET sql_if_exists = 0, system_versioning_insert_history = 0",
    "SET binlog_alter_two_phase = 1",
    "ALTER TABLE compressed ADD COLUMN b INT",
]


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
def test_it_is_the_table_of_the_server(
    server: Server, schema: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    if server.family == "mariadb":
        with server.connect(database=schema) as connection, connection.cursor() as cursor:
            cursor.execute("SET gtid_domain_id = 7")
            cursor.execute("CREATE TABLE domain (id INT)")
    server.query("FLUSH BINARY LOGS")
    [*_, (name, *_)] = server.query("SHOW BINARY LOGS")
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        for statement in STATEMENTS + (ON_MYSQL if server.family == "mysql" else ON_MARIADB):
            try:
                cursor.execute(statement)
            except pymysql.err.MySQLError as error:
                raise AssertionError(statement) from error
    server.query("FLUSH BINARY LOGS")
    [(basename,)] = server.query("SELECT @@log_bin_basename")
    path = tmp_path / str(name)
    path.write_bytes(server.read_file(f"{basename.rpartition('/')[0]}/{name}"))
    client = "mysql" if server.family == "mysql" else "mariadb"
    command = (
        client,
        "-h127.0.0.1",
        "-uroot",
        f"-p{ROOT_PASSWORD}",
        "--default-character-set=utf8mb4",
        "--batch",
    )
    theirs = server.exec(*command, "-e", f"SHOW BINLOG EVENTS IN '{name}'").decode().splitlines()

    assert main(["decode", "--events", str(path)]) == 0
    ours = capsysbinary.readouterr().out.decode().splitlines()
    assert ours == theirs
    print(f"{server.name}: {len(ours)} lines")
