"""Semi-sync streams: which places are acknowledged, and when. Events and other streams stay the same."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import replica
from protocol.position import BinlogPosition, Checkpoint
from replica import (
    BinlogStream,
    CheckpointError,
    DeleteRowsEvent,
    GtidSet,
    QueryEvent,
    ReconnectPolicy,
    WriteRowsEvent,
    XidEvent,
)
from replica.config.options import Options
from replica.server import BinlogServer
from replica.server.send_dump import _TransactionEnds
from replica.source.semi_sync import confirmed_place, overdue_place
from replica.source.server_facts import ask
from replica.source.session import Session
from replica.transactions.boundary import Progress
from tests.support.log_builder import SOURCE_ID, LogBuilder
from tests.support.scripted_log import GTIDS_ON, Log, mysql, transaction
from tests.support.served import (
    PASSWORD,
    USER,
    mariadb_log,
    mariadb_transaction,
    mysql_log,
    serving,
    write_mysql_files,
)
from tests.support.socket_source import UUID, SocketSource, until
from tests.support.socket_source import serving as scripted

SECONDS = 20
OTHER = UUID.replace("1", "7")
QUICK = ReconnectPolicy(initial=0.001, maximum=0.001)


class Acknowledged(list[tuple[str, int]]):
    """The places that were acknowledged, in order."""


@pytest.fixture
def acknowledged(monkeypatch: pytest.MonkeyPatch) -> Acknowledged:
    told = Acknowledged()
    real = Session.acknowledge_unasked

    def acknowledge(self: Session, file: str, position: int) -> None:
        told.append((file, position))
        real(self, file, position)

    monkeypatch.setattr(Session, "acknowledge_unasked", acknowledge)
    return told


class SlowStore:
    """A store whose ``save`` returns only when the test lets it, and fails if the test says so."""

    def __init__(self) -> None:
        self.saved: list[Checkpoint] = []
        self.began: list[Checkpoint] = []
        self.goes_on = asyncio.Event()
        self.fails = False

    def load(self) -> Checkpoint | None:
        return self.saved[-1] if self.saved else None

    async def save(self, checkpoint: Checkpoint) -> None:
        self.began.append(checkpoint)
        await self.goes_on.wait()
        if self.fails:
            raise CheckpointError("no room")
        self.saved.append(checkpoint)


def stream_of(server: BinlogServer, **given: object) -> BinlogStream:
    options = {
        "host": "127.0.0.1",
        "port": server.port,
        "user": USER,
        "password": PASSWORD,
        "tls": "disabled",
        "start": "earliest",
        "semi_sync": True,
        "columns": None,
        "on_schema_mismatch": "positional",
    }
    return replica.connect(**(options | given))  # type: ignore[arg-type]


def write(folder: Path, log: LogBuilder) -> Path:
    path = folder / "bin.000001"
    path.write_bytes(log.data)
    return path


def three(folder: Path) -> tuple[Path, list[int]]:
    """A log of three transactions, and the position where each transaction ends."""
    log = mysql_log()
    ends = []
    for number in (1, 2, 3):
        log.transaction([number], sequence=number)
        ends.append(len(log.data))
    return write(folder, log), ends


async def read_to(stream: BinlogStream, kind: type[replica.Event]) -> None:
    async with asyncio.timeout(SECONDS):
        while not isinstance(await anext(stream), kind):
            pass


async def test_a_transaction_is_acknowledged_when_the_consumer_comes_back(
    tmp_path: Path, acknowledged: Acknowledged
) -> None:
    path, ends = three(tmp_path)
    async with serving(path, semi_sync=True) as server, stream_of(server) as stream:
        for number, end in enumerate(ends):
            await read_to(stream, XidEvent)
            assert acknowledged == [(path.name, before) for before in ends[:number]], end
        reading = asyncio.create_task(anext(stream))
        [connected] = server.replicas
        await until(lambda: connected.acknowledged == BinlogPosition(path.name, ends[-1]))
        reading.cancel()
        assert stream.status.semi_sync


async def test_what_comes_before_the_stop_is_acknowledged(tmp_path: Path, acknowledged: Acknowledged) -> None:
    path, ends = three(tmp_path)
    stop = BinlogPosition(path.name, ends[1])
    async with serving(path, semi_sync=True) as server, stream_of(server, stop=stop) as stream:
        assert [event async for event in stream]
        assert acknowledged == [(path.name, end) for end in ends[:2]]


async def test_what_is_passed_over_is_acknowledged_at_once(
    tmp_path: Path, acknowledged: Acknowledged
) -> None:
    path, ends = three(tmp_path)
    async with (
        serving(path, semi_sync=True) as server,
        stream_of(server, events=QueryEvent, tables="nowhere.*") as stream,
    ):
        reading = asyncio.create_task(read_to(stream, XidEvent))
        await until(lambda: len(acknowledged) == 3)
        reading.cancel()
    assert acknowledged == [(path.name, end) for end in ends]


async def test_only_what_the_store_has_is_acknowledged(tmp_path: Path, acknowledged: Acknowledged) -> None:
    """The checkpoint that the source waits for is saved at once, whatever the interval."""
    path, ends = three(tmp_path)
    store = SlowStore()
    store.goes_on.set()
    async with (
        serving(path, semi_sync=True) as server,
        stream_of(server, checkpoints=store, checkpoint_interval=3600) as stream,
    ):
        await read_to(stream, XidEvent)
        store.goes_on.clear()
        reading = asyncio.create_task(anext(stream))
        await until(lambda: store.began[-1].position == ends[0])
        await asyncio.sleep(0.05)
        assert acknowledged == []
        # A cancelled call does not lose the acknowledgement.
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert acknowledged == []
        store.goes_on.set()
        await read_to(stream, XidEvent)
        assert acknowledged == [(path.name, ends[0])]
        assert store.saved[-1].position == ends[0]
        await read_to(stream, XidEvent)
        assert acknowledged == [(path.name, end) for end in ends[:2]]
        store.fails = True
        with pytest.raises(CheckpointError, match="no room"):
            await anext(stream)
    assert acknowledged == [(path.name, end) for end in ends[:2]]


async def test_who_says_that_it_is_done_need_not_come_back(
    tmp_path: Path, acknowledged: Acknowledged
) -> None:
    path, ends = three(tmp_path)
    store = SlowStore()
    store.goes_on.set()
    async with serving(path, semi_sync=True) as server, stream_of(server, checkpoints=store) as stream:
        await read_to(stream, WriteRowsEvent)
        await stream.acknowledge()
        assert acknowledged == []
        await read_to(stream, XidEvent)
        await stream.acknowledge()
        assert acknowledged == [(path.name, ends[0])]
        assert store.saved[-1].position == ends[0]
        await stream.acknowledge()
        await read_to(stream, WriteRowsEvent)
        assert acknowledged == [(path.name, ends[0])]


async def test_transactions_and_handlers(tmp_path: Path, acknowledged: Acknowledged) -> None:
    path, ends = three(tmp_path)
    async with serving(path, semi_sync=True) as server:
        async with stream_of(server) as stream:
            told: list[int] = []
            async for transaction in stream.transactions():
                assert len(await transaction.collect()) == 1
                told.append(len(acknowledged))
                if len(told) == 3:
                    break
        assert told == [0, 1, 2]
        acknowledged.clear()
        stream = stream_of(server, stop=BinlogPosition(path.name, ends[1]))
        stream.on(XidEvent)(lambda event: told.append(len(acknowledged)))
        await stream.run()
    assert told[3:] == [0, 1]


async def test_a_compressed_transaction_and_a_large_event(tmp_path: Path, acknowledged: Acknowledged) -> None:
    """Only the first packet of an event has the header. The acknowledged place is the end of the compressed event."""
    log = mysql_log()
    log.compressed_transaction([1, 2], sequence=1)
    ends = [len(log.data)]
    for size in ((1 << 24) - 1 - 100, 2 << 24):
        log.statement(f"CREATE TABLE t (a INT) -- {'x' * size}")
        ends.append(len(log.data))
    log.transaction([3], sequence=2)
    path = write(tmp_path, log)
    async with serving(path, semi_sync=True) as server, stream_of(server) as stream:
        await read_to(stream, XidEvent)
        assert acknowledged == []
        await read_to(stream, XidEvent)
    assert acknowledged == [(path.name, end) for end in ends]


@pytest.mark.thorough
@pytest.mark.parametrize("size", range((1 << 24) - 40, (1 << 24) + 4, 3))
async def test_events_about_as_large_as_a_packet(
    size: int, tmp_path: Path, acknowledged: Acknowledged
) -> None:
    log = mysql_log()
    overhead = 19 + 13 + 1 + 4  # header, fixed part, end of the schema, checksum
    log.statement("CREATE TABLE t -- ".ljust(size - overhead))
    end = len(log.data)
    log.transaction([1])
    path = write(tmp_path, log)
    async with serving(path, semi_sync=True) as server, stream_of(server) as stream:
        await read_to(stream, XidEvent)
    assert acknowledged == [(path.name, end)]


async def test_on_mariadb(tmp_path: Path, acknowledged: Acknowledged) -> None:
    log = mariadb_log()
    ends = []
    for number in (1, 2):
        mariadb_transaction(log, number, standalone=number == 1)
        ends.append(len(log.data))
    path = write(tmp_path, log)
    async with serving(path, semi_sync=True) as server, stream_of(server) as stream:
        await read_to(stream, XidEvent)
        reading = asyncio.create_task(anext(stream))
        await until(lambda: len(acknowledged) == 2)
        reading.cancel()
    assert acknowledged == [(path.name, end) for end in ends]


async def test_asked_after_every_event(
    tmp_path: Path, acknowledged: Acknowledged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that has given up waiting asks after each event. Each answer names only a place that is done."""
    monkeypatch.setattr(_TransactionEnds, "is_end", lambda self, raw: True)
    log = mysql_log()
    log.transaction([1], sequence=1)
    log.compressed_transaction([2], sequence=2)
    path = write(tmp_path, log)
    async with serving(path, semi_sync=True) as server, stream_of(server) as stream:
        await read_to(stream, XidEvent)
        reading = asyncio.create_task(read_to(stream, WriteRowsEvent))
        await reading
        reading = asyncio.create_task(read_to(stream, QueryEvent))
        [connected] = server.replicas
        await until(lambda: connected.acknowledged == BinlogPosition(path.name, len(log.data)))
        reading.cancel()
    claimed = [position for _, position in acknowledged]
    # Previous GTIDs; GTID, BEGIN, table map, rows and end of the first transaction; GTID and payload of the second.
    ends = log.ends
    assert claimed == [ends[1], 4, 4, 4, 4, ends[6], 4, ends[8]]


async def test_over_files(tmp_path: Path, acknowledged: Acknowledged) -> None:
    names = write_mysql_files(tmp_path)
    async with serving(tmp_path / "bin.index", semi_sync=True) as server, stream_of(server) as stream:
        reading = asyncio.create_task(read_to(stream, DeleteRowsEvent))
        await until(lambda: len(acknowledged) == 6)
        reading.cancel()
    assert [file for file, _ in acknowledged] == [name for name in names for _ in range(2)]


@pytest.mark.parametrize("by_gtid", [False, True])
async def test_what_was_done_is_acknowledged_over_the_next_connection(
    by_gtid: bool, tmp_path: Path, acknowledged: Acknowledged
) -> None:
    """The checkpoint is saved first: a source takes everything before the start of a dump as acknowledged."""
    path, ends = three(tmp_path)
    store = SlowStore()
    store.goes_on.set()
    data = path.read_bytes()
    path.write_bytes(data[: ends[1]])
    start = GtidSet() if by_gtid else "earliest"
    async with (
        serving(path, semi_sync=True) as server,
        stream_of(
            server, start=start, reconnect=QUICK, checkpoints=store, checkpoint_interval=3600
        ) as stream,
    ):
        await read_to(stream, XidEvent)
        await read_to(stream, XidEvent)
        store.goes_on.clear()
        [connected] = server.replicas
        assert server._kill(connected.connection_id)
        await until(lambda: not server.replicas)
        reading = asyncio.create_task(read_to(stream, XidEvent))
        await until(lambda: store.began[-1].position == ends[1])
        await asyncio.sleep(0.05)
        assert not server.replicas
        store.goes_on.set()
        await until(lambda: server.replicas)
        [again] = server.replicas
        # The previous connection may have lost the acknowledgement, and the source does not ask again.
        await until(lambda: again.acknowledged == BinlogPosition(path.name, ends[1]))
        path.write_bytes(data)
        await reading
        asking = asyncio.create_task(anext(stream))
        await until(lambda: again.acknowledged == BinlogPosition(path.name, ends[2]))
        asking.cancel()
        assert stream.status.reconnects == 1
    assert acknowledged == sorted(acknowledged)


async def test_a_source_that_cannot_wait(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, _ = three(tmp_path)
    async with serving(path) as server:
        with pytest.raises(replica.SourceConfigurationError, match="INSTALL PLUGIN rpl_semi_sync_source"):
            async with stream_of(server):
                pass
        port = server.port
    async with serving(path, semi_sync=True, port=port) as server:
        stream = await stream_of(server, reconnect=QUICK).__aenter__()
        await read_to(stream, XidEvent)
        assert stream.status.semi_sync
    with caplog.at_level(logging.WARNING):
        async with serving(path, port=port) as server:
            await read_to(stream, XidEvent)
            await read_to(stream, XidEvent)
            reading = asyncio.create_task(anext(stream))
            await until(lambda: stream.status.reconnects == 1)
            assert not stream.status.semi_sync
            await stream.aclose()
            with pytest.raises(StopAsyncIteration):
                await reading
    assert "the source has no semi-synchronous replication" in caplog.text


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        (
            "5.7.44",
            "INSTALL PLUGIN rpl_semi_sync_master SONAME 'semisync_master.so'; SET GLOBAL rpl_semi_sync_master",
        ),
        ("8.0.25", "INSTALL PLUGIN rpl_semi_sync_master"),
        (
            "8.0.26",
            "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'; SET GLOBAL rpl_semi_sync_source",
        ),
        ("10.2.44-MariaDB", "INSTALL PLUGIN rpl_semi_sync_master"),
    ],
)
async def test_the_remedy_is_that_of_the_version(version: str, remedy: str) -> None:
    source = mysql(transaction(Log(), 1), version=version)
    async with scripted(source):
        with pytest.raises(replica.SourceConfigurationError) as caught:
            async with replica.connect(source.dsn, start="earliest", semi_sync=True):
                pass
    assert remedy in str(caught.value)
    assert not source.dumps


async def test_a_source_that_does_not_wait_now(caplog: pytest.LogCaptureFixture) -> None:
    """An administrator may switch semi-sync on at any time. Until then events have the semi-sync header, too."""
    log = transaction(Log(), 1)
    source = SocketSource(
        [b"\xef\x00" + raw for raw in log.raw],
        answers={
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('rpl_semi_sync": [
                ("rpl_semi_sync_source_enabled", "OFF")
            ]
        },
    )
    with caplog.at_level(logging.WARNING):
        async with scripted(source), replica.connect(source.dsn, start="earliest", semi_sync=True) as stream:
            await read_to(stream, XidEvent)
    assert "SET GLOBAL rpl_semi_sync_source_enabled = ON" in caplog.text
    assert source.has_been_asked("SET @rpl_semi_sync_replica = 1, @rpl_semi_sync_slave = 1")


async def test_nothing_is_asked_for_without_the_option() -> None:
    source = mysql(transaction(Log(), 1))
    async with scripted(source), replica.connect(source.dsn, start="earliest") as stream:
        await read_to(stream, XidEvent)
        assert not stream.status.semi_sync
    assert not any(
        "semi_sync" in sql for sql in source.statements if not sql.startswith("SHOW GLOBAL VARIABLES")
    )


def test_the_place_of_another_server_is_not_acknowledged() -> None:
    progress = Progress("bin.000007", 5000, None, has_gtids=True)
    assert confirmed_place(progress, "bin.000003", 700) == ("bin.000003", 4)
    assert confirmed_place(progress, "bin.000007", 5000) == ("bin.000007", 5000)


@pytest.mark.parametrize(
    ("version", "place"),
    [
        ("9.7.4", ("bin.000007", 5000)),
        ("5.7.44", ("bin.000007", 5000)),
        ("5.6.51", None),
        ("10.3.39-MariaDB", ("bin.000007", 5000)),
    ],
)
async def test_what_is_acknowledged_unasked(version: str, place: tuple[str, int] | None) -> None:
    async with scripted(SocketSource(version=version)) as source:
        session = await Session.open(Options.build(source.dsn, {}))
        facts = await ask(session)
        session.expect_semi_sync()
        here, there = (facts.server_uuid, facts.server_id), (OTHER, 98)
        known = Progress("bin.000007", 5000, None, has_gtids=True)
        assert overdue_place(session, facts, here, known) == place
        assert overdue_place(session, facts, here, Checkpoint("bin.000007", 5000)) == place
        assert overdue_place(session, facts, there, known) is None
        assert overdue_place(session, facts, here, Progress("", 4, None, has_gtids=True)) is None
        await session.aclose()


async def test_what_a_process_before_has_done(tmp_path: Path, acknowledged: Acknowledged) -> None:
    """The process was killed between saving and acknowledging: the source may still wait."""
    path, ends = three(tmp_path)
    async with serving(path, semi_sync=True) as server:
        uuid = server.server_uuid
        for start in (
            Checkpoint(path.name, ends[1], f"{SOURCE_ID}:1-2", uuid, 1),
            Checkpoint(path.name, ends[1], None, uuid, 1),
        ):
            async with stream_of(server, start=start) as stream:
                await read_to(stream, WriteRowsEvent)
                assert acknowledged == [(path.name, ends[1])]
            acknowledged.clear()
        async with stream_of(
            server, start=Checkpoint(path.name, ends[1], f"{SOURCE_ID}:1-2", OTHER, 1)
        ) as stream:
            await read_to(stream, WriteRowsEvent)
            assert acknowledged == []


@pytest.mark.parametrize(
    "owned", ["", f"{UUID}:3#15", f"{UUID}:4#11:3#12{UUID}:tag:1#7", f"{OTHER}:9#1{UUID}:3#8"]
)
async def test_transactions_that_the_source_is_still_committing(owned: str) -> None:
    """A semi-sync replica already has these transactions, and may go on after them."""
    answers = {
        "SELECT @@GLOBAL.gtid_executed": [(f"{UUID}:1-2",)],
        "SELECT @@GLOBAL.gtid_purged": [("",)],
        "SELECT @@GLOBAL.gtid_owned": [(owned,)],
    }
    source = mysql(transaction(Log(), 1), variables=GTIDS_ON, answers=answers)
    async with scripted(source):
        stream = replica.connect(source.dsn, start=GtidSet(f"{UUID}:1-3"))
        if owned:
            async with stream:
                await until(lambda: source.dumps)
        else:
            with pytest.raises(replica.TransactionsUnavailableError, match=f"{UUID}:3"):
                await stream.__aenter__()


def test_a_relay_does_not_acknowledge(tmp_path: Path) -> None:
    from replica.relay import BinlogRelay

    with pytest.raises(replica.ConfigurationError, match="semi_sync"):
        BinlogRelay("mysql://repl@127.0.0.1/?semi_sync=true", tmp_path)
