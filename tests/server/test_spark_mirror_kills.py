"""Five tables that change at random while their mirror and their history are killed: row by row they stay equal."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.server import random_shop
from tests.server.killed import KilledQuery
from tests.server.random_shop import TABLES, RandomWriter, kept_rows, source_rows
from tests.servers import Server
from tests.spark.conftest import spark_missing
from tests.spark.kept_tables import check_intervals
from tests.spark.killed_mirror import JOBS, POINTS

KILLS = 10
TRANSACTIONS = 300  # between two kills


@pytest.fixture
def shop(server: Server) -> Iterator[str]:
    if reason := spark_missing():
        pytest.skip(reason)
    with server.fresh_schema() as schema:
        random_shop.create(server, schema)
        yield schema


@pytest.mark.long  # Spark is started some 20 times
@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
def test_killed_at_any_time(server: Server, shop: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    query = KilledQuery(
        server,
        tmp_path,
        [f"{shop}.*"],
        module="tests.spark.killed_mirror",
        formats=tuple(JOBS),
        maxRowsPerTrigger=400,
    )
    points = [*POINTS, *[""] * KILLS]
    rng.shuffle(points)
    with RandomWriter(server, shop, rng) as writer:
        for point in points:
            writer.allowed = writer.made + TRANSACTIONS
            begun = max(query.commits())
            if point:
                query.run_to_its_death(
                    f"{rng.choice(list(JOBS)) if point != POINTS[-1] else 'mirror'}:{point}:3"
                )
            else:
                query.run_until(lambda begun=begun: max(query.commits()) > begun, rng.uniform(0, 5))
            writer.reach(writer.allowed)
    query.run_until(query.has_all)
    for table in TABLES:
        expected = source_rows(server, shop, table)
        assert expected
        assert kept_rows(tmp_path / "mirror", shop, table) == expected, table
        assert kept_rows(tmp_path / "history", shop, table, is_history=True) == expected, table
        check_intervals(tmp_path / "history", f"{shop}.{table}", TABLES[table][0])
