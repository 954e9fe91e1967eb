"""Several hosts: in DSNs and arguments, tried in order, and the error if all of them fail."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import replica
from protocol.conversation.messages import Err
from protocol.errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectionLostError,
    ReplicaError,
    ServerError,
    SourceChangedError,
    SourceConfigurationError,
    TransactionsUnavailableError,
)
from protocol.position import BinlogPosition, Checkpoint
from replica.config.options import Options
from replica.relay import BinlogRelay
from replica.source.hosts import first_host
from replica.source.session import Session
from tests.support.socket_source import SocketSource, serving, until

SECRET = "s3cr3t-Passw0rd"


def build(dsn: str | None, **given: object) -> Options:
    return Options.build(dsn, {"user": "repl", **given})


HOSTS = [
    ("db1", {}, "db1:3306"),
    ("db1:3307", {}, "db1:3307"),
    ("db1:3307", {"port": 3308}, "db1:3308"),
    ("db1:3307", {"host": "db2"}, "db2:3307"),
    ("db1,db2", {}, "db1:3306, db2:3306"),
    ("db1:3306,db2:3307,[::1]:3308", {}, "db1:3306, db2:3307, [::1]:3308"),
    ("[::1],db2,[fe80::1%25eth0]", {}, "[::1]:3306, db2:3306, [fe80::1%eth0]:3306"),
    ("db1:3307,db2", {"port": 3308}, "db1:3307, db2:3308"),
    ("db1,db2", {"host": "db3"}, "db3:3306"),
    ("", {"host": "db1, db2:1"}, "db1:3306, db2:1"),
    ("", {"host": ["db1", "::1", "[::1]:5"]}, "db1:3306, [::1]:3306, [::1]:5"),
    ("", {"host": "::1"}, "[::1]:3306"),
    ("", {"host": "2001:db8::1", "port": 5}, "[2001:db8::1]:5"),
]


@pytest.mark.parametrize(("hosts", "arguments", "address"), HOSTS)
def test_hosts_and_their_ports(hosts: str, arguments: dict[str, object], address: str) -> None:
    options = build(f"mysql://repl:pw@{hosts}/", **arguments)
    assert options.address == address
    assert (options.host, options.port) == options.hosts[0]
    assert [one.address for one in options.each_host()] == address.split(", ")
    for one in options.each_host():
        assert (one.password, one.server_id, one.replica_uuid) == (
            "pw",
            options.server_id,
            options.replica_uuid,
        )
        assert one.ssl_context is options.ssl_context


@pytest.mark.parametrize(
    "hosts", ["db1,", ",db1", "db1,,db2", "db1:x,db2", "db1,::1", "db1,[::1", "db1:3306:1,db2", "a]b"]
)
def test_hosts_that_cannot_be_read(hosts: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read") as caught:
        build(f"mysql://repl:{SECRET}@{hosts}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("value", ["", "db1,,db2", [], ["db1", 5], 5, "db1:99999", "db1:0,db2", "a b:c"])
def test_an_argument_that_cannot_be_read(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"^(host|port):"):
        build(None, host=value)


@pytest.mark.parametrize("name", ["start", "stop"])
def test_a_position_is_of_one_server(name: str) -> None:
    for position in ("binlog.000003:154", BinlogPosition("binlog.000003", 154)):
        with pytest.raises(
            ConfigurationError, match=f"^{name}: a position is valid in one server's log only"
        ):
            build("mysql://db1,db2", **{name: position})
    # A checkpoint names its server.
    assert build("mysql://db1,db2", start=Checkpoint("binlog.000003", 154, None, "uuid", 1)).hosts


def test_where_several_hosts_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unix_socket and several hosts"):
        build("mysql://db1,db2", unix_socket="/run/m.sock")
    with pytest.raises(ConfigurationError, match=r"host: give one host, not db1:3306, db2:3306: a relay"):
        BinlogRelay("mysql://repl@db1,db2", tmp_path)


# Hosts are tried in order.


def refused() -> ConnectionLostError:
    return ConnectionLostError("connection refused")


def full() -> ServerError:
    return ServerError(1040, "08004", "Too many connections")


def changed() -> SourceChangedError:
    return SourceChangedError("another server")


def missing() -> TransactionsUnavailableError:
    return TransactionsUnavailableError(1236, "HY000", "never had them", "copy anew")


def wrong() -> AuthenticationError:
    return AuthenticationError(1045, "28000", "Access denied", "check it")


async def try_hosts(*results: ReplicaError | None) -> tuple[list[str], str | ReplicaError]:
    """The hosts that were tried, and the host that was used or the error."""
    names = ",".join(f"db{number}" for number in range(len(results)))
    outcome = dict(zip([f"db{number}:3306" for number in range(len(results))], results, strict=True))
    tried = []

    async def use(options: Options) -> str:
        tried.append(options.address)
        error = outcome[options.address]
        if error is not None:
            raise error
        return options.address

    try:
        return tried, await first_host(build(f"mysql://{names}"), use)
    except ReplicaError as error:
        return tried, error


async def test_the_first_that_works() -> None:
    assert await try_hosts(None, None) == (["db0:3306"], "db0:3306")
    assert await try_hosts(refused(), None, None) == (["db0:3306", "db1:3306"], "db1:3306")
    for error in (full(), changed(), missing(), wrong(), SourceConfigurationError("log_bin is OFF")):
        assert (await try_hosts(error, refused(), None))[1] == "db2:3306"


async def test_a_mistake_of_ours_is_told_at_once() -> None:
    tried, error = await try_hosts(ConfigurationError("tls: not trusted"), None)
    assert tried == ["db0:3306"]
    assert isinstance(error, ConfigurationError)


@pytest.mark.parametrize(
    "results", [(refused(), refused()), (wrong(), refused()), (full(), missing(), changed())]
)
async def test_what_may_pass_is_a_lost_connection(results: tuple[ReplicaError, ...]) -> None:
    tried, error = await try_hosts(*results)
    assert type(error) is ConnectionLostError
    assert len(tried) == len(results)
    for number, result in enumerate(results):
        assert f"db{number}:3306: {result}" in str(error)


@pytest.mark.parametrize("results", [(changed(), missing()), (missing(), changed()), (wrong(), wrong())])
async def test_what_cannot_pass_is_told_as_the_first_host_has_it(results: tuple[ReplicaError, ...]) -> None:
    _, error = await try_hosts(*results)
    assert type(error) is type(results[0])
    for number, result in enumerate(results):
        assert f"db{number}:3306: {result}" in str(error)


async def test_one_host_has_its_own_error() -> None:
    error = refused()
    assert (await try_hosts(error))[1] is error


async def test_who_is_passed_over_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await try_hosts(refused(), wrong(), None)
    assert caplog.messages == [
        f"{address} cannot be used: {error} -- continuing with db2:3306"
        for address, error in (("db0:3306", refused()), ("db1:3306", wrong()))
    ]
    caplog.clear()
    # The error names each host, so nothing is logged.
    await try_hosts(refused(), wrong())
    assert caplog.messages == []


# With sockets.


def two(first: SocketSource, second: SocketSource, more: str = "") -> str:
    return f"mysql://repl:secret@127.0.0.1:{first.port},127.0.0.1:{second.port}/?tls=disabled{more}"


async def test_a_login_with_the_first_host_that_lets_us_in() -> None:
    busy = SocketSource(refuses_login=Err(1040, "08004", "Too many connections"))
    async with serving(busy), serving(SocketSource()) as free:
        session = await first_host(build(two(busy, free)), Session.open)
        assert session.options.address == f"127.0.0.1:{free.port}"
        await session.aclose()
        silent = SocketSource(silent_for="login")
        async with serving(silent):
            session = await first_host(build(two(silent, free), connect_timeout=0.2), Session.open)
            assert session.options.port == free.port
            await session.aclose()
        with pytest.raises(ConnectionLostError) as caught:
            await first_host(build(two(busy, busy)), Session.open)
    assert str(caught.value).count("Too many connections") == 2


async def test_a_round_is_one_attempt() -> None:
    """The policy is asked once for all hosts, and the error names them."""
    failures: list[replica.Failure] = []

    class Policy(replica.ReconnectPolicy):
        def delay(self, failure: replica.Failure) -> float:
            failures.append(failure)
            if len(failures) == 3:
                raise failure.error
            return 0.001

    first = SocketSource(closes_after_events=True)
    second = SocketSource(silent_for="login")
    async with serving(first), serving(second):
        dsn = two(first, second, "&start=earliest&connect_timeout=0.2")
        stream = replica.connect(dsn, reconnect=Policy())
        async with stream:
            assert stream.status.address == f"127.0.0.1:{first.port}"
            first.refuses_login = Err(1053, "08S01", "Server shutdown in progress")
            with pytest.raises(ConnectionLostError, match="none of the hosts can be used"):
                await anext(stream)
        assert stream.status.address == f"127.0.0.1:{first.port}, 127.0.0.1:{second.port}"
    assert [failure.attempt for failure in failures] == [0, 1, 2]
    for failure in failures[1:]:
        assert f"127.0.0.1:{first.port}: 1053" in str(failure.error)
        assert f"127.0.0.1:{second.port} did not complete the login" in str(failure.error)


async def test_by_position_only_the_same_server_goes_on() -> None:
    """Without GTIDs the other server is passed over, and the stream waits for the server it began with."""
    theirs = {
        **SocketSource().variables,
        "server_uuid": "99999999-2222-3333-4444-555555555555",
        "server_id": "98",
    }
    first, other = SocketSource(), SocketSource(variables=theirs)
    async with serving(first), serving(other):
        policy = replica.ReconnectPolicy(initial=0.01, maximum=0.02)
        stream = replica.connect(two(first, other, "&start=earliest"), reconnect=policy)
        async with asyncio.timeout(20), stream:
            task = asyncio.create_task(anext(stream))
            await until(lambda: first.dumps)
            # Pretend that events have come, so that the stream has a position to resume from.
            progress = stream._account.progress
            progress.file, progress.position = "binlog.000001", 400
            first.refuses_login = Err(1053, "08S01", "Server shutdown in progress")
            first.writers[0].close()
            await until(lambda: other.statements)
            await until(lambda: stream.status.state == "waiting")
            assert "position is of no use on another server" in str(stream.status.last_error)
            assert not other.dumps
            first.refuses_login = None
            await until(lambda: len(first.dumps) == 2)
            task.cancel()
        # If no host is the right server, there is nothing to wait for.
        with pytest.raises(SourceChangedError, match="none of the hosts can be used"):
            async with replica.connect(
                two(other, other), start=Checkpoint("binlog.000001", 400, None, "another", 1)
            ):
                pass


@pytest.mark.parametrize(
    ("version", "mode", "reason"),
    [("9.7.4", "OFF", "gtid_mode=ON"), ("11.8.6-MariaDB", "", "the source is MariaDB")],
)
async def test_a_host_that_cannot_take_the_gtids_is_passed_over(version: str, mode: str, reason: str) -> None:
    """It ended the stream with an error about ``start``, while the stream's own server was restarted."""
    variables = SocketSource().variables | {"gtid_mode": "ON"}
    theirs = {
        **SocketSource().variables,
        "gtid_mode": mode,
        "server_uuid": "99999999-2222-3333-4444-555555555555",
        "server_id": "98",
    }
    answers: dict[str, Any] = {"SELECT @@GLOBAL.gtid": [("",)]}
    first = SocketSource(variables=variables, answers=answers)
    other = SocketSource(variables=theirs, version=version)
    async with serving(first), serving(other):
        policy = replica.ReconnectPolicy(initial=0.01, maximum=0.02)
        stream = replica.connect(two(first, other), start=replica.GtidSet(""), reconnect=policy)
        async with asyncio.timeout(20), stream:
            task = asyncio.create_task(anext(stream))
            await until(lambda: first.dumps)
            uuid = "11111111-2222-3333-4444-555555555555"
            stream._account.progress.gtid_set = replica.GtidSet(f"{uuid}:1")
            answers["SELECT @@GLOBAL.gtid_executed"] = [(f"{uuid}:1",)]
            first.refuses_login = Err(1053, "08S01", "Server shutdown in progress")
            first.writers[0].close()
            await until(lambda: other.statements)
            await until(lambda: stream.status.state == "waiting")
            assert reason in str(stream.status.last_error)
            first.refuses_login = None
            await until(lambda: len(first.dumps) == 2)
            task.cancel()
