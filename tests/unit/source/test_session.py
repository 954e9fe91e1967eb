"""The session against a scripted source on loopback: logins, answers, and each way in which they fail."""

from __future__ import annotations

import asyncio
import time

import pytest

from protocol.constants import EventType
from protocol.conversation.commands import BinlogDump
from protocol.conversation.messages import Err, Ok
from protocol.errors import (
    AuthenticationError,
    ConnectionLostError,
    PositionPastEndError,
    ProtocolError,
    ServerError,
    SourceConfigurationError,
    SourceSilentError,
)
from replica.config.options import Options
from replica.source import session as session_module
from replica.source.server_facts import ask, introduce
from replica.source.session import Session
from tests.support.raw_events import query, raw_event
from tests.support.socket_source import MYSQL_VARIABLES, SocketSource, serving, until


def options(source: SocketSource, **given: object) -> Options:
    return Options.build(source.dsn, given)


async def test_login_and_queries() -> None:
    async with serving(SocketSource(answers={"SELECT 1": [("1", None)], "SELECT NULL": [(None,)]})) as source:
        session = await Session.open(options(source))
        assert session.handshake.version == (9, 7, 4)
        assert not session.uses_tls
        assert await session.query("SELECT 1") == [("1", None)]
        assert await session.query("SET @a = 1") == []
        assert await session.query_value("SELECT 1") == "1"
        assert await session.query_value("SELECT NULL") == ""
        await session.aclose()
        await source.until_closed()


async def test_a_server_that_does_not_know_a_variable_of_its_version() -> None:
    """Servers of other families tell a version of MySQL: what they all know is set."""
    asked = []

    def settings(sql: str) -> Ok | Err:
        asked.append(sql)
        return Err(1193, "HY000", "Unknown system variable 'max_execution_time'") if "max_ex" in sql else Ok()

    async with serving(SocketSource(settings=settings)) as source:
        session = await Session.open(options(source))
        await session.aclose()
    whole, common = asked
    assert whole.startswith(f"{common}, max_execution_time = 0, ")
    assert "sql_select_limit" in common


async def test_settings_that_are_refused() -> None:
    """As by an init_connect that has failed: the first statement gets the error."""
    refusal = Err(1184, "08S01", "Aborted connection: init_connect command failed")
    async with serving(SocketSource(settings=lambda sql: refusal)) as source:
        with pytest.raises(ServerError, match="init_connect"):
            await Session.open(options(source))
        await source.until_closed()


async def test_a_refused_login() -> None:
    refusal = Err(1045, "28000", "Access denied for user 'repl'@'localhost'")
    async with serving(SocketSource(refuses_login=refusal)) as source:
        with pytest.raises(AuthenticationError, match=r"Access denied .* -- check user and password"):
            await Session.open(options(source))
        await source.until_closed()


async def test_a_login_that_takes_too_long() -> None:
    """PostgreSQL and web servers, too, wait for the client's first word."""
    async with serving(SocketSource(silent_for="login")) as source:
        with pytest.raises(
            ConnectionLostError, match=r"within 0\.1 s .*: it sent nothing -- is this its port\?$"
        ):
            await Session.open(options(source, connect_timeout=0.1))
        await source.until_closed()


async def test_a_cancelled_login_leaves_no_connection() -> None:
    async with serving(SocketSource(silent_for="login")) as source:
        login = asyncio.create_task(Session.open(options(source)))
        await until(lambda: source.writers)
        login.cancel()
        with pytest.raises(asyncio.CancelledError):
            await login
        await source.until_closed()


# Of SSH, of HTTP, and of MySQL's X protocol on port 33060.
@pytest.mark.parametrize(
    "greeting", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 400 Bad Request\r\n", b"\5\0\0\0\x0b\x08\5\x1a\0"]
)
async def test_what_is_no_mysql(greeting: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(
            ProtocolError, match=rf"127\.0\.0\.1:{port} does not answer .* is this its port\?"
        ):
            await Session.open(Options.build(f"mysql://repl@127.0.0.1:{port}", {}))


async def test_tls_that_is_required_and_not_offered() -> None:
    async with serving(SocketSource()) as source:
        with pytest.raises(SourceConfigurationError, match="TLS"):
            await Session.open(Options.build(source.dsn.replace("disabled", "required"), {}))
        await source.until_closed()


async def test_after_a_refused_query_the_session_goes_on() -> None:
    answers = {"SHOW": Err(1227, "42000", "Access denied"), "SELECT": [("1",)]}
    async with serving(SocketSource(answers=answers)) as source:  # type: ignore[arg-type]
        session = await Session.open(options(source))
        with pytest.raises(ServerError, match="1227"):
            await session.query("SHOW BINARY LOGS")
        assert await session.query_value("SELECT 1") == "1"
        await session.aclose()


async def test_an_answer_that_takes_too_long() -> None:
    async with serving(SocketSource(silent_for="SELECT SLEEP")) as source:
        session = await Session.open(options(source, connect_timeout=0.2))
        with pytest.raises(ConnectionLostError, match=r"did not answer within 0\.2 s"):
            await session.query("SELECT SLEEP(100)")
        await session.aclose()


@pytest.mark.parametrize("state", ["executing", "Waiting for table metadata lock", None])
async def test_a_server_that_works_on_an_answer_has_longer(state: str | None) -> None:
    """Asked over another connection each time, until it says something else."""
    says = [state, state, "Waiting for table flush"]
    asked: list[str | None] = []

    def processes() -> list[tuple[str | None, ...]]:
        asked.append(says.pop(0))
        command = "Sleep" if asked[-1] is None else "Query"
        return [("7", "repl", "127.0.0.1", None, command, "1", asked[-1] or "")]

    source = SocketSource(silent_for="SELECT SLEEP", answers={"SHOW PROCESSLIST": processes})
    async with serving(source):
        session = await Session.open(options(source, connect_timeout=0.5))
        with pytest.raises(ConnectionLostError, match=r"did not answer within 0\.5 s"):
            await session.query("SELECT SLEEP(100)")
        await session.aclose()
    assert len(asked) == (3 if state == "executing" else 1)


async def test_a_server_that_does_not_say_what_it_works_on() -> None:
    """The second connection asks nobody."""
    source = SocketSource(silent_for="S")
    async with serving(source):
        session = await Session.open(options(source, connect_timeout=0.5))
        with pytest.raises(ConnectionLostError, match=r"did not answer within 0\.5 s"):
            await session.query("SELECT 1")
        await session.aclose()
    assert source.statements == ["SELECT 1", "SHOW PROCESSLIST"]


async def test_a_cancelled_query_closes_the_connection() -> None:
    async with serving(SocketSource(silent_for="SELECT SLEEP")) as source:
        session = await Session.open(options(source))
        asking = asyncio.create_task(session.query("SELECT SLEEP(100)"))
        await until(lambda: source.statements)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await source.until_closed()
        await session.aclose()


EVENTS = [query(f"-- {number}") for number in range(3)]


async def dump(source: SocketSource, **given: object) -> Session:
    session = await Session.open(options(source, **given))
    await session.register()
    session.start_dump("binlog.000001", 4, 4711, 0)
    return session


async def read(session: Session, silence: float | None = None, count: int = 0) -> list[bytes]:
    events: list[bytes] = []
    while len(events) < (count or len(EVENTS)):
        events += await session.read_events(silence)
    return events


async def test_a_dump() -> None:
    async with serving(SocketSource(EVENTS, ends_dump=True)) as source:
        session = await dump(source)
        assert await read(session) == EVENTS
        assert await session.read_events(None) == []
        assert await session.read_events(None) == []
        assert source.dumps == [BinlogDump("binlog.000001", 4, 4711, 0)]
        await session.aclose()


async def test_a_refused_dump() -> None:
    text = "Client requested source to start replication from position > file size"
    async with serving(SocketSource(refuses_dump=Err(1236, "HY000", text))) as source:
        session = await dump(source)
        with pytest.raises(PositionPastEndError, match="choose a new start"):
            await session.read_events(None)
        await session.aclose()


async def test_silence() -> None:
    async with serving(SocketSource(EVENTS)) as source:
        session = await dump(source)
        assert await read(session, 5) == EVENTS
        with pytest.raises(SourceSilentError, match=r"neither events nor heartbeats for 0\.1 s"):
            await session.read_events(0.1)
        await session.aclose()


async def test_heartbeats_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of the log ended never if the source sent nothing else."""
    monkeypatch.setattr(session_module, "_LONGEST_SEARCH", 0.0)
    beats = [*EVENTS, *[raw_event(EventType.HEARTBEAT, b"binlog.000001")] * 40_000]
    async with serving(SocketSource(beats)) as source:
        session = await dump(source)
        with pytest.raises(ProtocolError, match="has sent nothing of its log for 0 h, and heartbeats all"):
            await read(session, 5, len(beats))
        await session.aclose()


async def test_a_cut_connection() -> None:
    async with serving(SocketSource(EVENTS, closes_after_events=True)) as source:
        session = await dump(source)
        assert await read(session) == EVENTS
        with pytest.raises(ConnectionLostError, match="closed the connection during the binlog dump"):
            await session.read_events(None)
        await session.aclose()


async def test_abort_wakes_who_reads() -> None:
    async with serving(SocketSource()) as source:
        session = await dump(source)
        reading = asyncio.create_task(session.read_events(None))
        await until(lambda: source.dumps)
        session.abort()
        with pytest.raises(ConnectionLostError):
            await reading
        await session.aclose()


# Statements before a dump.


async def test_mysql_is_introduced_to() -> None:
    variables = MYSQL_VARIABLES | {"gtid_mode": "ON", "binlog_checksum": "CRC32"}
    async with serving(SocketSource(variables=variables)) as source:
        session = await Session.open(options(source, heartbeat=2.5))
        facts = await ask(session)
        assert await introduce(session, facts, options(source, heartbeat=2.5)) is True
        await session.aclose()
    assert (facts.server_id, facts.server_uuid) == (97, MYSQL_VARIABLES["server_uuid"])
    assert facts.has_gtids
    assert facts.dump_flags == 0
    assert source.statements[-3:] == [
        "SET @master_heartbeat_period = 2500000000, @source_heartbeat_period = 2500000000",
        "SET @master_binlog_checksum = @@global.binlog_checksum, "
        "@source_binlog_checksum = @@global.binlog_checksum",
        "SELECT @master_binlog_checksum",
    ]


async def test_mariadb_is_introduced_to() -> None:
    variables = {"log_bin": "ON", "binlog_format": "ROW", "binlog_checksum": "NONE", "server_id": "7"}
    async with serving(SocketSource(variables=variables, version="11.8.6-MariaDB")) as source:
        session = await Session.open(options(source))
        facts = await ask(session)
        assert await introduce(session, facts, options(source)) is False
        await session.aclose()
    assert (facts.is_mariadb, facts.has_gtids, facts.server_uuid, facts.dump_flags) == (True, True, None, 2)
    assert source.statements[-4:] == [
        "SET @master_heartbeat_period = 30000000000",
        "SET @master_binlog_checksum = @@global.binlog_checksum",
        "SET @mariadb_slave_capability = 4",
        "SELECT @master_binlog_checksum",
    ]


async def test_a_server_before_checksums() -> None:
    variables = {"log_bin": "ON", "binlog_format": "ROW", "server_id": "7"}
    async with serving(SocketSource(variables=variables, version="5.5.62")) as source:
        session = await Session.open(options(source))
        facts = await ask(session)
        assert await introduce(session, facts, options(source)) is False
        await session.aclose()
    settings = [sql for sql in source.statements if sql.startswith("SET @")]
    assert settings == ["SET @master_heartbeat_period = 30000000000, @source_heartbeat_period = 30000000000"]


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"log_bin": "OFF"}, "--log-bin"),
        ({"binlog_format": "STATEMENT"}, "binlog_format=ROW"),
        ({"binlog_format": "MIXED"}, "binlog_format=ROW"),
    ],
)
async def test_settings_that_do_not_do(change: dict[str, str], remedy: str) -> None:
    async with serving(SocketSource(variables=MYSQL_VARIABLES | change)) as source:
        session = await Session.open(options(source))
        facts = await ask(session)
        with pytest.raises(SourceConfigurationError, match=remedy):
            facts.check()
        await session.aclose()


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
async def test_a_local_clock_that_is_set_does_not_move_the_clock_of_the_source(
    jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream with a stop by time ended at once, and rows up to that time were missing; or it ended an hour late."""
    async with serving(SocketSource()) as source:
        session = await Session.open(options(source))
        facts = await ask(session)
        before, local = facts.now, time.time
        assert facts.clock_offset == pytest.approx(before - local(), abs=60)
        monkeypatch.setattr(time, "time", lambda: local() + jump)
        assert facts.now == pytest.approx(before, abs=60)
        await session.aclose()
