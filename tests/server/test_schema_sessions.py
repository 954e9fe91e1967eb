"""Shapes made from the DDL of sessions with other character sets, modes and temporary tables are the server's."""

from __future__ import annotations

from typing import Any

import pytest

import replica
from tests.server.support.schema_oracle import DdlRun, compare
from tests.support.servers import Server
from tests.support.session_statements import CASES, HIDDEN, MARIADB_CASES, UNKNOWN, Sent


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
    assert findings.shapes > 2 * len(findings.unknown)


async def values(server: Server, start: Any, schema: str) -> list[dict[str, Any]]:
    async with replica.connect(server.dsn(), start=start, stop="now", tables=f"{schema}.*") as stream:
        changes = [change async for tx in stream.transactions() for change in await tx.collect()]
    return [dict(change.after or {}) for change in changes]


async def test_labels_that_information_schema_does_not_have(
    server: Server, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It shows a question mark for a character beyond U+FFFF. The log has the statement as it was."""
    name = "\N{PARTY POPPER}"
    labels = f"('{name}', 'x') CHARSET utf8mb4"
    columns = f"(e ENUM {labels}, s SET {labels}, f ENUM('?') CHARSET latin1)"
    with server.connect(database=schema, charset="utf8mb4", autocommit=True) as session:
        cursor = session.cursor()
        cursor.execute(f"CREATE TABLE t {columns}")
        async with replica.connect(server.dsn(), tables=f"{schema}.*") as stream:
            start = stream.checkpoint
        cursor.execute("INSERT INTO t VALUES (1, 3, 1), (2, 2, 1)")
        assert await values(server, start, schema) == [{"e": 1, "s": 3, "f": "?"}, {"e": 2, "s": 2, "f": "?"}]
        assert "does not tell all labels" in caplog.text
        cursor.execute(f"CREATE TABLE u {columns}")
        cursor.execute("INSERT INTO u VALUES (1, 3, 1), (2, 2, 1)")
        expected = [{"e": name, "s": f"{name},x", "f": "?"}, {"e": "x", "s": "x", "f": "?"}]
        assert (await values(server, start, schema))[2:] == expected
        assert "other columns" not in caplog.text
