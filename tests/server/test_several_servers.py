"""One address that leads to a source and to a replica of it, as a read endpoint does: a connection each in turn.

What a stream asks beside its log is asked of the server that sends the log. The replica here has stopped to apply.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import replica
from protocol.errors import ConnectionLostError, SourceChangedError
from protocol.records import replace
from replica import SnapshotCompleteEvent, WriteRowsEvent
from replica.config.options import Options
from replica.snapshot.range_reader import open_behind, read_ranges
from replica.snapshot.row_keys import KeyRange
from replica.spool.start_offset import find_offset
from tests.faults import topology
from tests.faults.proxy import FaultProxy
from tests.server.support.copied_tables import Kept
from tests.server.support.faulty_streams import stream_through
from tests.server.support.streams import MYSQL97_AND_MARIADB118, SECONDS, end_of_log, take_rows
from tests.support.servers import Server

_LOGS_WHAT_IT_APPLIES = {"mysql": (), "mariadb": ("--log-slave-updates",)}
_OLD_ROWS = 50
_NEW_ROWS = 20

Pair = tuple[Server, Server]


@pytest.fixture(params=MYSQL97_AND_MARIADB118)
def pair(request: pytest.FixtureRequest, extra_server: Callable[..., Server]) -> Pair:
    """A source, and a replica that lags behind it: it has shop.t with other rows, and other columns."""
    name = request.param
    arguments = _LOGS_WHAT_IT_APPLIES[name.partition(":")[0]]
    source, lagging = (extra_server(name, f"--server-id={number}", *arguments) for number in (901, 902))
    topology.follow(lagging, source)
    source.query("CREATE DATABASE shop")
    source.query("CREATE TABLE shop.t (id INT PRIMARY KEY, a VARCHAR(20), b VARCHAR(20))")
    for number in range(_OLD_ROWS):
        source.query(f"INSERT INTO shop.t VALUES ({number}, 'a', 'b')")
    topology.catch_up(lagging, source)
    lagging.query("STOP REPLICA SQL_THREAD" if source.family == "mysql" else "STOP SLAVE SQL_THREAD")
    source.query("ALTER TABLE shop.t CHANGE a c VARCHAR(20), CHANGE b a VARCHAR(20)")
    for number in range(_OLD_ROWS, _OLD_ROWS + _NEW_ROWS):
        source.query(f"INSERT INTO shop.t VALUES ({number}, 'c', 'a')")
    source.query("DELETE FROM shop.t WHERE id < 10")
    return source, lagging


@pytest.mark.parametrize("others", [1, 2])
async def test_a_copy_reads_the_tables_of_the_server_that_sends_the_log(pair: Pair, others: int) -> None:
    """On MariaDB rows were missing for ever; on MySQL the copy waited for the replica."""
    source, lagging = pair
    kept = Kept({"t": ("id",)})
    async with FaultProxy(source.port) as proxy:
        proxy.balance(source.port, *[lagging.port] * others)
        stream = stream_through(proxy, source, start="snapshot", tables=["shop.t"])
        async with asyncio.timeout(SECONDS), stream:
            async for event in stream:
                if isinstance(event, replica.RowsEvent):
                    for one in event.changes():
                        kept.apply(one)
                if isinstance(event, SnapshotCompleteEvent):
                    break
    expected = source.query("SELECT id, c, a FROM shop.t")
    assert sorted(tuple(row.values()) for row in kept.rows["t"].values()) == sorted(expected)


@pytest.mark.parametrize("by_gtid", [True, False])
async def test_ranges_are_read_where_all_changes_before_the_low_mark_are(pair: Pair, by_gtid: bool) -> None:
    """Spark's tasks do so: rows that the lagging server did not have were missing for ever."""
    pytest.importorskip("pyarrow")
    source, lagging = pair
    low = await find_offset(Options.build(source.dsn(), {"tls": "disabled"}), "snapshot")
    low = low if by_gtid else replace(low, gtid_set=None)
    async with FaultProxy(source.port) as proxy:
        proxy.balance(lagging.port, lagging.port, source.port)
        dsn = source.dsn().replace(str(source.port), str(proxy.port))
        options = Options.build(dsn, {"tls": "disabled"})
        found = [chunk async for chunk in read_ranges(options, ("shop", "t"), [KeyRange()], low)]
        assert sum(chunk.rows.num_rows for chunk in found) == _OLD_ROWS + _NEW_ROWS - 10
        # One that has caught up has the GTIDs.
        lagging.query("START REPLICA SQL_THREAD" if source.family == "mysql" else "START SLAVE SQL_THREAD")
        topology.catch_up(lagging, source)
        proxy.balance(lagging.port)
        if low.gtid_set is not None:
            found = [chunk async for chunk in read_ranges(options, ("shop", "t"), [KeyRange()], low)]
            assert sum(chunk.rows.num_rows for chunk in found) == _OLD_ROWS + _NEW_ROWS - 10
        else:
            with pytest.raises(ConnectionLostError, match="does not have all changes before"):
                await open_behind(options, low)


@pytest.mark.parametrize("with_offset", [True, False])
async def test_rows_of_a_table_are_those_of_one_server(pair: Pair, with_offset: bool, tmp_path: Path) -> None:
    """Spark's ``read_table`` and ``snapshot=only``: tasks had the rows of whichever server answered."""
    pytest.importorskip("pyspark")
    from pyspark.sql.pandas.types import from_arrow_schema

    from replica.spark.source_options import parse_options
    from replica.spark.table_reader import TableReader, schema_of_rows

    source, lagging = pair
    password = tmp_path / "password"
    password.write_text(source.replica_password)
    async with FaultProxy(source.port) as proxy, asyncio.timeout(SECONDS):
        given = {
            "host": source.host,
            "port": str(proxy.port),
            "user": source.replica_user,
            "passwordFile": str(password),
            "table": "shop.t",
            "tls": "disabled",
            "snapshot": "only",
            "snapshotParallelism": "2",
        }
        if with_offset:
            low = await find_offset(Options.build(source.dsn(), {"tls": "disabled"}), "snapshot")
            given["startingOffsets"] = json.dumps(low.to_dict())
            proxy.balance(lagging.port, source.port)
        schema = await asyncio.to_thread(schema_of_rows, parse_options(given))
        reader = TableReader(given, from_arrow_schema(schema))
        tasks = await asyncio.to_thread(reader.partitions)
        proxy.balance(lagging.port, lagging.port, source.port)
        found = [
            row
            for task in tasks
            for batch in await asyncio.to_thread(lambda task: list(reader.read(task)), task)
            for row in batch.to_pylist()
        ]
    assert sorted((row["id"], row["c"], row["a"]) for row in found) == sorted(
        source.query("SELECT id, c, a FROM shop.t")
    )


async def test_names_are_those_of_the_server_that_sends_the_log(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """The log does not tell of this column, so the source is asked again, over another connection."""
    source, lagging = pair
    async with FaultProxy(source.port) as proxy:
        proxy.balance(source.port, lagging.port)
        stream = stream_through(proxy, source, start="now", tables=["shop.t"])
        async with asyncio.timeout(SECONDS), stream:
            with source.connect() as connection, connection.cursor() as cursor:
                cursor.execute("SET sql_log_bin = 0")
                cursor.execute("ALTER TABLE shop.t ADD d INT")
                cursor.execute("SET sql_log_bin = 1")
                cursor.execute("INSERT INTO shop.t VALUES (1000, 'c', 'a', 5)")
            inserted = await anext(event async for event in stream if isinstance(event, WriteRowsEvent))
    assert [one.after for one in inserted.changes()] == [{"id": 1000, "c": "c", "a": "a", "d": 5}]
    (warning,) = [one for one in caplog.records if getattr(one, "event", "") == "several-servers"]
    assert "leads to several servers" in warning.message


async def test_a_stream_without_gtids_goes_on_at_its_server(extra_server: Callable[..., Server]) -> None:
    """Another server's log has other places. A reconnect and a restart ended with ``SourceChangedError``."""
    off = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
    source, other = (extra_server("mysql:9.7", *off) for _ in range(2))
    source.query("CREATE DATABASE shop")
    source.query("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    async with FaultProxy(source.port) as proxy, asyncio.timeout(SECONDS):
        stream = stream_through(proxy, source, start=end_of_log(source), tables=["shop.t"])
        async with stream:
            for number in range(3):
                proxy.balance(other.port, other.port, source.port)
                proxy.cut_now()
                source.query(f"INSERT INTO shop.t VALUES ({number})")
                transaction = await anext(stream.transactions())
                assert [change.after async for change in transaction] == [{"id": number}]
        source.query("INSERT INTO shop.t VALUES (3)")
        proxy.balance(other.port, other.port, source.port)
        async with stream_through(proxy, source, start=transaction.checkpoint, tables=["shop.t"]) as stream:
            assert await take_rows(stream, 1) == [(3,)]
        proxy.balance(other.port)
        with pytest.raises(SourceChangedError):
            async with stream_through(proxy, source, start=transaction.checkpoint):
                pass
