"""The clients' plugins: compared with another client, with a test key, and with data that no server should send."""

from __future__ import annotations

import pymysql._auth
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from protocol.conversation.client_plugins import (
    PLUGINS,
    CachingSha2Password,
    Credentials,
    NativePassword,
    Sha256Password,
    create_plugin,
    encrypt_password,
    first_plugin,
    load_public_key,
)
from protocol.errors import AuthenticationError, ConfigurationError, ProtocolError, ReplicaError
from tests.support.fake_source import NONCE, native_scramble, sha2_scramble
from tests.support.rsa_keys import KEY, PEM, decrypt


def test_another_client_scrambles_the_same() -> None:
    for password in ("secret", "pw-é", "x" * 100):
        data = password.encode()
        native = NativePassword(Credentials(data)).start(NONCE + b"\0")
        assert native == pymysql._auth.scramble_native_password(data, NONCE)
        sha2 = CachingSha2Password(Credentials(data)).start(NONCE + b"\0")
        assert sha2 == pymysql._auth.scramble_caching_sha2(data, NONCE)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.binary(min_size=20, max_size=20))
def test_scrambles(password: str, nonce: bytes) -> None:
    credentials = Credentials(password.encode())
    assert NativePassword(credentials).start(nonce + b"\0") == native_scramble(password, nonce)
    assert CachingSha2Password(credentials).start(nonce + b"\0") == sha2_scramble(password, nonce)


def test_a_zero_at_the_nonces_end_belongs_to_it() -> None:
    nonce = NONCE[:19] + b"\0"
    assert NativePassword(Credentials(b"x")).start(nonce) == native_scramble("x", nonce)
    assert NativePassword(Credentials(b"x")).start(nonce + b"\0") == native_scramble("x", nonce)


@pytest.mark.parametrize(
    ("name", "answer"),
    [("mysql_native_password", b""), ("caching_sha2_password", b"\0"), ("sha256_password", b"\0")],
)
def test_empty_passwords(name: str, answer: bytes) -> None:
    assert create_plugin(name, Credentials(b"")).start(NONCE + b"\0") == answer


def test_caching_sha2_fast() -> None:
    plugin = CachingSha2Password(Credentials(b"pw"))
    plugin.start(NONCE + b"\0")
    assert plugin.more(b"\x03") is None


def test_caching_sha2_full_over_a_secure_transport() -> None:
    plugin = CachingSha2Password(Credentials(b"pw", secure=True))
    plugin.start(NONCE + b"\0")
    assert plugin.more(b"\x04") == b"pw\0"


def test_caching_sha2_full_with_a_fetched_key() -> None:
    plugin = CachingSha2Password(Credentials("pw-é".encode(), get_server_public_key=True))
    plugin.start(NONCE + b"\0")
    assert plugin.more(b"\x04") == b"\x02"
    answer = plugin.more(PEM)
    assert answer is not None
    assert decrypt(answer) == "pw-é\0".encode()


def test_caching_sha2_full_with_a_given_key() -> None:
    plugin = CachingSha2Password(Credentials(b"pw", server_public_key=PEM, get_server_public_key=False))
    plugin.start(NONCE + b"\0")
    answer = plugin.more(b"\x04")
    assert answer is not None
    assert decrypt(answer) == b"pw\0"


@pytest.mark.parametrize("plugin_class", [CachingSha2Password, Sha256Password])
def test_no_password_without_key_or_encryption(
    plugin_class: type[CachingSha2Password] | type[Sha256Password],
) -> None:
    plugin = plugin_class(Credentials(b"pw"))

    def authenticate() -> None:
        plugin.start(NONCE + b"\0")
        plugin.more(b"\x04")

    with pytest.raises(
        AuthenticationError, match=r"three ways: TLS .*server_public_key_path, .*get_server_public_key="
    ) as caught:
        authenticate()
    assert caught.value.code == 2061


def test_sha256() -> None:
    data = NONCE + b"\0"
    assert Sha256Password(Credentials(b"pw", secure=True, tls=True)).start(data) == b"pw\0"
    # Over a Unix socket the password is encrypted, too.
    assert Sha256Password(Credentials(b"pw", secure=True, get_server_public_key=True)).start(data) == b"\x01"
    assert decrypt(Sha256Password(Credentials(b"pw", server_public_key=PEM)).start(data)) == b"pw\0"
    plugin = Sha256Password(Credentials(b"pw", get_server_public_key=True))
    assert plugin.start(data) == b"\x01"
    answer = plugin.more(PEM)
    assert answer is not None
    assert decrypt(answer) == b"pw\0"
    with pytest.raises(ProtocolError):
        plugin.more(PEM)


QUESTIONS = {"mysql_clear_password": b"", "dialog": b"\x05Password: \0"}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_password_in_clear_needs_permission_and_a_secure_transport(name: str) -> None:
    def answer(*, secure: bool, enabled: bool) -> bytes:
        credentials = Credentials(b"pw", secure=secure, enable_cleartext_plugin=enabled)
        return create_plugin(name, credentials).start(QUESTIONS[name])

    assert answer(secure=True, enabled=True) == b"pw\0"
    for secure in (True, False):
        with pytest.raises(AuthenticationError, match="enable_cleartext_plugin=True") as caught:
            answer(secure=secure, enabled=False)
        assert caught.value.code == 2059
    with pytest.raises(AuthenticationError, match=r"not encrypted.*tls=") as caught:
        answer(secure=False, enabled=True)
    assert caught.value.code == 2061


def test_a_question_is_asked_for_and_answered() -> None:
    credentials = Credentials(b"pw", secure=True, enable_cleartext_plugin=True)
    for question in (b"\x04Password: ", b"\x05"):
        plugin = create_plugin("dialog", credentials)
        assert plugin.start(b"") == b""
        assert plugin.more(question) == b"pw\0"
    with pytest.raises(AuthenticationError, match="enable_cleartext_plugin"):
        create_plugin("dialog", Credentials(b"pw", secure=True)).start(b"")


def test_questions_that_no_password_answers() -> None:
    credentials = Credentials(b"pw", secure=True, enable_cleartext_plugin=True)
    for question in (b"\x02Your pet's name?\0", b"\x03Your pet's name?", b"\0", b"\xfe"):
        with pytest.raises(AuthenticationError, match="only a person"):
            create_plugin("dialog", credentials).start(question)
    plugin = create_plugin("dialog", credentials)
    plugin.start(b"\x04Password:")
    with pytest.raises(AuthenticationError, match="'One-time code:'"):
        plugin.more(b"\x05One-time code: ")


def test_unknown_plugins_are_named() -> None:
    with pytest.raises(AuthenticationError, match="'authentication_kerberos'") as caught:
        create_plugin("authentication_kerberos", Credentials(b"pw"))
    assert caught.value.code == 2059
    for name in ("", "mysql_old_password"):
        with pytest.raises(AuthenticationError, match=r"before MySQL 4\.1.*old_passwords=0") as caught:
            create_plugin(name, Credentials(b"pw"))
        assert caught.value.code == 2049


def test_what_to_begin_with() -> None:
    assert first_plugin("caching_sha2_password") == "caching_sha2_password"
    assert first_plugin("authentication_kerberos") == "mysql_native_password"
    assert first_plugin("mysql_clear_password") == "mysql_native_password"
    assert first_plugin("dialog") == "mysql_native_password"


def test_passwords_stay_out_of_reprs() -> None:
    credentials = Credentials(b"secret", server_public_key=b"secret")
    assert "secret" not in repr(credentials)
    for name in PLUGINS:
        assert "secret" not in repr(create_plugin(name, credentials))


def test_a_password_too_long_for_the_key() -> None:
    assert decrypt(encrypt_password(b"x" * 213, NONCE, KEY.public_key())) == b"x" * 213 + b"\0"
    with pytest.raises(
        ConfigurationError, match="a password of 214 bytes is too long for the server's 2048-bit key"
    ):
        encrypt_password(b"x" * 214, NONCE, KEY.public_key())


def test_a_key_that_is_no_key_of_rsa() -> None:
    """The error named the password as too long, and was the user's to mend (ConfigurationError)."""
    numbers = RSAPublicNumbers(65537, (1 << 2047) + 2)
    pem = numbers.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    plugin = CachingSha2Password(Credentials(b"pw", get_server_public_key=True))
    plugin.start(NONCE + b"\0")
    plugin.more(b"\x04")
    with pytest.raises(ProtocolError, match="cannot be used: the 2048-bit key is no key of RSA's"):
        plugin.more(pem)


@pytest.mark.parametrize("data", [b"", b"\x03", b"nonsense", PEM[:-40], PEM.replace(b"PUBLIC", b"PRIVATE")])
def test_a_key_that_is_none(data: bytes) -> None:
    with pytest.raises(ConfigurationError):
        load_public_key(data)
    plugin = CachingSha2Password(Credentials(b"pw", get_server_public_key=True))
    plugin.start(NONCE + b"\0")
    plugin.more(b"\x04")
    with pytest.raises(ProtocolError, match="public key cannot be used"):
        plugin.more(data)


def test_a_key_that_is_not_rsa() -> None:
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(ConfigurationError, match="not an RSA key"):
        load_public_key(pem)


@given(st.sampled_from(sorted(PLUGINS)), st.lists(st.binary(max_size=40) | st.sampled_from([b"\x04", PEM])))
def test_hostile_data_gives_errors_of_the_tree(name: str, messages: list[bytes]) -> None:
    plugin = create_plugin(name, Credentials(b"pw"))
    try:
        plugin.start(messages[0] if messages else NONCE)
        for message in messages[1:]:
            plugin.more(message)
    except ReplicaError:
        pass


@pytest.mark.parametrize("name", ["mysql_native_password", "caching_sha2_password", "sha256_password"])
def test_short_nonces_are_refused(name: str) -> None:
    for size in range(20):
        with pytest.raises(ProtocolError, match=f"{size} bytes, not 20"):
            create_plugin(name, Credentials(b"pw")).start(NONCE[:size])
