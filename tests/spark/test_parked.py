"""What is wrong with one table stops that table only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

import pyarrow as pa
from deltalake import DeltaTable

from protocol.errors import ConfigurationError, ReplicaError
from replica.spark.jobs import job_state, mirror, progress, table_merges
from replica.spark.jobs.merges import Merged
from replica.spark.packed import pack
from replica.spark.packed_items import unpack
from tests.spark.support.kept_shop import CREATE, LAYOUT, ONE, TWO, Kept

THREE = {"id": 3, "k": "", "a": 3}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Two tables, ``shop.t`` and ``shop.u``, of a job that parks."""
    found = Kept(tmp_path)
    found.target = replace(found.target, parks=True)
    found.say(CREATE, CREATE.replace(" t ", " u ")).insert(ONE).insert(ONE, table="shop.u").run()
    return found


def parked(kept: Kept) -> dict[str, str]:
    rows = mirror.progress(str(kept.path)).to_pylist()
    return {row["table"]: row["reason"] for row in rows if row["state"] == "parked"}


def test_a_statement_that_is_refused(kept: Kept) -> None:
    kept.insert(TWO).say("ALTER TABLE t DROP PARTITION p0").insert(THREE).insert(THREE, table="shop.u").run()
    # The rows of before are there, those behind it are not.
    assert kept.rows() == [ONE, TWO]
    assert kept.rows("shop.u") == [ONE, THREE]
    [(name, reason)] = parked(kept).items()
    assert name == "shop.t"
    assert "DROP PARTITION changes values that the log does not show" in reason
    assert "binlog.000001:4: ALTER TABLE t DROP PARTITION p0" in reason
    # It stays parked, whatever comes.
    kept.say("ALTER TABLE t ADD b INT", "TRUNCATE t").insert(TWO).insert(TWO, table="shop.u").run()
    assert kept.rows() == [ONE, TWO]
    assert kept.rows("shop.u") == [ONE, TWO, THREE]
    shown = DeltaTable(f"{kept.path}/{job_state.PROGRESS}").to_pyarrow_table().to_pylist()
    assert [(row["table"], row["state"]) for row in shown] == [("shop.t", "parked"), ("shop.u", "kept")]
    with pytest.raises(ReplicaError, match="DROP PARTITION"):
        progress.check_parked(str(kept.path), {})


def test_it_ends_with_the_table(kept: Kept) -> None:
    kept.say("ALTER TABLE t DROP PARTITION p0").run()
    assert parked(kept)
    kept.say("DROP TABLE t", CREATE).insert(TWO).run()
    assert kept.rows() == [TWO]
    assert not parked(kept)
    progress.check_parked(str(kept.path), {})


def test_many_are_told_in_short(kept: Kept) -> None:
    """The message of a shop with 30 tables without a key had 7 kB."""
    for number in range(7):
        kept.insert(ONE, table=f"shop.unknown{number}")
    kept.run()
    with pytest.raises(ReplicaError) as caught:
        progress.check_parked(str(kept.path), {})
    parts = str(caught.value).split("; ")
    assert [f"shop.unknown{number}" in part for number, part in enumerate(parts)] == [*[True] * 5, False]
    assert parts[-1].startswith(
        "2 more tables are kept no longer, all are shown by: mysql-replica spark progress "
    )


def test_another_name_of_it(kept: Kept) -> None:
    kept.say("ALTER TABLE t DROP PARTITION p0", "RENAME TABLE t TO v").insert(TWO, table="shop.v").run()
    assert list(parked(kept)) == ["shop.v"]
    kept.say(CREATE).insert(TWO).run()
    assert TWO in kept.rows()
    assert list(parked(kept)) == ["shop.v"]


def test_tables_that_cannot_be_kept_from_the_beginning(kept: Kept) -> None:
    kept.insert(ONE, table="shop.unknown").insert(TWO).run()
    assert kept.rows() == [ONE, TWO]
    assert "does not reach back to its CREATE TABLE" in parked(kept)["shop.unknown"]
    # Now it is created.
    kept.say("DROP TABLE IF EXISTS unknown", CREATE.replace(" t ", " unknown ")).run()
    kept.insert(THREE, table="shop.unknown").run()
    assert kept.rows("shop.unknown") == [THREE]
    assert not parked(kept)
    [item] = kept.insert(THREE).packed()
    assert item.rows is not None
    kept.run([replace(item, rows=pack(unpack(item.rows).rows, (), has_names=True))])
    assert "has no primary key at binlog.000001:4" in parked(kept)["shop.t"]


def test_a_type_that_is_not_followed(kept: Kept) -> None:
    kept.layout = (*LAYOUT[:2], ("a", pa.date32()))
    kept.insert({**TWO, "a": None}).insert({**TWO, "a": None}, table="shop.u").run()
    assert list(parked(kept)) == ["shop.t", "shop.u"]
    assert kept.rows() == [ONE]


def test_rows_that_cannot_be_merged(kept: Kept) -> None:
    """All tables are merged at once, so it must be found out which one is to blame."""
    kept.update({"id": 77, "k": "y"}, {"id": 77, "k": "y"}, ["a"]).insert(TWO, table="shop.u").run()
    assert kept.rows("shop.u") == [ONE, TWO]
    assert "the target has no such row" in parked(kept)["shop.t"]


def test_what_is_not_about_a_table_stops_the_job(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> list[Merged]:
        raise OSError("the disk is full")

    monkeypatch.setattr(table_merges, "merge", fail)
    with pytest.raises(OSError, match="disk is full"):
        kept.insert(TWO).run()
    with pytest.raises(ConfigurationError, match="no tables of a mirror"):
        mirror.progress(f"{kept.path}/other")


def test_a_schema_with_a_dot_in_its_name(kept: Kept) -> None:
    """`shop.t`.`u` is not `shop`.`t.u`: its rows came into that one's table."""
    kept.target = replace(kept.target, wants=lambda name: True)
    kept.say(CREATE.replace(" t ", " `t.u` ")).insert(ONE, table="shop.t.u").run()
    create = CREATE.replace(" t ", " `shop.t`.u ")
    kept.say(create).insert(TWO, table="`shop.t`.u").insert(TWO).insert(THREE, table="shop.t.u").run()
    kept.say("TRUNCATE `shop.t`.u", "DROP DATABASE `shop.t`").run()
    assert kept.rows("shop.t.u") == [ONE, THREE]
    assert kept.rows() == [ONE, TWO]
    [(name, reason)] = parked(kept).items()
    assert name == "`shop.t`.u"
    assert "no table of a schema with a dot in its name can be kept" in reason
    assert "exclude it, with ? for that dot (shop?t.u)" in reason
    kept.say("DROP DATABASE shop").run()
    assert kept.rows("shop.t.u") == []
