"""Tables of a running mirror are copied anew: parked ones, damaged ones, new ones, beside writers and statements."""

from __future__ import annotations

import contextlib
import random
import shlex
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable

from protocol.errors import ConfigurationError, ReplicaError
from replica.cli import main
from replica.spark.jobs import (
    copy_plan,
    copy_tasks,
    first_copy,
    history,
    job_state,
    merge_tasks,
    mirror,
    progress,
    settled_copy,
    spark_session,
)
from replica.spark.jobs.copy_requests import Requests
from replica.spark.jobs.copy_tasks import Piece
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.kept_table import table_path
from replica.spark.jobs.resync import resync
from tests.server.support import random_shop
from tests.server.support.copied_jobs import CopiedJob
from tests.server.support.example_programs import eventually
from tests.server.support.random_shop import TABLES, RandomWriter, kept_rows, source_rows
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.spark.support.kept_tables import by_key, check_intervals, rows_of
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 300


@pytest.fixture
def shop(server: Server) -> Iterator[str]:
    with server.fresh_schema() as schema:
        yield schema


def conditions(target: Path) -> dict[str, str]:
    """What the progress says; nothing before the first micro-batch."""
    with contextlib.suppress(ConfigurationError):
        return {row["table"]: row["state"] for row in mirror.progress(str(target)).to_pylist()}
    return {}


def check(job: CopiedJob, server: Server, shop: str, *, is_history: bool = False) -> None:
    for table in TABLES:
        expected = source_rows(server, shop, table)
        assert expected
        assert kept_rows(job.target, shop, table, is_history=is_history) == expected, table


def wait_until_copied(job: CopiedJob) -> None:
    requests = Requests(str(job.target), {})
    eventually(lambda: not requests.open(), PATIENCE)
    assert requests.all() == []


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
def test_while_the_job_runs(
    seed: int,
    spark: SparkSession,  # noqa: F811
    server: Server,
    shop: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One table is parked, another has lost rows; a statement comes while the first one is copied."""
    rng = random.Random(seed)
    job = CopiedJob(spark, server, shop, tmp_path)
    random_shop.create(server, shop)
    server.query(f"CREATE TABLE {shop}.odd (id INT PRIMARY KEY, v VARCHAR(9))")
    server.query(f"INSERT INTO {shop}.odd VALUES (1, '10'), (2, '-')")
    copy, copied = settled_copy.SettledCopy.run, list[str]()

    def run(given: settled_copy.SettledCopy) -> settled_copy.Settled:
        found = copy(given)
        copied.extend(found.state.tables)
        if copied.count(f"{shop}.odd") == 1 and f"{shop}.odd" in found.state.tables:
            server.query(f"ALTER TABLE {shop}.odd ADD COLUMN w INT NOT NULL DEFAULT 7")
            server.query(f"UPDATE {shop}.odd SET w = 8 WHERE id = 1")
            eventually(lambda: conditions(job.target)[f"{shop}.odd"] != "copying", PATIENCE)
        return found

    monkeypatch.setattr(settled_copy.SettledCopy, "run", run)
    with RandomWriter(server, shop, rng) as writer:
        writer.reach(50)
        with job.running(merge_interval=1):
            server.query(f"UPDATE {shop}.odd SET v = '20' WHERE id = 2")
            server.query(f"ALTER TABLE {shop}.odd MODIFY v INT")
            server.query(f"INSERT INTO {shop}.odd VALUES (3, 30)")
            eventually(lambda: conditions(job.target).get(f"{shop}.odd") == "parked", PATIENCE)
            [row] = [row for row in mirror.progress(str(job.target)).to_pylist() if row["reason"]]
            remedy = shlex.split(row["reason"].partition("copy it anew: ")[2])
            assert main(remedy[1:]) == 0
            DeltaTable(table_path(str(job.target), f"{shop}.codes")).delete()
            resync(str(job.target), [f"{shop}.codes"])
            writer.reach(150)
            wait_until_copied(job)
            writer.reach(200)
    job.run()
    assert copied.count(f"{shop}.odd") >= 2
    assert set(conditions(job.target).values()) == {"kept"}
    check(job, server, shop)
    rows = sorted(rows_of(job.target, f"{shop}.odd"), key=lambda row: row["id"])
    assert rows == [{"id": 1, "v": 10, "w": 8}, {"id": 2, "v": 20, "w": 7}, {"id": 3, "v": 30, "w": 7}]
    assert not list(job.target.glob("_state/copies/*"))


@pytest.mark.parametrize(
    ("server", "job_module"),
    [("mysql:9.7", mirror), ("mariadb:11.8", mirror), ("mysql:9.7", history)],
    indirect=["server"],
)
def test_tables_that_cannot_be_copied_are_parked(
    spark: SparkSession,  # noqa: F811
    server: Server,
    shop: str,
    tmp_path: Path,
    job_module: ModuleType,
) -> None:
    """They were an error of the whole job, also if thousands of others could be copied."""
    job = CopiedJob(spark, server, shop, tmp_path, job_module)
    server.query(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)")
    server.query(f"CREATE TABLE {shop}.nokey (id INT NOT NULL)")
    server.query(f"CREATE TABLE {shop}.old (id INT PRIMARY KEY) ENGINE=MyISAM")
    tables = [f"{shop}.{name}" for name in ("nokey", "old", "t")]

    def insert(number: int) -> None:
        for table in tables:
            server.query(f"INSERT INTO {table} VALUES ({number})")

    insert(1)
    job.run()
    for number in (2, 3):
        assert conditions(job.target) == dict(zip(tables, ("parked", "parked", "kept"), strict=True))
        with pytest.raises(
            ReplicaError, match=rf"{shop}\.nokey: no primary key.*; {shop}\.old cannot be copied"
        ):
            progress.check_parked(str(job.target), {})
        insert(number)
        job.run()
        assert [row["id"] for row in rows_of(job.target, tables[-1])] == list(range(1, number + 1))
    server.query(f"ALTER TABLE {tables[0]} ADD PRIMARY KEY (id)")
    server.query(f"ALTER TABLE {tables[1]} ENGINE=InnoDB")
    for row in mirror.progress(str(job.target)).to_pylist():
        if row["reason"]:
            assert main(shlex.split(row["reason"].partition("copy it anew: ")[2])[1:]) == 0
    job.run()
    insert(4)
    job.run()
    assert set(conditions(job.target).values()) == {"kept"}
    for table in tables:
        assert sorted(row["id"] for row in rows_of(job.target, table)) == [1, 2, 3, 4], table


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
def test_other_tables_do_not_wait_for_a_copy(
    seed: int,
    spark: SparkSession,  # noqa: F811
    server: Server,
    shop: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind each range of a copy it waits until a row that was written meanwhile has been merged elsewhere."""
    rng = random.Random(seed)
    job = CopiedJob(spark, server, shop, tmp_path)
    random_shop.create(server, shop)
    copied, ticks = f"{shop}.copied", f"{shop}.ticks"
    server.query(f"CREATE TABLE {copied} (id INT PRIMARY KEY, v INT, w TEXT)")
    fill = ", ".join(f"({number}, 0, REPEAT('w', 200))" for number in range(400))
    server.query(f"INSERT INTO {copied} VALUES {fill}")
    # Its size, by which it is cut into ranges.
    server.query(f"ANALYZE TABLE {copied}")
    server.query(f"CREATE TABLE {ticks} (id INT PRIMARY KEY)")
    job.run()
    copy, rounds, waiting = copy_tasks.copy_pieces, list[int](), list[int]()
    turn = threading.Lock()

    def copy_pieces(*given: Any, pieces: list[Piece], **named: Any) -> Any:
        # Ranges are read at the same time.
        with turn:
            return copy_and_wait(copy(*given, pieces=pieces, **named), pieces[0].name)

    def copy_and_wait(files: Any, table: str) -> Any:
        number = len(rounds)
        assert table == copied
        server.query(f"UPDATE {copied} SET v = v + 1 WHERE id = {number}")
        server.query(f"INSERT INTO {ticks} VALUES ({number})")

        def is_merged() -> bool:
            """Whether the row is there, and the state that is written behind it, too."""
            found = {row["table"]: row for row in mirror.progress(str(job.target)).to_pylist()}
            batch, rows = found[ticks]["merged_batch"], found[copied]["waiting_rows"]
            if {"id": number} not in rows_of(job.target, ticks) or batch <= max(rounds, default=-1):
                return False
            rounds.append(batch)
            waiting.append(rows)
            return True

        eventually(is_merged, PATIENCE)
        return files

    monkeypatch.setattr(first_copy, "copy_pieces", copy_pieces)
    monkeypatch.setattr(copy_plan, "_RANGE_BYTES", 1 << 13)
    with RandomWriter(server, shop, rng) as writer, job.running(merge_interval=1):
        resync(str(job.target), [copied])
        wait_until_copied(job)
        writer.reach(50)
    job.run()
    # As many merges as ranges, in micro-batches one after another, while the copied table's own changes waited.
    assert len(rounds) > 3
    assert waiting == sorted(set(waiting))
    check(job, server, shop)
    expected = [{"id": number, "v": int(number < len(rounds)), "w": "w" * 200} for number in range(400)]
    assert sorted(rows_of(job.target, copied), key=lambda row: row["id"]) == expected


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
def test_a_copy_delays_other_tables_by_one_merge_at_most(
    spark: SparkSession,  # noqa: F811
    server: Server,
    shop: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside copies of two tables a third one is merged by each micro-batch that brings rows of it.

    Its rows come between the ranges of a copy, and while the copy takes the place of the table, which micro-batches
    wait for. What is counted is in the progress behind each micro-batch.
    """
    job = CopiedJob(spark, server, shop, tmp_path)
    copied, ticks = [f"{shop}.one", f"{shop}.two"], f"{shop}.ticks"
    for table in copied:
        server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, w TEXT)")
        fill = ", ".join(f"({number}, 0, REPEAT('w', 200))" for number in range(200))
        server.query(f"INSERT INTO {table} VALUES {fill}")
        server.query(f"ANALYZE TABLE {table}")
    server.query(f"CREATE TABLE {ticks} (id INT PRIMARY KEY)")
    job.run()
    save, copy, take = job_state.save, copy_tasks.copy_pieces, CurrentTable.take_over
    behind, events, written = list[dict[str, dict[str, Any]]](), list[str](), 0
    turn = threading.Lock()

    def noting(target: str, state: job_state.JobState, query: str, batch: int, storage: Any) -> None:
        save(target, state, query, batch, storage)
        if target == str(job.target):
            rows = {row["table"]: row for row in state.progress(batch, 0).to_pylist()}
            if behind and rows[ticks]["merged_batch"] != behind[-1][ticks]["merged_batch"]:
                events.append("merge")
            behind.append(rows)

    def tick() -> None:
        nonlocal written
        events.append("tick")
        server.query(f"INSERT INTO {ticks} VALUES ({written})")
        written += 1

    def wait_for_merge() -> None:
        eventually(lambda: events.count("merge") == written, PATIENCE)

    def copy_pieces(*given: Any, pieces: list[Piece], **named: Any) -> Any:
        with turn:
            # That of the table before, which has just been taken over, too.
            wait_for_merge()
            server.query(f"UPDATE {pieces[0].name} SET v = v + 1 WHERE id = {written}")
            tick()
            wait_for_merge()
        return copy(*given, pieces=pieces, **named)

    def take_over(table: CurrentTable, *given: Any) -> None:
        tick()
        take(table, *given)
        events.append("take")

    # The first rows of the table have no other merge before.
    server.query(f"INSERT INTO {ticks} VALUES (-1)")
    job.run()
    monkeypatch.setattr(job_state, "save", noting)
    monkeypatch.setattr(first_copy, "copy_pieces", copy_pieces)
    monkeypatch.setattr(CurrentTable, "take_over", take_over)
    monkeypatch.setattr(copy_plan, "_RANGE_BYTES", 1 << 13)
    with job.running(merge_interval=0):
        resync(str(job.target), copied)
        wait_until_copied(job)
        wait_for_merge()
    # Each row has been merged before the next one came, but that one copy may have taken its table's place meanwhile.
    said = " ".join(events).replace("tick take merge", "tick merge")
    assert events.count("take") == 2
    assert said == " ".join(["tick", "merge"] * written)
    assert written > 8
    assert {rows[ticks]["waiting_rows"] for rows in behind} == {0}
    assert {max(rows[table]["waiting_rows"] for rows in behind) > 1 for table in copied} == {True}
    assert sorted(row["id"] for row in rows_of(job.target, ticks)) == list(range(-1, written))
    for table in copied:
        expected = [tuple(row) for row in server.query(f"SELECT id, v FROM {table} ORDER BY id")]
        assert sorted((row["id"], row["v"]) for row in rows_of(job.target, table)) == expected


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
def test_tables_that_were_not_selected_before(
    seed: int,
    spark: SparkSession,  # noqa: F811
    server: Server,
    shop: str,
    tmp_path: Path,
) -> None:
    """They are older than the log that is left, and the job has seen none of their changes."""
    rng = random.Random(seed)
    job = CopiedJob(spark, server, shop, tmp_path)
    random_shop.create(server, shop)
    first, *others = TABLES
    with RandomWriter(server, shop, rng) as writer:
        writer.reach(100)
        job.source["includeTables"] = f"{shop}.{first}"
        job.run()
        assert set(conditions(job.target)) == {f"{shop}.{first}"}
        with pytest.raises(ConfigurationError, match=rf"^{shop}\.{others[0]}: .* has no such table"):
            resync(str(job.target), [f"{shop}.{others[0]}"])
        job.source["includeTables"] = f"{shop}.*"
        job.run()
        writer.reach(150)
        job.run()
    job.run()
    check(job, server, shop)


@pytest.mark.parametrize("server", ["mariadb:11.8"], indirect=True)
def test_a_history(
    seed: int,
    spark: SparkSession,  # noqa: F811
    server: Server,
    shop: str,
    tmp_path: Path,
) -> None:
    """All present states end, and others begin; what was before stays."""
    rng = random.Random(seed)
    job = CopiedJob(spark, server, shop, tmp_path, history)
    random_shop.create(server, shop)
    with RandomWriter(server, shop, rng) as writer:
        writer.reach(50)
        job.run()
        writer.reach(100)
        job.run()
        before = rows_of(job.target, f"{shop}.codes")
        assert resync(str(job.target), [f"{shop}.c*"]) == [f"{shop}.codes", f"{shop}.customers"]
        job.run()
        writer.reach(120)
    job.run()
    check(job, server, shop, is_history=True)
    check_intervals(job.target, f"{shop}.codes", TABLES["codes"][0])
    found = rows_of(job.target, f"{shop}.codes")
    assert [row for row in before if not row["is_current"] and row not in found] == []
    begun = [row for row in before if row["is_current"]]
    assert begun
    for row in begun:
        [now] = [one for one in found if (one["code"], one["_seq"]) == (row["code"], row["_seq"])]
        assert now["valid_to"] is not None


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
def test_changes_behind_the_place_of_a_copy_come_later_than_its_states(
    spark: SparkSession,  # noqa: F811
    server: Server,
    shop: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy may be taken over long after its place; a state that began there must not end before."""
    table = f"{shop}.t"
    server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT)")
    server.query(f"INSERT INTO {table} VALUES (1, 1), (2, 1)")
    job = CopiedJob(spark, server, shop, tmp_path, history)
    job.run()
    server.query(f"UPDATE {table} SET a = 2")
    job.run()
    resync(str(job.target), [table])
    wait = spark_session.await_queries

    def slow(*queries: Any) -> None:
        wait(*queries)
        server.query(f"UPDATE {table} SET a = a + 1 WHERE id = 1")
        # MariaDB's log has whole seconds.
        time.sleep(2)

    monkeypatch.setattr(settled_copy, "await_queries", slow)
    job.run()
    monkeypatch.undo()
    job.run()
    states = sorted((row["id"], row["a"], row["is_current"]) for row in rows_of(job.target, table))
    assert states == [
        *((1, 1, False), (1, 2, False), (1, 2, False), (1, 3, True)),
        *((2, 1, False), (2, 2, False), (2, 2, True)),
    ]
    check_intervals(job.target, table, ("id",))


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
def test_deleted_rows_stay(
    seed: int,
    spark: SparkSession,  # noqa: F811
    server: Server,
    shop: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of before, and rows that were deleted while the table was parked; executors look them up."""
    rng = random.Random(seed)
    job = CopiedJob(spark, server, shop, tmp_path)
    random_shop.create(server, shop)
    with RandomWriter(server, shop, rng) as writer:
        writer.reach(150)
        job.run(soft_deletes=True)
        writer.reach(170)
        job.run(soft_deletes=True)
    server.query(f"ALTER TABLE {shop}.codes ADD COLUMN made TIMESTAMP DEFAULT CURRENT_TIMESTAMP")
    server.query(f"DELETE FROM {shop}.codes LIMIT 3")
    with contextlib.suppress(ReplicaError):
        job.run(soft_deletes=True)
    assert conditions(job.target)[f"{shop}.codes"] == "parked"
    server.query(f"ALTER TABLE {shop}.codes DROP COLUMN made")
    before = {table: states(job, shop, table) for table in TABLES}
    monkeypatch.setattr(merge_tasks, "SMALL_BYTES", 0)
    resync(str(job.target), [f"{shop}.*"])
    with RandomWriter(server, shop, rng) as writer, job.running(soft_deletes=True, merge_interval=1):
        writer.reach(50)
        wait_until_copied(job)
    job.run(soft_deletes=True)
    assert set(conditions(job.target).values()) == {"kept"}
    for table in TABLES:
        found = states(job, shop, table)
        assert before[table].keys() <= found.keys()
        live = {key for key, is_deleted in found.items() if not is_deleted}
        assert live == source_rows(server, shop, table).keys()
        assert len(live) < len(found)


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
def test_a_database_that_was_made_anew(
    server: Server,
    shop: str,
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
) -> None:
    """The log comes to DROP DATABASE after the copy, and took the copied rows away."""
    create = f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)"
    server.query(create)
    server.query(f"INSERT INTO {shop}.t VALUES (1)")
    job = CopiedJob(spark, server, shop, tmp_path)
    job.run()
    for sql in (
        f"DROP DATABASE {shop}",
        f"CREATE DATABASE {shop}",
        create,
        f"INSERT INTO {shop}.t VALUES (2)",
    ):
        server.query(sql)
    resync(str(job.target), [f"{shop}.t"])
    job.run()
    assert rows_of(job.target, f"{shop}.t") == [{"id": 2}]


def states(job: CopiedJob, shop: str, table: str) -> dict[tuple[Any, ...], bool]:
    """Whether a row is deleted, by its key as ``source_rows`` has it."""
    rows = by_key(rows_of(job.target, f"{shop}.{table}"), *TABLES[table][0])
    return {
        tuple(
            str(one) if name == "number" else one for name, one in zip(TABLES[table][0], key, strict=True)
        ): row["_deleted"]
        for key, row in rows.items()
    }
