"""``mirror`` begins with a copy of tables that were there before: on executors, beside writers, DDL and kills."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable

from protocol.errors import ConfigurationError, ServerError
from replica.spark.jobs import copy_plan, copy_tasks, first_copy, history, mirror, read_again
from replica.spark.jobs.copy_tasks import Piece
from replica.spark.jobs.kept_table import table_path
from replica.spool.offsets import Offset
from tests.server.support import random_shop
from tests.server.support.copied_jobs import CopiedJob, check_states
from tests.server.support.example_programs import eventually
from tests.server.support.random_shop import TABLES, RandomWriter, kept_rows, source_rows
from tests.server.support.streams import begin_log
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.spark.support.kept_tables import rows_of
from tests.support.servers import Server
from tests.tools import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Seconds for a Spark that starts beside other tests.
PATIENCE = 600

pytestmark = pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)


@pytest.fixture
def shop(server: Server) -> Iterator[str]:
    with server.fresh_schema() as schema:
        yield schema


@pytest.fixture
def mirrored(spark: SparkSession, server: Server, shop: str, tmp_path: Path) -> CopiedJob:  # noqa: F811
    return CopiedJob(spark, server, shop, tmp_path)


def test_tables_that_were_there_before_the_log(
    seed: int, server: Server, shop: str, mirrored: CopiedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers are at work all the while. Each table is read in several rounds."""
    monkeypatch.setattr(copy_plan, "_RANGE_BYTES", 4096)
    rng = random.Random(seed)
    begun = datetime.now(UTC) - timedelta(seconds=1)
    random_shop.create(server, shop)
    with RandomWriter(server, shop, rng) as writer:
        writer.reach(100)
    begin_log(server)
    with RandomWriter(server, shop, rng) as writer:
        mirrored.run()
        writer.reach(200)
    mirrored.run()
    for table in TABLES:
        expected = source_rows(server, shop, table)
        assert expected
        assert kept_rows(mirrored.target, shop, table) == expected, table
        since = DeltaTable(table_path(str(mirrored.target), f"{shop}.{table}")).metadata().configuration
        assert datetime.fromisoformat(since["mysql-replica.consistentSince"]) > begun
    for row in mirror.progress(str(mirrored.target)).to_pylist():
        assert row["consistent_since"] > begun, row


def table_rows(server: Server, table: str) -> list[dict[str, Any]]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def check(mirrored: CopiedJob, server: Server, table: str) -> None:
    expected = table_rows(server, table)
    assert expected
    assert sorted(rows_of(mirrored.target, table), key=lambda row: row["id"]) == expected


def test_statements_before_the_copy_are_in_it(server: Server, shop: str, mirrored: CopiedJob) -> None:
    """They are in the log that is read, because it is read from the beginning of its file."""
    table, begun = f"{shop}.t", f"{shop}.begun"
    server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, b INT)")
    server.query(f"CREATE TABLE {begun} (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO {table} VALUES (1, 10, 20), (2, 11, 21), (3, 12, 22)")
    server.query(f"INSERT INTO {begun} VALUES (1)")
    begin_log(server)
    server.query(f"UPDATE {table} SET a = 13 WHERE id = 1")
    server.query(f"ALTER TABLE {table} CHANGE a b INT, CHANGE b a INT, ADD COLUMN c INT NOT NULL DEFAULT 7")
    server.query(f"UPDATE {table} SET c = 8 WHERE id = 2")
    server.query(f"CREATE TABLE {shop}.gone (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO {shop}.gone VALUES (1)")
    server.query(f"DROP TABLE {shop}.gone")
    server.query(f"CREATE TABLE {shop}.old LIKE {table}")
    server.query(f"RENAME TABLE {shop}.old TO {shop}.new")
    server.query(f"INSERT INTO {shop}.new (id) VALUES (9)")
    mirrored.run()
    for name in (table, f"{shop}.new", begun):
        check(mirrored, server, name)
    server.query(f"UPDATE {table} SET b = 5 WHERE id = 3")
    server.query(f"CREATE TABLE IF NOT EXISTS {shop}.later (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO {shop}.later VALUES (1)")
    server.query(f"ALTER TABLE {table} ADD COLUMN d INT")
    server.query(f"UPDATE {table} SET d = id WHERE id < 3")
    mirrored.run()
    for name in (table, f"{shop}.new", begun, f"{shop}.later"):
        check(mirrored, server, name)


def test_a_statement_during_the_copy(
    server: Server, shop: str, mirrored: CopiedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"{shop}.t"
    server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, b INT)")
    server.query(f"INSERT INTO {table} VALUES (1, 10, 20), (2, 11, 21)")
    copy, copies = copy_tasks.copy_pieces, list[Any]()

    def copy_pieces(*given: Any, **named: Any) -> Any:
        copies.append(given)
        files = copy(*given, **named)
        if len(copies) == 1:
            server.query(f"ALTER TABLE {table} RENAME COLUMN a TO c, ADD COLUMN d INT DEFAULT 3")
        return files

    monkeypatch.setattr(first_copy, "copy_pieces", copy_pieces)
    mirrored.run()
    assert len(copies) == 2
    check(mirrored, server, table)


def test_keys_that_move_while_their_ranges_are_read(
    server: Server, shop: str, mirrored: CopiedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows come from a range that is read later, go to one that was read before, and others take their keys."""
    monkeypatch.setattr(copy_plan, "_RANGE_BYTES", 4096)
    images = {f"{shop}.{image.lower()}": image for image in ("MINIMAL", "NOBLOB")}
    for table in images:
        server.query(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT DEFAULT 7, b TEXT, c VARCHAR(9) DEFAULT 'x')"
        )
        fill = ", ".join(f"({number}, {number}, REPEAT('b', 200), 'c{number}')" for number in range(1, 401))
        server.query(f"INSERT INTO {table} VALUES {fill}")
    begin_log(server)
    copy, copies, one_at_a_time = copy_tasks.copy_pieces, list[str](), threading.Lock()
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:

        def copy_pieces(*given: Any, pieces: list[Piece], **named: Any) -> Any:
            # Threads read the ranges side by side; the moves come behind the first of a table, and before its others.
            with one_at_a_time:
                files, table = copy(*given, pieces=pieces, **named), pieces[0].name
                if table not in copies:
                    cursor.execute(f"SET SESSION binlog_row_image = {images[table]}")
                    for change in moves(table):
                        cursor.execute(change)
                    # The log ends behind all changes, in a file without any.
                    cursor.execute("FLUSH BINARY LOGS")
                copies.append(table)
                return files

        monkeypatch.setattr(first_copy, "copy_pieces", copy_pieces)
        mirrored.run()
        for table in images:
            assert copies.count(table) > 1
            check(mirrored, server, table)
            # Behind the copy all is known.
            cursor.execute(f"UPDATE {table} SET id = id + 5000 WHERE id > 390")
            cursor.execute(f"INSERT INTO {table} (id) VALUES (9999)")
    mirrored.run()
    for table in images:
        check(mirrored, server, table)
    assert None not in mirror.progress(str(mirrored.target))["consistent_since"].to_pylist()


def moves(table: str) -> list[str]:
    """Statements that move rows of a table with the keys 1 to 400."""
    return [
        *(f"UPDATE {table} SET id = {number} + 1000 WHERE id = {number}" for number in (5, 6, 7, 8)),
        *(f"UPDATE {table} SET id = {number} - 1000 WHERE id = {number}" for number in (395, 396, 397, 398)),
        f"UPDATE {table} SET a = 1 WHERE id IN (1005, -605, 200)",
        # Another row has the key from which one has moved.
        f"INSERT INTO {table} (id) VALUES (6), (396)",
        f"UPDATE {table} SET id = 395 WHERE id = 9",
        f"UPDATE {table} SET id = 5, b = 'new' WHERE id = 394",
        f"UPDATE {table} SET id = 2000 WHERE id = 1007",
        f"DELETE FROM {table} WHERE id IN (1008, -602, 100)",
        f"INSERT INTO {table} (id, b) VALUES (100, 'again')",
        f"UPDATE {table} SET id = -1 WHERE id = 100",
        f"UPDATE {table} SET id = 100 WHERE id = -603",
    ]


def test_a_statement_while_rows_are_read_again(
    server: Server, shop: str, mirrored: CopiedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read later, when the log has passed the statement."""
    table = f"{shop}.t"
    server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, b INT)")
    server.query(f"INSERT INTO {table} VALUES (1, 10, 20), (2, 11, 21)")
    copy, read, reads = copy_tasks.copy_pieces, read_again._Reading._read, list[Any]()

    def copy_pieces(*given: Any, **named: Any) -> Any:
        files = copy(*given, **named)
        with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION binlog_row_image = MINIMAL")
            cursor.execute(f"UPDATE {table} SET id = 3, a = 12 WHERE id = 1")
        return files

    async def read_behind(*given: Any) -> Any:
        if not reads:
            server.query(f"ALTER TABLE {table} CHANGE a d INT, ADD COLUMN c INT NOT NULL DEFAULT 7")
            server.query(f"UPDATE {table} SET c = 8 WHERE id = 3")
        reads.append(await read(*given))
        return reads[-1]

    monkeypatch.setattr(first_copy, "copy_pieces", copy_pieces)
    monkeypatch.setattr(read_again._Reading, "_read", read_behind)
    mirrored.run()
    assert reads == [None]
    [row] = mirror.progress(str(mirrored.target)).to_pylist()
    assert row["consistent_since"] is None
    mirrored.run()
    # Once before the first micro-batch, which has the statement, and once behind it.
    assert reads[1] is None
    assert len(reads) == 3
    check(mirrored, server, table)
    [row] = mirror.progress(str(mirrored.target)).to_pylist()
    assert row["consistent_since"] is not None


def test_a_row_that_moves_while_it_is_read_again(
    server: Server, shop: str, mirrored: CopiedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read with locks waits for that row, gives up, and then finds it moved: its next key is read again, too.

    The first run reads nothing again, and the second one does so without a micro-batch.
    """
    table = f"{shop}.t"
    server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, b INT)")
    server.query(f"INSERT INTO {table} VALUES (1, 10, 20), (2, 11, 21)")
    copy, read = copy_tasks.copy_pieces, read_again._Reading._read
    codes, runs = list[int](), list[str]()
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_row_image = MINIMAL")

        def copy_pieces(*given: Any, **named: Any) -> Any:
            files = copy(*given, **named)
            cursor.execute(f"UPDATE {table} SET id = 3, a = 12 WHERE id = 1")
            cursor.execute("COMMIT")
            cursor.execute(f"UPDATE {table} SET id = 4 WHERE id = 3")
            return files

        async def read_beside(*given: Any) -> Any:
            if not runs:
                return None
            try:
                return await read(*given)
            except ServerError as error:
                codes.append(error.code)
                raise
            finally:
                cursor.execute("COMMIT")

        monkeypatch.setattr(read_again, "_LOCK_SECONDS", 1)
        monkeypatch.setattr(first_copy, "copy_pieces", copy_pieces)
        monkeypatch.setattr(read_again._Reading, "_read", read_beside)
        mirrored.run()
        runs.append("first")
        mirrored.run()
        assert codes == ([1205] if server.family == "mariadb" else [])
        # What has happened since the row was read again is read in that run, or in the next one.
        mirrored.run()
    check(mirrored, server, table)
    [row] = mirror.progress(str(mirrored.target)).to_pylist()
    assert row["consistent_since"] is not None


def test_a_history_begins_at_one_place(
    seed: int, server: Server, shop: str, mirrored: CopiedJob, tmp_path: Path
) -> None:
    """Its states are those of a history of the whole log, from the place of its copy on. It is killed once."""
    rng = random.Random(seed)
    whole = CopiedJob(mirrored.session, server, shop, tmp_path / "whole", history)
    copied = CopiedJob(mirrored.session, server, shop, tmp_path / "copied", history)
    begin_log(server)
    random_shop.create(server, shop)
    with RandomWriter(server, shop, rng) as writer:
        writer.reach(100)
        copied.run()
        [begun] = copied.target.glob("_state/begin.json")
        assert not list(copied.target.glob("_state/copies/*"))
        writer.reach(200)
    copied.run()
    whole.source["startingOffsets"] = "earliest"
    whole.run(snapshot=False)
    place = Offset.from_dict(json.loads(json.loads(begun.read_text())["offset"]))
    for table, (key, _) in TABLES.items():
        expected = source_rows(server, shop, table)
        assert kept_rows(copied.target, shop, table, is_history=True) == expected
        check_states(
            rows_of(copied.target, f"{shop}.{table}"), rows_of(whole.target, f"{shop}.{table}"), place, key
        )


class KilledError(Exception):
    """In place of a kill."""


def test_a_killed_copy_goes_on(
    server: Server, shop: str, mirrored: CopiedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        server.query(f"CREATE TABLE {shop}.{name} (id INT PRIMARY KEY, v INT)")
        server.query(f"INSERT INTO {shop}.{name} VALUES (1, 10), (2, 11)")
    copy, copied = copy_tasks.copy_pieces, list[Any]()

    def copy_pieces(*given: Any, pieces: list[Piece], **named: Any) -> Any:
        [piece] = pieces
        copied.append(piece.name)
        if copied.count(f"{shop}.b") == 1 and piece.name == f"{shop}.b":
            raise KilledError
        return copy(*given, pieces=pieces, **named)

    monkeypatch.setattr(first_copy, "copy_pieces", copy_pieces)
    with pytest.raises(KilledError):
        mirrored.run()
    server.query(f"UPDATE {shop}.a SET v = 12 WHERE id = 1")
    server.query(f"DELETE FROM {shop}.a WHERE id = 2")
    mirrored.run()
    # The third table may have been read beside the second one, and was not committed.
    assert sorted(copied) in ([f"{shop}.{name}" for name in names] for names in ("abbc", "abbcc"))
    for name in ("a", "b", "c"):
        check(mirrored, server, f"{shop}.{name}")


def many_rows(server: Server, table: str) -> None:
    server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)")
    rows = ", ".join(f"({number}, {number % 7})" for number in range(2000))
    server.query(f"INSERT INTO {table} VALUES {rows}")
    server.query(f"ANALYZE TABLE {table}")


def test_a_copy_with_an_empty_commit_is_made_anew(
    server: Server, shop: str, mirrored: CopiedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a power failure leaves it: Delta passes over it, and the later ranges say that its range is there."""
    monkeypatch.setattr(copy_plan, "_RANGE_BYTES", 4096)
    many_rows(server, f"{shop}.t")
    with monkeypatch.context() as patch:
        patch.setattr(first_copy, "changed_since", None)
        with pytest.raises(TypeError):
            mirrored.run()
    commits = sorted((mirrored.target / shop / "t" / "_delta_log").glob("*.json"))
    assert len(commits) > 3
    os.truncate(commits[-2], 0)
    mirrored.run()
    check(mirrored, server, f"{shop}.t")


def test_a_killed_copy_goes_on_with_more_connections(
    server: Server, shop: str, mirrored: CopiedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commits count ranges, and not the rounds in which so many connections read them."""
    monkeypatch.setattr(copy_plan, "_RANGE_BYTES", 4096)
    many_rows(server, f"{shop}.t")
    commit, done = first_copy._commit, list[int]()

    def commit_some(kept: Any, files: Any, number: int) -> None:
        if len(done) == 3:
            raise KilledError
        done.append(number)
        commit(kept, files, number)

    with monkeypatch.context() as patch:
        patch.setattr(first_copy, "_commit", commit_some)
        mirrored.source["snapshotParallelism"] = "1"
        with pytest.raises(KilledError):
            mirrored.run()
    assert done == [0, 1, 2]
    mirrored.source["snapshotParallelism"] = "3"
    mirrored.run()
    check(mirrored, server, f"{shop}.t")


def copied_files(folder: Path) -> int:
    """How many commits the tables have."""
    return len(list(folder.glob("*/*/_delta_log/*.json")))


def test_a_copy_whose_process_is_killed(
    seed: int, server: Server, shop: str, mirrored: CopiedJob, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """By SIGKILL after some commits, ten times in the long form; writers are at work all the while."""
    rng = random.Random(seed)
    kills, rows = (10, 200_000) if pytestconfig.getoption("long") else (1, 20_000)
    # The job's spool begins with a file of the log, and that of a new server has CREATE USER with the password.
    server.query("FLUSH BINARY LOGS")
    random_shop.create(server, shop)
    digits = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
    joined = ", ".join(f"({digits}) AS {name}" for name in "abcdef")
    number = "a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d + 100000 * f.d"
    server.query(f"CREATE TABLE {shop}.large (id INT PRIMARY KEY, v VARCHAR(500))")
    server.query(
        f"INSERT INTO {shop}.large SELECT * FROM (SELECT {number} AS n, REPEAT('x', 400) FROM {joined}) AS x "
        f"WHERE n < {rows}"
    )
    place = f"mysql://{mirrored.source['user']}@{server.host}:{server.port}"
    command = [sys.executable, "-m", "replica", "spark", "mirror", place, "--master", "local[2]", "--once"]
    command += ["--password-file", mirrored.source["passwordFile"], "--target", str(mirrored.target)]
    command += ["--tables", f"{shop}.*", "--option", "snapshotParallelism=2"]
    with RandomWriter(server, shop, rng) as writer:
        writer.reach(50)
        for _ in range(kills):
            begun = copied_files(mirrored.target)
            process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE)
            try:
                wanted = begun + rng.randint(1, 4)
                eventually(
                    lambda: copied_files(mirrored.target) >= wanted or process.poll() is not None,  # noqa: B023
                    PATIENCE,
                )
                time.sleep(rng.random())
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        writer.reach(100)
    settings, events = tmp_path / "conf", tmp_path / "events"
    settings.mkdir()
    events.mkdir()
    logged = (
        f"spark.eventLog.enabled true\nspark.eventLog.compress false\nspark.eventLog.dir file://{events}\n"
    )
    (settings / "spark-defaults.conf").write_text(logged)
    environment = {**os.environ, "SPARK_CONF_DIR": str(settings)}
    last = subprocess.run(command, check=False, timeout=PATIENCE, env=environment, capture_output=True)
    assert last.returncode == 0, last.stderr
    secret = server.replica_password.encode()
    assert secret not in last.stderr + last.stdout
    written = [path for folder in (events, mirrored.target) for path in folder.rglob("*") if path.is_file()]
    assert any(path.is_relative_to(events) for path in written)
    assert [path for path in written if secret in path.read_bytes()] == []
    for table in TABLES:
        expected = source_rows(server, shop, table)
        assert expected
        assert kept_rows(mirrored.target, shop, table) == expected, table
    found = rows_of(mirrored.target, f"{shop}.large")
    assert sorted(row["id"] for row in found) == list(range(rows))


def test_the_pipeline_on_a_server(
    spark: SparkSession,  # noqa: F811
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.query("DROP DATABASE IF EXISTS shop")
    try:
        assert pipeline.run(server, tmp_path)
    finally:
        server.query("DROP DATABASE IF EXISTS shop")
    shown = capsys.readouterr().out
    assert "40 transactions were made, and their log is gone" in shown
    assert "shop.order_items: " in shown


def test_what_cannot_be_copied(
    spark: SparkSession,  # noqa: F811
    server: Server,
    shop: str,
    mirrored: CopiedJob,
) -> None:
    server.query(f"CREATE TABLE {shop}.t (id INT, v INT)")
    with pytest.raises(ConfigurationError, match=rf"^{shop}\.t: no primary key"):
        mirrored.run()
    server.query(f"ALTER TABLE {shop}.t ADD PRIMARY KEY (id)")
    with pytest.raises(ConfigurationError, match=r"^snapshot: a seed or a start says where the job begins"):
        mirrored.run(snapshot=True, seed="x@1")
    source = {name: value for name, value in mirrored.source.items() if name != "passwordFile"}
    with pytest.raises(ConfigurationError, match=r"^password: executors copy the tables"):
        mirror.start(spark, source | {"password": "x"}, str(mirrored.target), snapshot=True)
    mirrored.run()
