"""Passwords never appear in the text, traceback or log of an error, forced at each step of each login."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import replica
from protocol.constants import Capability
from protocol.conversation.client_plugins import PLUGINS
from protocol.conversation.messages import (
    AuthMoreData,
    AuthSwitchRequest,
    Err,
    Handshake,
    HandshakeResponse,
    Ok,
)
from protocol.conversation.phases import StartTls
from protocol.conversation.replica_side import Connection
from protocol.errors import ReplicaError
from replica.config.options import Options
from tests.support.fake_source import NONCE, FakeSource, Message
from tests.support.password_leaks import assert_silent, chain, forms

SECRET = "Tr0ub4dor-ünd-3"
# Encrypts passwords of up to 85 bytes.
SMALL_KEY = (
    rsa.generate_private_key(public_exponent=65537, key_size=1024)
    .public_key()
    .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
)
REFUSED = Err(1045, "28000", "Access denied for user 'repl'@'localhost' (using password: YES)")
LONG = "x" * 200
MARIADB_NONCE = bytes(range(32))


def switch(name: str) -> AuthSwitchRequest:
    return AuthSwitchRequest(name, MARIADB_NONCE if name in ("client_ed25519", "parsec") else NONCE + b"\0")


@dataclass(frozen=True)
class Step:
    """A login: the server's answers after its greeting, until the client raises an error."""

    answers: tuple[Message | bytes, ...]
    greeted: str = "mysql_native_password"
    options: dict[str, object] = field(default_factory=dict)
    password: str = SECRET


def _steps() -> Iterator[tuple[str, Step]]:
    for name in PLUGINS:
        secure: dict[str, object] = {"secure_transport": True, "enable_cleartext_plugin": True}
        first = AuthSwitchRequest(name, b"\x04Password:") if name == "dialog" else switch(name)
        yield f"{name} refused", Step((first, REFUSED), options=secure)
        yield f"{name} with too much data", Step((first, *[AuthMoreData(b"?")] * 2), options=secure)
        yield f"{name} with an empty nonce", Step((AuthSwitchRequest(name, b""), b"\x01?"), options=secure)
        yield f"{name} greeted", Step((b"?",), name, secure)
        yield f"{name} and a broken OK", Step((first, b"\0"), options=secure)
    for name in ("mysql_clear_password", "dialog"):
        yield f"{name} not allowed", Step((switch(name),), options={"secure_transport": True})
        yield f"{name} in clear", Step((switch(name),), options={"enable_cleartext_plugin": True})
    for name, wants in (("caching_sha2_password", [AuthMoreData(b"\x04")]), ("sha256_password", [])):
        yield f"{name} without a key", Step((*wants, b"?"), name)
        asks: dict[str, object] = {"get_server_public_key": True}
        yield f"{name} with nonsense for a key", Step((*wants, AuthMoreData(b"?")), name, asks)
        key = Step((*wants, AuthMoreData(SMALL_KEY)), name, asks, SECRET + LONG)
        yield f"{name} with a key that is too small", key
        given: dict[str, object] = {"server_public_key": SMALL_KEY}
        yield f"{name} with a given key that is too small", Step((*wants, b"?"), name, given, SECRET + LONG)
    salt = AuthMoreData(b"P\0" + bytes(18))
    yield "parsec with another salt", Step((switch("parsec"), AuthMoreData(b"P\7" + bytes(18))))
    yield "parsec asked twice", Step((switch("parsec"), salt, salt))
    yield "an unknown plugin", Step((switch("authentication_kerberos_client"),))
    yield "an old password", Step((b"\xfe",))
    yield "switches without end", Step((switch("mysql_native_password"),) * 20)


STEPS = dict(_steps())


@pytest.mark.parametrize("name", STEPS)
def test_an_error_at_each_step(name: str, caplog: pytest.LogCaptureFixture) -> None:
    step = STEPS[name]
    caplog.set_level(logging.DEBUG)
    client = Connection("repl", step.password, **step.options)  # type: ignore[arg-type]
    source = FakeSource(client)

    def converse() -> None:
        source.greet(step.greeted)
        assert isinstance(client.next_event(), Handshake)
        client.next_event()
        for answer in step.answers:
            # Between two packets of the server there is one packet of the client.
            source.frames.sequence = client._frames.sequence
            source.send(answer)
            client.next_event()
            assert_parts_are_silent()

    def assert_parts_are_silent() -> None:
        login = client._login
        if login is not None:
            parts = [client, login, login._plugin, login._credentials]
            assert not any(form in repr(part) for part in parts for form in forms(step.password))

    with pytest.raises(ReplicaError) as caught:
        converse()
    assert_silent(caught.value, step.password, repr(client), caplog.text)


def test_the_forms_are_found() -> None:
    """The tests above can fail."""
    for leak in (SECRET, f"{SECRET.encode()!r}", SECRET.encode().hex(), str([*SECRET.encode()])):
        with pytest.raises(AssertionError):
            assert_silent(ValueError(f"the password {leak} is wrong"), SECRET)


def test_passwords_that_are_no_text() -> None:
    password = "Tr0ub4dor\ud800"
    with pytest.raises(replica.ConfigurationError) as caught:
        Connection("repl", password)
    texts = [f"{one} {one!r} {vars(one)} {getattr(one, 'object', '')!r}" for one in chain(caught.value)]
    assert "Tr0ub4dor" not in "".join([*texts, *traceback.format_exception(caught.value)])


def test_what_a_login_sends_is_not_shown() -> None:
    response = HandshakeResponse(Capability(0), "repl", SECRET.encode())
    stream = replica.connect(f"mysql://repl:{SECRET}@127.0.0.1:1")
    options = Options.build(None, {"user": "repl", "password": SECRET})
    for form in forms(SECRET):
        assert form not in repr(response)
        assert form not in repr(options)
        assert form not in repr(stream)


def test_a_tls_request_comes_without_it() -> None:
    client = Connection("repl", SECRET, require_tls=True)
    source = FakeSource(client)
    source.greet()
    client.next_event()
    sent = client.data_to_send()
    assert isinstance(client.next_event(), StartTls)
    assert b"repl" not in sent
    source.frames.sequence = client._frames.sequence
    source.send(Ok())
    with pytest.raises(ReplicaError) as caught:
        client.next_event()
    assert_silent(caught.value, SECRET, repr(client))
