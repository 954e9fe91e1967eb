"""SQL of the command line, run by the servers' own clients: redoing and undoing lead to the very same tables.

Random tables of every column type, with and without a key, are filled and changed; the binary log of that is decoded
to SQL, and the tables are compared by CHECKSUM TABLE and by SELECT. `TEST_SEED` repeats a run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from replica.cli import main
from tests.server.support.sql_replays import (
    Log,
    compare,
    contents,
    decode,
    replay,
    rows_of,
    schema_file,
)
from tests.support.column_kinds import dialect_of
from tests.support.random_tables import RandomTable, connect_plainly, make_table
from tests.support.servers import Server

# How many random tables each server has; the older ones a few.
TABLES = {"mysql:9.7": 60, "mysql:5.6": 15, "mariadb:10.11": 15, "mariadb:11.8": 60}
# A row that is too large for its engine, or an engine without such columns or keys: a table that cannot be.
IMPOSSIBLE_TABLES = {1118, 1071, 1112, 1163, 1178, 3106, 3756, 4161}
SERVERS = ["mysql:9.7", "mariadb:11.8"]


on_all = pytest.mark.parametrize("server", TABLES, indirect=True)
on_both = pytest.mark.parametrize("server", SERVERS, indirect=True)
on_mysql = pytest.mark.parametrize("server", SERVERS[:1], indirect=True)


@pytest.fixture(autouse=True)
def full_metadata(server: Server) -> Iterator[None]:
    if server.name == "mysql:5.6":
        # It logs no names, which a schema file has to bring.
        yield
        return
    [(usual,)] = server.query("SELECT @@GLOBAL.binlog_row_metadata")
    server.query("SET GLOBAL binlog_row_metadata = 'FULL'")
    try:
        yield
    finally:
        server.query(f"SET GLOBAL binlog_row_metadata = '{usual}'")


@pytest.fixture
def client(server: Server, request: pytest.FixtureRequest) -> Server:
    """The server, or another one that has a client in its image, which that of 5.6 has not."""
    found = request.getfixturevalue("mariadb1011") if server.name == "mysql:5.6" else server
    assert isinstance(found, Server)
    return found


# ------------------------------------------------------------------------------------------------ random tables


def create_tables(
    rng: random.Random, server: Server, connection: pymysql.Connection[Any], schema: str, image: str | None
) -> list[RandomTable]:
    """Random tables with their first rows; row images are FULL, or those that come with the table."""
    tables: list[RandomTable] = []
    dialect = dialect_of(server, logs_labels=server.name != "mysql:5.6")
    number = 0
    while len(tables) < TABLES[server.name]:
        table = make_table(rng, dialect, schema, number)
        table.row_image = image or table.row_image
        number += 1
        try:
            run(connection, table, [table.create, table.steps[0].sql])
        except pymysql.err.MySQLError as error:
            if error.args[0] not in IMPOSSIBLE_TABLES:
                raise
            connection.cursor().execute(f"DROP TABLE IF EXISTS {table.quoted}")
        else:
            tables.append(table)
    return tables


def run(connection: pymysql.Connection[Any], table: RandomTable, statements: list[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION binlog_row_image = '{table.row_image}'")
        for statement in statements:
            cursor.execute(statement)


def change_tables(
    rng: random.Random, connection: pymysql.Connection[Any], server: Server, tables: list[RandomTable]
) -> None:
    """The further steps of all tables, in random turns, some in transactions of several tables."""
    turns = [table for table in tables for _ in table.steps[1:]]
    rng.shuffle(turns)
    steps = {id(table): iter(table.steps[1:]) for table in tables}
    cursor = connection.cursor()
    for table in turns:
        if rng.random() < 0.2:
            cursor.execute(rng.choice(["COMMIT", "COMMIT", "BEGIN"]))
        if server.family == "mysql":
            # MyISAM tables have to be changed on their own.
            cursor.execute("COMMIT")
            if server.version >= (8, 0, 20) and rng.random() < 0.3:
                cursor.execute(f"SET SESSION binlog_transaction_compression = {rng.choice(['ON', 'OFF'])}")
            if table.in_transaction:
                cursor.execute("BEGIN")
        run(connection, table, [next(steps[id(table)]).sql])
    cursor.execute("COMMIT")


@on_all
def test_random_tables_are_undone_and_redone(
    seed: int, server: Server, client: Server, schema: str, tmp_path: Path
) -> None:
    rng = random.Random(f"{seed} {server.name}")
    with connect_plainly(server) as connection:
        first = Log(server, tmp_path)
        tables = create_tables(rng, server, connection, schema, "FULL")
        first_log = first.copy()
        before = contents(server, schema)
        second = Log(server, tmp_path)
        change_tables(rng, connection, server, tables)
        second_log = second.copy()
    after = contents(server, schema)
    assert before != after
    described = schema_file(server, schema, tmp_path)

    undo = decode(tmp_path, "--flashback", "--schema", described, second_log)
    replay(server, undo, client)
    compare(contents(server, schema), before)
    replay(
        server,
        decode(tmp_path, "--format=sql", "--disable-log-bin", "--schema", described, second_log),
        client,
    )
    compare(contents(server, schema), after)

    server.query(f"DROP DATABASE {schema}")
    server.query(f"CREATE DATABASE {schema}")
    replay(server, decode(tmp_path, "--format=sql", "--schema", described, first_log, second_log), client)
    compare(contents(server, schema), after)
    rows = sum(len(rows) for _, rows in after.values())
    print(
        f"{server.name}: {len(tables)} tables, {rows} rows left, {undo.stat().st_size} bytes of SQL to undo"
    )


@on_all
def test_incomplete_row_images_are_redone(
    seed: int, server: Server, client: Server, schema: str, tmp_path: Path
) -> None:
    rng = random.Random(f"{seed} {server.name} images")
    with connect_plainly(server) as connection:
        log = Log(server, tmp_path)
        tables = create_tables(rng, server, connection, schema, None)
        change_tables(rng, connection, server, tables)
        path = log.copy()
    after = contents(server, schema)
    described = schema_file(server, schema, tmp_path)
    server.query(f"DROP DATABASE {schema}")
    server.query(f"CREATE DATABASE {schema}")
    replay(server, decode(tmp_path, "--format=sql", "--schema", described, path), client)
    compare(contents(server, schema), after)


# ------------------------------------------------------------------------------------------- what is not random

TABLES_BY_HAND = [
    "CREATE TABLE parent (id INT PRIMARY KEY)",
    "CREATE TABLE child (id INT PRIMARY KEY, parent INT, "
    "FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE twins (a VARCHAR(9), b FLOAT, c TIMESTAMP(3) NULL)",
    "CREATE TABLE counted (id INT PRIMARY KEY AUTO_INCREMENT, "
    "changed TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, n INT)",
    "CREATE TABLE quoted (`a``b` VARCHAR(99) PRIMARY KEY, `%s` TEXT)",
]
FIRST_ROWS = [
    "INSERT INTO parent VALUES (1), (2), (3)",
    "INSERT INTO child VALUES (1, 1), (2, 1), (3, 2)",
    "INSERT INTO twins VALUES ('a', 0.1, NULL), ('A', 0.1, NULL), ('a ', 0.1, NULL), ('a', 0.1, NULL)",
    "INSERT INTO counted VALUES (1, '2001-02-03 04:05:06', 0)",
    "INSERT INTO quoted VALUES ('it''s', 'a\\\\b\\'c\\n\\r\\n\\0;\\Z-- #')",
]
CHANGES = [
    "UPDATE parent SET id = 20 WHERE id = 2",
    "SET foreign_key_checks = 0",
    "INSERT INTO child VALUES (9, 900)",
    "SET foreign_key_checks = 1",
    "DELETE FROM twins WHERE BINARY a = 'A'",
    "UPDATE twins SET b = 0.3, c = '2020-01-01 00:00:00.5' WHERE BINARY a = 'a ' LIMIT 1",
    "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'",
    "INSERT INTO counted (id, n) VALUES (0, 1)",
    "SET sql_mode = DEFAULT",
    "UPDATE counted SET n = 5, changed = changed WHERE id = 1",
    "UPDATE quoted SET `%s` = CONCAT(`%s`, ' DELIMITER ;', CHAR(10), 'use mysql;')",
    "INSERT INTO quoted VALUES ('ä€😀', NULL)",
    "BEGIN",
    "INSERT INTO twins VALUES ('one', 1, NULL)",
    "INSERT INTO twins VALUES ('two', 2, NULL)",
    "SAVEPOINT s",
    "INSERT INTO twins VALUES ('three', 3, NULL)",
    "ROLLBACK TO s",
    "COMMIT",
    "XA START 'xid', 'b', 7",
    "INSERT INTO twins VALUES ('xa', 4, NULL)",
    "XA END 'xid', 'b', 7",
    "XA COMMIT 'xid', 'b', 7 ONE PHASE",
]


def execute(server: Server, schema: str, *statements: str, charset: str = "utf8mb4") -> None:
    with server.connect(database=schema, charset=charset) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@on_both
def test_chosen_changes_are_undone_and_redone(server: Server, schema: str, tmp_path: Path) -> None:
    first = Log(server, tmp_path)
    execute(server, schema, *TABLES_BY_HAND, *FIRST_ROWS)
    first_log = first.copy()
    before = contents(server, schema)
    second = Log(server, tmp_path)
    execute(server, schema, *CHANGES)
    second_log = second.copy()
    after = contents(server, schema)
    assert before != after

    replay(server, decode(tmp_path, "--flashback", second_log))
    compare(contents(server, schema), before)
    replay(server, decode(tmp_path, "--format=sql", second_log))
    compare(contents(server, schema), after)
    server.query(f"DROP DATABASE {schema}")
    server.query(f"CREATE DATABASE {schema}")
    replay(server, decode(tmp_path, "--format=sql", first_log, second_log))
    compare(contents(server, schema), after)


@on_both
def test_cascades_are_redone(server: Server, schema: str, tmp_path: Path) -> None:
    """MySQL 9.7 logs the children's rows, without checks of foreign keys; others leave them to the replica."""
    execute(server, schema, *TABLES_BY_HAND, *FIRST_ROWS)
    before = contents(server, schema)
    log = Log(server, tmp_path)
    execute(server, schema, "DELETE FROM parent WHERE id = 1", "UPDATE parent SET id = 7 WHERE id = 2")
    path = log.copy()
    after = contents(server, schema)
    undo = decode(tmp_path, "--flashback", path)
    if server.family == "mysql" and server.version >= (9, 6):
        replay(server, undo)
        compare(contents(server, schema), before)
    else:
        execute(server, schema, "DELETE FROM child", "DELETE FROM parent", *FIRST_ROWS[:2])
        compare(contents(server, schema), before)
    replay(server, decode(tmp_path, "--format=sql", path))
    compare(contents(server, schema), after)


@on_both
def test_statements_of_the_log_are_redone(server: Server, schema: str, tmp_path: Path) -> None:
    log = Log(server, tmp_path)
    execute(
        server,
        schema,
        "CREATE TABLE latinä (a VARCHAR(9) DEFAULT 'ä;', b INT) /* -- # ; */",
        "INSERT INTO latinä (b) VALUES (1)",
        charset="latin1",
    )
    # Characters that end in a backslash: the client has to know the set.
    execute(server, schema, "CREATE TABLE `能` (a INT COMMENT '表')", charset="sjis")
    execute(
        server,
        schema,
        "CREATE PROCEDURE twice() BEGIN SELECT 1; SELECT ';'; END",
        "CREATE TABLE copied AS SELECT * FROM latin\xe4",
        "SET SESSION binlog_format = STATEMENT, sql_mode = '', time_zone = '+05:00', timestamp = 1000000000",
        "SET @text = 'x\xe4', @number = 5, @nothing = NULL",
        "CREATE TABLE stated (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(99), b INT, c TIMESTAMP, d DOUBLE)",
        "INSERT INTO stated (a, b, c, d) VALUES (@text, @number, NOW(), RAND()), (@nothing, 7, NULL, 0)",
        "SET SESSION binlog_format = ROW, time_zone = DEFAULT",
        "INSERT INTO stated (a, c) VALUES ('row', '2001-01-01')",
        "ALTER TABLE stated ADD COLUMN e INT DEFAULT 3",
        *(["SET SESSION binlog_alter_two_phase = 1"] if server.family == "mariadb" else []),
        "ALTER TABLE stated ADD COLUMN f INT DEFAULT 4",
    )
    path = log.copy()
    after = contents(server, schema)
    server.query(f"DROP DATABASE {schema}")
    server.query(f"CREATE DATABASE {schema}")
    replay(server, decode(tmp_path, "--format=sql", path))
    compare(contents(server, schema), after)
    assert server.query(
        "SELECT ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = %s", schema
    )


@on_both
def test_triggers_do_not_run_again(
    server: Server, schema: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their rows are in the log; an event between a trigger's two lives may drop it."""
    log = Log(server, tmp_path)
    execute(
        server,
        schema,
        "CREATE TABLE o (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE history (id INT, n INT)",
        "CREATE TRIGGER counted BEFORE UPDATE ON o FOR EACH ROW SET NEW.n = NEW.n + 1",
        "CREATE TRIGGER noted AFTER UPDATE ON o FOR EACH ROW BEGIN\n  -- The end;\n"
        "  INSERT INTO history VALUES (NEW.id, NEW.n);\nEND",
        "INSERT INTO o VALUES (1, 1), (2, 2)",
        "UPDATE o SET n = 5",
        "DROP TRIGGER noted",
        "UPDATE o SET n = 6",
    )
    path = log.copy()
    after = contents(server, schema)
    assert [len(rows) for rows in rows_of(after).values()] == [2, 2]
    server.query(f"DROP DATABASE {schema}")
    server.query(f"CREATE DATABASE {schema}")
    replay(server, decode(tmp_path, "--format=sql", path))
    compare(contents(server, schema), after)
    assert "left out: 2 CREATE TRIGGER" in capsys.readouterr().err


@on_mysql
def test_documents(server: Server, schema: str, tmp_path: Path) -> None:
    """NULL and JSON's null, what JSON text cannot say, and partial updates with and without the document's image."""
    documents = [
        *("NULL", "'null'", "'1.0'", "'1'", "'\"text\"'", "'[1e300, -0.0, 18446744073709551615]'"),
        "JSON_ARRAY(1.50, -0.00, CAST(5 AS DECIMAL(3)), CAST('2020-02-29' AS DATE), NULL, true, 'ä', x'00ff')",
        "JSON_OBJECT('k', CAST('2020-01-01 01:02:03.5' AS DATETIME(6)), 'l', JSON_ARRAY(CAST('-1:2:3' AS TIME)))",
        *("CAST(1.50 AS JSON)", "CAST(CAST('2020-02-29' AS DATE) AS JSON)"),
        """'{"a": {"b": [1, 2]}, "long": "a value that is longer than the change of a part of it"}'""",
    ]
    execute(server, schema, "CREATE TABLE d (id INT PRIMARY KEY AUTO_INCREMENT, j JSON)")
    log = Log(server, tmp_path)
    execute(
        server,
        schema,
        *(f"INSERT INTO d (j) VALUES ({document})" for document in documents),
        "CREATE TABLE e LIKE d",
    )
    for image in ("FULL", "MINIMAL"):
        execute(
            server,
            schema,
            f"SET SESSION binlog_row_value_options = PARTIAL_JSON, binlog_row_image = {image}",
            "UPDATE d SET j = JSON_SET(j, '$.a.b[0]', CAST(2.50 AS DECIMAL(9, 2)), '$.new', 'ä')",
            "UPDATE d SET j = JSON_REMOVE(JSON_ARRAY_INSERT(j, '$.a.b[1]', CAST('[]' AS JSON)), '$.new')",
            "UPDATE d SET j = JSON_SET(j, '$.a.b[0]', 1)",
        )
    path = log.copy()
    after = {name: table for name, table in contents(server, schema).items() if name == "d"}
    texts = server.query(f"SELECT id, CAST(j AS CHAR), JSON_TYPE(JSON_EXTRACT(j, '$[0]')) FROM {schema}.d")
    execute(server, schema, "DROP TABLE e", "TRUNCATE TABLE d")
    replay(server, decode(tmp_path, "--format=sql", path))
    assert (
        server.query(f"SELECT id, CAST(j AS CHAR), JSON_TYPE(JSON_EXTRACT(j, '$[0]')) FROM {schema}.d")
        == texts
    )
    compare({name: table for name, table in contents(server, schema).items() if name == "d"}, after)


@on_mysql
def test_partial_updates_are_undone_without_a_key(server: Server, schema: str, tmp_path: Path) -> None:
    """The row is found by its document's text, in which the server sorts a new member in."""
    document = f'{{"bb": 1, "long": "{"x" * 99}"}}'
    execute(server, schema, "CREATE TABLE d (j JSON)", f"INSERT INTO d VALUES ('{document}')")
    before = contents(server, schema)
    log = Log(server, tmp_path)
    execute(
        server,
        schema,
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
        "UPDATE d SET j = JSON_SET(j, '$.a', 1)",
    )
    path = log.copy()
    assert contents(server, schema) != before
    replay(server, decode(tmp_path, "--flashback", path))
    compare(contents(server, schema), before)


@on_mysql
def test_columns_that_the_server_hides(server: Server, schema: str, tmp_path: Path) -> None:
    """A functional index stands on a hidden column, and a key can be made by the server.

    MySQL's checksum of a table with hidden columns changes when a row is deleted and inserted again.
    """
    execute(
        server,
        schema,
        "CREATE TABLE f (a INT, b JSON, KEY ((a + 1)), KEY ((CAST(b->'$.z' AS UNSIGNED ARRAY))))",
        "SET SESSION sql_generate_invisible_primary_key = 1",
        "CREATE TABLE g (a INT)",
    )
    before = rows_of(contents(server, schema))
    log = Log(server, tmp_path)
    execute(
        server,
        schema,
        """INSERT INTO f VALUES (1, '{"z": [1, 2]}'), (NULL, NULL), (NULL, NULL)""",
        "UPDATE f SET a = 5 WHERE a = 1",
        "INSERT INTO g VALUES (1), (1), (2)",
        "DELETE FROM g WHERE a = 2",
    )
    path = log.copy()
    after = rows_of(contents(server, schema))
    replay(server, decode(tmp_path, "--flashback", path))
    assert rows_of(contents(server, schema)) == before
    replay(server, decode(tmp_path, "--format=sql", path))
    assert rows_of(contents(server, schema)) == after


@pytest.mark.parametrize("server", ["mariadb:10.11", "mariadb:11.8"], indirect=True)
def test_what_was_not_checked_is_not_checked(server: Server, schema: str, tmp_path: Path) -> None:
    """MariaDB's rows events tell that the session had check_constraint_checks=0; statements do from 10.11 on."""
    log = Log(server, tmp_path)
    execute(
        server,
        schema,
        "CREATE TABLE t (a INT PRIMARY KEY, b INT CHECK (b > 0))",
        "SET check_constraint_checks = 0",
        "INSERT INTO t VALUES (1, -1), (2, -2), (3, 3)",
        "UPDATE t SET b = -b WHERE a > 1",
        "DELETE FROM t WHERE b = -1",
        *(["ALTER TABLE t ADD CHECK (b <> -3)"] if server.version >= (10, 11) else ()),
    )
    path = log.copy()
    after = contents(server, schema)
    server.query(f"DROP TABLE {schema}.t")
    replay(server, decode(tmp_path, "--format=sql", path))
    compare(contents(server, schema), after)
    replay(server, decode(tmp_path, "--flashback", "--force", path))
    assert rows_of(contents(server, schema)) == {"t": []}


@on_both
def test_a_replay_can_stay_out_of_the_log(server: Server, schema: str, tmp_path: Path) -> None:
    execute(server, schema, *TABLES_BY_HAND)
    log = Log(server, tmp_path)
    execute(server, schema, *FIRST_ROWS)
    path = log.copy()
    log = Log(server, tmp_path)
    for arguments in (["--flashback"], ["--format=sql"]):
        replay(server, decode(tmp_path, "--disable-log-bin", *arguments, path))
    assert schema.encode() not in log.copy().read_bytes()


@pytest.mark.parametrize(
    ("server", "level"),
    [("mysql:9.7", "MINIMAL"), ("mariadb:11.8", "MINIMAL"), ("mariadb:11.8", "NO_LOG")],
    indirect=["server"],
)
def test_names_can_come_from_a_schema_file(server: Server, schema: str, tmp_path: Path, level: str) -> None:
    server.query(f"SET GLOBAL binlog_row_metadata = '{level}'")
    execute(
        server,
        schema,
        "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, e ENUM('b', 'ä'), b BINARY(3), "
        "c VARCHAR(9) CHARACTER SET latin1, g INT GENERATED ALWAYS AS (LENGTH(c)) STORED, s SET('x', 'y'))",
        "INSERT INTO t (id, e, b, c, s) VALUES (18446744073709551615, 'ä', x'0100', 'é', 'x,y')",
    )
    before = contents(server, schema)
    log = Log(server, tmp_path)
    execute(server, schema, "UPDATE t SET c = 'longer', b = x'00'", "DELETE FROM t")
    path = log.copy()
    assert main(["decode", "--flashback", "--output", str(tmp_path / "none"), str(path)]) == 1
    replay(server, decode(tmp_path, "--flashback", "--schema", schema_file(server, schema, tmp_path), path))
    compare(contents(server, schema), before)


@on_both
def test_what_full_metadata_does_not_tell(server: Server, schema: str, tmp_path: Path) -> None:
    """The names are in the log, and not which columns are generated: CREATE TABLE in the file tells that."""
    log = Log(server, tmp_path)
    try:
        server.query("SET GLOBAL binlog_row_metadata = 'FULL'")
        execute(
            server,
            schema,
            "CREATE TABLE t (id INT PRIMARY KEY, g INT GENERATED ALWAYS AS (id + 1) STORED) CHARSET utf8mb4",
            "INSERT INTO t (id) VALUES (1)",
            "UPDATE t SET id = 2",
        )
        path = log.copy()
        before = contents(server, schema)
        server.query(f"DROP TABLE {schema}.t")
        replay(server, decode(tmp_path, "--format=sql", path))
        compare(contents(server, schema), before)
    finally:
        server.query("SET GLOBAL binlog_row_metadata = DEFAULT")
