"""What the tests of the doctor share: asking it, and typing what it says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replica.doctor import Finding, Remedy, examine
from tests.support.servers import Server

from .streams import PASSWORD


async def findings_of(server: Server, user: str | None = None, **given: Any) -> dict[str, Finding]:
    dsn = server.dsn() if user is None else server.dsn(user, PASSWORD)
    found = await examine(dsn, **given)
    assert len({finding.check for finding in found}) == len(found)
    return {finding.check: finding for finding in found}


def typed(finding: Finding, where: str) -> list[str]:
    return [remedy.text for remedy in finding.remedies if remedy.where == where]


def carry_out(server: Server, remedies: Sequence[Remedy]) -> None:
    """Type the SQL as it is printed, as root. What is for the option file then is for the time after a restart."""
    statements = [remedy.text for remedy in remedies if remedy.where == "sql"]
    assert statements
    assert {remedy.where for remedy in remedies} <= {"sql", "option file"}
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            assert statement.endswith(";")
            cursor.execute(statement)


def options_in(finding: Finding) -> dict[str, Any]:
    """The options of the stream that are printed, as the DSN has them."""
    options = [remedy.text.split("=", 1) for remedy in finding.remedies if remedy.where == "stream option"]
    return dict(options)


async def assert_cured(
    server: Server, check: str, state: str, user: str | None = None, **given: Any
) -> Finding:
    """The check finds something, and nothing once its remedy has been carried out."""
    before = (await findings_of(server, user, **given))[check]
    assert before.state == state, before
    print(check, before.message, before.remedies)
    carry_out(server, before.remedies)
    after = (await findings_of(server, user, **given))[check]
    assert after.state == "ok", after
    assert not after.remedies
    return before
