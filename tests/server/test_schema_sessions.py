"""Shapes made from the DDL of sessions with other character sets, modes and temporary tables are the server's."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from pathlib import Path

import pymysql
import pytest

from tests.server.support.checkpoint_readers import Readers
from tests.server.support.schema_oracle import DdlRun, compare
from tests.server.support.streams import user_of
from tests.support.random_sessions import RandomSessions
from tests.support.servers import Server
from tests.support.session_statements import CASES, HIDDEN, MARIADB_CASES, UNKNOWN, Sent

#: At most so many statements are tried for each that is accepted.
MOST_TRIED = 10


def insert(run: DdlRun) -> None:
    """A row for each table, by another session; some tables take none."""
    for schema, name in run.snapshots[-1].catalog.tables:
        with contextlib.suppress(pymysql.err.Error):
            run.query(f"INSERT IGNORE INTO `{schema}`.`{name.replace('`', '``')}` () VALUES ()")


def run_case(run: DdlRun, statements: tuple[str | Sent, ...]) -> None:
    for statement in statements:
        sql = (
            statement.bytes if isinstance(statement, Sent) else statement.replace("{schema}", run.schemas[0])
        )
        is_hidden = isinstance(sql, str) and sql.startswith(HIDDEN)
        if not (run.run if is_hidden else run.step)(sql):
            # MySQL 5.6 with GTIDs refuses CREATE TABLE ... SELECT.
            assert "1786" in run.errors[-1][1], run.errors[-1]
    run.run("SET NAMES utf8mb4")
    run.run("SET sql_mode = ''")
    for schema, name in run.snapshots[-1].catalog.tables:
        assert run.step(f"DROP TABLE `{schema}`.`{name}`"), run.errors


def test_sessions_that_are_not_like_others(server: Server, schema: str) -> None:
    server.query("FLUSH BINARY LOGS")
    run = DdlRun(server, [schema])
    try:
        for statements in [*CASES.values(), *(MARIADB_CASES.values() if run.traits.is_mariadb else ())]:
            run_case(run, statements)
        findings = compare(run)
    finally:
        run.close()
    print(f"{server.name}: {findings}")
    assert not findings.problems, "\n".join(findings.problems[:5])
    others = [reason for reason in findings.unknown if not any(text in reason for text in UNKNOWN)]
    assert not others
    assert findings.shapes > len(findings.unknown)


@pytest.mark.parametrize("has_consumers", [True, False])
@pytest.mark.parametrize("statements", [30, pytest.param(150, marks=pytest.mark.long)])
async def test_random_sessions(
    seed: int, server: Server, schema: str, tmp_path: Path, statements: int, has_consumers: bool
) -> None:
    """Shapes made of random DDL of all kinds of sessions, and the rows of consumers, have no wrong name or label."""
    rng = random.Random(f"{seed} {server.name} {has_consumers}")
    server.query("FLUSH BINARY LOGS")
    with server.fresh_schema() as other, user_of(server) as user:
        run = DdlRun(server, [schema, other])
        try:
            readers = Readers(run, user, tmp_path)
            begin = await readers.begin()
            formats = ("ROW",) if has_consumers else RandomSessions.formats
            await asyncio.to_thread(_random_sessions, rng, run, statements, formats)
            findings = compare(run)
            counts = Counter({"named": 0})
            if has_consumers:
                counts = await readers.check_doubtful(begin, rng, 3 if statements < 100 else 6)
        finally:
            run.close()
    print(f"{server.name}: {findings}, {len(run.errors)} refused; consumers: {dict(counts)}")
    # A view, or a temporary table that MariaDB renamed, is no table of the history: that gives no row a name.
    wrong = [problem for problem in findings.problems if ": the history has " not in problem]
    assert not wrong, wrong[:5]
    # How many shapes are known is chance: one session may leave nearly all tables with columns that are not.
    assert findings.shapes + len(findings.unknown) > statements / 2
    assert findings.shapes
    assert counts["named"] or not has_consumers


def _random_sessions(rng: random.Random, run: DdlRun, wanted: int, formats: tuple[str, ...]) -> None:
    writer = RandomSessions(rng, run.schemas, mariadb=run.traits.is_mariadb, version=run.server.version)
    writer.formats = formats
    accepted = 0
    for _ in range(wanted * MOST_TRIED):
        if rng.random() < 0.15:
            run.run(writer.setting())
        run.run(f"USE {run.schemas[0]}")
        sent = writer.sent(writer.statement(run.snapshots[-1].catalog))
        if sent is not None and run.step(sent):
            accepted += 1
            if rng.random() < 0.4:
                insert(run)
        if accepted == wanted:
            return
    raise AssertionError(run.errors[-20:])
