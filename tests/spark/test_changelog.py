"""The changelog job on files: the envelope's rows in Parquet and in Delta, with files that tables share or not."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql.datasource import WriterCommitMessage

from protocol.errors import ConfigurationError
from replica.spark.jobs import changelog, delta_append, mirror
from replica.spark.jobs.changelog_layout import PARTITIONS, Layout, note_layout, partitions_of
from replica.spark.jobs.delta_append import DeltaWriter, Place, committed, create_table, open_table
from replica.spark.jobs.parquet_append import create
from replica.spark.jobs.partitioned_files import split
from tests.spark.support.generated_log import write_generated
from tests.support.log_builder import LogBuilder, numbered_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]


def rows_of(spark: SparkSession, target: Path) -> Rows:
    return [row.asDict(recursive=True) for row in spark.read.parquet(str(target)).orderBy("seq").collect()]


def delta_rows(target: Path) -> Rows:
    return sorted(DeltaTable(target).to_pyarrow_table().to_pylist(), key=lambda row: row["seq"])


def plain(rows: Rows) -> Rows:
    """A value to compare: Spark gives times without a zone, in this machine's time zone."""
    names = ("schema", "table")
    return [
        row | {"ts": row["ts"].astimezone(UTC)} | {name: row[name] or None for name in names} for row in rows
    ]


def changes(spark: SparkSession, source: dict[str, str]) -> Rows:
    frame = spark.read.format("mysql-binlog").options(**source).load()
    rows = plain([row.asDict(recursive=True) for row in frame.orderBy("seq").collect()])
    return [row | {"day": row["ts"].date()} for row in rows]


def test_files_in_parquet(spark: SparkSession, tmp_path: Path) -> None:
    names = ["orders", "or ders", "ü/x", "50%", "..", "1", "a=b"]
    log = LogBuilder()
    for number in range(40):
        log.transaction([number, -number], sequence=number + 1, name=names[number % len(names)])
    path = tmp_path / "binlog.000003"
    path.write_bytes(log.data)
    source = {"path": str(path), "rowFormat": "json", "maxPartitionBytes": "1k"}
    changelog.load(spark, source, str(tmp_path / "rows"))
    found = plain(rows_of(spark, tmp_path / "rows"))
    assert len(found) == 80
    assert found == changes(spark, source)
    with pytest.raises(PySparkException, match="already exists"):
        changelog.load(spark, source, str(tmp_path / "rows"))


@pytest.mark.parametrize("layout", ["shared", "tables"])
def test_files_in_delta(seed: int, spark: SparkSession, tmp_path: Path, layout: Layout) -> None:
    logs, target = tmp_path / "logs", tmp_path / "rows"
    logs.mkdir()
    write_generated(logs, seed)
    source = {"path": str(logs), "rowFormat": "json", "maxPartitionBytes": "16k"}
    changelog.load(spark, source, f"file:{target}", format="delta", layout=layout)
    expected = changes(spark, source)
    assert plain(delta_rows(target)) == expected
    table = DeltaTable(target)
    assert tuple(table.metadata().partition_columns) == PARTITIONS[layout]
    assert table.version() == 1
    # The reader does not open the files, or read the row groups, of other tables.
    for some in {row["table"] for row in expected if row["table"]}:
        wanted = [row["seq"] for row in expected if row["table"] == some]
        found = table.to_pyarrow_table(filters=[("table", "=", some)])["seq"].to_pylist()
        assert sorted(found) == wanted
    if layout == "tables":
        assert len(table.file_uris(file_pruning_predicate=[("table", "=", some)])) < len(table.file_uris())
    with pytest.raises(ConfigurationError, match="already"):
        changelog.load(spark, source, str(target), format="delta")


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_many_tables_share_files(spark: SparkSession, tmp_path: Path, format: changelog.Format) -> None:
    """500 tables in two tasks: a file for each task, or for each table and task."""
    log = LogBuilder()
    for number in range(1000):
        log.transaction([number], name=f"t{number * 7 % 500}")
    path = tmp_path / "binlog.000001"
    path.write_bytes(log.data)
    source = {"path": str(path), "rowFormat": "json", "maxPartitionBytes": str(len(log.data) // 2 + 1000)}
    changelog.load(spark, source, str(tmp_path / "rows"), format=format)
    files = list((tmp_path / "rows").rglob("*.parquet"))
    assert len(files) == 2
    for file in files:
        tables = pq.read_table(file, columns=["table"])["table"].to_pylist()
        assert len(tables) > 400
        assert tables == sorted(tables)
    dataset = DeltaTable(tmp_path / "rows").to_pyarrow_dataset() if format == "delta" else ds.dataset(files)
    assert dataset.count_rows(filter=pc.field("table") == "t499") == 2


def test_a_target_keeps_the_layout_with_which_it_began(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(
        [("s", "t", datetime(2026, 1, 1, tzinfo=UTC))], "schema string, table string, ts timestamp"
    )
    for layout in PARTITIONS:
        delta, parquet, stored = (str(tmp_path / layout / name) for name in ("delta", "parquet", "stored"))
        targets: list[tuple[str, changelog.Format]] = [(delta, "delta"), (parquet, "parquet")]
        targets.append((f"file://{stored}", "parquet"))
        for target, format in targets:
            assert partitions_of(target, format, layout, {}) == PARTITIONS[layout]
        create_table(changelog.with_day(frame), delta, PARTITIONS[layout])
        changelog.with_day(frame).write.partitionBy(*PARTITIONS[layout]).parquet(parquet)
        create(changelog.with_day(frame), f"file://{stored}", PARTITIONS[layout])
        other: Layout = "shared" if layout == "tables" else "tables"
        for target, format in targets:
            assert partitions_of(target, format, None, {}) == PARTITIONS[layout]
            with pytest.raises(ConfigurationError, match="another layout"):
                partitions_of(target, format, other, {})


@pytest.mark.parametrize("layout", PARTITIONS)
def test_a_target_without_rows_keeps_its_layout(tmp_path: Path, layout: Layout) -> None:
    other: Layout = "shared" if layout == "tables" else "tables"
    for target in (str(tmp_path / "a"), f"file://{tmp_path}/b"):
        note_layout(target, PARTITIONS[layout], {})
        note_layout(target, PARTITIONS[other], {})
        for format in get_args(changelog.Format):
            assert partitions_of(target, format, None, {}) == PARTITIONS[layout]
            with pytest.raises(ConfigurationError, match="another layout"):
                partitions_of(target, format, other, {})


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland"])
def test_days_are_those_of_utc(spark: SparkSession, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        moments = [
            datetime(2026, 3, 1, tzinfo=UTC) + timedelta(microseconds=past) for past in (-1, 0, 86_399)
        ]
        moments.append(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC))
        frame = spark.createDataFrame([(moment,) for moment in moments], "ts timestamp")
        days = [row["day"] for row in changelog.with_day(frame).collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert days == [date(2026, 2, 28), date(2026, 3, 1), date(2026, 3, 1), date(1969, 12, 31)]


def test_names_that_are_no_names_of_folders(spark: SparkSession, tmp_path: Path) -> None:
    names = ["or ders", "a/b", "..", "50%", "a%20b", "ü=x", "it's", 'x"y', "1", "2026-01-01", "t" * 64, None]
    moment = datetime(2026, 1, 31, 23, 59, 59, 999_999, UTC)
    frame = spark.createDataFrame(
        [(number, "s", name, moment) for number, name in enumerate(names)],
        "number int, schema string, table string, ts timestamp",
    )
    create_table(changelog.with_day(frame), str(tmp_path / "t"), PARTITIONS["tables"])
    found = DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("number").to_pylist()
    assert [row["table"] for row in found] == names
    assert {(row["ts"], row["day"]) for row in found} == {(moment, date(2026, 1, 31))}
    # The range of each file in the table's log contains its rows.
    assert DeltaTable(tmp_path / "t").to_pyarrow_table(filters=[("ts", ">=", moment)]).num_rows == len(names)


def test_a_batch_is_split_by_the_values_of_columns(seed: int) -> None:
    rng = random.Random(seed)
    for size in (0, 1, 5, 500):
        rows: list[dict[str, Any]] = [
            {
                "a": rng.choice(["x", "y", "", None]),
                "number": number,
                "day": rng.choice([date(2026, 1, 1), None]),
            }
            for number in range(size)
        ]
        schema = pa.schema([("a", pa.string()), ("number", pa.int64()), ("day", pa.date32())])
        batch = pa.RecordBatch.from_pylist(rows, schema=schema)
        parts = dict(split(batch, ("a", "day")))
        expected: dict[tuple[str | None, str | None], list[int]] = {}
        for row in rows:
            day = None if row["day"] is None else row["day"].isoformat()
            expected.setdefault((row["a"], day), []).append(row["number"])
        assert {values: part["number"].to_pylist() for values, part in parts.items()} == expected
        assert all(part.schema.names == ["number"] for part in parts.values())


@pytest.mark.parametrize(
    ("source", "format", "message"),
    [
        ({"user": "u", "schemaMode": "table", "table": "a.b"}, "parquet", "schemaMode"),
        ({"user": "u", "rowFormat": "variant"}, "delta", "rowFormat"),
    ],
)
def test_what_a_changelog_is_not(
    spark: SparkSession, tmp_path: Path, source: dict[str, str], format: Any, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        changelog.start(spark, source, str(tmp_path / "t"), format=format)


def test_a_commit_that_outlives_its_driver_is_made_once(tmp_path: Path) -> None:
    """Two runs of one micro-batch commit, one after the other or at once."""
    schema = pa.schema([("table", pa.string()), ("number", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    target, checkpoint = str(tmp_path / "t"), str(tmp_path / "checkpoint")
    open_table(target, schema, ["table"])

    def written(batch: int, number: int) -> tuple[DeltaWriter, list[WriterCommitMessage | None]]:
        writer = DeltaWriter(target, ("table",), schema, Place("query", batch, "source", checkpoint))
        rows = [{"table": "t", "number": number, "ts": datetime(2026, 1, 1, tzinfo=UTC)}]
        return writer, [writer.write(iter([pa.RecordBatch.from_pylist(rows, schema=schema)])), None]

    def numbers() -> list[int]:
        return sorted(DeltaTable(target).to_pyarrow_table()["number"].to_pylist())

    runs = [written(0, 1), written(0, 2)]
    for writer, messages in runs:
        writer.commit(messages)
    assert numbers() == [1]
    # The files of the second run are deleted.
    assert len(list((tmp_path / "t").rglob("*.parquet"))) == 1
    # Both runs have checked the table before the other one's commit.
    (first, first_messages), (second, second_messages) = written(1, 3), written(1, 4)
    stale = DeltaTable(target)
    first.commit(first_messages)
    found = DeltaTable
    tables = iter([stale])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta_append, "DeltaTable", lambda path, **_: next(tables, None) or found(path))
        second.commit(second_messages)
    assert numbers() == [1, 3]
    assert committed(target, "query") == 1


def test_a_mirror_of_files_without_the_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A misspelt table gave an empty target. Of a live source, that may be made later, a warning tells it."""
    (tmp_path / "binlog.000001").write_bytes(numbered_log().data)
    source = {"path": str(tmp_path / "binlog.000001"), "includeTables": "s.order"}
    with pytest.raises(ConfigurationError, match=r"^tables: no table of the files matches s\.order$"):
        mirror.load(spark, source, str(tmp_path / "mirror"))
    # Nothing is left there that refuses the right name.
    mirror.load(spark, source | {"includeTables": "s.t"}, str(tmp_path / "mirror"))
    assert mirror.progress(str(tmp_path / "mirror"))["table"].to_pylist() == ["s.t"]
