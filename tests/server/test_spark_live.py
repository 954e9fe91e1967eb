"""A live source read into the spool, without Spark: whole, in pieces, after crashes, purges and on another start."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from protocol.errors import ReplicaError, TransactionsUnavailableError
from replica.config.options import Options
from replica.spark.envelope import envelope_schema
from replica.spark.read_task import ReadPlan, read_piece
from replica.spool.live_log import LiveLog
from replica.spool.offsets import Offset
from replica.spool.pieces import LogPiece, ReadSettings
from tests.server.support.spark_sources import LIVE_SERVERS, WAIT, insert
from tests.server.support.streams import begin_log
from tests.support.servers import Server

#: The number of rows after which a full spool has made the source wait.
LAST = 15_000
PLAN = ReadPlan(ReadSettings(), envelope_schema("json"), row_format="json")

pytestmark = pytest.mark.parametrize("server", LIVE_SERVERS, indirect=True)


def options(server: Server) -> Options:
    return Options.build(server.dsn(), {"heartbeat": 1})


class Logs:
    """Opens the live log of one server; all are closed at the end."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.opened: list[LiveLog] = []

    def __call__(self, **given: Any) -> LiveLog:
        log = LiveLog(options(self.server), str(self.folder), **given)
        self.opened.append(log)
        return log

    def crash(self, log: LiveLog) -> None:
        """As a process that is killed: nothing is committed, and the spool may be taken by another."""
        log.close()


@pytest.fixture
def logs(server: Server, tmp_path: Path) -> Iterator[Logs]:
    logs = Logs(server, tmp_path / "spool")
    yield logs
    for log in logs.opened:
        log.close()


def take_until(log: LiveLog, start: Offset, end: Offset, **limits: int) -> list[tuple[Offset, Offset]]:
    """The micro-batches up to an end."""
    batches = []
    while not log.has_reached(end) or start.key[1:] < end.key[1:]:
        offset = log.take(limits.get("max_rows"), limits.get("max_bytes"), 0.2)
        if offset.key > start.key:
            batches.append((start, offset))
            start = offset
    return batches


def ids(pieces: list[LogPiece], table: str) -> list[int]:
    rows = [row for piece in pieces for batch in read_piece(piece, PLAN) for row in batch.to_pylist()]
    rows.sort(key=lambda row: row["seq"])
    wanted = [row for row in rows if f"{row['schema']}.{row['table']}" == table]
    return [next(iter(json.loads(row["after"]).values())) for row in wanted]


def rows_of(log: LiveLog, batches: list[tuple[Offset, Offset]], table: str, size: int = 1 << 30) -> list[int]:
    return [number for batch in batches for number in ids(log.pieces(*batch, size), table)]


def test_rows_come_once_in_whatever_batches(server: Server, logs: Logs, table: str) -> None:
    log = logs(max_rows=40)
    start = log.find("latest")
    assert Offset.from_dict(json.loads(json.dumps(start.to_dict()))) == start
    log.follow(start)
    insert(server, table, 0, 500)
    server.query("FLUSH BINARY LOGS")
    insert(server, table, 500, 500)
    end = log.end()
    batches = take_until(log, start, end, max_rows=40)
    assert len(batches) > 10
    assert rows_of(log, batches, table) == list(range(1000))
    assert rows_of(log, [(start, batches[-1][1])], table) == list(range(1000))
    assert len(log.pieces(start, batches[-1][1], 2000)) > 5
    assert rows_of(log, batches, table, 2000) == list(range(1000))
    assert all(b.gtid_set is not None for _, b in batches)


def test_a_crash_loses_nothing_and_repeats_nothing(seed: int, server: Server, logs: Logs, table: str) -> None:
    rng = random.Random(seed)
    log = logs(max_rows=30)
    position = start = log.find("latest")
    done: list[int] = []
    for part in range(6):
        log.follow(position)
        insert(server, table, part * 200, 200)
        if part == 3:
            server.query("FLUSH BINARY LOGS")
        end = log.end()
        batches = take_until(log, position, end, max_rows=30)
        kept = rng.randint(0, len(batches))
        done += rows_of(log, batches[:kept], table)
        if kept:
            position = batches[kept - 1][1]
            log.commit(position)
        replayed = batches[kept] if kept < len(batches) else None
        logs.crash(log)
        log = logs(max_rows=30)
        if replayed is not None:
            # What Spark had planned and not committed is asked for again, by another process.
            log.follow(replayed[0])
            log.wait_until(replayed[1], WAIT)
            done += rows_of(log, [replayed], table)
            position = replayed[1]
    log.follow(position)
    done += rows_of(log, take_until(log, position, log.end(), max_rows=30), table)
    assert done == list(range(1200))
    assert start.key < position.key


def test_without_the_spool_the_rows_are_fetched_again(server: Server, logs: Logs, table: str) -> None:
    log = logs()
    start = log.find("latest")
    log.follow(start)
    insert(server, table, 0, 100)
    batches = take_until(log, start, log.end())
    logs.crash(log)
    for path in logs.folder.glob("*.binlog"):
        path.unlink()
    again = logs()
    again.follow(start)
    again.wait_until(batches[-1][1], WAIT)
    assert rows_of(again, [(start, batches[-1][1])], table) == list(range(100))


def test_a_purged_log(server: Server, logs: Logs, table: str) -> None:
    log = logs()
    start = log.find("latest")
    log.follow(start)
    insert(server, table, 0, 50)
    batches = take_until(log, start, log.end())
    logs.crash(log)
    begin_log(server)
    insert(server, table, 50, 50)
    with_spool = logs()
    with_spool.follow(start)
    with_spool.wait_until(batches[-1][1], WAIT)
    assert rows_of(with_spool, [(start, batches[-1][1])], table) == list(range(50))
    position = batches[-1][1]
    assert rows_of(with_spool, take_until(with_spool, position, with_spool.end()), table) == list(
        range(50, 100)
    )
    logs.crash(with_spool)
    for path in logs.folder.iterdir():
        path.unlink()
    without = logs()
    without.follow(start)
    with pytest.raises(TransactionsUnavailableError, match=r"(purged|deleted).*failOnDataLoss=false"):
        without.wait_until(batches[-1][1], WAIT)
    logs.crash(without)
    passing = logs(fail_on_data_loss=False)
    passing.follow(start)
    found = take_until(passing, start, passing.end())
    pieces = [piece for batch in found for piece in passing.pieces(*batch, 1 << 30)]
    rows = [row for piece in pieces for batch in read_piece(piece, PLAN) for row in batch.to_pylist()]
    gaps = [row for row in rows if row["op"] == "gap"]
    assert len(gaps) == 1
    assert "purged" in gaps[0]["sql"] or "deleted" in gaps[0]["sql"]
    assert rows[0] == gaps[0]
    assert ids(pieces[1:], table) == list(range(50, 100))


def test_starts(server: Server, logs: Logs, table: str) -> None:
    log = logs()
    earliest, latest = log.find("earliest"), log.find("latest")
    assert earliest.position == 4
    assert earliest.key < latest.key
    assert latest.gtids is not None
    by_gtid = log.find(str(latest.gtids))
    assert by_gtid.file == ""
    insert(server, table, 0, 20)
    log.follow(by_gtid)
    assert rows_of(log, take_until(log, by_gtid, log.end()), table) == list(range(20))
    assert log.find("2001-01-01T00:00:00+00:00").key >= earliest.key


def test_a_start_by_time(server: Server, logs: Logs, table: str) -> None:
    insert(server, table, 0, 10)
    time.sleep(2.1)
    [(now,)] = server.query("SELECT UNIX_TIMESTAMP()")
    insert(server, table, 10, 10)
    log = logs()
    start = log.find(datetime.fromtimestamp(int(now), UTC).isoformat())
    log.follow(start)
    assert rows_of(log, take_until(log, start, log.end()), table) == list(range(10, 20))


def test_names_and_keys_that_the_log_does_not_have(server: Server, logs: Logs, table: str) -> None:
    log = logs()
    start = log.find("latest")
    log.follow(start)
    insert(server, table, 0, 5)
    batches = take_until(log, start, log.end())
    pieces = [piece for batch in batches for piece in log.pieces(*batch, 1 << 30)]
    rows = [row for piece in pieces for batch in read_piece(piece, PLAN) for row in batch.to_pylist()]
    found = [(json.loads(row["after"]), json.loads(row["key"])) for row in rows if row["table"] == "t"]
    assert found == [({"id": number, "v": "x" * number}, {"id": number}) for number in range(5)]
    # What is read again after a crash has the names that it had, whatever the table has become.
    server.query(f"ALTER TABLE {table} RENAME COLUMN v TO w")
    logs.crash(log)
    again = logs()
    again.follow(start)
    again.wait_until(batches[-1][1], WAIT)
    pieces = [piece for batch in batches for piece in again.pieces(*batch, 1 << 30)]
    repeated = [row for piece in pieces for batch in read_piece(piece, PLAN) for row in batch.to_pylist()]
    assert [row["after"] for row in repeated] == [row["after"] for row in rows]
    assert again.table(table).column_names == ("id", "w")


def test_names_behind_a_statement_that_keeps_all_types(server: Server, logs: Logs, table: str) -> None:
    """The log has no names, and nothing else tells that they are others now."""
    server.query(f"ALTER TABLE {table} ADD COLUMN n INT, ADD COLUMN m INT")
    log = logs()
    position = start = log.find("latest")
    log.follow(start)
    first = {"id": 1, "v": "x", "n": 10, "m": 20}
    server.query(f"INSERT INTO {table} VALUES (1, 'x', 10, 20)")
    batches = take_until(log, position, log.end())
    position = batches[-1][1]
    server.query(f"ALTER TABLE {table} MODIFY COLUMN m INT AFTER v")
    server.query(f"INSERT INTO {table} (id, v, n, m) VALUES (2, 'x', 10, 20)")
    batches += take_until(log, position, log.end())
    position = batches[-1][1]
    server.query(f"ALTER TABLE {table} CHANGE COLUMN n w INT")
    server.query(f"UPDATE {table} SET w = 11")
    batches += take_until(log, position, log.end())
    expected = [first, {**first, "id": 2}]
    expected += [{"id": number, "v": "x", "m": 20, "w": 11} for number in (1, 2)]
    assert rows_after(log, [(start, batches[-1][1])], table) == expected
    logs.crash(log)
    again = logs()
    again.follow(start)
    again.wait_until(batches[-1][1], WAIT)
    assert rows_after(again, batches, table) == expected


def test_names_behind_a_part_that_was_purged(server: Server, logs: Logs, table: str) -> None:
    """Nobody has seen the statements of that part: the tables are read anew."""
    server.query(f"ALTER TABLE {table} ADD COLUMN n INT, ADD COLUMN m INT")
    log = logs()
    start = log.find("latest")
    log.follow(start)
    server.query(f"INSERT INTO {table} VALUES (1, 'x', 10, 20)")
    take_until(log, start, log.end())
    logs.crash(log)
    server.query(f"ALTER TABLE {table} MODIFY COLUMN m INT AFTER v")
    begin_log(server)
    server.query(f"INSERT INTO {table} (id, v, n, m) VALUES (2, 'x', 10, 20)")
    server.query(f"ALTER TABLE {table} RENAME COLUMN n TO w")
    server.query(f"INSERT INTO {table} (id, v, w, m) VALUES (3, 'x', 10, 20)")
    again = logs(fail_on_data_loss=False)
    again.follow(start)
    batches = take_until(again, start, again.end())
    expected = [{"id": number, "v": "x", "n": 10, "m": 20} for number in (1, 2)]
    expected.append({"id": 3, "v": "x", "w": 10, "m": 20})
    assert rows_after(again, batches, table) == expected
    # So they are in the history that the spool keeps.
    logs.crash(again)
    last = logs()
    last.follow(start)
    last.wait_until(batches[-1][1], WAIT)
    assert rows_after(last, batches, table) == expected


def rows_after(log: LiveLog, batches: list[tuple[Offset, Offset]], table: str) -> list[dict[str, Any]]:
    pieces = [piece for batch in batches for piece in log.pieces(*batch, 1 << 30)]
    rows = [row for piece in pieces for batch in read_piece(piece, PLAN) for row in batch.to_pylist()]
    return [json.loads(row["after"]) for row in rows if f"{row['schema']}.{row['table']}" == table]


@pytest.fixture
def impatient(server: Server) -> Iterator[Server]:
    """The server, while it waits for a consumer for a second only."""
    [(_, before)] = server.query("SHOW GLOBAL VARIABLES LIKE 'net_write_timeout'")
    server.query("SET GLOBAL net_write_timeout = 1")
    yield server
    server.query(f"SET GLOBAL net_write_timeout = {before}")


def dumps(server: Server) -> list[int]:
    """The connections to which the server sends its log."""
    rows = server.query("SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'")
    return sorted(int(row[0]) for row in rows)


def test_a_full_spool_makes_the_source_wait(impatient: Server, logs: Logs, table: str) -> None:
    server = impatient
    log = logs(spool_bytes=20_000)
    position = log.find("latest")
    log.follow(position)
    # More in one transaction than the spool is to hold: it comes all the same.
    insert(server, table, 0, 3000, per_transaction=3000)
    done: list[int] = []
    while len(done) < 3000:
        offset = log.take(None, None, 0.2)
        done += ids(log.pieces(position, offset, 1 << 30), table)
        position = offset
    log.commit(position)
    with server.connect() as connection, connection.cursor() as cursor:
        for first in range(3000, LAST, 100):
            rows = [(number, "x" * 2000) for number in range(first, first + 100)]
            cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s)", rows)
    connections = dumps(server)
    time.sleep(4)
    # Of the 24 MB behind it only what was on its way when the limit was met.
    assert sum(path.stat().st_size for path in logs.folder.glob("*.binlog")) < 3_000_000
    while len(done) < LAST:
        offset = log.take(None, None, 0.2)
        if offset.key > position.key:
            done += ids(log.pieces(position, offset, 1 << 30), table)
            log.commit(offset)
            position = offset
    assert done == list(range(LAST))
    # The connection that the log came over is the one from before.
    assert set(dumps(server)) & set(connections)


def test_nobody_is_asked_while_nothing_happens(server: Server, logs: Logs) -> None:
    log = logs()
    start = log.find("latest")
    log.follow(start)
    log.take(None, None, 1.5)
    # Others of the session may ask once, as a client of the test before that says goodbye: not in each window.
    assert any(_nobody_asks(server, log) for _ in range(3))


def _nobody_asks(server: Server, log: LiveLog) -> bool:
    before = questions(server)
    until = time.monotonic() + 4
    while time.monotonic() < until:
        log.take(None, None, 0.01)
        log.report()
    # The question itself counts, and what a client asks when it connects.
    again = questions(server)
    mine = questions(server) - again
    return again - before <= mine


def questions(server: Server) -> int:
    [(_, value)] = server.query("SHOW GLOBAL STATUS LIKE 'Questions'")
    return int(value)


def test_two_queries_want_two_folders(server: Server, logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replica.spool.spool._LOCK_SECONDS", 0.1)
    log = logs()
    log.follow(log.find("latest"))
    with pytest.raises(ReplicaError, match="another query uses this folder"):
        logs().follow(log.find("latest"))
