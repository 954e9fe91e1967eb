"""No server is told of a variable that it does not know: it would refuse the whole statement."""

import pytest

from protocol.constants import Capability
from protocol.conversation.messages import Handshake, TextValue
from replica.source.session_settings import make_settings

LATER = {
    "autocommit",
    "max_execution_time",
    "max_statement_time",
    "show_gipk_in_create_table_and_information_schema",
}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("5.5.62-log", set()),
        ("5.6.51", set()),
        ("5.7.7-rc", {"autocommit"}),
        ("5.7.44", {"autocommit", "max_execution_time"}),
        ("8.0.29", {"autocommit", "max_execution_time"}),
        ("8.0.30", LATER - {"max_statement_time"}),
        ("9.7.4", LATER - {"max_statement_time"}),
        ("5.5.5-10.0.38-MariaDB", {"autocommit"}),
        ("5.5.5-10.1.48-MariaDB", {"autocommit", "max_statement_time"}),
        ("11.8.9-MariaDB", {"autocommit", "max_statement_time"}),
    ],
)
async def test_variables(version: str, expected: set[str]) -> None:
    asked = []

    async def query(sql: str) -> list[tuple[TextValue, ...]]:
        asked.append(sql)
        return []

    await make_settings(Handshake(version, 1, Capability(0), b"", ""), query)
    assert {name for name in LATER if f" {name} = " in asked[0]} == expected
