"""Large transactions, however they are cut inside, give the same rows with the same facts. No Spark."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from protocol.constants import EventType
from replica.spark.cut_inside import cut_inside
from replica.spark.read_task import ReadPlan
from replica.spool.pieces import LogPiece, ReadSettings
from tests.spark.support.expected_rows import corpus_files
from tests.spark.support.generated_log import generated_log
from tests.spark.support.planned import JSON_PLAN, plan, read_all
from tests.support.log_builder import LogBuilder

UNCUT = 1 << 30


def in_order(pieces: list[LogPiece], plan: ReadPlan = JSON_PLAN) -> list[dict[str, Any]]:
    return sorted(read_all(pickle.loads(pickle.dumps(pieces)), plan), key=lambda row: row["seq"])


def cut(path: Path, size: int, settings: ReadSettings = JSON_PLAN.settings) -> list[LogPiece]:
    """One piece for the whole file, cut inside."""
    return list(cut_inside(plan(path, UNCUT), settings, size))


def check_ranges(pieces: list[LogPiece], path: Path) -> None:
    assert [piece.start for piece in pieces[1:]] == [piece.start + piece.size for piece in pieces[:-1]]
    assert pieces[0].start == 0
    assert pieces[-1].start + pieces[-1].size == path.stat().st_size


@pytest.mark.parametrize("gtids", [True, False])
def test_generated_logs(seed: int, tmp_path: Path, gtids: bool) -> None:
    path = tmp_path / "binlog.000007"
    path.write_bytes(generated_log(seed, 12, gtids=gtids, largest=15).data)
    expected = in_order(plan(path, UNCUT))
    assert expected
    for size in (1, 200, 1500):
        pieces = cut(path, size)
        check_ranges(pieces, path)
        assert any(piece.part is not None for piece in pieces)
        assert in_order(pieces) == expected


@pytest.mark.skipif(not corpus_files(), reason="the corpus is not there")
def test_files_of_the_corpus(thorough: bool) -> None:
    parts = 0
    for path in corpus_files(300 << 10 if thorough else 20 << 10):
        try:
            expected = in_order(plan(path, UNCUT))
        except Exception as error:
            with pytest.raises(type(error)):
                in_order(cut(path, 1000))
            continue
        pieces = cut(path, 1000)
        parts += sum(piece.part is not None for piece in pieces)
        assert in_order(pieces) == expected, path
    assert parts > 50


def test_rollbacks_to_savepoints_and_statements(tmp_path: Path) -> None:
    log = LogBuilder()
    log.transaction([1, 2], sequence=1)
    log.add(33, b"\1" + bytes(16) + (2).to_bytes(8, "little"))
    log.statement("CREATE TABLE s.t (id INT) START TRANSACTION")
    for number in range(30):
        small = LogBuilder()
        small.transaction([number] * 20, name=f"t{number % 2}")
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
    settings = ReadSettings()
    with_ddl = ReadPlan(settings, JSON_PLAN.schema, row_format="json", include_ddl=True)
    expected = in_order(plan(path, UNCUT), with_ddl)
    undone = [row["seq"] for row in expected if row["source"]["outcome"] == "rollback"]
    assert len(undone) == 10 * 20
    assert sum(row["op"] == "ddl" for row in expected) == 1
    for size in (1, 100, 450):
        assert in_order(cut(path, size), with_ddl) == expected
    # Rows events of other tables do not count, neither here nor there.
    only = ReadSettings(tables=("s.t1",))
    of_one = ReadPlan(only, JSON_PLAN.schema, row_format="json")
    expected = in_order(plan(path, UNCUT), of_one)
    assert len({row["source"]["outcome"] for row in expected}) == 2
    assert in_order(cut(path, 100, only), of_one) == expected


def test_parts_do_not_bring_along_the_text_of_a_statement(tmp_path: Path) -> None:
    """MariaDB logs it by default, in front of the first table map: of a large INSERT in each of many parts."""
    log = LogBuilder(version="11.8.6-MariaDB")
    log.add(EventType.MARIADB_GTID, struct.pack("<QIB6x", 7, 0, 0))
    log.add(EventType.MARIADB_ANNOTATE_ROWS, b"INSERT INTO t VALUES " + b"(1)," * 20_000)
    for number in range(20):
        log.rows([number] * 50)
    log.add(EventType.XID, bytes(8))
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    pieces = cut(path, 1000)
    parts = [piece.part for piece in pieces if piece.part is not None]
    assert len(parts) > 3
    assert all(sum(len(event) for _, event in part.prelude) < 500 for part in parts)
    found = in_order(pieces)
    assert found == in_order(plan(path, UNCUT))
    assert {row["gtid"] for row in found} == {"0-1-7"}


def test_a_log_that_ends_within_the_transaction(tmp_path: Path) -> None:
    path = tmp_path / "bin.000001"
    log = LogBuilder()
    log.transaction(list(range(500)), sequence=1)
    log.transaction(list(range(500)), sequence=2)
    path.write_bytes(log.data[:-10])
    expected = in_order(plan(path, UNCUT))
    assert {row["source"]["outcome"] for row in expected} == {"commit", "open"}
    assert in_order(cut(path, 50)) == expected
