"""The pieces of a log, however it is cut, give the rows of open_binlog in the order of ``seq``. No Spark."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from protocol.errors import (
    ConfigurationError,
    DecodeError,
    LostEventsError,
    ReplicaError,
    StatementFormatError,
    TruncatedError,
    UnsupportedEventError,
)
from replica.files import cuts
from replica.files.cuts import Cut, HeaderWalk
from replica.files.log_files import find_log_files
from replica.spark.changes import ChangeReader
from replica.spark.read_task import ReadPlan
from replica.spool import planner
from replica.spool.pieces import LogPiece, ReadSettings
from replica.spool.planner import shown_progress
from tests.spark.support.expected_rows import corpus_files, expected_changes, open_expected
from tests.spark.support.generated_log import write_generated
from tests.spark.support.numbered_log import write_numbered
from tests.spark.support.planned import JSON_PLAN, compare, plan, read_all
from tests.support.log_builder import LogBuilder

SIZES = [1 << exponent for exponent in range(12, 31)]
# The event type that brings the statement of rows, which may be of any size.
IGNORABLE = 29
# Unlike open_binlog, which hands out events, rows of the first trees and lost events cannot be passed over here, nor
# can a JSON diff without its document.
REFUSED = {
    "suite_binlog__ver_5_1-telco.001": UnsupportedEventError,
    "bug40482-bin.000001": LostEventsError,
    "json.binlog.000001": UnsupportedEventError,
}


def expected_or_error(path: Path) -> list[dict[str, Any]] | ReplicaError:
    try:
        return list(expected_changes(open_expected(path)))
    except ReplicaError as error:
        return error


@pytest.mark.skipif(not corpus_files(), reason="the corpus is not there")
def test_every_file_of_the_corpus() -> None:
    rows = cut = 0
    for path in corpus_files(2 << 20):
        expected = expected_or_error(path)
        if isinstance(expected, ReplicaError):
            for size in (4 << 10, 1 << 30):
                with pytest.raises(type(expected)) as raised:
                    read_all(plan(path, size))
                assert str(raised.value) == str(expected)
            continue
        if path.name in REFUSED:
            with pytest.raises(REFUSED[path.name]):
                read_all(plan(path, 1 << 30))
            continue
        plans: list[list[LogPiece]] = []
        for size in SIZES:
            pieces = plan(path, size)
            if pieces not in plans:
                compare(read_all(pieces), expected)
                cut += len(pieces) > 1
                plans.append(pieces)
        rows += len(expected)
    print(f"{rows} rows; {cut} plans of several pieces")
    assert rows > 47_000
    assert cut > 40


@pytest.mark.parametrize("trial", range(3))
def test_generated_logs(seed: int, tmp_path: Path, trial: int) -> None:
    paths = write_generated(tmp_path, seed, transactions=25)
    with open_expected(paths) as log:
        expected = list(expected_changes(log))
    seqs = None
    for size in (1, 500, 4096, 1 << 30):
        pieces = plan(str(tmp_path / "binlog.*"), size)
        rows = read_all(pieces)
        compare(rows, expected)
        found = sorted(row["seq"] for row in rows)
        assert seqs is None or found == seqs
        seqs = found
        assert size > 1 or len(pieces) > 30
        assert sum(piece.size for piece in pieces) == sum(path.stat().st_size for path in paths)


def test_rows_are_in_order_within_a_piece_of_one_table(tmp_path: Path) -> None:
    log = LogBuilder()
    for number in range(50):
        log.transaction([number, number + 1000], sequence=number + 1)
    path = tmp_path / "bin.000007"
    path.write_bytes(log.data)
    rows = read_all(plan(path, 1 << 30))
    assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
    assert {row["source"]["xid"] for row in rows} == set(range(50))
    assert {row["source"]["outcome"] for row in rows} == {"commit"}
    first = rows[0]["seq"]
    assert int(first) == 7 * 10**23 + log.offsets[4] * 10**10
    assert rows[1]["seq"] == first + 1


def test_tables_are_filtered(tmp_path: Path) -> None:
    log = LogBuilder()
    for number in range(9):
        log.transaction([number], sequence=number + 1, name=f"t{number % 3}")
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    settings = ReadSettings(tables=("s.*",), exclude_tables=("*.t1",))
    found = read_all(plan(path, 1), ReadPlan(settings, JSON_PLAN.schema, row_format="json"))
    assert [json.loads(row["after"]) for row in found] == [{"@1": number} for number in (0, 2, 3, 5, 6, 8)]


def test_a_large_transaction_knows_its_end_all_the_same(tmp_path: Path) -> None:
    log = LogBuilder()
    log.transaction(list(range(10)), sequence=1)
    log.add(33, b"\1" + bytes(16) + (2).to_bytes(8, "little"))
    log.statement("BEGIN")
    for number in range(30):
        small = LogBuilder()
        small.transaction([number] * 20)
        for index in (2, 3):
            log.add(small.event(index)[4], small.event(index)[19:-4])
        if number == 9:
            log.statement("SAVEPOINT a")
        if number == 19:
            log.statement("ROLLBACK TO a")
    log.add(16, (77).to_bytes(8, "little"))
    log.transaction([5], sequence=3)
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    [piece] = plan(path, 1 << 30)
    whole = list(ChangeReader(piece, ReadSettings()))
    parts = list(ChangeReader(piece, ReadSettings(), held_bytes=300))
    facts = [change.facts for change in whole]
    assert [change.facts for change in parts] == facts
    assert [change.event.position for change in parts] == [change.event.position for change in whole]
    assert {one.xid for one in facts} == {0, 77, 5}
    undone = [number for number, one in enumerate(facts[1:31]) if one.outcome == "rollback"]
    assert undone == list(range(10, 20))


def test_statements_that_change_rows_are_refused(tmp_path: Path) -> None:
    log = LogBuilder()
    log.statement("BEGIN")
    log.statement("INSERT INTO t VALUES (1)")
    log.statement("COMMIT")
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    with pytest.raises(StatementFormatError):
        read_all(plan(path, 1 << 30), ReadPlan(ReadSettings(), JSON_PLAN.schema, row_format="json"))
    assert read_all(plan(path, 1 << 30)) == []


def test_statements_as_rows(tmp_path: Path) -> None:
    log = LogBuilder()
    log.statement("CREATE TABLE t (id INT)")
    log.transaction([1], sequence=1)
    log.statement("DROP TABLE t")
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    found = read_all(
        plan(path, 1), ReadPlan(ReadSettings(), JSON_PLAN.schema, row_format="json", include_ddl=True)
    )
    found.sort(key=lambda row: row["seq"])
    assert [row["op"] for row in found] == ["ddl", "insert", "ddl"]
    assert found[2]["sql"] == "DROP TABLE t"
    assert found[2]["after"] is None


def test_a_torn_end_and_one_that_grows(tmp_path: Path) -> None:
    log = LogBuilder()
    for number in range(20):
        log.transaction([number], sequence=number + 1)
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data[:-10])
    pieces = plan(path, 500)
    path.write_bytes(log.data)
    rows = read_all(pieces)
    # The rows of the last transaction are there, but not its end.
    assert [row["source"]["outcome"] for row in rows] == ["commit"] * 19 + ["open"]


def test_an_event_above_the_limit_is_an_error(tmp_path: Path) -> None:
    log = LogBuilder()
    log.transaction([1, 2, 3])
    log.add(IGNORABLE, b"\0" + b"x" * 10_000)
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    [piece] = plan(path, 1 << 30)
    for one in (piece, replace(piece, is_whole=True)):
        assert len(read_all([one])) == 3
        limited = replace(JSON_PLAN, settings=ReadSettings(max_event_bytes=8192))
        with pytest.raises(DecodeError, match="max_event_bytes"):
            read_all([one], limited)


def test_a_long_plan_shows_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_generated(tmp_path, 1, transactions=3)
    logger = logging.getLogger("replica.spool.planner")
    # Logging is not set up, as in Spark's Python processes.
    monkeypatch.setattr(logger, "propagate", False)
    said = io.StringIO()
    with shown_progress(said):
        plan(tmp_path / "binlog.*", 4096)
    assert said.getvalue() == ""
    monkeypatch.setattr(planner, "_PROGRESS_SECONDS", 0)
    with shown_progress(said):
        plan(tmp_path / "binlog.*", 4096)
    lines = said.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("mysql-binlog: planned 1 of 3 binlog files, 0.0 of 0.0 GB, in 0 s: ")
    assert lines[-1].startswith("mysql-binlog: planned 3 of 3 binlog files")
    assert not logger.handlers


def test_a_file_that_is_cut_off_while_it_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that plans looked at mapped memory behind the file's end: a Bus error."""
    path = tmp_path / "binlog.000001"
    write_numbered(path, [1] * 20)

    class CutOff(HeaderWalk):
        def cuts(self, max_bytes: int) -> Iterator[Cut]:
            for cut in super().cuts(max_bytes):
                os.truncate(path, 4096)
                yield cut

    monkeypatch.setattr(planner, "HeaderWalk", CutOff)
    pieces = planner.plan_files(find_log_files(path), 4096)
    with pytest.raises(TruncatedError, match="has lost its last"):
        read_all(pieces)


def test_a_file_that_is_cut_off_between_two_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "binlog.000001"
    write_numbered(path, [1] * 200)

    def cut_off(data: object, place: int) -> int:
        os.truncate(path, 4096)
        return place + 8192

    monkeypatch.setattr(cuts, "release", cut_off)
    pieces = planner.plan_files(find_log_files(path), 1 << 20)
    with pytest.raises(TruncatedError, match="has lost its last"):
        read_all(pieces)


def test_a_file_that_is_gone_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "binlog.000001"
    write_numbered(path, [1])
    pieces = planner.plan_files(find_log_files(path), 1 << 20)
    path.unlink()
    with pytest.raises(ConfigurationError, match=r"binlog\.000001: No such file"):
        read_all(pieces)
