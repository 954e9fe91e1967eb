"""Statements that the log has before the place of a table's new copy, which has what they did. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from protocol.position import file_number
from replica.spark.gather import place_number
from replica.spark.jobs import job_state
from replica.spark.jobs.job_state import JobState
from replica.spark.packed_items import PackedItem
from tests.spark.support.kept_log import BEGIN
from tests.spark.support.kept_shop import CREATE, ONE, TWO, Kept

COPIED = "binlog.000009:4"


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """A mirror of two tables, whose log stands in its first file."""
    found = Kept(tmp_path)
    found.say(CREATE, CREATE.replace(" t ", " u ")).insert(ONE).insert(TWO, table="shop.u").run()
    return found


def change(kept: Kept, **facts: dict[str, str]) -> None:
    """Add to facts of the saved state."""
    found = job_state.peek(str(kept.path), {})
    assert found is not None
    state, query, number = found
    for name, values in facts.items():
        getattr(state, name).update(values)
    job_state.save(str(kept.path), state, query, number, {})


def saved(kept: Kept) -> JobState:
    found = job_state.peek(str(kept.path), {})
    assert found is not None
    return found[0]


def statement(sql: str, file: str, epoch: int = 0) -> PackedItem:
    number = place_number(epoch, file_number(file), 100)
    return PackedItem("ddl", "shop", None, None, BEGIN, file, 100, sql, seq=str(number))


def test_a_dropped_database_takes_no_later_copy_away(kept: Kept) -> None:
    """The copy's rows were deleted, and those that the log has before its place never came again."""
    change(kept, begins={"shop.t": COPIED})
    kept.run(
        [statement(sql, "binlog.000002") for sql in ("DROP DATABASE shop", "CREATE DATABASE shop", CREATE)]
    )
    assert kept.rows() == [ONE]
    assert kept.rows("shop.u") == []
    assert saved(kept).tables.keys() == {"shop.t"}


def test_a_dropped_database_ends_the_holds_of_its_tables(kept: Kept) -> None:
    """A copy made before would have taken the place of a table that is gone."""
    change(kept, holds={"shop.new": "copy"}, parked={"shop.new": "no key"})
    kept.run([statement("DROP DATABASE shop", "binlog.000002")])
    assert saved(kept).holds == {}


def test_a_table_is_gone_that_got_the_name_of_a_later_copy(kept: Kept) -> None:
    """It stayed, and a new table of its old name would have had its rows."""
    change(kept, begins={"shop.u": COPIED})
    kept.run([statement("DROP TABLE u", "binlog.000002"), statement("RENAME TABLE t TO u", "binlog.000002")])
    assert (kept.rows(), kept.rows("shop.u")) == ([], [TWO])
    assert saved(kept).tables.keys() == {"shop.u"}


def test_no_statement_of_another_servers_log_is_before_a_copy(kept: Kept) -> None:
    """The new source has written fewer files. The first event of its log was passed over."""
    change(kept, begins={"shop.t": COPIED, "": COPIED})
    kept.run(
        [statement(sql, "binlog.000003", 1) for sql in ("TRUNCATE TABLE t", CREATE.replace(" t ", " v "))]
    )
    assert kept.rows() == []
    assert saved(kept).tables.keys() == {"shop.t", "shop.u", "shop.v"}
