"""Every kind of start and of stop on real servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import replica
from replica import (
    BinlogNotFoundError,
    BinlogPosition,
    Checkpoint,
    GtidSet,
    MariadbGtidSet,
    PositionPastEndError,
    TransactionsUnavailableError,
)
from tests.support.servers import Server

from .support.streams import SECONDS, end_of_log, executed, stream_of, take_rows, to_the_end, user_of


class Steps:
    """Three transactions, each in a log file of its own, with the place and the GTIDs between them."""

    def __init__(self, server: Server, schema: str) -> None:
        self.server = server
        self.schema = schema
        server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
        self.places = [end_of_log(server)]
        self.gtids = [executed(server)]
        self.times = [self.now()]
        for number in (1, 2, 3):
            time.sleep(1.1)  # the log's clock ticks in seconds
            server.query(f"INSERT INTO {schema}.t VALUES ({2 * number - 1}), ({2 * number})")
            self.places.append(end_of_log(server))
            self.gtids.append(executed(server))
            self.times.append(self.now())
            server.query("FLUSH BINARY LOGS")

    def now(self) -> datetime:
        """The server's clock, in whole seconds behind what was written."""
        [(second,)] = self.server.query("SELECT UNIX_TIMESTAMP()")
        return datetime.fromtimestamp(second + 1, UTC)

    def stream(self, **options: Any) -> replica.BinlogStream:
        return stream_of(self.server, tables=f"{self.schema}.*", **options)


ROWS = [(1,), (2,), (3,), (4,), (5,), (6,)]


@pytest.fixture(scope="module")
def steps(server: Server) -> Iterator[Steps]:
    with server.fresh_schema() as schema:
        yield Steps(server, schema)


async def test_starts(steps: Steps) -> None:
    assert await to_the_end(steps.stream(start="earliest", stop="now")) == ROWS
    for index in range(4):
        expected = ROWS[2 * index :]
        place, gtids = steps.places[index], steps.gtids[index]
        family = GtidSet if steps.server.family == "mysql" else MariadbGtidSet
        starts: list[Any] = [place, str(place), gtids, family(gtids), steps.times[index]]
        for start in starts:
            assert await to_the_end(steps.stream(start=start, stop="now")) == expected, start


async def test_stops(steps: Steps) -> None:
    for index in range(4):
        expected = ROWS[: 2 * index]
        stops: list[Any] = [steps.places[index], steps.gtids[index], steps.times[index]]
        for stop in stops:
            assert await to_the_end(steps.stream(start=steps.places[0], stop=stop)) == expected, stop
            assert await to_the_end(steps.stream(start=steps.gtids[0], stop=stop)) == expected, stop


async def test_a_stop_inside_of_a_transaction_finishes_it(steps: Steps) -> None:
    inside = BinlogPosition(steps.places[1].file, steps.places[1].position - 1)
    assert await to_the_end(steps.stream(start=steps.places[0], stop=inside)) == ROWS[:2]


async def test_gtids_before_a_start_in_mid_file_are_found(server: Server, schema: str) -> None:
    """A stop at GTIDs some of which lie before the start, in the same file."""
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.t VALUES (1)")
    start = end_of_log(server)
    server.query(f"INSERT INTO {schema}.t VALUES (2)")
    stop = executed(server)
    server.query(f"INSERT INTO {schema}.t VALUES (3)")
    stream = stream_of(server, start=start, stop=stop, tables=f"{schema}.*")
    assert await to_the_end(stream) == [(2,)]
    assert stream.checkpoint is not None
    assert stream.checkpoint.gtid_set is not None
    parse = GtidSet if server.family == "mysql" else MariadbGtidSet
    assert parse(stream.checkpoint.gtid_set) == parse(stop)


async def test_none_and_now_begin_with_what_is_committed_next(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.t VALUES (1)")
    for number, start in enumerate((None, "now"), 2):
        async with stream_of(server, start=start, tables=f"{schema}.*") as stream:
            server.query(f"INSERT INTO {schema}.t VALUES ({number})")
            assert await take_rows(stream, 1) == [(number,)]


async def test_now_to_now_is_nothing(server: Server) -> None:
    assert await to_the_end(stream_of(server, stop="now")) == []
    assert await to_the_end(stream_of(server, start=end_of_log(server), stop="now")) == []


async def test_a_start_that_the_log_does_not_have_is_an_error_with_each_stop(server: Server) -> None:
    """After RESET, say. A stop at the log's end is reached there, and nothing would be asked for."""
    end = end_of_log(server)
    base, _, number = end.file.rpartition(".")
    later = BinlogPosition(f"{base}.{int(number) + 100:06d}", end.position)
    past = BinlogPosition(end.file, end.position + 1_000_000)
    [(server_id,)] = server.query("SELECT @@GLOBAL.server_id")
    [uuid] = [None] if server.family == "mariadb" else server.query("SELECT @@GLOBAL.server_uuid")[0]
    starts: list[tuple[Any, type[Exception]]] = [
        (later, BinlogNotFoundError),
        (past, PositionPastEndError),
        (BinlogPosition("no-such-log.000001", 4), BinlogNotFoundError),
        (Checkpoint(past.file, past.position, None, uuid, server_id), PositionPastEndError),
    ]
    gtids = executed(server)
    if server.family == "mariadb":
        domain, writer, sequence = gtids.split(",")[-1].split("-")
        starts.append(
            (MariadbGtidSet(f"{domain}-{writer}-{int(sequence) + 1000}"), TransactionsUnavailableError)
        )
    else:
        starts.append((GtidSet(f"{uuid}:1-999999999"), TransactionsUnavailableError))
    for start, error in starts:
        for stop in ("now", datetime(2020, 1, 1, tzinfo=UTC)):
            with pytest.raises(error):
                await to_the_end(stream_of(server, start=start, stop=stop))


async def test_stop_now_while_others_write(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY AUTO_INCREMENT)")
    start = end_of_log(server)
    server.query(f"INSERT INTO {schema}.t VALUES (), ()")
    rows = []
    async with stream_of(server, start=start, stop="now", tables=f"{schema}.*") as stream:
        server.query(f"INSERT INTO {schema}.t VALUES (), ()")
        async for event in stream:
            if isinstance(event, replica.WriteRowsEvent):
                rows += event.rows
    assert rows == [(1,), (2,)]


async def test_a_stop_at_a_time_to_come_ends_an_idle_stream(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    start = end_of_log(server)
    server.query(f"INSERT INTO {schema}.t VALUES (1)")
    [(now,)] = server.query("SELECT UNIX_TIMESTAMP()")
    stop = datetime.fromtimestamp(now + 3, UTC)
    options: dict[str, Any] = {"tables": f"{schema}.*", "heartbeat": 2 * SECONDS}
    async with asyncio.timeout(SECONDS):  # long before the next sign of life
        assert await to_the_end(stream_of(server, start=start, stop=stop, **options)) == [(1,)]


async def test_checkpoints_of_another_server(mysql97: Server, mysql56: Server, mariadb118: Server) -> None:
    for one, other in ((mysql97, mysql56), (mysql56, mysql97), (mariadb118, mysql97)):
        async with stream_of(one, stop="now") as stream:
            checkpoint = stream.checkpoint
        assert checkpoint is not None
        by_position = Checkpoint("binlog.000001", 4, None, checkpoint.server_uuid, checkpoint.server_id)
        with pytest.raises(replica.SourceChangedError, match="of no use on another server"):
            async with stream_of(other, start=by_position):
                pass
        with pytest.raises((replica.TransactionsUnavailableError, replica.ConfigurationError)):
            async with stream_of(other, start=checkpoint):
                pass


# Users who may stream and nothing else.


async def test_replication_slave_alone_is_enough(
    server: Server, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY, b VARCHAR(10) CHARACTER SET utf8mb4)")
    first = end_of_log(server)
    with user_of(server, "REPLICATION SLAVE") as user:
        async with stream_of(server, user, tables=f"{schema}.*") as stream:
            for number in (1, 2, 3):
                server.query(f"INSERT INTO {schema}.t VALUES ({number}, 'x')")
            events: list[Any] = []
            async with asyncio.timeout(60):
                while len(events) < 3:
                    event = await anext(stream)
                    if isinstance(event, replica.RowsEvent):
                        events.append(event)
        assert [event.table.column_names for event in events] == [("@1", "@2")] * 3
        assert [event.rows[0][0] for event in events] == [1, 2, 3]
        [warning] = [record.getMessage() for record in caplog.records if record.name.startswith("replica")]
        assert "grant SELECT on it" in warning
        # What others may ask for is found by reading: the newest file, and where it ends.
        server.query("FLUSH BINARY LOGS")
        server.query(f"INSERT INTO {schema}.t VALUES (4, 'x')")
        options = {"tables": f"{schema}.*", "stop": "now"}
        numbers = [row[0] for row in await to_the_end(stream_of(server, user, start=first, **options))]
        assert numbers == [1, 2, 3, 4]
        assert await to_the_end(stream_of(server, user, start="now", stop="now")) == []
        await asyncio.sleep(1.1)
        [(now,)] = server.query("SELECT UNIX_TIMESTAMP()")
        server.query(f"INSERT INTO {schema}.t VALUES (5, 'x')")
        since = datetime.fromtimestamp(now, UTC)
        rows = await to_the_end(stream_of(server, user, start=since, **options))
        assert [row[0] for row in rows] == [5]


@pytest.mark.parametrize("name", ["mysql:9.7", "mysql:5.6"])
async def test_without_gtids(name: str, extra_server: Callable[..., Server]) -> None:
    """Positions alone, with and without the privilege to ask for them; and many files to look among."""
    off = ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]
    server = extra_server(name, *off)
    server.query("CREATE DATABASE shop")
    server.query("CREATE TABLE shop.t (a INT PRIMARY KEY)")
    start = end_of_log(server)
    for number in range(12):
        server.query(f"INSERT INTO shop.t VALUES ({number})")
        server.query("FLUSH BINARY LOGS")
    everything = [(number,) for number in range(12)]
    with user_of(server, "REPLICATION SLAVE") as user:
        for who in (None, user):
            assert await to_the_end(stream_of(server, who, start=start, stop="now")) == everything
            assert await to_the_end(stream_of(server, who, start="earliest", stop="now")) == everything
            assert await to_the_end(stream_of(server, who, stop="now")) == []
        async with stream_of(server, user) as stream:
            assert stream.position == end_of_log(server)
            server.query("INSERT INTO shop.t VALUES (12)")
            assert await take_rows(stream, 1) == [(12,)]
            assert stream.checkpoint is not None
            assert stream.checkpoint.gtid_set is None
        # The oldest files are gone, so the numbers begin later.
        [*_, third_last, _, _] = [file for file, *_ in server.query("SHOW BINARY LOGS")]
        server.query(f"PURGE BINARY LOGS TO '{third_last}'")
        assert await to_the_end(stream_of(server, user, start="earliest", stop="now")) == [
            (10,),
            (11,),
            (12,),
        ]
    with pytest.raises(replica.ConfigurationError, match="gtid_mode"):
        async with stream_of(server, start="ffffffff-eeee-1111-9999-000000000000:1-5"):
            pass


async def test_a_position_inside_the_last_transaction(server: Server, schema: str) -> None:
    """As readers that store the place behind each event have it: the rest of the transaction comes, to the end."""
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    begin = end_of_log(server)
    server.query(f"INSERT INTO {schema}.t VALUES (1), (2)")

    async def read(place: BinlogPosition) -> list[replica.Event]:
        async with asyncio.timeout(60), stream_of(server, start=place, stop="now") as stream:
            return [event async for event in stream]

    whole = [event for event in await read(begin) if event.position >= begin.position]
    kinds = [type(event) for event in whole]
    assert replica.WriteRowsEvent in kinds
    for number, event in enumerate(whole):
        # Rows have no meaning without the table map before them.
        if not isinstance(event, replica.WriteRowsEvent):
            rest = await read(BinlogPosition(event.file, event.position))
            assert [type(event) for event in rest if event.position >= begin.position] == kinds[number:]
