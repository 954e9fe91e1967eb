"""The stream against a scripted source on loopback: its events, its names and its errors."""

from __future__ import annotations

import asyncio
import logging
import struct

import pytest

import replica
from protocol.binlog.events import Event
from protocol.constants import EventType
from protocol.conversation.commands import BinlogDump, BinlogDumpGtid
from protocol.conversation.messages import Err
from protocol.gtid import GtidSet
from replica import (
    BinlogPosition,
    Checkpoint,
    ConnectionLostError,
    QueryEvent,
    RowsEvent,
    SourceSilentError,
    TableMapEvent,
    WriteRowsEvent,
    XidEvent,
)
from replica.source.transport import Transport
from tests.support.raw_events import int_rows, int_table_map, query
from tests.support.scripted_log import (
    GTIDS_ON,
    INT_COLUMN,
    Log,
    collect,
    gtid,
    heartbeat,
    kinds,
    mysql,
    three_transactions,
    transaction,
    unseen,
    values,
)
from tests.support.socket_source import ALL_COLUMNS, FILE, MYSQL_VARIABLES, UUID, SocketSource, serving


@pytest.mark.parametrize(("version", "statements", "writes"), [("9.7.4", 18, 10), ("5.7.44-log", 18, 22)])
async def test_opening_waits_for_few_answers(
    monkeypatch: pytest.MonkeyPatch, version: str, statements: int, writes: int
) -> None:
    """Aurora with the version of MySQL 5.7 would never answer the second of two statements in one write."""
    sent: list[bytes] = []
    write = Transport.write

    def counted(self: Transport, data: bytes) -> None:
        sent.extend([data] if data else [])
        write(self, data)

    monkeypatch.setattr(Transport, "write", counted)
    variables = MYSQL_VARIABLES | {"gtid_mode": "ON"}
    log = transaction(Log(), 1)
    async with (
        serving(SocketSource(log.raw, variables, columns=[INT_COLUMN], version=version)) as source,
        replica.connect(source.dsn, start=BinlogPosition(FILE, 4)) as stream,
    ):
        await anext(stream)
    # The login, settings, facts, the introduction, what the log lacks, a mark, tables with a second mark, the uuid,
    # the registration, the dump.
    assert len(source.statements) == statements
    assert len(sent) == writes


async def test_events_come_in_order_with_names() -> None:
    async with serving(mysql(transaction(Log(), 1, 2))) as source:
        events = await collect(source, 5)
    assert kinds(events) == ["FormatDescription", "Query", "TableMap", "WriteRows", "Xid"]
    rows = events[3]
    assert isinstance(rows, WriteRowsEvent)
    assert (rows.rows, rows.table.names_from, rows.table.primary_key) == (
        [(1,), (2,)],
        "history",
        ("id",),
    )
    assert [(event.file, event.position + event.header.size) for event in events[:-1]] == [
        (event.file, event.position) for event in events[1:]
    ]
    assert source.dumps == [BinlogDump("", 4, source.dumps[0].server_id, 0)]


async def test_breaking_and_going_on() -> None:
    log = transaction(transaction(Log(), 1, 2), 3)
    seen: list[Event] = []
    async with (
        serving(mysql(log)) as source,
        replica.connect(source.dsn, start="earliest", events=RowsEvent) as stream,
    ):
        async for event in stream:
            seen.append(event)
            break
        seen.append(await anext(stream))
    assert values(seen) == [1, 2, 3]


async def test_tables_filters_rows_and_table_maps_only() -> None:
    log = transaction(transaction(Log(), 1, name="t"), 2, name="log")
    async with serving(mysql(log)) as source:
        events = await collect(source, 7, exclude_tables="s.log")
    assert kinds(events) == ["FormatDescription", "Query", "TableMap", "WriteRows", "Xid", "Query", "Xid"]
    assert values(events) == [1]


async def test_events_filters_by_class() -> None:
    async with serving(mysql(transaction(transaction(Log(), 1), 2))) as source:
        events = await collect(source, 4, events=[RowsEvent, QueryEvent])
    assert kinds(events) == ["Query", "WriteRows", "Query", "WriteRows"]
    assert isinstance(events[1], WriteRowsEvent)
    assert events[1].table.column_names == ("id",)


async def test_chosen_columns() -> None:
    log = Log().add(int_table_map(columns=2))
    body = (7).to_bytes(6, "little") + struct.pack("<HH", 1, 2) + b"\2\xff\0" + struct.pack("<ii", 1, 2)
    log.event(EventType.WRITE_ROWS, body)
    two = [INT_COLUMN, ("status", "int", "int", "YES", None, "")]
    async with serving(SocketSource(log.raw, columns=two)) as source:
        events = await collect(source, 1, events=RowsEvent, columns={"s.t": ["status"]})
        assert values(events) == [2]
        with pytest.raises(replica.ConfigurationError, match=r"s\.t has no column nope"):
            await collect(source, 1, events=RowsEvent, columns={"s.t": ["nope"]})


async def test_heartbeats_and_artificial_rotates_are_not_yielded() -> None:
    log = transaction(heartbeat(transaction(heartbeat(Log()), 1)), 2)
    async with serving(mysql(log)) as source:
        events = await collect(source, 9)
    assert "Heartbeat" not in kinds(events)
    assert "Rotate" not in kinds(events)
    assert values(events) == [1, 2]


# Checkpoints


async def test_the_checkpoint_moves_when_the_consumer_comes_back() -> None:
    log = Log()
    start = log.position
    transaction(log, 1)
    middle = log.position
    transaction(log, 2)
    async with (
        serving(mysql(log)) as source,
        replica.connect(source.dsn, start="earliest", events=XidEvent) as stream,
    ):
        assert stream.checkpoint == Checkpoint("", 4, None, UUID, 97)
        assert stream.position is None
        await anext(stream)
        assert stream.position == BinlogPosition(FILE, start)
        await anext(stream)
        assert stream.checkpoint == Checkpoint(FILE, middle, None, UUID, 97, file_begun=1)


async def test_gtids_are_followed() -> None:
    log = transaction(gtid(transaction(gtid(Log(), 5), 1), 6), 2)
    gtids = {"SELECT @@GLOBAL.gtid_executed": [(f"{UUID}:1-4",)], "SELECT @@GLOBAL.gtid_purged": [("",)]}
    async with (
        serving(mysql(log, variables=GTIDS_ON, answers=gtids)) as source,
        replica.connect(source.dsn, start=f"{UUID}:1-4", events=XidEvent) as stream,
    ):
        await anext(stream)
        await anext(stream)
        assert stream.checkpoint is not None
        assert stream.checkpoint.gtid_set == f"{UUID}:1-5"
    [dump] = source.dumps
    assert isinstance(dump, BinlogDumpGtid)
    assert GtidSet.decode(dump.gtid_set) == GtidSet(f"{UUID}:1-4")


async def test_now_with_gtids_is_what_was_executed() -> None:
    gtids = {"SELECT @@GLOBAL.gtid_executed": [(f"{UUID}:1-4",)]}
    async with (
        serving(mysql(Log(), variables=GTIDS_ON, answers=gtids)) as source,
        replica.connect(source.dsn) as stream,
    ):
        assert stream.checkpoint == Checkpoint("", 4, f"{UUID}:1-4", UUID, 97)


async def test_mariadb_by_gtid() -> None:
    variables = {"log_bin": "ON", "binlog_format": "ROW", "binlog_checksum": "NONE", "server_id": "7"}
    source = SocketSource(variables=variables, version="11.8.6-MariaDB")
    source.answers["SELECT @@GLOBAL.gtid_binlog_pos"] = [("0-7-5",)]
    async with serving(source), replica.connect(source.dsn, start="0-7-3,1-7-2") as stream:
        assert stream.checkpoint == Checkpoint("", 4, "0-7-3,1-7-2", None, 7)
        assert any("@slave_connect_state = '0-7-3,1-7-2'" in sql for sql in source.statements)
        with pytest.raises(RuntimeError, match="opened once"):
            await stream.__aenter__()


# Using it


async def test_iterating_without_opening() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await anext(replica.connect("mysql://repl@127.0.0.1:1"))


async def test_a_full_socket_leaves_other_tasks_their_turn() -> None:
    log = Log()
    for number in range(200):
        transaction(log, *range(number, number + 2000))
    turns, longest = 0, 0
    async with (
        serving(mysql(log)) as source,
        replica.connect(source.dsn, start="earliest", events=RowsEvent) as stream,
    ):

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counter = asyncio.create_task(count())
        size, seen = 0, 0
        async for event in stream:
            seen += 1
            size = size + event.header.size if turns == 0 else 0
            longest, turns = max(longest, size), 0
            if seen == 200:
                break
        counter.cancel()
    # A chunk of 256 KB, and the rest of the event before it.
    assert longest <= (256 << 10) + 12_000


# Errors


async def test_a_lost_connection() -> None:
    async with (
        serving(mysql(transaction(Log(), 1), closes_after_events=True)) as source,
        replica.connect(source.dsn, start="earliest", events=RowsEvent, reconnect=False) as stream,
    ):
        assert values([await anext(stream)]) == [1]
        for _ in range(2):
            with pytest.raises(ConnectionLostError, match="closed the connection"):
                await anext(stream)


async def test_a_dump_that_ends_although_it_is_to_go_on() -> None:
    async with serving(mysql(Log(), ends_dump=True)) as source:
        with pytest.raises(ConnectionLostError, match="ended the binlog dump"):
            await collect(source)


async def test_a_silent_source() -> None:
    async with serving(mysql(Log())) as source:
        with pytest.raises(SourceSilentError, match=r"for 0\.125 s"):
            await collect(source, heartbeat=0.05)
        await source.until_closed()


async def test_a_damaged_event_says_where() -> None:
    log = transaction(Log(), 1)
    log.raw[-2] = log.raw[-2][:-3] + b""
    log.raw[-2] = log.raw[-2][:9] + struct.pack("<I", len(log.raw[-2])) + log.raw[-2][13:]
    async with serving(mysql(log)) as source:
        with pytest.raises(replica.DecodeError, match=f"{FILE}, at "):
            await collect(source)


async def test_a_short_event() -> None:
    log = Log()
    log.raw.append(b"\1\2")
    async with serving(mysql(log)) as source:
        with pytest.raises(replica.TruncatedError):
            await collect(source)


@pytest.mark.parametrize(
    "first", [b"\1\2\3", query("BEGIN")[:-1], query("BEGIN", next_position=90), b"\0\0\0\0\xf0" + bytes(30)]
)
async def test_what_comes_first_from_the_middle_of_an_event(first: bytes) -> None:
    log = Log(start=500)
    log.raw.append(first)
    async with serving(mysql(log)) as source:
        with pytest.raises(
            replica.PositionInsideEventError, match=f"at {FILE}:500 is no event.* -- start at"
        ):
            await collect(source, start=BinlogPosition(FILE, 500))


async def test_a_place_inside_a_statement_is_told_as_such() -> None:
    """Other programs may have saved it: python-mysql-replication has one after each event, canal that of a row."""
    log = Log(start=500).add(int_rows([1]))
    async with serving(mysql(log)) as source:
        with pytest.raises(
            replica.PositionInsideEventError,
            match=f"{FILE}:500 is inside a statement.* its transaction begins",
        ):
            await collect(source, start=BinlogPosition(FILE, 500))


async def test_what_comes_later_is_no_matter_of_the_position() -> None:
    log = Log(start=500).add(query("BEGIN"))
    log.raw.append(b"\1\2\3")
    async with serving(mysql(log)) as source:
        with pytest.raises(replica.TruncatedError):
            await collect(source, start=f"{FILE}:500")


# Column names


def questions(source: SocketSource) -> int:
    return sum(sql.startswith(ALL_COLUMNS) for sql in source.statements)


async def test_names_are_asked_for_once_and_a_ddl_asks_nothing() -> None:
    log = transaction(transaction(Log(), 1), 2)
    log.add(query("SAVEPOINT `a`"))
    transaction(log, 3)
    log.add(query("ALTER TABLE s.t RENAME COLUMN id TO number"))
    transaction(log, 4)
    without_key = [(*INT_COLUMN[:-1], "")]
    async with serving(SocketSource(log.raw, columns=without_key)) as source:
        events = await collect(source, 4, events=RowsEvent)
        assert questions(source) == 1
    assert [event.table.column_names for event in events if isinstance(event, RowsEvent)] == [
        ("id",),
        ("id",),
        ("id",),
        ("number",),
    ]
    assert {event.table.names_from for event in events if isinstance(event, RowsEvent)} == {"history"}


async def test_no_names_to_be_seen_give_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    for number in range(5):
        transaction(log, number, name=f"t{number % 2}")
    with caplog.at_level(logging.WARNING, "replica"):
        async with serving(SocketSource(log.raw)) as source:
            events = await collect(source, 5, events=RowsEvent)
            # At connect, and once for each table.
            assert questions(source) == 3
    assert values(events) == [0, 1, 2, 3, 4]
    assert {event.table.column_names for event in events if isinstance(event, RowsEvent)} == {("@1",)}
    [record] = caplog.records
    assert "s.t0" in record.getMessage()
    assert "SELECT" in record.getMessage()


async def test_a_refused_look_up_is_a_warning_too(caplog: pytest.LogCaptureFixture) -> None:
    refusal = Err(1142, "42000", "SELECT command denied")
    source = SocketSource(transaction(Log(), 1).raw, answers={ALL_COLUMNS: refusal})
    async with serving(source):
        assert values(await collect(source, 4)) == [1]
    assert "SELECT command denied" in caplog.text


MISFITS = [
    [INT_COLUMN, ("more", "int", "int", "NO", None, "")],
    [("id", "varchar", "varchar(10)", "NO", "utf8mb4", "PRI")],
]


@pytest.mark.parametrize("columns", MISFITS)
async def test_names_that_do_not_fit(columns: list[tuple[str | None, ...]]) -> None:
    async with serving(SocketSource(transaction(Log(), 1).raw, columns=columns)) as source:
        with pytest.raises(replica.SchemaMismatchError, match=r"s\.t"):
            await collect(source)
        events = await collect(source, 4, on_schema_mismatch="positional")
    assert isinstance(events[3], WriteRowsEvent)
    assert events[3].table.column_names == ("@1",)


async def test_an_idle_look_up_connection_that_was_closed_is_made_anew() -> None:
    source = unseen(transaction(transaction(Log(), 1), 2, name="u"))
    async with serving(source), replica.connect(source.dsn, start="earliest", events=RowsEvent) as stream:
        source.answers.clear()
        first = await anext(stream)
        source.writers[-1].close()
        second = await anext(stream)
    assert values([first, second]) == [1, 2]


# Handlers


async def test_run_calls_handlers_and_closes() -> None:
    log = Log()
    end = three_transactions(log)(3)
    async with serving(mysql(log)) as source:
        stream = replica.connect(source.dsn, start="earliest", stop=end)
        calls: list[object] = []

        @stream.on(WriteRowsEvent, table="s.*")
        async def slow(event: WriteRowsEvent) -> None:
            await asyncio.sleep(0)
            calls.append(event.rows[0][0])

        @stream.on(TableMapEvent)
        def quick(event: TableMapEvent) -> None:
            calls.append(str(event.table))

        await stream.run()
        assert calls == ["s.t", 1, "s.t", 2, "s.t", 3]
        assert stream.position == end
        await source.until_closed()


async def test_a_failing_handler_ends_the_run_and_the_checkpoint_stays() -> None:
    log = Log()
    end_of_first = three_transactions(log)(1)
    async with serving(mysql(log)) as source:
        stream = replica.connect(source.dsn, start="earliest")

        @stream.on(WriteRowsEvent)
        def fail(event: WriteRowsEvent) -> None:
            if event.rows == [(2,)]:
                raise LookupError("of the handler")

        with pytest.raises(LookupError, match="of the handler"):
            await stream.run()
        assert stream.position == end_of_first
        with pytest.raises(RuntimeError, match="runs once: connect a new stream"):
            await stream.run()
        await source.until_closed()


async def test_a_pattern_without_a_table_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """A stream that follows has no end, at which it would be told; the table may be made later, so it goes on."""
    log = transaction(Log(), 1)
    with caplog.at_level(logging.WARNING, "replica"):
        async with serving(SocketSource(log.raw, columns=[INT_COLUMN])) as source:
            events = await collect(source, 1, events=RowsEvent, tables=["s.t", "s.order", "sys.x", "s.tt"])
    assert values(events) == [1]
    told = [record.getMessage() for record in caplog.records]
    assert [text.split(" -- ")[0].partition("127.0.0.1")[0] for text in told] == [
        "tables: 's.order' matches no table of ",
        "tables: 's.tt' matches no table of ",
    ]
    assert told[1].endswith("that repl may see")
    assert {record.event for record in caplog.records} == {"pattern-unmatched"}  # type: ignore[attr-defined]
