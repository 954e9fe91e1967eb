"""Kept tables and DDL statements, incomplete logs, and micro-batches that are run again. No Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from protocol.errors import CheckpointError, ConfigurationError, LostEventsError, SchemaMismatchError
from protocol.position import BinlogPosition, Checkpoint
from replica.config.checkpoint import FileCheckpointStore
from replica.spark.jobs import job_state, seed
from replica.spark.jobs.copy_requests import Requests
from replica.spark.jobs.coverage import Creations, check_files, files_begin
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.job_state import JobState
from replica.spark.jobs.kept_table import table_path
from replica.spark.jobs.past_table import PastTable
from replica.spark.jobs.target import check_free
from replica.spark.packed import pack
from replica.spark.packed_items import PackedItem, unpack
from replica.spool.offsets import Offset
from replica.sql import ddl
from replica.sql.dialect import ANSI_QUOTES
from tests.spark.support.kept_log import KEY, Change, packed
from tests.spark.support.kept_shop import CREATE, LAYOUT, ONE, TWO, Kept
from tests.support.one_batch import run_batch


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


# Run again.


def test_a_micro_batch_that_is_run_again_is_passed_over(kept: Kept) -> None:
    kept.say(CREATE, CREATE.replace(" t ", " u ")).run()
    items = kept.insert(ONE, TWO).insert(ONE, table="shop.u").run()
    table = DeltaTable(table_path(str(kept.path), "shop.t"))
    assert (table.transaction_version("query"), table.version()) == (1, 1)
    # The job's state was not written, so each table itself must show which steps it has.
    kept.number = 1
    kept.run(items)
    assert DeltaTable(table_path(str(kept.path), "shop.t")).version() == 1
    assert kept.rows() == [ONE, TWO]


def test_the_target_of_another_query(kept: Kept) -> None:
    kept.say(CREATE).run()
    with pytest.raises(CheckpointError, match="another query"):
        run_batch(kept.target, JobState(), "other", 0, list)
    with pytest.raises(CheckpointError, match="continues at batch 3"):
        run_batch(replace(kept.target, path=f"{kept.path}/new"), JobState(), "query", 3, list)


def test_a_target_that_is_somebody_elses(kept: Kept) -> None:
    check_free(str(kept.path))
    kept.say(CREATE).insert(ONE).run()
    with pytest.raises(ConfigurationError, match="shop/t is a Delta table already"):
        check_free(str(kept.path))


# Statements.


def test_truncate_and_drop(kept: Kept) -> None:
    kept.say(CREATE).insert(ONE, TWO).say("TRUNCATE t").insert(TWO).run()
    assert kept.rows() == [TWO]
    kept.say("DROP TABLE t").run()
    assert kept.rows() == []
    with pytest.raises(ConfigurationError, match=r"shop\.t has changes .* does not reach back"):
        kept.insert(ONE).run()
    # The table is created again, with other columns.
    kept.events = []
    kept.layout = (("id", pa.int32()), ("k", pa.string()), ("a", pa.string()), ("b", pa.date32()))
    kept.say(CREATE).insert({"id": 5, "k": "", "a": "text", "b": None}).run()
    assert kept.rows() == [{"id": 5, "k": "", "a": "text", "b": None}]


def test_a_table_that_takes_the_place_of_another(kept: Kept) -> None:
    kept.say(CREATE).insert(ONE).say("CREATE TABLE `_t_new` LIKE t").insert(
        ONE, TWO, table="shop._t_new"
    ).run()
    kept.say("RENAME TABLE t TO _t_old, _t_new TO t").insert({**TWO, "id": 3}).run()
    assert kept.rows() == [ONE, TWO, {**TWO, "id": 3}]
    assert kept.rows("shop._t_old") == [ONE]
    assert kept.rows("shop._t_new") == []
    kept.say("ALTER TABLE t RENAME TO other.t").run()
    assert kept.rows() == []


def test_a_schema_is_dropped(kept: Kept) -> None:
    kept.say(CREATE).insert(ONE).say("DROP DATABASE shop", "CREATE DATABASE shop").run()
    assert kept.rows() == []
    kept.say(CREATE.replace("TABLE t", "TABLE IF NOT EXISTS t")).insert(TWO).run()
    assert kept.rows() == [TWO]


def test_columns_come_and_go(kept: Kept) -> None:
    kept.say(CREATE).insert(ONE).run()
    kept.say("ALTER TABLE t ADD COLUMN b VARCHAR(10), ADD c INT NOT NULL DEFAULT 5")
    kept.layout = (*LAYOUT, ("b", pa.string()), ("c", pa.int32()))
    kept.insert({**TWO, "b": "x", "c": 6}).run()
    assert kept.rows() == [{**ONE, "b": None, "c": 5}, {**TWO, "b": "x", "c": 6}]
    kept.say("ALTER TABLE t DROP COLUMN b, CHANGE c d BIGINT").run()
    assert kept.rows() == [{**ONE, "d": 5}, {**TWO, "d": 6}]
    kept.layout = (*LAYOUT, ("d", pa.int64()))
    kept.update({**TWO, "d": 6}, {**TWO, "d": 1 << 40}).run()
    assert kept.rows() == [{**ONE, "d": 5}, {**TWO, "d": 1 << 40}]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("ALTER TABLE t DROP PARTITION p0", "DROP PARTITION changes values"),
        ("ALTER TABLE shop.t TRUNCATE PARTITION p0", "TRUNCATE PARTITION changes values"),
        ("ALTER IGNORE TABLE t ADD UNIQUE (a)", "ALTER IGNORE TABLE changes values"),
        ("ALTER TABLE t IMPORT TABLESPACE", "IMPORT TABLESPACE changes values"),
        ("ALTER TABLE t ADD b INT AS (a + 1)", "values in the new column b"),
        ("ALTER TABLE t ADD b DATETIME DEFAULT CURRENT_TIMESTAMP", "values in the new column b"),
        ("ALTER TABLE t CHANGE a k INT, CHANGE K a INT", "exchange of columns' names"),
        ("ALTER TABLE t ADD b TIME NOT NULL DEFAULT '10:00'", "values in the new column b"),
        ("ALTER TABLE t ADD b SET('p', 'q') DEFAULT 'q,p'", "values in the new column b"),
        ("ALTER TABLE t MODIFY a INT AS (id + 2) STORED", "definition of the generated column a"),
        ("ALTER TABLE t MODIFY A ENUM('x', 'y')", r"values of a in the new type ENUM\('x','y'\)"),
        ("ALTER TABLE other.p EXCHANGE PARTITION p0 WITH TABLE t", "EXCHANGE PARTITION changes values"),
        ("ALTER TABLE other.p CONVERT TABLE t TO PARTITION p0", "CONVERT TABLE changes values"),
        ("RENAME TABLE elsewhere.u TO t", "which is not kept"),
    ],
)
def test_statements_that_are_refused_by_name(kept: Kept, sql: str, message: str) -> None:
    kept.say(CREATE).insert(ONE).run()
    with pytest.raises(SchemaMismatchError, match=rf"shop\.t.*{message}"):
        kept.say(sql).run()


def test_a_partition_that_becomes_a_table(kept: Kept) -> None:
    """MariaDB 10.7. The log has none of the new table's rows."""
    kept.say(CREATE).say("ALTER TABLE other.p CONVERT PARTITION p0 TO TABLE elsewhere.u").run()
    with pytest.raises(
        SchemaMismatchError, match=r"shop\.u cannot be kept .* CONVERT PARTITION changes values"
    ):
        kept.say("ALTER TABLE other.p CONVERT PARTITION p0 TO TABLE u").run()


def test_names_of_tables_in_small_letters(tmp_path: Path) -> None:
    """With lower_case_table_names=1, rows events have lower-case names, and statements the names as written."""
    kept = Kept(tmp_path, begin=JobState(folds_names=True))
    kept.say(CREATE.replace(" t ", " Shop.T ")).insert(ONE).run()
    kept.say("ALTER TABLE T RENAME COLUMN a TO b").run()
    assert kept.rows() == [{"id": 1, "k": "x", "b": 1}]
    kept.say("TRUNCATE TABLE T").run()
    assert kept.rows() == []
    kept.say("DROP DATABASE SHOP").run()
    with pytest.raises(ConfigurationError, match="does not reach back"):
        kept.insert(ONE).run()
    found = Creations(is_birth=False, folds=True)
    found.add("CREATE TABLE Shop.Orders (id INT)", "")
    assert found.tables == {"shop.orders"}


def test_a_table_whose_escaped_name_no_folder_can_have(tmp_path: Path) -> None:
    """64 characters of three bytes are 576 bytes; the request to copy it anew has the schema, too."""
    kept, name = Kept(tmp_path), f"shop.{'注文' * 32}"
    kept.say(CREATE.replace(" t ", f" `{'注文' * 32}` ")).insert(ONE, table=name).run()
    assert kept.rows(name) == [ONE]
    requests = Requests(str(tmp_path), {})
    requests.add(name)
    assert [request.table for request in requests.open()] == [name]
    requests.done(name)
    assert not requests.all()


def test_rows_of_the_servers_own_tables(kept: Kept) -> None:
    kept.target = replace(kept.target, wants=lambda name: not name.startswith("mysql."))
    kept.say(CREATE).insert(ONE).insert(ONE, table="mysql.time_zone").run()
    assert kept.rows() == [ONE]


def test_a_schema_with_a_dot_is_dropped(kept: Kept) -> None:
    kept.target = replace(kept.target, wants=lambda name: True)
    kept.say("CREATE TABLE a.`b.t` (id INT)").insert(ONE, table="a.b.t").say("DROP DATABASE `a.b`").run()
    assert kept.rows("a.b.t") == [ONE]
    with pytest.raises(SchemaMismatchError, match=r"`a\.b`\.t: no table of a schema with a dot"):
        kept.say("CREATE TABLE `a.b`.t (id INT)").run()
    with pytest.raises(SchemaMismatchError, match=r"`a\.b`\.t: no table of a schema with a dot"):
        kept.insert(ONE, table="`a.b`.t").run()
    kept.say("DROP DATABASE a").run()
    assert kept.rows("a.b.t") == []


# What the log lacks.


def test_rows_of_minimal_images(kept: Kept) -> None:
    kept.say(CREATE).insert(ONE).run()
    moved = {"id": 4, "k": "y"}
    kept.update({"id": 1, "k": "x"}, {"id": 1, "k": "x", "a": 3}).update(
        {"id": 1, "k": "x"}, moved, ["a"]
    ).run()
    assert kept.rows() == [{**moved, "a": 3}]
    kept.update(moved, {"id": 5, "k": "y"}, ["a"]).insert({"id": 4, "k": "y"}, absent=["a"]).run()
    # The column that an INSERT's row lacks has its default.
    assert kept.rows() == [{**moved, "a": 7}, {"id": 5, "k": "y", "a": 3}]
    with pytest.raises(SchemaMismatchError, match="the target has no such row"):
        kept.update({"id": 77, "k": "y"}, {"id": 77, "k": "y"}, ["a"]).run()


def test_a_default_that_only_the_server_knows(kept: Kept) -> None:
    kept.say(CREATE.replace("DEFAULT 7", "DEFAULT (1 + 1)"))
    with pytest.raises(SchemaMismatchError, match=r"shop\.t: an INSERT's row lacks a.*binlog_row_image=FULL"):
        kept.insert({"id": 1, "k": ""}, absent=["a"]).run()


def item_of(change: Change, key: Sequence[str] = KEY, **more: bool) -> PackedItem:
    [item] = packed(random.Random(0), [[change]])
    assert item.rows is not None
    return replace(item, rows=pack(unpack(item.rows).rows, key, **{"has_names": True, **more}))


def test_tables_that_cannot_be_kept(kept: Kept) -> None:
    kept.say(CREATE).run()
    [change] = kept.insert(ONE).events
    assert isinstance(change, Change)
    with pytest.raises(ConfigurationError, match=r"shop\.t has no primary key"):
        kept.run([item_of(change, ())])
    with pytest.raises(
        ConfigurationError, match=r"shop\.t has changes .* without column names: grant SELECT"
    ):
        kept.run([item_of(change, has_names=False)])
    with pytest.raises(SchemaMismatchError, match=r"shop\.t: a row's key column id"):
        kept.run([item_of(replace(change, row={**ONE, "id": None}))])
    with pytest.raises(LostEventsError, match="purged: the tables of"):
        kept.run([PackedItem("gap", None, None, None, 0, "binlog.000001", 4, "purged")])


def test_columns_with_names_of_ours(tmp_path: Path) -> None:
    kept = Kept(tmp_path, kind=PastTable)
    kept.layout = (*LAYOUT, ("valid_to", pa.int32()))
    with pytest.raises(SchemaMismatchError, match=r"shop\.t: no column .* may be called valid_to"):
        kept.say(CREATE).insert({**ONE, "valid_to": 1}).run()


# How a log begins.


def test_which_tables_a_log_has_seen_begin() -> None:
    statements = [
        "CREATE TABLE old LIKE other",
        "CREATE TABLE IF NOT EXISTS maybe (a INT)",
        "CREATE DATABASE fresh",
        "CREATE TABLE IF NOT EXISTS fresh.t (a INT)",
        "DROP TABLE IF EXISTS gone",
        "CREATE TABLE IF NOT EXISTS gone (a INT)",
        "RENAME TABLE old TO new",
        "DROP TABLE fresh.u",
    ]
    found = Creations(is_birth=False)
    for sql in statements:
        found.add(sql, "shop")
    assert found.tables == {"shop.new", "fresh.t", "shop.gone"}
    born = Creations(is_birth=True)
    born.add("CREATE TABLE IF NOT EXISTS maybe (a INT)", "shop")
    assert born.tables == {"shop.maybe"}
    assert files_begin(["binlog.000001", "binlog.000002"])
    assert not files_begin(["binlog.000007"])
    # Another base name: log_bin was changed.
    check_files(["binlog.000001", "binlog.000002", "log.000009"])
    with pytest.raises(ConfigurationError, match=r"binlog\.000003 follows binlog\.000001; files between"):
        check_files(["binlog.000001", "binlog.000003"])


def test_statements_of_all_forms() -> None:
    actions = ddl.table_actions(
        "CREATE TABLE `a``b`.t (x DECIMAL(5,2) DEFAULT -1.5, `y,z` VARCHAR(5) DEFAULT 'it''s', n INT NOT NULL, "
        "d TIMESTAMP DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (x), CONSTRAINT c CHECK (x > 0)) ENGINE=InnoDB",
        "shop",
    )
    [created] = actions
    assert isinstance(created, ddl.CreateTable)
    assert created.table == "a`b.t"
    assert created.columns == (
        ddl.ColumnDefinition("x", "-1.5", kind="DECIMAL(5,2)"),
        ddl.ColumnDefinition("y,z", "it's", kind="VARCHAR(5)"),
        ddl.ColumnDefinition("n", "0", kind="INT", is_nullable=False, says_not_null=True),
        ddl.ColumnDefinition("d", None, True, kind="TIMESTAMP"),
    )
    assert ddl.table_actions("/*!50001 CREATE */ TEMPORARY TABLE t (a INT)", "shop") == []
    assert ddl.table_actions("CREATE OR REPLACE TABLE t LIKE u", "shop") == [
        ddl.DropTable("shop.t"),
        ddl.CreateTable("shop.t"),
    ]
    assert ddl.table_actions("GRANT SELECT ON t TO u", "shop") == []


def test_a_statement_whose_table_cannot_be_read(kept: Kept) -> None:
    """It may be about any table: their rows stayed, without an error."""
    kept.say(CREATE, CREATE.replace(" t ", " u ")).insert(ONE).insert(ONE, table="shop.u").run()
    kept.number = 1
    with pytest.raises(
        SchemaMismatchError, match=r"about a table whose name cannot be read .*TRUNCATE TABLE \"t\""
    ):
        kept.say('TRUNCATE TABLE "t"').run()
    kept.target = replace(kept.target, parks=True)
    kept.say('TRUNCATE TABLE "t"').insert(TWO).insert(TWO, table="shop.u").run()
    assert kept.rows() == kept.rows("shop.u") == [ONE]
    [sql] = kept.say('TRUNCATE TABLE "t"').packed()
    kept = Kept(kept.path / "other")
    kept.say(CREATE).insert(ONE).run()
    kept.run([replace(sql, sql_mode=ANSI_QUOTES)])
    assert kept.rows() == []


# Seeds.


def test_what_a_seed_is_made_of(tmp_path: Path) -> None:
    (tmp_path / "shop" / "folder").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "shop" / "t.parquet")
    pq.write_table(pa.table({"id": [1]}), tmp_path / "shop" / "folder" / "part-0.parquet")
    found = seed.read_seed(f"{tmp_path}@binlog.000002:157", lambda name: True, None)
    assert set(found.tables) == {"shop.t", "shop.folder"}
    assert str(found.place) == "binlog.000002:157"
    text = "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5"
    assert seed.read_seed(f"{tmp_path}@{text}", lambda name: True, None).place == text.lower()
    single = seed.read_seed(f"{tmp_path}/shop/t.parquet@0-1-5", lambda name: True, "shop.x")
    assert set(single.tables) == {"shop.x"}
    checkpoint = Checkpoint("b.000001", 4, None, "uuid", 1)
    place = seed.read_seed(f"{tmp_path}@{json.dumps(checkpoint.to_dict())}", lambda name: True, None).place
    assert place == Offset("b.000001", 4, None, "uuid", 1)
    FileCheckpointStore(tmp_path / "file").save(checkpoint)
    file_place = seed.read_seed(f"{tmp_path}@{tmp_path}/file", lambda name: True, None).place
    assert file_place == place
    (tmp_path / "file").write_text((tmp_path / "file").read_text().replace('"position": 4', '"position": 5'))
    with pytest.raises(ConfigurationError, match="checksum is that of other content"):
        seed.read_seed(f"{tmp_path}@{tmp_path}/file", lambda name: True, None)
    (tmp_path / "place").write_text(json.dumps(Offset("b.000001", 4, None, "uuid", 1, 2).to_dict()))
    place = seed.read_seed(f"{tmp_path}@{tmp_path}/place", lambda name: True, None).place
    assert isinstance(place, Offset)
    assert place.epoch == 2
    for wrong in ("nothing", f"{tmp_path}@", f"{tmp_path}@b.000001", f"{tmp_path}/no@b.000001:4"):
        with pytest.raises(ConfigurationError):
            seed.read_seed(wrong, lambda name: True, None)


@pytest.mark.parametrize("kind", [CurrentTable, PastTable])
def test_a_job_that_begins_with_a_seed(tmp_path: Path, kind: Any) -> None:
    (tmp_path / "seed" / "shop").mkdir(parents=True)
    rows = pa.table(
        {"id": pa.array([1, 2], pa.int64()), "k": pa.array(["x", "x"], pa.large_string()), "a": [1, 2]}
    )
    pq.write_table(rows, tmp_path / "seed" / "shop" / "t.parquet")
    found = seed.read_seed(f"{tmp_path}/seed@binlog.000001:4", lambda name: True, None)
    state = job_state.TableState(is_seeded=True)
    kept = Kept(tmp_path / "kept", kind=kind, begin=JobState(tables={"shop.t": state}))
    seed.plant(found, kept.target)
    check_free(str(kept.path))
    kept.update({"id": 1, "k": "x"}, {"id": 1, "k": "x"}, ["a"]).update(TWO, {**TWO, "id": 3}).run()
    if kind is CurrentTable:
        assert kept.rows() == [ONE, {**TWO, "id": 3}]
    else:
        current = [row for row in kept.rows() if row["is_current"]]
        assert [(row["id"], row["a"]) for row in current] == [(1, 1), (3, 2)]
        assert sorted((row["id"], row["valid_from"] is None) for row in kept.rows()) == [
            (1, False),
            (1, True),
            (2, True),
            (3, False),
        ]
    kept.layout = (*LAYOUT, ("b", pa.int32()))
    with pytest.raises(SchemaMismatchError, match=r"shop\.t: its seed, or its copy, lacks b"):
        kept.insert({"id": 9, "k": "", "a": 1, "b": 1}).run()


def test_files_are_read_from_the_seed_on(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    items = kept.say(CREATE).insert(ONE, TWO).run()
    before = seed.Seed(BinlogPosition("binlog.000001", 4), {})
    behind = seed.Seed(BinlogPosition("binlog.000001", 5), {})
    assert [item.op for item in seed.behind(before, items)] == ["ddl", *["rows"] * (len(items) - 1)]
    assert list(seed.behind(behind, items)) == []
    with pytest.raises(ConfigurationError, match="FILE:POSITION"):
        list(seed.behind(seed.Seed("0-1-1", {}), items))
