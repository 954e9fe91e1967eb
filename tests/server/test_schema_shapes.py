"""Shapes made from a server's log equal what the server says of its tables, after each statement.

``TEST_SEED`` repeats a run of random DDL. The witnesses are those of ``schema_oracle``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.server.support.checkpoint_readers import Readers
from tests.server.support.past_oracle import wrong_in_the_past
from tests.server.support.schema_oracle import DdlRun, Findings, compare
from tests.server.support.streams import user_of
from tests.support.random_ddl import RandomDdl
from tests.support.servers import Server
from tests.support.shape_statements import (
    CASES,
    MARIADB,
    MODERN,
    MYSQL,
    REPORTED,
    REPORTED_MARIADB,
    REPORTED_MODERN,
)

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
    assert not findings.unknown, findings.unknown[:5]
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
def test_random_ddl(
    seed: int, run: DdlRun, metadata: None, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    level = request.node.callspec.params["metadata"]
    rng = random.Random(f"{seed} {run.server.name} {level}")
    writer = RandomDdl(rng, run.schemas, mariadb=run.traits.is_mariadb, version=run.server.version)
    is_long = request.config.getoption("--long")
    wanted = MOST_STATEMENTS if is_long else STATEMENTS
    with user_of(run.server) as user:
        readers = Readers(run, user, tmp_path)
        begin = asyncio.run(readers.begin())
        _random_ddl(rng, run, writer, wanted)
        findings = check(run)
        assert findings.shapes > wanted
        assert findings.proofs
        assert findings.lost_keys <= findings.shapes / 20
        if level == "FULL" and run.server.name != "mysql:5.6":
            wrong, counts = wrong_in_the_past(run, rng, starts=5)
            print(f"{run.server.name}: a start in the past: {dict(counts)}")
            assert not wrong, wrong[:5]
            assert counts["named"]
        if level == "default":
            starts, past = (30, 10) if is_long else (3, 1)
            counts = asyncio.run(readers.check(begin, rng, starts, past))
            print(f"{run.server.name}: from checkpoints: {dict(counts)}")
            assert counts["stored, named"]


def _random_ddl(rng: random.Random, run: DdlRun, writer: RandomDdl, wanted: int) -> None:
    """So many statements that the server accepts, with rows in between."""
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


@pytest.mark.parametrize("metadata", ["FULL"], indirect=True)
def test_one_of_each(run: DdlRun, metadata: None) -> None:
    statements = list(CASES)
    if run.server.name != "mysql:5.6":
        statements += MODERN + (MARIADB if run.traits.is_mariadb else MYSQL)
    do_all(run, statements)
    assert check(run).proofs > len(statements)


@pytest.mark.parametrize("metadata", ["default"], indirect=True)
def test_kinds_that_other_readers_had_trouble_with(run: DdlRun, metadata: None) -> None:
    statements = list(REPORTED)
    if run.server.name != "mysql:5.6":
        statements += REPORTED_MODERN
    if run.traits.is_mariadb:
        statements += REPORTED_MARIADB
    do_all(run, [sql.replace("OTHER", run.schemas[1]) for sql in statements])
    assert check(run).proofs > len(statements)


def do_all(run: DdlRun, statements: Iterable[str]) -> None:
    refused = []
    for sql in statements:
        if not run.step(sql):
            refused.append(run.errors[-1])
        insert(run)
    # What a stand-in of an older version does not know.
    assert run.server.is_stand_in or not refused, refused


def test_a_statement_that_failed_and_is_logged(run: DdlRun) -> None:
    """MariaDB drops the table before it finds that it cannot make the new one."""
    run.step("CREATE TABLE t (a INT)")
    run.run("CREATE OR REPLACE TABLE t (a BLOB) ENGINE=MEMORY")
    run.snapshot("behind the failure")
    check(run)
