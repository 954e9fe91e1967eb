"""Shapes made from a server's log equal what the server says of its tables, after each statement.

``SCHEMA_SHAPES_SEED`` repeats a run of random DDL. The witnesses are those of ``schema_oracle``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.server.support.schema_oracle import DdlRun, Findings, compare
from tests.support.random_ddl import RandomDdl
from tests.support.servers import Server

SEED = int(os.environ.get("SCHEMA_SHAPES_SEED") or random.SystemRandom().randrange(1 << 32))
STATEMENTS, MOST_STATEMENTS = 40, 300
#: At most so many statements are tried for each that is accepted.
MOST_TRIED = 6


@pytest.fixture
def run(server: Server, schema: str) -> Iterator[DdlRun]:
    """Runs statements in two schemas, in a log file of its own."""
    with server.fresh_schema() as other:
        server.query("FLUSH BINARY LOGS")
        run = DdlRun(server, [schema, other])
        try:
            yield run
        finally:
            run.close()


def insert(run: DdlRun) -> None:
    """A row for each table, so that the log has its table map; some tables take none."""
    for schema, name in run.snapshots[-1].catalog.tables:
        run.run(f"INSERT IGNORE INTO `{schema}`.`{name.replace('`', '``')}` () VALUES ()")


def check(run: DdlRun) -> Findings:
    findings = compare(run)
    print(f"{run.server.name}: {findings}, {len(run.errors)} refused")
    assert not findings.problems, "\n".join(findings.problems[:5])
    return findings


@pytest.fixture
def metadata(server: Server, request: pytest.FixtureRequest) -> Iterator[None]:
    """What table maps hold, set for the server as a whole; ``default``: MINIMAL on MySQL, NO_LOG on MariaDB."""
    if server.name == "mysql:5.6" or request.param == "default":
        yield
        return
    [(usual,)] = server.query("SELECT @@GLOBAL.binlog_row_metadata")
    server.query(f"SET GLOBAL binlog_row_metadata = '{request.param}'")
    try:
        yield
    finally:
        server.query(f"SET GLOBAL binlog_row_metadata = '{usual}'")


@pytest.mark.parametrize("metadata", ["FULL", "default"], indirect=True)
def test_random_ddl(run: DdlRun, metadata: None, request: pytest.FixtureRequest) -> None:
    print(f"SCHEMA_SHAPES_SEED={SEED}")
    level = request.node.callspec.params["metadata"]
    rng = random.Random(f"{SEED} {run.server.name} {level}")
    writer = RandomDdl(rng, run.schemas, mariadb=run.traits.is_mariadb, version=run.server.version)
    wanted = MOST_STATEMENTS if request.config.getoption("--long") else STATEMENTS
    run.run("SET system_versioning_alter_history = 1")
    accepted = tried = 0
    while accepted < wanted:
        tried += 1
        assert tried < wanted * MOST_TRIED, run.errors[-20:]
        if rng.random() < 0.1:
            run.run(writer.setting())
        run.run(f"USE {run.schemas[0]}")
        if run.step(writer.statement(run.snapshots[-1].catalog)):
            accepted += 1
            if rng.random() < 0.4:
                insert(run)
    findings = check(run)
    assert findings.shapes > wanted
    assert findings.proofs
    assert not findings.unknown, findings.unknown[:5]
    assert findings.lost_keys <= findings.shapes / 20


CASES = [
    "CREATE TABLE types (a INT(5) ZEROFILL, b BOOL, c DEC, d FLOAT(25), e REAL, f BIT, g YEAR(4), h TIME(3), "
    "i DATETIME(6), j TIMESTAMP NULL, k CHAR, l NATIONAL VARCHAR(5), m LONG VARCHAR, n TEXT(64), o BLOB(256), "
    "p VARBINARY(5), q ENUM('a ', 'it''s', 0x62) CHARSET latin1, r SET('x', 'y'), s CHAR(3) BYTE, t VARCHAR(70000), "
    "u SERIAL, v CHAR(4) CHARSET binary, w TEXT ASCII, x DOUBLE PRECISION UNSIGNED)",
    "ALTER TABLE types DEFAULT CHARSET greek, ADD y CHAR(5), MODIFY k CHAR(2) FIRST, DROP a",
    "CREATE TABLE geo (p POINT NOT NULL, g GEOMETRY, gc GEOMETRYCOLLECTION, l LINESTRING, i INT, KEY (i))",
    "ALTER TABLE geo DROP INDEX i, MODIFY g POLYGON AFTER i",
    "CREATE TABLE parent (id INT PRIMARY KEY, n INT, KEY (n))",
    "CREATE TABLE child (id INT, n INT, p INT, CONSTRAINT f FOREIGN KEY g (p) REFERENCES parent (id) "
    "ON DELETE CASCADE)",
    "ALTER TABLE child ADD UNIQUE (p), ADD FOREIGN KEY (n) REFERENCES parent (id)",
    "ALTER TABLE child DROP FOREIGN KEY f, ADD UNIQUE (p, n)",
    "CREATE TABLE parts (id INT NOT NULL, d DATE NOT NULL, PRIMARY KEY (id, d)) PARTITION BY RANGE (YEAR(d)) "
    "(PARTITION p0 VALUES LESS THAN (2000), PARTITION p1 VALUES LESS THAN MAXVALUE)",
    "CREATE TABLE part LIKE parts",
    "ALTER TABLE part REMOVE PARTITIONING",
    "ALTER TABLE parts EXCHANGE PARTITION p0 WITH TABLE part",
    "ALTER TABLE parts ADD v VARCHAR(5) AFTER id, DROP PRIMARY KEY, ADD PRIMARY KEY (d, id)",
    "ALTER TABLE parts REORGANIZE PARTITION p1 INTO (PARTITION p2 VALUES LESS THAN (2010), "
    "PARTITION p3 VALUES LESS THAN MAXVALUE)",
    "ALTER TABLE parts DROP PARTITION p2",
    "CREATE TABLE texts (a TINYTEXT, b TEXT, c MEDIUMTEXT, d VARCHAR(9), e ENUM('a')) CHARSET latin1",
    "ALTER TABLE texts CONVERT TO CHARACTER SET utf8mb4",
    "ALTER TABLE texts CONVERT TO CHARACTER SET binary",
    "CREATE TABLE seven (a INT)",
    "RENAME TABLE seven TO `of`, texts TO seven, `of` TO texts",
    "CREATE TEMPORARY TABLE texts (x INT)",
    "DROP TEMPORARY TABLE texts",
    "ALTER DATABASE CHARACTER SET greek",
    "CREATE TABLE greek (a CHAR(3))",
    "DROP TABLES IF EXISTS nothing, greek",
    "TRUNCATE parts",
    "SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,REAL_AS_FLOAT'",
    """CREATE TABLE "q ""x" ("a" ENUM('\\', 'b'), r REAL)""",
    "SET SESSION sql_mode = ''",
]
MODERN = [
    "CREATE TABLE gen (a INT, v INT AS (a + 1), s INT GENERATED ALWAYS AS (a + 2) STORED, i INT INVISIBLE, j JSON)",
    "ALTER TABLE gen RENAME COLUMN j TO i, RENAME COLUMN i TO j, ADD c VARCHAR(5) DEFAULT ('x') FIRST",
    "CREATE TABLE rows_of AS SELECT 1 AS a, 'x' AS b, 1.5 AS c, NOW(3) AS d",
    "SET SESSION explicit_defaults_for_timestamp = 0",
    "CREATE TABLE stamps (a TIMESTAMP, b TIMESTAMP NULL, c DATETIME)",
    "SET SESSION explicit_defaults_for_timestamp = 1",
    "ALTER TABLE stamps ADD d TIMESTAMP",
]
MYSQL = [
    "CREATE TABLE k (a INT NOT NULL, b INT NOT NULL, UNIQUE ((a + 1)), UNIQUE (b), KEY ((b + a)))",
    "ALTER TABLE k ADD c INT, ALTER a SET INVISIBLE, RENAME INDEX b TO c",
    "ALTER TABLE k DROP CONSTRAINT c, ADD PRIMARY KEY (b)",
    "SET SESSION sql_generate_invisible_primary_key = 1",
    "CREATE TABLE gipk (a INT)",
    "SET SESSION sql_generate_invisible_primary_key = 0",
    "ALTER TABLE gipk ADD b VECTOR(3), MODIFY a VARCHAR(3)",
]
MARIADB = [
    "SET SESSION system_versioning_alter_history = 1",
    "CREATE TABLE hashed (a TEXT, b INT NOT NULL, UNIQUE (a), UNIQUE (b) USING HASH)",
    "ALTER TABLE hashed RENAME hashes",
    "ALTER TABLE hashes ADD c UUID, ADD d INET6",
    "CREATE TABLE versions (a INT PRIMARY KEY, b TEXT UNIQUE, c INT WITHOUT SYSTEM VERSIONING) "
    "WITH SYSTEM VERSIONING",
    "ALTER TABLE versions ADD d INT FIRST, ADD UNIQUE (c)",
    "CREATE TABLE like_versions LIKE versions",
    "ALTER TABLE versions DROP SYSTEM VERSIONING",
    "CREATE TABLE named (a INT PRIMARY KEY, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START INVISIBLE, "
    "e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING",
    "ALTER TABLE named ADD b INT AFTER a, DROP COLUMN s, DROP COLUMN e, DROP PERIOD FOR SYSTEM_TIME, "
    "DROP SYSTEM VERSIONING",
    "CREATE TABLE period (id INT, s DATE, e DATE, PERIOD FOR p (s, e), PRIMARY KEY (id, p WITHOUT OVERLAPS))",
    "ALTER TABLE period ADD x INT FIRST, CHANGE id id2 BIGINT",
    "CREATE OR REPLACE TABLE hashes (a TEXT COMPRESSED, b VARCHAR(9) COMPRESSED, c JSON, d INET4)",
    "ALTER TABLE hashes CONVERT TO CHARACTER SET latin1, ADD COLUMN IF NOT EXISTS a INT, DROP COLUMN IF EXISTS zz",
    "SET SESSION sql_mode = 'ORACLE'",
    "CREATE TABLE oracle (a VARCHAR2(5), b NUMBER, c NUMBER(5,2), d DATE, e CLOB, f RAW(3), g mariadb_schema.DATE)",
    "SET SESSION sql_mode = ''",
    "CREATE SEQUENCE numbers",
    "RENAME TABLE numbers TO counters",
    "SET STATEMENT max_statement_time = 10 FOR ALTER TABLE hashes ADD e INT",
    "ALTER TABLE parts CONVERT PARTITION p0 TO TABLE converted",
]


@pytest.mark.parametrize("metadata", ["FULL"], indirect=True)
def test_one_of_each(run: DdlRun, metadata: None) -> None:
    statements = list(CASES)
    if run.server.name != "mysql:5.6":
        statements += MODERN + (MARIADB if run.traits.is_mariadb else MYSQL)
    refused = []
    for sql in statements:
        if not run.step(sql):
            refused.append(run.errors[-1])
        insert(run)
    assert not refused
    findings = check(run)
    assert not findings.unknown
    assert findings.proofs > len(statements)


def test_a_statement_that_failed_and_is_logged(run: DdlRun) -> None:
    """MariaDB drops the table before it finds that it cannot make the new one."""
    run.step("CREATE TABLE t (a INT)")
    run.run("CREATE OR REPLACE TABLE t (a BLOB) ENGINE=MEMORY")
    run.snapshot("behind the failure")
    check(run)
