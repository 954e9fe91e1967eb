"""The packets of one login: plugin data with and without a leading byte, switches, and the proof of a certificate."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from protocol.conversation.client_plugins import Credentials, certificate_proof, create_plugin
from protocol.conversation.login import Authenticated, Login
from protocol.conversation.messages import AuthMoreData, AuthSwitchRequest, Handshake, Ok
from protocol.errors import AuthenticationError, ProtocolError
from tests.support.fake_source import MARIADB_CAPABILITIES, NONCE, native_scramble
from tests.support.source_pair import Pair

PASSWORD = "repl-Secret_1"
CREDENTIALS = Credentials(PASSWORD.encode(), secure=True, tls=True, enable_cleartext_plugin=True)
OTHER_NONCE = bytes(range(100, 120))
MARIADB_NONCE = bytes(range(32))
FINGERPRINT = hashlib.sha256(b"a certificate").digest()
STORED = hashlib.sha1(hashlib.sha1(PASSWORD.encode()).digest()).digest()
SALT = b"P\0" + bytes(18)


def login(
    greeted: str = "mysql_native_password",
    fingerprint: bytes | None = None,
    credentials: Credentials = CREDENTIALS,
) -> Login:
    greeting = Handshake("11.8.6-MariaDB", 7, MARIADB_CAPABILITIES, NONCE + b"\0", greeted)
    return Login(greeting, credentials, fingerprint)


def switch(name: str, data: bytes) -> bytes:
    return AuthSwitchRequest(name, data).encode()


@pytest.mark.parametrize("wrap", [True, False])
def test_data_comes_with_a_byte_before_it_or_without(wrap: bool) -> None:
    """MySQL and MariaDB 11.8 put 0x01 before a plugin's data, MariaDB 10.11 does not."""
    ours = login()
    assert ours.receive(switch("dialog", b"")) == b""
    question = b"\x04Password: "
    assert ours.receive(AuthMoreData(question).encode() if wrap else question) == f"{PASSWORD}\0".encode()
    assert ours.receive(switch("parsec", MARIADB_NONCE)) == b""
    answer = ours.receive(AuthMoreData(SALT).encode() if wrap else SALT)
    assert answer is not None
    assert len(answer) == 96


def test_the_packet_that_a_plugin_does_not_know() -> None:
    with pytest.raises(ProtocolError):
        login().receive(b"?")


def test_as_many_switches_as_an_account_has_ways_in() -> None:
    ours = login()
    for number in range(10):
        nonce = bytes([number + 1]) * 20
        assert ours.receive(switch("mysql_native_password", nonce + b"\0")) == native_scramble(
            PASSWORD, nonce
        )
    with pytest.raises(ProtocolError, match="11 times"):
        ours.receive(switch("mysql_native_password", NONCE + b"\0"))


def proof(stored: bytes, nonce: bytes = NONCE, fingerprint: bytes = FINGERPRINT) -> Ok:
    return Ok(info="\x01" + certificate_proof(stored, nonce, fingerprint))


def test_a_certificate_that_is_proven() -> None:
    login(fingerprint=FINGERPRINT).check(proof(STORED))
    # The greeting's nonce counts until a switch brings another.
    switched = login(fingerprint=FINGERPRINT)
    switched.receive(switch("client_ed25519", MARIADB_NONCE))
    switched.check(proof(create_plugin("client_ed25519", CREDENTIALS).stored_password() or b""))
    again = login(fingerprint=FINGERPRINT)
    again.receive(switch("mysql_native_password", OTHER_NONCE + b"\0"))
    again.check(proof(STORED, OTHER_NONCE))
    asked = login(fingerprint=FINGERPRINT)
    asked.receive(switch("parsec", MARIADB_NONCE))
    asked.receive(SALT)
    asked.check(proof(asked._plugin.stored_password() or b""))


@pytest.mark.parametrize(
    ("ok", "complaint"),
    [
        (Ok(), "does not prove"),
        (Ok(info="welcome"), "does not prove"),
        (Ok(info=certificate_proof(STORED, NONCE, FINGERPRINT)), "does not prove"),
        (Ok(info="\x01"), "not the one of the server"),
        (Ok(info="\x01é"), "not the one of the server"),
        (proof(STORED, NONCE, hashlib.sha256(b"another certificate").digest()), "not the one of the server"),
        (proof(STORED, OTHER_NONCE), "not the one of the server"),
        (proof(b"?" * 20), "not the one of the server"),
    ],
)
def test_a_certificate_that_is_not_proven(ok: Ok, complaint: str) -> None:
    with pytest.raises(AuthenticationError, match=rf"2026.*{complaint}.*tls_ca"):
        login(fingerprint=FINGERPRINT).check(ok)
    login().check(ok)


def test_nobody_is_told_the_password_before_the_certificate_is_proven() -> None:
    for greeted in ("caching_sha2_password", "sha256_password", "mysql_clear_password"):
        ours = login(greeted, FINGERPRINT)
        assert ours.plugin_name == "mysql_native_password"
        assert ours.response == native_scramble(PASSWORD)
    for name in ("caching_sha2_password", "sha256_password", "mysql_clear_password", "dialog", ""):
        with pytest.raises(AuthenticationError, match=f"2026.*plugin {name or 'mysql_old_password'} cannot"):
            login(fingerprint=FINGERPRINT).receive(switch(name, NONCE + b"\0"))
    with pytest.raises(AuthenticationError, match=r"2026.*without a password"):
        login(fingerprint=FINGERPRINT, credentials=Credentials(b""))


def test_parsec_that_was_not_asked_proves_nothing() -> None:
    ours = login(fingerprint=FINGERPRINT)
    ours.receive(switch("parsec", MARIADB_NONCE))
    with pytest.raises(AuthenticationError, match="2026"):
        ours.check(proof(b""))


def test_our_own_server_proves_its_certificate() -> None:
    options: dict[str, Any] = {
        "plugin": "mysql_native_password",
        "version": "11.8.6-MariaDB",
        "server": {"fingerprint": lambda: FINGERPRINT},
        "require_tls": True,
    }
    assert isinstance(Pair(**options, shown=FINGERPRINT).log_in()[-1], Authenticated)
    pair = Pair(**options, shown=hashlib.sha256(b"another certificate").digest())
    for _ in range(2):
        with pytest.raises(AuthenticationError, match="not the one of the server"):
            pair.log_in()
    unknown = Pair(**options | {"version": "9.7.4"}, shown=FINGERPRINT)
    with pytest.raises(AuthenticationError, match="does not prove"):
        unknown.log_in()


def test_a_connection_without_a_password_ends_before_it_begins() -> None:
    pair = Pair(plugin="mysql_native_password", password="", shown=FINGERPRINT, require_tls=True)
    for _ in range(2):
        with pytest.raises(AuthenticationError, match="without a password"):
            pair.log_in()
    assert b"repl" not in pair.sent
