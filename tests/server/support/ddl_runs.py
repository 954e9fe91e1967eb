"""The cases of ``ddl_cases`` on real servers, with a witness of each row: SELECT right behind its statement."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pymysql

from replica.sql.quoting import identifier
from tests.support.ddl_cases import CASES, Case
from tests.support.servers import Server

Row = dict[str, Any]


class Witness:
    """Runs statements, and knows what the tables of its schemas hold after each."""

    def __init__(self, server: Server, reader: Any, schema: str, other: str) -> None:
        # Another session than the one that runs statements: its temporary tables and modes do not get in the way.
        self.reader = reader
        self.server, self.names = server, {"schema": schema, "other": other}
        self.rows: list[tuple[str, Row]] = []
        self.state = self.tables()

    def run(self, statements: tuple[str, ...]) -> None:
        """Run statements in a session of their own."""
        with self.server.connect(
            database=self.names["schema"], charset="utf8mb4", autocommit=True
        ) as session:
            for statement in statements:
                self.run_one(session.cursor(), statement)

    def run_one(self, cursor: Any, statement: str) -> None:
        try:
            cursor.execute(statement.format(**self.names) if "{" in statement else statement)
        except pymysql.Error as error:
            raise AssertionError(f"{statement}: {error}") from error
        cursor.fetchall()
        state = self.tables()
        if statement.lstrip().upper().startswith(("INSERT", "UPDATE")) or " AS SELECT" in statement.upper():
            for table, rows in state.items():
                known = self.state.get(table, [])
                self.rows += [(table, row) for row in rows if row not in known]
        self.state = state

    def tables(self) -> dict[str, list[Row]]:
        schemas = tuple(self.names.values())
        self.reader.execute(
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA IN (%s, %s) "
            "AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')",
            schemas,
        )
        return {f"{schema}.{name}": self.content(schema, name) for schema, name in self.reader.fetchall()}

    def content(self, schema: str, name: str) -> list[Row]:
        self.reader.execute(
            "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s "
            "ORDER BY ORDINAL_POSITION",
            (schema, name),
        )
        columns = [row[0] for row in self.reader.fetchall()]
        selected = ", ".join(map(identifier, columns))
        self.reader.execute(f"SELECT {selected} FROM {identifier(schema)}.{identifier(name)}")
        return [dict(zip(columns, row, strict=True)) for row in self.reader.fetchall()]


def is_for(case: Case, server: Server) -> bool:
    if server.family not in case.families:
        return False
    return server.family != "mysql" or case.since <= server.version


class Running:
    """The cases on one server, each in two schemas of its own."""

    def __init__(
        self, server: Server, schemas: contextlib.ExitStack, cases: Sequence[Case] = tuple(CASES)
    ) -> None:
        cases = [case for case in cases if is_for(case, server)]
        reader = schemas.enter_context(server.connect(charset="utf8mb4", autocommit=True)).cursor()
        self.parts = []
        for case in cases:
            names = schemas.enter_context(server.fresh_schema()), schemas.enter_context(server.fresh_schema())
            witness = Witness(server, reader, *names)
            self.parts.append((case, witness))
            witness.run(case.before)
            witness.rows.clear()
        self.patterns = [f"{name}.*" for _, witness in self.parts for name in witness.names.values()]

    def run(self, share: int = 0, shares: int = 1) -> None:
        """Run all cases, or one share of them."""
        for case, witness in self._share(share, shares):
            witness.run(case.behind)

    def _share(self, share: int, shares: int) -> list[tuple[Case, Witness]]:
        size = -(-len(self.parts) // shares)
        return self.parts[share * size : (share + 1) * size]

    @property
    def rows(self) -> list[tuple[str, Row]]:
        return [row for _, witness in self.parts for row in witness.rows]

    def problem(self, found: list[tuple[str, Row]]) -> str | None:
        """The first case that a consumer got otherwise."""
        for case, witness in self.parts:
            schemas = tuple(f"{name}." for name in witness.names.values())
            got = [row for row in found if row[0].startswith(schemas)]
            if got != witness.rows:
                return f"{case.name}: {difference(got, witness.rows)}"
        return None


def difference(found: list[tuple[str, Row]], expected: list[tuple[str, Row]]) -> str:
    for got, wanted in zip(found, expected, strict=False):
        if got != wanted:
            return f"{got} instead of {wanted}"
    return f"{len(found)} rows instead of {len(expected)}: {found[-1:]} {expected[-1:]}"
