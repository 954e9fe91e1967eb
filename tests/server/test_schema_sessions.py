"""Shapes made from the DDL of sessions with other character sets, modes and temporary tables are the server's."""

from __future__ import annotations

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
