"""The replica's state machine, connected to a source in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.constants import MAX_FRAME_PAYLOAD, Capability
from protocol.conversation.commands import BinlogDumpGtid, Query, Quit, RegisterReplica, SemiSyncAck
from protocol.conversation.login import Authenticated
from protocol.conversation.messages import (
    AuthMoreData,
    AuthSwitchRequest,
    Eof,
    Err,
    Ok,
    ResultSet,
    SslRequest,
)
from protocol.conversation.packets import FrameStream
from protocol.conversation.phases import NEED_DATA, Phase, StartTls
from protocol.conversation.replica_side import Connection
from protocol.conversation.results import ColumnDefinition, encode_row
from protocol.errors import (
    AuthenticationError,
    ConfigurationError,
    PositionPastEndError,
    PrivilegeError,
    ProtocolError,
    ServerError,
    SourceConfigurationError,
)
from tests.support.fake_source import (
    MARIADB_CAPABILITIES,
    MYSQL_CAPABILITIES,
    NONCE,
    OLD_CAPABILITIES,
    PASSWORD,
    FakeSource,
    ask,
    connect,
    dumping,
    native_scramble,
    ready,
    sha2_scramble,
)
from tests.support.rsa_keys import PEM, decrypt

EOF_AS_OK = Ok(ends_rows=True)
EVENT = bytes(range(19)) + b"an event"


# Login


def test_login_with_the_native_password() -> None:
    client, source = connect(database="shop", attributes={"program_name": "test"})
    assert client.next_event() is NEED_DATA
    greeting = source.greet()
    assert client.next_event() == greeting == client.handshake
    login = source.read_login()
    assert (login.user, login.database, login.auth_plugin) == ("repl", "shop", "mysql_native_password")
    assert login.auth_response == native_scramble(PASSWORD)
    assert login.attributes == {"_client_name": "mysql-replica", "program_name": "test"}
    assert client.next_event() is NEED_DATA
    source.send(Ok(info="welcome"))
    assert client.next_event() == Authenticated(Ok(info="welcome"))
    assert client.phase is Phase.READY
    assert source.is_quiet()


@pytest.mark.parametrize("capabilities", [MYSQL_CAPABILITIES, OLD_CAPABILITIES, MARIADB_CAPABILITIES])
def test_only_offered_capabilities_are_used(capabilities: Capability) -> None:
    client, source = connect()
    source.greet(capabilities=capabilities)
    client.next_event()
    used = source.read_login().capabilities
    assert used & capabilities == used
    for unused in ("SSL", "CONNECT_WITH_DB", "SESSION_TRACK", "QUERY_ATTRIBUTES", "COMPRESS", "LOCAL_FILES"):
        assert Capability[unused] not in used


def test_caching_sha2_fast() -> None:
    client, source = connect()
    source.greet("caching_sha2_password")
    client.next_event()
    assert source.read_login().auth_response == sha2_scramble(PASSWORD)
    source.send(AuthMoreData(b"\x03"), Ok())
    assert isinstance(client.next_event(), Authenticated)
    assert source.is_quiet()


def test_caching_sha2_full_with_the_servers_key() -> None:
    client, source = connect(get_server_public_key=True)
    source.greet("caching_sha2_password")
    client.next_event()
    source.read_login()
    source.send(AuthMoreData(b"\x04"))
    assert client.next_event() is NEED_DATA
    assert source.read() == b"\x02"
    source.send(AuthMoreData(PEM))
    assert client.next_event() is NEED_DATA
    assert decrypt(source.read()) == PASSWORD.encode() + b"\0"
    source.send(Ok())
    assert isinstance(client.next_event(), Authenticated)


def test_caching_sha2_full_with_a_given_key() -> None:
    client, source = connect(server_public_key=PEM, get_server_public_key=False)
    source.greet("caching_sha2_password")
    client.next_event()
    source.read_login()
    source.send(AuthMoreData(b"\x04"))
    assert client.next_event() is NEED_DATA
    assert decrypt(source.read()) == PASSWORD.encode() + b"\0"


def test_caching_sha2_full_over_a_unix_socket() -> None:
    client, source = connect(secure_transport=True)
    source.greet("caching_sha2_password")
    client.next_event()
    source.read_login()
    source.send(AuthMoreData(b"\x04"))
    assert client.next_event() is NEED_DATA
    assert source.read() == PASSWORD.encode() + b"\0"


def test_tls_comes_before_the_password() -> None:
    client, source = connect(want_tls=True)
    source.greet("caching_sha2_password")
    client.next_event()
    assert client.next_event() == StartTls()
    request = SslRequest.parse(source.read())
    assert not client.tls
    client.tls_established()
    assert client.tls
    login = source.read_login()
    assert login.capabilities == request.capabilities
    assert Capability.SSL in login.capabilities
    source.send(AuthMoreData(b"\x04"))
    assert client.next_event() is NEED_DATA
    assert source.read() == PASSWORD.encode() + b"\0"
    source.send(Ok())
    assert isinstance(client.next_event(), Authenticated)


def test_tls_that_is_not_offered() -> None:
    client, source = connect(want_tls=True)
    source.greet(capabilities=OLD_CAPABILITIES)
    client.next_event()
    assert source.read_login().user == "repl"
    client, source = connect(require_tls=True)
    source.greet(capabilities=OLD_CAPABILITIES)
    with pytest.raises(SourceConfigurationError, match="TLS is required"):
        client.next_event()
    assert source.is_quiet()


def test_data_in_clear_behind_the_greeting_does_not_pass_for_encrypted() -> None:
    client, source = connect(want_tls=True)
    source.greet()
    source.frames.sequence = 2
    source.send(Ok())
    client.next_event()
    with pytest.raises(ProtocolError, match="in clear after its greeting"):
        client.next_event()


def test_data_in_clear_during_the_change_to_tls() -> None:
    client, source = connect(want_tls=True)
    source.greet()
    client.next_event()
    client.next_event()
    source.read()
    source.send(Ok())
    with pytest.raises(ProtocolError, match="while the transport was being changed"):
        client.next_event()


@pytest.mark.parametrize("first", ["mysql_native_password", "caching_sha2_password", "auth_gssapi", ""])
def test_switching_plugins(first: str) -> None:
    client, source = connect()
    source.greet(first)
    client.next_event()
    source.read_login()
    other = bytes(range(40, 60))
    source.send(AuthSwitchRequest("mysql_native_password", other + b"\0"))
    assert client.next_event() is NEED_DATA
    assert source.read() == native_scramble(PASSWORD, other)
    source.send(AuthSwitchRequest("caching_sha2_password", NONCE + b"\0"))
    assert client.next_event() is NEED_DATA
    assert source.read() == sha2_scramble(PASSWORD)
    source.send(AuthMoreData(b"\x03"), Ok())
    assert isinstance(client.next_event(), Authenticated)


def test_an_empty_answer_is_sent_as_an_empty_packet() -> None:
    client = Connection("repl", "")
    source = FakeSource(client)
    source.greet("caching_sha2_password")
    client.next_event()
    assert source.read_login().auth_response == b"\0"
    source.send(AuthSwitchRequest("mysql_native_password", NONCE + b"\0"))
    assert client.next_event() is NEED_DATA
    assert source.read() == b""


@pytest.mark.parametrize(
    ("request_payload", "complaint"),
    [
        (AuthSwitchRequest("authentication_kerberos", b"").encode(), "'authentication_kerberos'"),
        (AuthSwitchRequest("mysql_clear_password", b"").encode(), "enable_cleartext_plugin=True"),
        (b"\xfe", "before MySQL 4.1"),
    ],
)
def test_plugins_that_are_refused(request_payload: bytes, complaint: str) -> None:
    client, source = connect()
    source.greet()
    client.next_event()
    source.read_login()
    source.send(request_payload)
    with pytest.raises(AuthenticationError, match=complaint):
        client.next_event()
    assert source.is_quiet()


def test_the_clear_password_plugin_over_tls() -> None:
    client, source = connect(want_tls=True, enable_cleartext_plugin=True)
    source.greet("mysql_clear_password")
    client.next_event()
    client.next_event()
    source.read()
    client.tls_established()
    assert PASSWORD.encode() not in source.read_login().auth_response
    source.send(AuthSwitchRequest("mysql_clear_password", b""))
    assert client.next_event() is NEED_DATA
    assert source.read() == PASSWORD.encode() + b"\0"


def test_refused_logins() -> None:
    client, source = connect()
    source.greet()
    client.next_event()
    source.read_login()
    source.send(Err(1045, "28000", "Access denied"))
    with pytest.raises(AuthenticationError) as caught:
        client.next_event()
    assert client.phase is Phase.CLOSED
    with pytest.raises(AuthenticationError) as again:
        client.next_event()
    assert again.value is caught.value
    client, source = connect()
    source.send(Err(1040, "", "Too many connections"))
    with pytest.raises(ServerError, match="1040: Too many connections"):
        client.next_event()


def test_servers_that_are_too_old() -> None:
    client, source = connect()
    source.greet(capabilities=OLD_CAPABILITIES & ~Capability.SECURE_CONNECTION)
    with pytest.raises(ProtocolError, match=r"before MySQL 4\.1"):
        client.next_event()


@pytest.mark.parametrize("payload", [b"", b"\x02mfa", b"\x05", b"\0", b"\x01\x07", b"\xfeplugin"])
def test_what_is_not_authentication(payload: bytes) -> None:
    client, source = connect()
    source.greet()
    client.next_event()
    source.read_login()
    source.send(payload)
    with pytest.raises(ProtocolError):
        client.next_event()


def test_large_payloads_are_refused_before_login_only() -> None:
    client, source = connect()
    source.greet()
    client.next_event()
    source.read_login()
    source.send(AuthMoreData(bytes(1 << 20)))
    with pytest.raises(ProtocolError, match="are allowed"):
        client.next_event()
    client, source = ready()
    ask(client, source)
    source.send(b"\x01", ColumnDefinition("c", 253), encode_row(("x" * (1 << 21),)), EOF_AS_OK)
    assert isinstance(client.next_event(), ResultSet)


@pytest.mark.parametrize(
    "options",
    [{"database": "a\0b"}, {"attributes": {"x": "\ud800"}}, {"server_public_key": b"no key"}],
)
def test_options_that_cannot_be_sent(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        connect(**options)
    with pytest.raises(ConfigurationError):
        Connection("re\0pl")
    with pytest.raises(ConfigurationError):
        Connection("repl", "\ud800")


def test_the_password_is_in_no_repr() -> None:
    client, source = connect()
    source.greet("caching_sha2_password")
    client.next_event()
    shown = [repr(client), repr(source.read_login()), *(repr(value) for value in vars(client).values())]
    assert not [text for text in shown if PASSWORD in text]


def test_an_idle_connection_that_the_server_closes() -> None:
    # MySQL 9.7 gives the notice the number 0, whatever number is due.
    for asked in (False, True):
        client, source = ready()
        if asked:
            ask(client, source)
        source.frames.sequence = 0
        source.send(Err(4031, "HY000", "The client was disconnected by the server because of inactivity."))
        with pytest.raises(ServerError, match="4031"):
            client.next_event()


def test_data_that_nobody_asked_for() -> None:
    client, source = ready()
    source.send(Ok())
    with pytest.raises(ProtocolError, match="unexpected packet in waiting for a command"):
        client.next_event()


def test_one_command_at_a_time() -> None:
    client, source = connect()
    commands: list[Callable[[], None]] = [
        lambda: client.send_query("SELECT 1"),
        lambda: client.send_register_replica(1),
        lambda: client.send_dump("f", 4, 1),
        lambda: client.send_dump_gtid(b"", 1),
    ]
    for command in commands:
        with pytest.raises(RuntimeError, match="the handshake"):
            command()
    client, source = ready()
    ask(client, source)
    for command in commands:
        with pytest.raises(RuntimeError, match="a query"):
            command()
    with pytest.raises(RuntimeError):
        client.next_events()
    with pytest.raises(RuntimeError):
        client.tls_established()
    client, _ = dumping()
    with pytest.raises(RuntimeError):
        client.next_event()


def test_statements_that_are_sent_at_once() -> None:
    client, source = ready()
    statements = [f"SELECT {number}" for number in range(4)]
    client.send_queries([(statement, False) for statement in statements])
    assert [Query.parse(source.read_command()).sql for _ in statements] == statements
    for answer in (Ok(1), Err(1146, "42S02", "no such table"), Ok(2), Ok(3)):
        source.frames.sequence = 1
        source.send(answer)
    assert client.next_event() == Ok(1)
    with pytest.raises(ServerError, match="no such table"):
        client.next_event()
    assert [client.next_event() for _ in range(2)] == [Ok(2), Ok(3)]
    assert client.next_event() is NEED_DATA
    ask(client, source)


def test_quit() -> None:
    client, source = ready()
    client.send_quit()
    assert Quit.parse(source.read_command()) == Quit()


# Registration and dump


def test_registration() -> None:
    client, source = ready()
    client.send_register_replica(4711, host="here", user="u", password="p", port=3306, source_id=97)
    command = RegisterReplica(4711, "here", "u", "p", 3306, source_id=97)
    assert RegisterReplica.parse(source.read_command()) == command
    source.send(Ok())
    assert client.next_event() == Ok()
    client.send_register_replica(4711)
    source.read_command()
    source.send(Err(1045, "28000", "Access denied for user"))
    with pytest.raises(PrivilegeError, match="GRANT REPLICATION SLAVE"):
        client.next_event()
    assert client.phase is Phase.READY
    client.send_register_replica(4711)
    source.read_command()
    source.send(Eof())
    with pytest.raises(ProtocolError, match="registration"):
        client.next_event()


def test_events_of_a_dump() -> None:
    client, source = dumping()
    assert client.next_events() == []
    events = [EVENT + bytes([index]) for index in range(5)]
    source.send(*(b"\0" + event for event in events))
    assert client.next_events() == events
    assert client.next_events() == []
    assert not client.dump_ended
    source.send(b"\0" + EVENT, EOF_AS_OK)
    assert client.next_events() == [EVENT]
    assert not client.dump_ended
    assert client.next_events() == []
    assert client.dump_ended
    assert client.next_events() == []


def test_a_dump_by_gtid() -> None:
    client, source = ready()
    client.send_dump_gtid(b"set", 4711, 2)
    assert BinlogDumpGtid.parse(source.read_command()) == BinlogDumpGtid(b"set", 4711, 2, "", 4)
    source.send(b"\0" + EVENT, Eof())
    assert client.next_events() == [EVENT]
    assert client.next_events() == []
    assert client.dump_ended


def test_an_error_comes_after_the_events_before_it() -> None:
    client, source = dumping()
    source.send(
        b"\0" + EVENT, Err(1236, "HY000", "Client requested source to start from position > file size")
    )
    assert client.next_events() == [EVENT]
    for _ in range(2):
        with pytest.raises(PositionPastEndError):
            client.next_events()
    assert client.phase is Phase.CLOSED


def test_a_large_event() -> None:
    client, source = dumping()
    event = EVENT + bytes(2 * MAX_FRAME_PAYLOAD)
    source.send(b"\0" + EVENT, b"\0" + event, b"\0" + EVENT)
    # Not many more than 32 KB are read at a time.
    assert client.next_events() == [EVENT, event]
    assert client.next_events() == [EVENT]


@pytest.mark.parametrize(
    "payload", [b"", b"\x01", b"\xfe", b"\xff", b"\xfe\0\0", b"\x02" + EVENT, b"\xfe" + EVENT]
)
@pytest.mark.parametrize("semi_sync", [False, True])
def test_what_is_not_an_event(payload: bytes, semi_sync: bool) -> None:
    client, source = dumping(semi_sync=semi_sync)
    source.send(payload)
    with pytest.raises(ProtocolError):
        client.next_events()


def test_semi_sync_events() -> None:
    client, source = dumping(semi_sync=True)
    events = [EVENT + bytes([index]) for index in range(6)]
    source.send(b"\0\xef\0" + events[0], b"\0\xef\0" + events[1], b"\0\xef\x01" + events[2])
    # The source counts from 1 again after an event that asks for an acknowledgement.
    source.frames.sequence = 1
    source.send(b"\0\xef\0" + events[3], b"\0\xef\x01" + events[4])
    source.frames.sequence = 1
    source.send(b"\0\xef\0" + events[5])
    assert client.next_events() == events[:2]
    assert not client.ack_requested
    assert client.next_events() == [events[2]]
    assert client.ack_requested
    client.send_semi_sync_ack("binlog.000001", 1234)
    acknowledgement = FrameStream()
    acknowledgement.receive(client.data_to_send())
    assert SemiSyncAck.parse(acknowledgement.read() or b"") == SemiSyncAck("binlog.000001", 1234)
    assert client.next_events() == [events[3]]
    assert not client.ack_requested
    assert client.next_events() == [events[4]]
    assert client.ack_requested
    assert client.next_events() == [events[5]]
    source.send(Eof())
    assert client.next_events() == []
    assert client.dump_ended
    assert not client.ack_requested


def test_without_semi_sync_numbers_do_not_restart() -> None:
    client, source = dumping()
    source.send(b"\0" + EVENT)
    source.frames.sequence = 1
    source.send(b"\0" + EVENT)
    with pytest.raises(ProtocolError, match="frame number 1 came where 2 was due"):
        client.next_events()


def test_events_without_the_semi_sync_header() -> None:
    client, source = dumping(semi_sync=True)
    source.send(b"\0" + EVENT)
    with pytest.raises(ProtocolError, match="the binlog dump"):
        client.next_events()
