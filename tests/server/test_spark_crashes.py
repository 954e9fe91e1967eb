"""A query killed with SIGKILL at every point, in Spark's order but without Spark: nothing lost, nothing twice.

``test_spark_kills`` does the same with Spark, in minutes. Here the source is on its own, and the log may be purged.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.server.support.killed_queries import SECONDS, KilledQuery, Writer
from tests.server.support.spark_sources import LIVE_SERVERS, insert
from tests.server.support.streams import begin_log
from tests.spark.support.killed_query import POINTS
from tests.support.servers import Server

STEP = 500
RANDOM_KILLS = 3

pytestmark = pytest.mark.parametrize("server", LIVE_SERVERS, indirect=True)


class PlainQuery(KilledQuery):
    """That of ``tests.spark.support.micro_batches``."""

    def __init__(self, server: Server, folder: Path, tables: list[str], **more: Any) -> None:
        super().__init__(
            server, folder, tables, module="tests.spark.support.micro_batches", formats=["plain"], **more
        )

    def rows(self) -> list[dict[str, Any]]:
        """All that is in the sink, in the order of the log."""
        paths = (self.folder / "plain" / "rows").glob("[0-9]*")
        rows = [row for path in paths for row in json.loads(path.read_text())]
        return sorted(rows, key=lambda row: row["seq"])

    def ids(self) -> list[int]:
        return [json.loads(row["after"])["id"] for row in self.rows() if row["op"] == "insert"]

    def is_pinned(self) -> bool:
        return self.batches("plain", "commits") >= 0

    def names_what_is_lost(self, text: str, transactions: int) -> bool:
        """Whether an error says from where to where the log is purged, or which GTIDs are."""
        if self.server.family == "mariadb":
            offset = self.offset("plain", self.batches("plain", "commits"))
            return f"purged its log from {offset['file']}:{offset['position']} up to binlog." in text
        [(first, last)] = re.findall(r"[0-9a-f]{12}:(\d+)-(\d+)", text)
        return int(last) - int(first) + 1 == transactions

    def spool(self) -> list[Path]:
        return list((self.folder / "plain" / "_state" / "spool").iterdir())


@pytest.fixture
def tables(server: Server) -> Iterator[list[str]]:
    with server.fresh_schema() as schema:
        names = [f"{schema}.t", f"{schema}.u"]
        for name in names:
            server.query(f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(100))")
        yield names


@pytest.fixture
def query(server: Server, tmp_path: Path, tables: list[str]) -> PlainQuery:
    return PlainQuery(server, tmp_path, tables, maxRowsPerTrigger=100)


def test_every_row_comes_once(seed: int, server: Server, tables: list[str], query: PlainQuery) -> None:
    rng = random.Random(seed)
    kills = [f"plain:{point}:{rng.randint(1, 3)}" for point in POINTS] + [""] * RANDOM_KILLS
    rng.shuffle(kills)
    query.run_until(query.is_pinned)
    with Writer(server, tables, rng) as writer:
        for number, kill_at in enumerate(kills, 1):
            print(kill_at)
            writer.allowed = STEP * number
            if kill_at:
                query.run_to_its_death(kill_at)
            else:
                query.run_until(lambda: True, rng.uniform(0.5, 4))
        writer.reach(STEP * len(kills))
    query.run_until(query.has_all)
    assert query.ids() == list(range(writer.written))
    assert len({row["seq"] for row in query.rows()}) == writer.written


def test_killed_before_the_first_batch_is_done(server: Server, tables: list[str], query: PlainQuery) -> None:
    with Writer(server, tables, random.Random(0)) as writer:
        with query.run("plain:after_offsets:1", when=query.folder / "go") as process:
            query.wait(process, lambda: query.batches("plain", "offsets") == 0)
            writer.reach(300)
            (query.folder / "go").touch()
            query.wait_for_death(process)
        assert not query.is_pinned()
        writer.reach(600)
    query.run_until(query.has_all)
    assert query.ids() == list(range(writer.written))


def test_the_log_is_purged_between_crash_and_replay(
    server: Server, tables: list[str], query: PlainQuery
) -> None:
    table = tables[0]
    query.run_until(query.is_pinned)
    insert(server, table, 0, 400)
    query.run_to_its_death("plain:after_offsets:2")
    assert len(query.ids()) < 400
    begin_log(server)
    insert(server, table, 400, 400)
    query.run_until(query.has_all)
    assert query.ids() == list(range(800))
    # The same without the spool.
    insert(server, table, 800, 400)
    query.run_to_its_death("plain:after_offsets:2")
    done = len(query.ids())
    assert 800 <= done < 1200
    begin_log(server)
    for path in query.spool():
        path.unlink()
    with query.run() as process:
        assert process.wait(SECONDS) == 1
    error = query.output().splitlines()[-1]
    assert error.startswith("protocol.errors.TransactionsUnavailableError: ")
    assert query.names_what_is_lost(error, (1200 - done) // 10)
    lost = error.partition("HY000): ")[2].partition(" -- ")[0]
    insert(server, table, 1200, 400)
    query = PlainQuery(server, query.folder, tables, maxRowsPerTrigger=100, failOnDataLoss="false")
    query.run_until(query.has_all)
    rows = query.rows()
    [gap] = [index for index, row in enumerate(rows) if row["op"] == "gap"]
    assert query.ids() == [*range(done), *range(1200, 1600)]
    assert gap == done
    assert lost in rows[gap]["sql"]
