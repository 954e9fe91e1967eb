"""Accounts with a grant for each of thousands of tables."""

from __future__ import annotations

import pytest

from replica.config.options import Options
from replica.doctor import privileges, tables
from replica.sql.quoting import like_expression

GRANTS = 1000


@pytest.mark.parametrize("scope", ["`shop`.`t{}`", "`my_{}`.*", r"`my\_{}`.*"])
def test_thousands_of_grants_are_looked_up(scope: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of as many tables was compared with each of them: 2,000 took four seconds, twice."""
    made: list[str] = []

    def counted(pattern: str) -> str:
        made.append(pattern)
        return like_expression(pattern)

    monkeypatch.setattr(privileges, "like_expression", counted)
    grants = [f"GRANT SELECT ON {scope.format(number)} TO `repl`@`%`" for number in range(GRANTS)]
    tables = [scope.format(number).replace("`", "").replace("\\", "") for number in range(GRANTS)]
    assert privileges._unreadable(grants, [*tables, "crm.*"]) == ["`crm`.*"]
    assert len(made) <= GRANTS


async def test_thousands_of_tables_of_a_schema_name_it_once() -> None:
    """A list of 10,000 tables made each statement 240 KB long, or 480."""
    asked: list[str] = []

    class Server:
        async def query(self, sql: str, columns: int) -> list[tuple[str, ...]]:
            asked.append(sql)
            return []

    names = [f"{schema}.t{number}" for number in range(GRANTS) for schema in ("shop", "crm")]
    options = Options.build("mysql://repl@127.0.0.1", {"tables": names})
    assert await tables._selected_rows(Server(), options, tables._COPIED, 6) == []  # type: ignore[arg-type]
    [sql] = asked
    assert len(sql) < 2_000
