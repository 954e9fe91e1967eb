"""Kept tables follow statements about columns: their names, types and defaults. No Spark."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

import pyarrow as pa

from protocol.errors import SchemaMismatchError
from replica.spark.jobs.changed_values import changes_values
from replica.spark.jobs.lost_characters import loses_characters
from replica.spark.packed_items import PackedItem
from tests.spark.support.kept_log import BEGIN
from tests.spark.support.kept_shop import CREATE, LAYOUT, ONE, TWO, Kept
from tests.spark.support.kept_tables import Row


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_names_of_columns_in_other_capitals(kept: Kept) -> None:
    kept.say(CREATE).insert(ONE).run()
    kept.layout = (*LAYOUT[:2], ("b", pa.int32()))
    kept.say("ALTER TABLE t RENAME COLUMN A TO b").insert({"id": 2, "k": "x", "b": 5}).run()
    assert kept.rows() == [{"id": 1, "k": "x", "b": 1}, {"id": 2, "k": "x", "b": 5}]
    kept.layout = (*LAYOUT[:2], ("B", pa.int32()))
    kept.say("ALTER TABLE t MODIFY B INT").insert({"id": 3, "k": "x", "B": 6}).run()
    assert [row["B"] for row in kept.rows()] == [1, 5, 6]
    kept.say("ALTER TABLE t DROP COLUMN b", "ALTER TABLE t ADD COLUMN b INT DEFAULT 9")
    kept.layout = (*LAYOUT[:2], ("b", pa.int32()))
    kept.insert({"id": 4, "k": "x", "b": 7}).run()
    assert [row["b"] for row in kept.rows()] == [9, 9, 9, 7]


@pytest.mark.parametrize(
    ("sql", "columns", "first"),
    [
        ("ADD a INT DEFAULT 3, CHANGE a b INT", {"a": 5, "b": 6}, {"a": 3, "b": 1}),
        ("ADD period INT DEFAULT 3", {"a": 5, "period": 6}, {"a": 1, "period": 3}),
    ],
)
def test_new_columns_with_odd_names(kept: Kept, sql: str, columns: Row, first: Row) -> None:
    kept.say(CREATE).insert(ONE).run()
    kept.layout = (*LAYOUT[:2], *((name, pa.int32()) for name in columns))
    kept.say(f"ALTER TABLE t {sql}").insert({"id": 2, "k": "x", **columns}).run()
    assert kept.rows() == [{"id": 1, "k": "x", **first}, {"id": 2, "k": "x", **columns}]


def test_fractions_that_are_rounded_away(kept: Kept) -> None:
    kept.say(CREATE.replace("a INT DEFAULT 7", "a DATETIME(3)")).say("ALTER TABLE t MODIFY a DATETIME(6)")
    kept.layout = (*LAYOUT[:2], ("a", pa.timestamp("us")))
    row = {"id": 1, "k": "x", "a": datetime(2026, 1, 1, 0, 0, 0, 123456)}
    kept.insert(row).run()
    with pytest.raises(SchemaMismatchError, match="values of a in the new type DATETIME "):
        kept.say("ALTER TABLE t MODIFY a DATETIME").run()
    kept.events = []
    kept.say("TRUNCATE t", "ALTER TABLE t MODIFY a DATETIME").insert({**row, "a": None}).run()
    assert kept.rows() == [{**row, "a": None}]


@pytest.mark.parametrize(
    ("kind", "kept", "changed"),
    [
        ("VARCHAR(3)", ["abc", "äöü", None], "abcd"),
        ("CHAR(3)", ["abc"], "a "),
        ("ENUM('it''s','b')", ["it's", "", None], "B"),
        ("SET('a','b')", ["a,b", "", "b"], "b,a"),
        ("TIME(2)", ["10:00:00", "-100:00:00.120000"], "10:00:00.123000"),
        ("TIME", ["10:00:00"], "10:00"),
        ("YEAR", [0, 1901, 2155, None], 70),
        ("BINARY(2)", [b"ab"], b"a"),
        ("VARBINARY(2)", [b"a", b"ab"], b"abc"),
        ("DATETIME(3)", [datetime(1960, 1, 1, 0, 0, 0, 123000)], datetime(1960, 1, 1, 0, 0, 0, 123456)),
        ("INT", [7], None),
    ],
)
def test_values_that_another_type_keeps(kind: str, kept: list[Any], changed: Any) -> None:
    values = pa.array(kept)
    assert not changes_values(kind, values)
    is_nullable = changed is not None
    assert changes_values(kind, pa.array([*kept, changed]), is_nullable=is_nullable)
    assert not changes_values(kind, values.slice(0, 0), is_nullable=False)


def test_a_time_without_a_zone_comes_with_a_default(kept: Kept) -> None:
    kept.say(CREATE).insert(ONE).run()
    kept.layout = (*LAYOUT, ("b", pa.timestamp("us")))
    kept.say("ALTER TABLE t ADD b DATETIME NOT NULL DEFAULT '2026-01-02 03:04:05'")
    moment = datetime(2026, 1, 2, 3, 4, 5)
    kept.insert({**TWO, "b": moment}).run()
    assert kept.rows() == [{**ONE, "b": moment}, {**TWO, "b": moment}]
    kept.say("RENAME TABLE t TO v").run()
    assert kept.rows("shop.v") == [{**ONE, "b": moment}, {**TWO, "b": moment}]


def test_texts_that_become_json(kept: Kept) -> None:
    kept.layout = (*LAYOUT[:2], ("a", pa.string()))
    kept.say(CREATE.replace("a INT DEFAULT 7", "a JSON")).insert({"id": 1, "k": "x", "a": "{}"}).run()
    kept.say("ALTER TABLE t MODIFY a JSON NOT NULL", "ALTER TABLE t MODIFY a TEXT").run()
    with pytest.raises(SchemaMismatchError, match="values of a in the new type JSON"):
        kept.say("ALTER TABLE t MODIFY a JSON").run()


def test_small_decimals_become_texts(kept: Kept) -> None:
    kept.layout = (*LAYOUT[:2], ("a", pa.decimal128(20, 10)))
    kept.say(CREATE).insert({"id": 1, "k": "x", "a": Decimal("0.0000001")}).run()
    kept.layout = (*LAYOUT[:2], ("a", pa.string()))
    kept.insert({"id": 2, "k": "x", "a": "x"}).run()
    assert [row["a"] for row in kept.rows()] == ["0.0000001000", "x"]


def test_timestamps_with_a_default_that_nobody_says(kept: Kept) -> None:
    """Without explicit_defaults_for_timestamp, present rows get the time of the ALTER, or a zero."""
    kept.say(CREATE).insert(ONE).run()
    sql = "ALTER TABLE t ADD b TIMESTAMP"
    kept.run(
        [PackedItem("ddl", "shop", None, None, BEGIN, "binlog.000001", 4, sql, explicit_timestamps=True)]
    )
    kept.say("ALTER TABLE t ADD c TIMESTAMP NULL", "ALTER TABLE t ADD d TIMESTAMP DEFAULT NULL").run()
    with pytest.raises(SchemaMismatchError, match="values in the new column e that are not in the log"):
        kept.say("ALTER TABLE t ADD e TIMESTAMP").run()


def test_a_type_that_becomes_another(kept: Kept) -> None:
    kept.say(CREATE).insert(ONE).run()
    kept.layout = (("id", pa.int64()), ("k", pa.string()), ("a", pa.string()))
    kept.say("ALTER TABLE t MODIFY a VARCHAR(9), MODIFY id BIGINT").insert({**TWO, "a": "x"}).run()
    assert kept.rows() == [{**ONE, "a": "1"}, {**TWO, "a": "x"}]
    kept.layout = (("id", pa.int64()), ("k", pa.string()), ("a", pa.date32()))
    with pytest.raises(SchemaMismatchError, match=r"shop\.t: column a was string and is date32"):
        kept.insert({"id": 9, "k": "", "a": None}).run()


@pytest.mark.parametrize(
    ("kind", "kept", "changed", "options"),
    [
        ("TINYINT(1)", [127, -128], 128, {}),
        ("MEDIUMINT", [8388607], 8388608, {}),
        ("SMALLINT", [0, 65535], 65536, {"is_unsigned": True}),
        ("INT", [0, 5], -5, {"is_unsigned": True}),
        ("DECIMAL(5,2)", [Decimal("0.25")], Decimal("-0.25"), {"is_unsigned": True}),
        ("BIT(4)", [15], 16, {}),
        ("DOUBLE(10,2)", [1.13, -0.5], 1.129, {}),
        ("DOUBLE(4,2)", [99.99], 100.0, {}),
        ("TINYTEXT", ["x" * 255], "é" * 128, {}),
        ("BLOB", [b"x" * 65535], b"x" * 65536, {}),
        ("VARCHAR(20)", [None], "11:22:33.900000", {"before": "TIME(2)"}),
        ("TIMESTAMP", [datetime(2026, 1, 1)], None, {"is_nullable": False}),
    ],
)
def test_values_that_a_type_of_another_size_keeps(
    kind: str, kept: list[Any], changed: Any, options: dict[str, Any]
) -> None:
    assert not changes_values(kind, pa.array(kept, pa.array([*kept, changed]).type), **options)
    assert changes_values(kind, pa.array([*kept, changed]), **options)


def test_floats_that_are_rounded() -> None:
    values = pa.array([1.129], pa.float32())
    assert changes_values("FLOAT(10,2)", values)
    assert not changes_values("FLOAT(10,3)", values)
    assert not changes_values("FLOAT", values)


@pytest.mark.parametrize(
    ("charset", "kept", "lost"),
    [
        ("latin1", ["é", "€", None], "ł"),
        ("ascii", ["e"], "é"),
        ("utf8mb3", ["ł"], "\U0001f600"),
        ("gb2312", ["表"], "ł"),
        ("DEFAULT", ["e"], "é"),
    ],
)
def test_characters_that_a_character_set_lacks(charset: str, kept: list[str | None], lost: str) -> None:
    assert not loses_characters(pa.array(kept), charset)
    assert loses_characters(pa.array([*kept, lost]), charset)
    assert not loses_characters(pa.array([*kept, lost, "\U0001f600"]), "utf8mb4")


@pytest.mark.parametrize(
    "sql",
    [
        "CONVERT TO CHARACTER SET latin1",
        "CONVERT TO CHARSET DEFAULT",
        "MODIFY k VARCHAR(10) CHARACTER SET latin1",
        "MODIFY k VARCHAR(10) COLLATE latin1_swedish_ci",
        "MODIFY k VARCHAR(10), CHARSET latin1",
    ],
)
def test_texts_that_lose_characters(kept: Kept, sql: str) -> None:
    kept.say(CREATE).insert({**ONE, "k": "ł"}).run()
    statement = f"ALTER TABLE t {sql}"
    strict = PackedItem("ddl", "shop", None, None, BEGIN, "binlog.000001", 4, statement, sql_mode=1 << 21)
    kept.run([strict])
    kept.say("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4").run()
    with pytest.raises(SchemaMismatchError, match=r"the server writes \? in k, as .* lacks characters"):
        kept.say(statement).run()


def test_a_collation_of_mariadb_that_names_no_character_set(kept: Kept) -> None:
    """The name of the character set was taken to be uca1400, which lacks all characters."""
    kept.say(f"{CREATE} CHARSET utf8mb3 COLLATE uca1400_ai_ci").insert({**ONE, "k": "ł"}).run()
    kept.say("ALTER TABLE t COLLATE uca1400_ai_ci, MODIFY k VARCHAR(20) COLLATE uca1400_as_ci").run()
    kept.say("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE uca1400_ai_ci").run()
    assert kept.rows() == [{**ONE, "k": "ł"}]
    kept.say("ALTER TABLE t CHARSET latin1, COLLATE uca1400_ai_ci").run()
    with pytest.raises(SchemaMismatchError, match="as latin1 lacks characters"):
        kept.say("ALTER TABLE t MODIFY k VARCHAR(20) COLLATE uca1400_ai_ci").run()


@pytest.mark.parametrize("is_added", [False, True])
def test_numbers_with_zeros_in_front_as_text(kept: Kept, is_added: bool) -> None:
    """The server's text is 00012; the mirror had 12."""
    if is_added:
        kept.say(CREATE, "ALTER TABLE t DROP a", "ALTER TABLE t ADD a INT(5) ZEROFILL")
    else:
        kept.say(CREATE.replace("a INT DEFAULT 7", "a INT(5) ZEROFILL"))
    kept.insert({**ONE, "a": 12}).run()
    kept.say(
        "ALTER TABLE t MODIFY a BIGINT(9) ZEROFILL", "ALTER TABLE t MODIFY a DECIMAL(9,2) ZEROFILL"
    ).run()
    with pytest.raises(SchemaMismatchError, match="changes values of a in the new type VARCHAR"):
        kept.say("ALTER TABLE t MODIFY a VARCHAR(10)").run()


@pytest.mark.parametrize("said", ["NULL", "", "NOT NULL"])
def test_a_timestamp_that_no_calendar_has(kept: Kept, said: str) -> None:
    """It is null here. Where NULL may have been, the server makes it the time of the statement."""
    kept.layout = (*LAYOUT[:2], ("a", pa.timestamp("us", "UTC")))
    zero = {"id": 1, "k": "x", "a": None}
    kept.say(CREATE.replace("a INT DEFAULT 7", f"a TIMESTAMP {said} DEFAULT '0000-00-00 00:00:00'"))
    kept.insert(zero).run()
    kept.say("ALTER TABLE t MODIFY a TIMESTAMP(3) NOT NULL")
    if said == "NOT NULL":
        kept.say("ALTER TABLE t MODIFY a TIMESTAMP(6) NOT NULL").run()
        assert kept.rows() == [zero]
        kept.say("ALTER TABLE t MODIFY a TIMESTAMP NULL", "ALTER TABLE t MODIFY a TIMESTAMP NOT NULL")
    with pytest.raises(SchemaMismatchError, match="changes values of a in the new type TIMESTAMP"):
        kept.run()


def test_the_default_character_set_of_a_table(kept: Kept) -> None:
    kept.say(f"{CREATE} CHARSET latin1").insert({**ONE, "k": "ł"}).run()
    # JSON has a character set of its own, and in utf8mb4 nothing is lost.
    kept.say(
        "ALTER TABLE t MODIFY a INT NOT NULL", "ALTER TABLE t MODIFY k VARCHAR(20) CHARACTER SET utf8mb4"
    ).run()
    with pytest.raises(SchemaMismatchError, match="as latin1 lacks characters"):
        kept.say("ALTER TABLE t MODIFY k VARCHAR(20)").run()
