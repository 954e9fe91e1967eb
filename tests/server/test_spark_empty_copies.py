"""Copies that would be empty, and complete at once: a pattern that matches no table, a user without SELECT."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from protocol.errors import ConfigurationError
from replica.config.table_filter import table_filter
from replica.spark.initial_copy import copy_partitions
from replica.spark.jobs.copy_plan import make_plan
from replica.spark.source_options import parse_options
from replica.spark.stream_connection import connection_options
from replica.spool.start_offset import find_offset
from tests.support.servers import Server

pytestmark = pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)

NO_SELECT = "empty_copy_user"


@pytest.fixture
def shop(server: Server) -> Iterator[str]:
    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        server.query(f"INSERT INTO {schema}.t VALUES (1)")
        server.query(f"CREATE USER {NO_SELECT}@'%' IDENTIFIED BY 'secret'")
        server.query(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {NO_SELECT}@'%'")
        yield schema
        server.query(f"DROP USER {NO_SELECT}@'%'")


@pytest.mark.parametrize(
    ("patterns", "is_refused"), [("{shop}.*", False), ("{shop}.*,{shop}x.*", True), ("nowhere.t", True)]
)
def test_a_pattern_that_matches_no_table(server: Server, shop: str, patterns: str, is_refused: bool) -> None:
    check(server, server.replica_user, server.replica_password, patterns.format(shop=shop), is_refused)


@pytest.mark.parametrize("patterns", ["{shop}.*", "*"])
def test_a_user_without_select(server: Server, shop: str, patterns: str) -> None:
    check(server, NO_SELECT, "secret", patterns.format(shop=shop), is_refused=True)


def check(server: Server, user: str, password: str, patterns: str, is_refused: bool) -> None:
    given = {
        "host": server.host,
        "port": str(server.port),
        "user": user,
        "password": password,
        "includeTables": patterns,
    }
    options = parse_options(given)
    fits = table_filter(options.settings.tables)
    plan = make_plan(
        connection_options(options), lambda name: fits is None or fits(*name.split(".", 1)), least=1
    )
    place = asyncio.run(find_offset(connection_options(options), "snapshot"))
    if not is_refused:
        assert list(asyncio.run(plan).tables) == [patterns.replace("*", "t")]
        assert len(copy_partitions(options, place)) == 1
        return
    with pytest.raises(ConfigurationError, match="a copy cannot begin"):
        asyncio.run(plan)
    with pytest.raises(ConfigurationError, match="a copy cannot begin"):
        copy_partitions(options, place)
