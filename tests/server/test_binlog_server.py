"""BinlogServer in front of real replicas and the servers' own tools, which take it for the source."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path

import pytest

from protocol.constants import EventFlag, EventType
from protocol.errors import ReplicaError, ServerError
from protocol.gtid import GtidSet
from replica import BinlogStream
from replica.config.options import Options
from replica.server import BinlogServer
from replica.source.session import Session
from tests.faults.waiting import until
from tests.server.support.served_replicas import (
    CONNECTIONS,
    MARIADB,
    MYSQL,
    acknowledges_everything,
    of_ours,
    of_the_source,
    on,
    shell,
)
from tests.support.servers import Server

from .support.served_logs import (
    PASSWORD,
    TABLE,
    USER,
    GrowingLog,
    Recorded,
    catch_up,
    checksum_of,
    follow,
    serve,
    status_of,
    trouble,
    unfollow,
)
from .support.streams import SECONDS

# The servers' tools


TLS_OPTIONS = {
    ("mysql", True): ("--ssl-mode=REQUIRED",),
    ("mysql", False): ("--ssl-mode=DISABLED", "--get-server-public-key"),
    # Its default: encrypted, and the certificate verified by the password.
    ("mariadb", True): (),
    ("mariadb", False): ("--skip-ssl",),
}


@pytest.mark.parametrize("tls", [True, False])
async def test_the_tool_prints_what_it_prints_of_the_source(recorded: Recorded, tls: bool) -> None:
    """Byte for byte; compared where it is printed, as it is up to 90 MB."""
    source, first = recorded.source, recorded.files[0]
    options = TLS_OPTIONS[source.family, tls]
    async with serve(recorded.folder, source, full_authentication=True) as ours:
        for what in (
            ("-vv", "--to-last-log", first),
            ("-vv", "--hexdump", "--stop-position=2000", first),
            ("--start-datetime=2000-01-01 00:00:00", "--database=shop", recorded.files[-1]),
        ):
            script = f"""
                {shell(*of_the_source(source, *what))} >/tmp/theirs || exit 1
                {shell(*of_ours(source, ours, *options, *what))} >/tmp/ours || exit 2
                cmp /tmp/theirs /tmp/ours >&2 || exit 3
                stat -c %s /tmp/ours
            """
            assert int(await asyncio.to_thread(source.exec, "bash", "-c", script)) > 1000


async def test_the_tool_follows(recorded: Recorded) -> None:
    """--stop-never prints the same up to the log's end, and then waits for more."""
    source, first = recorded.source, recorded.files[0]
    whole = shell(*of_the_source(source, "-vv", "--to-last-log", first))
    expected = int(
        await asyncio.to_thread(source.exec, "bash", "-c", f"{whole} >/tmp/theirs; stat -c %s /tmp/theirs")
    )
    async with serve(recorded.folder, source) as ours:
        follow = shell(*of_ours(source, ours, "-vv", "--stop-never", first))
        script = f"{follow} >/tmp/followed 2>/tmp/errors & echo $!"
        process = (await asyncio.to_thread(source.exec, "bash", "-c", script)).decode().strip()
        try:
            await until(lambda: bool(ours.replicas) and ours.replicas[0].is_waiting)
            [waiting] = ours.replicas
            assert waiting.sent is not None
            assert waiting.sent.file == recorded.files[-1]
            # Neither what it adds at its end nor what is still in its buffer is there.
            size = expected - (1 << 16)
            await until(lambda: int(source.exec("stat", "-c", "%s", "/tmp/followed")) >= size)
            compared = await asyncio.to_thread(
                source.exec, "bash", "-c", f"cmp -n {size} /tmp/theirs /tmp/followed >&2 && echo equal"
            )
            assert compared == b"equal\n"
            assert [one.is_waiting for one in ours.replicas] == [True]
        finally:
            await asyncio.to_thread(source.exec, "bash", "-c", f"kill {process}")


# Real replicas


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("by_gtid", [True, False])
async def test_a_real_replica(recorded: Recorded, follower: Server, by_gtid: bool, tls: bool) -> None:
    """More than 100,000 rows, by position and by GTID, encrypted and not; then it waits, kept by heartbeats."""
    options = CONNECTIONS[follower.family, tls]
    async with serve(recorded.folder, follower, full_authentication=True) as ours:
        try:
            await asyncio.to_thread(
                follow, follower, ours, by_gtid=by_gtid, file=recorded.files[0], options=options
            )
            await asyncio.to_thread(catch_up, follower, recorded.executed)
            [(count,)] = await asyncio.to_thread(follower.query, f"SELECT COUNT(*) FROM {TABLE}")
            assert count > 100_000
            assert await asyncio.to_thread(checksum_of, follower) == recorded.checksum
            await until(lambda: heartbeats(follower) > 1)
            assert trouble(follower) == {}
            [connected] = ours.replicas
            assert connected.server_id == follower.server_id
            assert connected.registered is not None
            assert connected.is_waiting
            source = {name.replace("Master", "Source"): value for name, value in status_of(follower).items()}
            assert (source["Source_Log_File"], source["Read_Source_Log_Pos"]) == (
                recorded.files[-1],
                (recorded.folder / recorded.files[-1]).stat().st_size,
            )
        finally:
            await asyncio.to_thread(unfollow, follower)


def heartbeats(server: Server) -> int:
    if server.family == "mysql":
        table = "performance_schema.replication_connection_status"
        return int(server.query(f"SELECT COUNT_RECEIVED_HEARTBEATS FROM {table}")[0][0])
    return int(server.query("SHOW STATUS LIKE 'Slave_received_heartbeats'")[0][1])


def has_been_sent(log: GrowingLog, ours: BinlogServer) -> bool:
    return any(one.sent is not None and log.has(one.sent) for one in ours.replicas)


@pytest.mark.parametrize("by_gtid", [True, False])
async def test_a_real_replica_of_files_that_grow(
    recorded: Recorded, follower: Server, by_gtid: bool, tmp_path: Path
) -> None:
    """The log is written piece by piece, and the server is gone in between: the replica connects again.

    But for MariaDB by position: when it loses any source between the rows events of one statement, it stops (1595).
    """
    log = GrowingLog(recorded, tmp_path)
    log.grow()
    restarts = by_gtid or follower.family == "mysql"
    ours = serve(tmp_path, follower)
    try:
        await ours.start()
        options = CONNECTIONS[follower.family, True]
        await asyncio.to_thread(follow, follower, ours, by_gtid=by_gtid, file=log.names[0], options=options)
        while log.grow():
            await until(partial(has_been_sent, log, ours))
            if restarts:
                await ours.aclose()
                ours = serve(tmp_path, follower, port=ours.port)
                await ours.start()
        await asyncio.to_thread(catch_up, follower, recorded.executed)
        assert await asyncio.to_thread(checksum_of, follower) == recorded.checksum
    finally:
        await ours.aclose()
        await asyncio.to_thread(unfollow, follower)


@on(MYSQL)
async def test_a_real_semi_synchronous_replica_of_mysql(recorded: Recorded, follower: Server) -> None:
    follower.query("INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'")
    follower.query("SET GLOBAL rpl_semi_sync_replica_enabled = 1")
    try:
        await acknowledges_everything(recorded, follower, "SOURCE_SSL = 1")
    finally:
        follower.query("UNINSTALL PLUGIN rpl_semi_sync_replica")


@on(MARIADB)
async def test_a_real_semi_synchronous_replica_of_mariadb(recorded: Recorded, follower: Server) -> None:
    follower.query("SET GLOBAL rpl_semi_sync_slave_enabled = 1")
    try:
        await acknowledges_everything(recorded, follower, "MASTER_SSL = 1")
    finally:
        follower.query("SET GLOBAL rpl_semi_sync_slave_enabled = 0")


# Event for event


async def raw_events(options: Options, ask: object) -> list[bytes]:
    """All events of a dump that does not wait for new events."""
    events: list[bytes] = []
    session = await Session.open(options)
    try:
        await begin(session, ask)
        while batch := await session.read_events(SECONDS):
            events += batch
    finally:
        await session.aclose()
    return events


async def begin(session: Session, ask: object) -> None:
    """Ask for a dump from a file and position, without a set's transactions, or behind a state of MariaDB's."""
    await session.query("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'")
    await session.query("SET @mariadb_slave_capability = 4")
    if isinstance(ask, tuple):
        file, position = ask
        session.start_dump(file, position, 0, 3)
    elif isinstance(ask, GtidSet):
        session.start_dump_gtid(ask.encode(), 0, 3)
    else:
        await session.query(f"SET @slave_connect_state = '{ask}'")
        session.start_dump("", 4, 0, 3)


async def test_dumps_are_those_of_the_source(recorded: Recorded) -> None:
    """Byte for byte: from places and by sets, with what is said around the events."""
    source, (first, second) = recorded.source, recorded.files
    starts = starts_of_events((recorded.folder / first).read_bytes())
    asks: list[object] = [("", 4), (second, 4), *((first, start) for start in starts[1::7])]
    if source.family == "mysql":
        [(uuid,)] = source.query("SELECT @@server_uuid")
        sets = ("", ":1-5", ":1-12", ":1-3:7-9:15", ":1-999")
        asks += [
            GtidSet(recorded.executed) & GtidSet(f"{uuid}{numbers}" if numbers else "") for numbers in sets
        ]
    theirs = Options.build(source.dsn(), {"tls": "disabled"})
    async with BinlogServer(recorded.folder, user=USER, password=PASSWORD) as ours:
        mine = Options.build(f"mysql://{USER}:{PASSWORD}@127.0.0.1:{ours.port}", {"tls": "disabled"})
        for ask in asks:
            assert first_difference(await raw_events(mine, ask), await raw_events(theirs, ask)) == "", ask


@on(MARIADB)
async def test_dumps_by_state_are_those_of_the_source(recorded: Recorded) -> None:
    """Since 11.4 the source begins inside of the file, by an index of its own: from the first transaction on."""
    server_id = recorded.source.server_id
    theirs = Options.build(recorded.source.dsn(), {"tls": "disabled"})
    async with BinlogServer(recorded.folder, user=USER, password=PASSWORD) as ours:
        mine = Options.build(f"mysql://{USER}:{PASSWORD}@127.0.0.1:{ours.port}", {"tls": "disabled"})
        for state in ("", *(f"0-{server_id}-{number}" for number in (1, 2, 9, 13, 22)), recorded.executed):
            found, expected = [transactions(await raw_events(options, state)) for options in (mine, theirs)]
            assert first_difference(found, expected) == "", state


def transactions(events: list[bytes]) -> list[bytes]:
    """The events from the first GTID on, without what no file holds."""
    kinds = [raw[4] for raw in events]
    first = kinds.index(EventType.MARIADB_GTID) if EventType.MARIADB_GTID in kinds else len(kinds)
    return [raw for raw in events[first:] if not raw[17] & EventFlag.ARTIFICIAL]


def first_difference(found: list[bytes], expected: list[bytes]) -> str:
    """Where two dumps part; empty if they do not."""
    for index, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            return f"event {index}: {one[:200].hex(' ')} instead of {other[:200].hex(' ')}"
    return "" if len(found) == len(expected) else f"{len(found)} events instead of {len(expected)}"


def starts_of_events(content: bytes) -> list[int]:
    starts, position = [], 4
    while position < len(content):
        starts.append(position)
        position += int.from_bytes(content[position + 9 : position + 13], "little")
    return starts


# Refusals


async def refusal(options: Options, ask: object) -> tuple[int, str]:
    """Code and text of what a dump is refused with."""
    with pytest.raises(ServerError) as caught:
        await raw_events(options, ask)
    return caught.value.code, caught.value.message


async def test_refusals_are_those_of_the_source(recorded: Recorded) -> None:
    """In the same words; only the part that says how far a server has read in vain may differ."""
    source, first = recorded.source, recorded.files[0]
    content = (recorded.folder / first).read_bytes()
    asks: list[object] = [("binlog.999999", 4), (first, len(content) + 1), (first, 3), (first, 0)]
    if source.family == "mysql":
        [(uuid,)] = source.query("SELECT @@server_uuid")
        asks += [GtidSet(f"{uuid}:1-99999")]
    else:
        asks += ["0-99-99999", "0-99-1", f"0-{source.server_id}-99999", f"0-{source.server_id + 1}-1"]
    theirs = Options.build(source.dsn(), {"tls": "disabled"})
    async with BinlogServer(recorded.folder, user=USER, password=PASSWORD) as ours:
        mine = Options.build(f"mysql://{USER}:{PASSWORD}@127.0.0.1:{ours.port}", {"tls": "disabled"})
        for ask in asks:
            assert await refusal(mine, ask) == await refusal(theirs, ask)
        for offset in sorted(set(range(5, 600, 7)) - set(starts_of_events(content))):
            code, text = await refusal(mine, (first, offset))
            assert code == 1236
            assert text.partition(";")[0] in _INSIDE


_INSIDE = (
    "bogus data in log event",
    "log event entry exceeded max_allowed_packet",
    "binlog truncated in the middle of event",
)


@on(MYSQL)
async def test_what_was_purged_is_refused_as_the_source_does(recorded: Recorded, tmp_path: Path) -> None:
    for name in (*recorded.files[1:], "auto.cnf"):
        (tmp_path / name).write_bytes((recorded.folder / name).read_bytes())
    (tmp_path / "binlog.index").write_text("".join(f"./{name}\n" for name in recorded.files[1:]))
    async with BinlogServer(tmp_path, user=USER, password=PASSWORD) as ours:
        stream = BinlogStream(
            Options.build(f"mysql://{USER}:{PASSWORD}@127.0.0.1:{ours.port}", {"start": GtidSet()})
        )
        with pytest.raises(ReplicaError, match="has deleted these transactions"):
            async with stream:
                await anext(stream)
        options = Options.build(f"mysql://{USER}:{PASSWORD}@127.0.0.1:{ours.port}", {})
        code, text = await refusal(options, GtidSet())
    assert code == 1236
    [(uuid,)] = recorded.source.query("SELECT @@server_uuid")
    missing = re.fullmatch(
        r"Cannot replicate because the source purged required binary logs\. .* The GTID set sent by the replica is "
        rf"'', and the missing transactions are '{uuid}:1-\d+'",
        text,
    )
    assert missing
