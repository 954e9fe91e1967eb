"""Random tables on real servers, made in every form of table metadata."""

from __future__ import annotations

import random

import pymysql

from tests.support.column_kinds import dialect_of
from tests.support.random_tables import RandomTable, connect_plainly, make_table
from tests.support.servers import Server

TABLES = 200
# A row that is too large for its engine, or an engine without such columns or keys: a table that cannot be.
IMPOSSIBLE_TABLES = {1118, 1071, 1112, 1163, 1178, 3106, 3756, 4161}
MAX_IMPOSSIBLE = 0.2
MATRIX = [
    ("mysql:9.7", "FULL"),
    ("mysql:9.7", "MINIMAL"),
    ("mysql:5.6", None),
    *[
        (server, level)
        for server in ("mariadb:10.11", "mariadb:11.8")
        for level in ("FULL", "MINIMAL", "NO_LOG")
    ],
]


def run_tables(
    rng: random.Random, server: Server, schema: str, *, full: bool, number: int = TABLES
) -> list[RandomTable]:
    """Random tables, with all that has happened to them."""
    dialect = dialect_of(server, logs_labels=full)
    tables: list[RandomTable] = []
    impossible = 0
    with connect_plainly(server) as connection:
        while len(tables) < number:
            table = make_table(rng, dialect, schema, len(tables) + impossible)
            try:
                table.run(connection)
            except pymysql.err.MySQLError as error:
                if error.args[0] not in IMPOSSIBLE_TABLES:
                    print(table.create, *(step.sql for step in table.steps), sep="\n")
                    raise
                impossible += 1
                connection.rollback()
            else:
                tables.append(table)
    print(f"{server.name}: {len(tables)} tables, {impossible} more were impossible")
    assert impossible < MAX_IMPOSSIBLE * number
    return tables
