"""The source's state machine: together with the replica's, and with clients that violate the protocol."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

import pytest

from protocol.constants import MAX_FRAME_PAYLOAD, Capability
from protocol.conversation.commands import (
    Answered,
    BinlogDump,
    BinlogDumpGtid,
    Query,
    Quit,
    RegisterReplica,
    SemiSyncAck,
)
from protocol.conversation.login import Authenticated
from protocol.conversation.messages import Err, Handshake, HandshakeResponse, Ok, ResultSet, SslRequest
from protocol.conversation.packets import FrameStream
from protocol.conversation.phases import NEED_DATA, Phase, StartTls
from protocol.conversation.server_plugins import Account, StoredPassword
from protocol.conversation.source_side import MAX_LOGIN_REQUEST, Acceptor, LoggedIn
from protocol.errors import AuthenticationError, PositionPastEndError, ProtocolError, ServerError
from tests.support.fake_source import NONCE, PASSWORD, native_scramble
from tests.support.source_pair import OFFERED, USER, Pair, logged_in

PLUGINS = ["mysql_native_password", "caching_sha2_password"]
WITHOUT_TLS = OFFERED & ~Capability.SSL
EVENT = bytes(range(19)) + b"an event"


# Login


@pytest.mark.parametrize("chunk", [1, 1 << 20])
@pytest.mark.parametrize("greeted", PLUGINS)
@pytest.mark.parametrize("plugin", PLUGINS)
def test_login_with_and_without_a_switch(plugin: str, greeted: str, chunk: int) -> None:
    pair = Pair(plugin=plugin, greeted_plugin=greeted, chunk=chunk)
    pair.log_in()
    assert pair.seen == [LoggedIn(USER, {"_client_name": "mysql-replica"})]
    assert pair.server.phase is pair.client.phase is Phase.READY


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("greeted", PLUGINS)
@pytest.mark.parametrize(
    "given", [{"password": "wrong"}, {"password": ""}, {"user": "nobody"}, {"stored": ""}]
)
def test_refused(plugin: str, greeted: str, given: dict[str, Any]) -> None:
    pair = Pair(plugin=plugin, greeted_plugin=greeted, **given)
    with pytest.raises(AuthenticationError, match="Access denied for user") as caught:
        pair.log_in()
    assert caught.value.code == 1045
    assert pair.server.phase is Phase.CLOSED
    with pytest.raises(AuthenticationError):
        pair.server.next_event()
    pair.client.receive_data(pair.server.data_to_send())
    with pytest.raises(AuthenticationError, match="check user and password") as told:
        pair.client.next_event()
    assert ("using password: NO" in str(told.value)) == (given.get("password") == "")


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("greeted", PLUGINS)
def test_an_empty_password(plugin: str, greeted: str) -> None:
    logged_in(plugin=plugin, greeted_plugin=greeted, password="", stored="")


def test_the_full_path_with_the_key() -> None:
    for password in (PASSWORD, "wrong"):
        pair = Pair(full=True, password=password)
        if password == PASSWORD:
            pair.log_in()
        else:
            with pytest.raises(AuthenticationError):
                pair.log_in()
        assert password.encode() not in pair.sent


def test_the_full_path_over_tls_and_over_a_secure_transport() -> None:
    pair = logged_in(full=True, want_tls=True)
    assert pair.server.tls
    assert PASSWORD.encode() + b"\0" in pair.sent
    logged_in(full=True, server={"secure_transport": True, "private_key": None}, secure_transport=True)


def said_before_refusing(user: str, **options: Any) -> list[bytes]:
    """A server's answers to a client with a wrong password, without frame headers and user name."""
    pair = Pair(password="wrong", user=user, **options)
    said = []
    while pair.server.phase is not Phase.CLOSED:
        said.append(pair.server.data_to_send())
        pair.client.receive_data(said[-1])
        pair.client.next_event()
        pair.server.receive_data(pair.client.data_to_send())
        with contextlib.suppress(AuthenticationError):
            pair.server.next_event()
    said.append(pair.server.data_to_send())
    return [data[4:].replace(user.encode(), b"-") for data in said]


@pytest.mark.parametrize("options", [{"full": True}, {"plugin": PLUGINS[0], "greeted_plugin": PLUGINS[1]}])
def test_what_is_said_before_a_refusal_does_not_tell_whether_the_user_exists(options: dict[str, Any]) -> None:
    said = said_before_refusing(USER, **options)
    assert len(said) > 2
    assert said == said_before_refusing("nobody", **options)


def test_tls() -> None:
    pair = Pair(want_tls=True)
    events = pair.log_in()
    assert [type(event) for event in events] == [Handshake, StartTls, Authenticated]
    assert pair.server.tls
    assert pair.client.tls


def test_no_tls_is_offered() -> None:
    pair = logged_in(capabilities=WITHOUT_TLS, want_tls=True)
    assert not pair.server.tls


def test_tls_is_required() -> None:
    with pytest.raises(AuthenticationError, match="insecure transport"):
        logged_in(server={"require_tls": True})
    logged_in(server={"require_tls": True}, want_tls=True)


def test_no_more_is_read_than_the_request_for_tls() -> None:
    """After the request for TLS come TLS bytes; the driver must not pass them to ``receive_data()``."""
    pair = Pair(want_tls=True)
    pair.move()
    pair.client.next_event()
    data = pair.client.data_to_send()
    while (event := pair.server.next_event()) is NEED_DATA:
        wanted = pair.server.bytes_wanted
        assert 0 < wanted <= len(data)
        pair.server.receive_data(data[:wanted])
        data = data[wanted:]
    assert (event, data) == (StartTls(), b"")
    pair.server.tls_established()
    assert pair.server.bytes_wanted == 0


@pytest.mark.parametrize("is_behind", [True, False])
def test_data_in_clear_while_tls_begins(is_behind: bool) -> None:
    server = Acceptor(Handshake("9.7.4", 7, OFFERED, NONCE + b"\0"), {})
    server.data_to_send()
    frames = FrameStream()
    frames.sequence = 1
    request, more = frames.encode(SslRequest(OFFERED).encode()), frames.encode(b"\x03SELECT 1")
    if is_behind:
        server.receive_data(request + more)
    else:
        server.receive_data(request)
        assert server.next_event() == StartTls()
        server.receive_data(more)
    with pytest.raises(ProtocolError, match="in clear"):
        server.next_event()


def test_mariadb_clients_can_verify_the_certificate() -> None:
    fingerprint = bytes(range(32))
    options: dict[str, Any] = {
        "plugin": PLUGINS[0],
        "server": {"fingerprint": lambda: fingerprint},
        "want_tls": True,
    }
    info = {}
    for version in ("11.8.6-MariaDB", "9.7.4"):
        ok = Pair(version=version, **options).log_in()[-1]
        assert isinstance(ok, Authenticated)
        info[version] = ok.ok.info
    twice = hashlib.sha1(hashlib.sha1(PASSWORD.encode()).digest()).digest()
    proof = hashlib.sha256(twice + NONCE + fingerprint).hexdigest().upper()
    assert info == {"11.8.6-MariaDB": f"\x01{proof}", "9.7.4": ""}


def response(capabilities: Capability = WITHOUT_TLS, **given: Any) -> HandshakeResponse:
    answer = native_scramble(PASSWORD)
    return HandshakeResponse(capabilities, USER, answer, **({"auth_plugin": PLUGINS[0]} | given))


def answered(payload: bytes, plugin: str = PLUGINS[0]) -> Acceptor:
    """A server that has received this answer to its greeting."""
    accounts = {USER: Account(StoredPassword.of(PASSWORD), plugin)}
    server = Acceptor(Handshake("9.7.4", 7, OFFERED, NONCE + b"\0", plugin), accounts)
    server.data_to_send()
    frames = FrameStream()
    frames.sequence = 1
    server.receive_data(frames.encode(payload))
    return server


def test_clients_without_plugins() -> None:
    old = WITHOUT_TLS & ~Capability.PLUGIN_AUTH & ~Capability.DEPRECATE_EOF
    assert answered(response(old).encode()).next_event() == LoggedIn(USER, {})
    server = answered(response(old).encode(), PLUGINS[1])
    with pytest.raises(AuthenticationError, match="1251"):
        server.next_event()


def test_what_is_no_answer_to_a_greeting() -> None:
    for payload in (b"", b"x", SslRequest(OFFERED & ~Capability.PROTOCOL_41).encode(), bytes(64)):
        server = answered(payload)
        with pytest.raises(ProtocolError):
            server.next_event()
        frames = FrameStream()
        frames.sequence = 2
        frames.receive(server.data_to_send())
        assert Err.parse(frames.read() or b"") == Err(1043, "08S01", "Bad handshake")


def test_large_answers_are_refused_before_they_are_whole() -> None:
    server = Acceptor(Handshake("9.7.4", 7, OFFERED, NONCE + b"\0"), {})
    server.receive_data((MAX_LOGIN_REQUEST + 1).to_bytes(3, "little") + b"\1")
    with pytest.raises(ProtocolError, match="are allowed"):
        server.next_event()


# Commands


@pytest.mark.parametrize("capabilities", [OFFERED, OFFERED & ~Capability.DEPRECATE_EOF])
@pytest.mark.parametrize("rows", [[], [("1", None), ("ü", b"\xff")], [("x" * 100_000, "")] * 30])
def test_queries(capabilities: Capability, rows: list[tuple[str | bytes | None, ...]]) -> None:
    pair = logged_in(capabilities=capabilities)
    for _ in range(2):
        assert pair.ask(lambda client: client.send_query("SELECT é")) == Query("SELECT é")
        with pytest.raises(RuntimeError, match="answered first"):
            pair.server.next_event()
        pair.server.send_rows(("a", "é"), rows)
        pair.move()
        assert pair.client.next_event() == ResultSet(("a", "é"), rows)


def test_other_answers() -> None:
    pair = logged_in()
    pair.ask(lambda client: client.send_query("SET NAMES utf8mb4"))
    pair.server.send_ok()
    pair.move()
    assert pair.client.next_event() == Ok()
    pair.ask(lambda client: client.send_query("SELECT @@x"))
    pair.server.send_error(Err(1193, "HY000", "Unknown system variable 'x'"))
    pair.move()
    with pytest.raises(ServerError, match="Unknown system variable 'x'"):
        pair.client.next_event()
    register = RegisterReplica(4711, "here", "u", "p", 3306)
    asked = pair.ask(
        lambda client: client.send_register_replica(4711, host="here", user="u", password="p", port=3306)
    )
    assert asked == register
    with pytest.raises(RuntimeError):
        pair.server.send_rows(("a",), [])
    pair.server.send_ok()
    pair.move()
    assert pair.client.next_event() == Ok()
    pair.seen.clear()
    pair.client.send_quit()
    pair.move()
    assert pair.seen == [Quit()]
    assert pair.server.phase is Phase.CLOSED
    assert pair.server.next_event() is NEED_DATA


def command(payload: bytes, pair: Pair) -> bytes | None:
    """The server's answer to a command that this library's client never sends."""
    pair.server.receive_data(FrameStream().encode(payload))
    assert pair.server.next_event() == Answered()
    frames = FrameStream()
    frames.sequence = 1
    frames.receive(pair.server.data_to_send())
    return frames.read()


def test_pings_and_commands_that_are_not_served() -> None:
    pair = logged_in()
    assert command(b"\x0e", pair) == Ok().encode()
    for payload in (b"\x09", b"\x16SELECT 1", b"\xff", b"\0"):
        assert command(payload, pair) == Err(1047, "08S01", "Unknown command").encode()
    assert command(b"\x0e", pair) == Ok().encode()


def test_queries_with_attributes() -> None:
    offered = WITHOUT_TLS
    server = answered(response(offered).encode())
    server.next_event()
    assert Capability.QUERY_ATTRIBUTES in server.capabilities
    server.receive_data(FrameStream().encode(b"\x03\x00\x01SELECT 1"))
    assert server.next_event() == Query("SELECT 1")


def test_misuse() -> None:
    pair = logged_in()
    for misuse in (
        pair.server.tls_established,
        pair.server.send_ok,
        pair.server.send_dump_end,
        lambda: pair.server.send_error(Err(1, "HY000", "")),
        lambda: pair.server.send_rows(("a",), []),
        lambda: pair.server.send_events([]),
        lambda: pair.server.send_event_to_acknowledge(EVENT),
    ):
        with pytest.raises(RuntimeError):
            misuse()
    pair.ask(lambda client: client.send_dump("f", 4, 1))
    with pytest.raises(RuntimeError):
        pair.server.send_ok()
    with pytest.raises(RuntimeError, match="semi-synchronous"):
        pair.server.send_event_to_acknowledge(EVENT)


# Dumps


def dumping(*, semi_sync: bool = False, **options: Any) -> Pair:
    pair = logged_in(**options)
    pair.client.semi_sync = pair.server.semi_sync = semi_sync
    asked = pair.ask(lambda client: client.send_dump("binlog.000001", 4, 4711, 2))
    assert asked == BinlogDump("binlog.000001", 4, 4711, 2)
    return pair


def test_a_dump_by_gtid() -> None:
    pair = logged_in()
    asked = pair.ask(lambda client: client.send_dump_gtid(b"set", 4711, 2))
    assert asked == BinlogDumpGtid(b"set", 4711, 2)
    pair.server.send_events([EVENT])
    assert received(pair) == [EVENT]


def received(pair: Pair) -> list[bytes]:
    pair.move()
    events: list[bytes] = []
    while batch := pair.client.next_events():
        events += batch
        if pair.client.ack_requested:
            pair.client.send_semi_sync_ack("binlog.000001", len(events))
    return events


@pytest.mark.parametrize("semi_sync", [False, True])
@pytest.mark.parametrize("capabilities", [OFFERED, OFFERED & ~Capability.DEPRECATE_EOF])
def test_events_and_the_end_of_a_dump(semi_sync: bool, capabilities: Capability) -> None:
    pair = dumping(semi_sync=semi_sync, capabilities=capabilities)
    events = [EVENT * (index % 7 + 1) for index in range(600)]
    pair.server.send_events(events[:300])
    pair.server.send_events(events[300:])
    assert received(pair) == events
    pair.server.send_dump_end()
    assert received(pair) == []
    assert pair.client.dump_ended
    assert pair.server.phase is Phase.READY


@pytest.mark.parametrize("size", [MAX_FRAME_PAYLOAD - 3, MAX_FRAME_PAYLOAD - 1, 2 * MAX_FRAME_PAYLOAD])
@pytest.mark.parametrize("semi_sync", [False, True])
def test_large_events(size: int, semi_sync: bool) -> None:
    pair = dumping(semi_sync=semi_sync)
    large = EVENT + bytes(size - len(EVENT))
    pair.server.send_events([EVENT, large, EVENT])
    assert received(pair) == [EVENT, large, EVENT]
    if semi_sync:
        pair.server.send_event_to_acknowledge(large)
        pair.server.send_events([EVENT])
        assert received(pair) == [large, EVENT]


def test_an_error_ends_a_dump() -> None:
    pair = dumping()
    pair.server.send_events([EVENT] * 300)
    pair.server.send_error(Err(1236, "HY000", "Client requested source to start from position > file size"))
    pair.move()
    assert pair.client.next_events() == [EVENT] * 300
    with pytest.raises(PositionPastEndError):
        pair.client.next_events()


def test_acknowledgements() -> None:
    pair = dumping(semi_sync=True)
    pair.server.send_events([EVENT] * 5)
    for _ in range(3):
        pair.server.send_event_to_acknowledge(EVENT)
        pair.server.send_events([EVENT] * 2)
    pair.seen.clear()
    assert received(pair) == [EVENT] * 14
    pair.move()
    assert pair.seen == [SemiSyncAck("binlog.000001", position) for position in (6, 9, 12)]
    pair.client.send_quit()
    pair.move()
    assert pair.seen[-1] == Quit()


def test_data_in_a_dump_that_is_no_acknowledgement() -> None:
    pair = dumping()
    pair.server.send_events([EVENT])
    pair.server.receive_data(FrameStream().encode(b"\x03SELECT 1"))
    with pytest.raises(ProtocolError):
        pair.server.next_event()
    pair.move()
    assert pair.client.next_events() == [EVENT]
    with pytest.raises(ServerError, match="1835"):
        pair.client.next_events()
