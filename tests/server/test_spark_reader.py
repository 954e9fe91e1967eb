"""The stream reader as Spark's runner calls it, without Spark: the pinned start, limits, the end, DDL, failover."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxRows

from protocol.errors import (
    AuthenticationError,
    CheckpointError,
    ConfigurationError,
    SchemaMismatchError,
    SourceChangedError,
    TransactionsUnavailableError,
)
from replica.spark.data_source import BinlogDataSource, LocalBinlogDataSource
from replica.spark.source_options import parse_options
from replica.spark.stream_connection import connection_options
from replica.spark.stream_reader import BinlogStreamReader
from replica.spool.live_log import LiveLog
from replica.spool.offsets import Offset
from tests.server.support.spark_readers import ALL, Json, Readers, batch, next_offset, spark_schema
from tests.server.support.spark_sources import LIVE_SERVERS, WAIT, insert, now
from tests.support.servers import Server


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[Readers]:
    with closing(Readers(tmp_path / "spool")) as readers:
        yield readers


def place(offset: Json) -> tuple[str, int]:
    return offset["file"], offset["position"]


def ids(rows: list[Json]) -> list[int]:
    return [json.loads(row["after"])["id"] for row in rows if row["table"] == "t"]


ENVELOPE = {"rowFormat": "json"}


@pytest.mark.parametrize("server", LIVE_SERVERS, indirect=True)
def test_the_start_is_pinned_before_any_row_is_read(server: Server, readers: Readers, table: str) -> None:
    first = readers(server, **ENVELOPE)
    start = first.initialOffset()
    insert(server, table, 0, 10)
    # Spark writes this to its log, and dies.
    pinned = first.latestOffset(start, ALL)
    assert pinned == start
    first.stop()
    insert(server, table, 10, 10)
    second = readers(server, **ENVELOPE)
    assert second.initialOffset() != start
    assert batch(second, second.initialOffset(), pinned) == []
    end = next_offset(second, pinned)
    assert ids(batch(second, pinned, end)) == list(range(20))
    assert second.reportLatestOffset() is not None


@pytest.mark.parametrize("server", LIVE_SERVERS, indirect=True)
def test_limits_and_an_end(server: Server, readers: Readers, table: str) -> None:
    reader = readers(server, **ENVELOPE, maxRowsPerTrigger=30, includeTables=table)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    insert(server, table, 0, 200)
    reader.prepareForTriggerAvailableNow()
    insert(server, table, 200, 10)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    found: list[list[int]] = []
    while (end := reader.latestOffset(start, limit)) != start:
        found.append(ids(batch(reader, start, end)))
        reader.commit(end)
        start = end
    rows = [number for numbers in found for number in numbers]
    assert rows == list(range(len(rows)))
    assert 200 <= len(rows) <= 210
    assert max(map(len, found)) <= 40
    assert len(found) >= 5


@pytest.mark.parametrize("server", LIVE_SERVERS, indirect=True)
def test_an_end_behind_a_repeated_batch(server: Server, readers: Readers, table: str) -> None:
    """After a crash a batch is repeated. Trigger.AvailableNow then goes on up to the end of the log."""
    options = {**ENVELOPE, "maxRowsPerTrigger": 30, "includeTables": table}
    first = readers(server, **options)
    limit = first.getDefaultReadLimit()
    start = first.latestOffset(first.initialOffset(), limit)
    insert(server, table, 0, 200)
    end = next_offset(first, start, limit)
    first.stop()
    again = readers(server, **options)
    again.prepareForTriggerAvailableNow()
    rows = ids(batch(again, start, end))
    # Everything has been received when Spark asks: nothing is left that would wake the reader up.
    end_of_log = now(options_of(server, readers.folder))
    until = time.monotonic() + WAIT
    while (report := again.reportLatestOffset()) is None or place(report) < place(json.loads(end_of_log)):
        assert time.monotonic() < until
        time.sleep(0.05)
    while (following := again.latestOffset(end, limit)) != end:
        rows += ids(batch(again, end, following))
        end = following
    assert rows == list(range(200))


@pytest.mark.parametrize("server", LIVE_SERVERS, indirect=True)
def test_ddl_ends_table_mode_and_a_restart_goes_on(server: Server, readers: Readers, table: str) -> None:
    def open_reader() -> BinlogStreamReader:
        return readers(server, schemaMode="table", table=table)

    # Table mode asks the source for the columns.
    reader = open_reader()
    start = reader.latestOffset(reader.initialOffset(), ALL)
    insert(server, table, 0, 10)
    server.query(f"ALTER TABLE {table} ADD COLUMN n BIGINT UNSIGNED")
    server.query(f"INSERT INTO {table} VALUES (10, 'x', 18446744073709551615)")
    rows: list[Json] = []
    while len(rows) < 10:
        end = next_offset(reader, start)
        rows += batch(reader, start, end)
        reader.commit(end)
        start = end
    assert [row["id"] for row in rows] == list(range(10))
    # The DDL itself may come before.
    with pytest.raises(SchemaMismatchError, match=r"n is new"):  # noqa: PT012
        while True:
            start = next_offset(reader, start)
    reader.stop()
    again = open_reader()
    end = next_offset(again, start)
    [row] = batch(again, start, end)
    assert (row["id"], row["n"], row["_op"]) == (10, 18446744073709551615, "insert")


@pytest.mark.parametrize("server", LIVE_SERVERS, indirect=True)
@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_a_query_that_lags_behind_a_ddl_is_told_so(
    server: Server, readers: Readers, table: str, metadata: str
) -> None:
    """The columns are those of now; what comes first was written before."""
    reader = readers(server, schemaMode="table", table=table)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    reader.stop()
    [(before,)] = server.query("SELECT @@GLOBAL.binlog_row_metadata")
    server.query(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        server.query(f"INSERT INTO {table} VALUES (1, 'x')")
        server.query(f"ALTER TABLE {table} ADD COLUMN n INT")
        server.query(f"INSERT INTO {table} VALUES (2, 'x', 7)")
    finally:
        server.query(f"SET GLOBAL binlog_row_metadata = {before}")
    late = readers(server, schemaMode="table", table=table)
    with pytest.raises(SchemaMismatchError, match="in the log are not those it has now"):
        next_offset(late, start)
    late.stop()
    passing = readers(server, schemaMode="table", table=table, onSchemaChange="null")
    rows: list[Json] = []
    while len(rows) < 2:
        end = next_offset(passing, start)
        rows += batch(passing, start, end)
        start = end
    assert [(row["id"], row["n"]) for row in rows] == [(1, None), (2, 7)]


@pytest.mark.parametrize("server", LIVE_SERVERS, indirect=True)
def test_ddl_in_the_envelope(server: Server, readers: Readers, table: str) -> None:
    reader = readers(server, **ENVELOPE, includeDdl="true")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    insert(server, table, 0, 1)
    server.query(f"ALTER TABLE {table} ADD COLUMN n INT")
    server.query(f"INSERT INTO {table} VALUES (1, 'x', 7)")
    rows: list[Json] = []
    while len(rows) < 3:
        end = next_offset(reader, start)
        rows += batch(reader, start, end)
        start = end
    assert [row["op"] for row in rows] == ["insert", "ddl", "insert"]
    assert rows[1]["sql"].startswith("ALTER TABLE")
    assert json.loads(rows[2]["after"])["n"] == 7


@pytest.mark.parametrize("server", LIVE_SERVERS, indirect=True)
def test_another_server_is_found_by_gtid(
    server: Server, extra_server: Callable[..., Server], readers: Readers
) -> None:
    arguments = () if server.family == "mariadb" else ("--gtid-mode=ON", "--enforce-gtid-consistency=ON")
    source, replica = (extra_server(server.name, *arguments) for _ in range(2))
    # Both have the same history: each transaction is run on both, under one GTID.
    for one in (source, replica):
        one.query(one.reset_log)
    run_on_both(source, replica, "CREATE DATABASE shop", 100)
    run_on_both(source, replica, "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(2000))", 101)
    # Its files are others than the source's, and so are its positions.
    replica.query("FLUSH BINARY LOGS")
    first = readers(source, **ENVELOPE)
    start = first.latestOffset(first.initialOffset(), ALL)
    for number in range(2, 6):
        run_on_both(source, replica, f"INSERT INTO shop.t VALUES ({number}, 'x')", 100 + number)
    end = next_offset(first, start)
    rows = batch(first, start, end)
    while len(rows) < 4:
        later = next_offset(first, end)
        rows += batch(first, end, later)
        end = later
    assert ids(rows) == [2, 3, 4, 5]
    first.stop()
    run_on_both(source, replica, "INSERT INTO shop.t VALUES (6, 'x')", 106)
    second = readers(replica, **ENVELOPE)
    found: list[Json] = []
    after = end
    while not found:
        begin, after = after, next_offset(second, after)
        found = batch(second, begin, after)
    assert ids(found) == [6]
    assert after["epoch"] == end["epoch"] + 1
    assert found[0]["seq"] > rows[-1]["seq"]
    second.stop()
    # One that lacks what we have is refused, whatever is said of lost data: it has another history.
    other = extra_server(server.name, *arguments)
    other.query("CREATE DATABASE shop")
    for loses in ("true", "false"):
        with pytest.raises(
            TransactionsUnavailableError, match=r"(never had|does not have) these transactions"
        ):
            next_offset(readers(other, **ENVELOPE, failOnDataLoss=loses), after)
        readers.close()


def run_on_both(source: Server, replica: Server, sql: str, number: int) -> None:
    for server in (source, replica):
        with server.connect() as connection, connection.cursor() as cursor:
            if server.family == "mariadb":
                cursor.execute(f"SET SESSION server_id = 77, gtid_seq_no = {number}")
                cursor.execute(sql)
            else:
                cursor.execute(f"SET gtid_next = 'aaaaaaaa-0000-0000-0000-00000000000a:{number}'")
                cursor.execute(sql)
                cursor.execute("SET gtid_next = 'AUTOMATIC'")


@pytest.mark.parametrize("server", LIVE_SERVERS, indirect=True)
def test_a_batch_of_a_live_source(server: Server, tmp_path: Path, table: str) -> None:
    options = options_of(server, tmp_path / "spool")
    # Not from the earliest: other tests write statements into this log.
    begin = json.dumps(latest(options).to_dict())
    insert(server, table, 0, 50)
    options |= {"startingOffsets": begin, "includeTables": table, "maxPartitionBytes": "1k"}
    source = LocalBinlogDataSource(options)
    reader = source.reader(spark_schema(source))
    partitions = reader.partitions()
    assert len(partitions) > 1
    pickled = pickle.dumps(reader)
    assert server.replica_password.encode() not in pickled
    copy = pickle.loads(pickled)
    rows = [row for one in partitions for found in copy.read(one) for row in found.to_pylist()]
    assert sorted(ids(rows)) == list(range(50))


@pytest.mark.parametrize("server", LIVE_SERVERS, indirect=True)
def test_where_a_batch_begins_and_ends(server: Server, tmp_path: Path, table: str) -> None:
    options = options_of(server, tmp_path / "spool") | {"includeTables": table}
    first = latest(options)
    insert(server, table, 0, 10)
    second = latest(options)
    insert(server, table, 10, 10)
    server.query("FLUSH BINARY LOGS")
    begin, end = json.dumps(first.to_dict()), json.dumps(second.to_dict())
    assert live_ids(options | {"startingOffsets": begin}) == list(range(20))
    assert live_ids(options | {"startingOffsets": begin, "endingOffsets": end}) == list(range(10))
    # A stream that has had other servers before counts epochs.
    later = {name: json.dumps(one.to_dict() | {"epoch": 2}) for name, one in (("b", first), ("e", second))}
    assert live_ids(options | {"startingOffsets": later["b"]}) == list(range(20))
    assert live_ids(options | {"startingOffsets": begin, "endingOffsets": later["e"]}) == list(range(10))
    assert second.gtid_set is not None
    assert live_ids(options | {"startingGtidSet": str(second.gtid_set)}) == list(range(10, 20))
    assert live_ids(options | {"startingGtidSet": str(latest(options).gtid_set)}) == []
    # The spool of a stream is left alone.
    assert not list((tmp_path / "spool").glob("*.binlog"))
    far = json.dumps(second.to_dict() | {"file": second.file[:-6] + "999999"})
    with pytest.raises(ConfigurationError, match=r"endingOffsets: .* is not in the log, which ends at"):
        live_ids(options | {"startingOffsets": begin, "endingOffsets": far})
    other = json.dumps(second.to_dict() | {"server_uuid": None, "server_id": 12345})
    with pytest.raises(SourceChangedError, match=r"endingOffsets: .* server 12345"):
        live_ids(options | {"startingOffsets": begin, "endingOffsets": other})


def options_of(server: Server, spool: Path) -> dict[str, str]:
    return {
        "host": server.host,
        "port": str(server.port),
        "user": server.replica_user,
        "password": server.replica_password,
        "spoolDir": str(spool),
        "heartbeat": "1",
        **ENVELOPE,
    }


def latest(options: dict[str, str]) -> Offset:
    with closing(LiveLog(connection_options(parse_options(options)), "")) as live:
        return live.end()


def live_ids(options: dict[str, str]) -> list[int]:
    """The rows of a batch, in the order of the log."""
    source = LocalBinlogDataSource(options)
    reader = source.reader(spark_schema(source))
    rows = [row for one in reader.partitions() for found in reader.read(one) for row in found.to_pylist()]
    return ids(sorted(rows, key=lambda row: row["seq"]))


def test_what_a_stream_needs(mysql97: Server, readers: Readers) -> None:
    source = BinlogDataSource({"user": "u"})
    schema = spark_schema(source)
    with pytest.raises(ConfigurationError, match="spoolDir"):
        source.streamReader(schema)
    end = json.dumps(Offset("binlog.000001", 4, None, None, 1).to_dict())
    with pytest.raises(ConfigurationError, match="endingOffsets: a stream has no end"):
        BinlogDataSource({"user": "u", "endingOffsets": end}).streamReader(schema)


def test_a_second_query_leaves_the_objects_of_the_first_alone(
    mysql97: Server, readers: Readers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replica.spool.shipping.SHIPPED_BYTES", 0)
    monkeypatch.setattr("replica.spool.spool._LOCK_SECONDS", 0.1)
    shared = tmp_path / "objects"
    options = {"spoolDir": f"file://{shared}", "spoolCache": tmp_path / "cache", "sharedFolders": "false"}
    first, second = readers(mysql97, **options), readers(mysql97, **options)
    with mysql97.fresh_schema() as schema:
        start = first.initialOffset()
        first.latestOffset(start, ALL)
        mysql97.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        [partition] = first.partitions(start, next_offset(first, start))
        with pytest.raises(CheckpointError, match="another query uses this folder"):
            second.latestOffset(second.initialOffset(), ALL)
        assert list(shared.glob("*.piece"))
        assert list(first.read(partition)) == []


@pytest.mark.parametrize("wrong", [{}, {"startingOffsets": "latest"}, {"user": "nobody"}])
def test_a_batch_without_pieces_leaves_no_folder(
    mysql97: Server, tmp_path: Path, wrong: dict[str, str]
) -> None:
    with contextlib.suppress(AuthenticationError):
        assert live_ids(options_of(mysql97, tmp_path) | wrong) == []
    assert os.listdir(tmp_path) == []
