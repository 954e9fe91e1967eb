"""The servers' halves of the plugins: with the clients' halves, and with answers made without the password."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.conversation.client_plugins import CachingSha2Password, Credentials, NativePassword
from protocol.conversation.server_plugins import (
    VERIFIERS,
    Account,
    CachingSha2PasswordVerifier,
    Challenge,
    NativePasswordVerifier,
    StoredPassword,
    Verdict,
    create_nonce,
    decrypt_password,
    public_pem,
)
from protocol.errors import ConfigurationError
from tests.support.fake_source import NONCE
from tests.support.rsa_keys import KEY, PEM

PASSWORD = "pä55"
PASSWORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NONCES = st.binary(min_size=20, max_size=20)


def challenge(password: str = PASSWORD, nonce: bytes = NONCE, **given: object) -> Challenge:
    full = bool(given.pop("full", False))
    return Challenge(Account(StoredPassword.of(password), full=full), nonce, **given)  # type: ignore[arg-type]


@given(PASSWORDS, PASSWORDS, NONCES)
def test_both_halves_agree(password: str, other: str, nonce: bytes) -> None:
    clients = {"mysql_native_password": NativePassword, "caching_sha2_password": CachingSha2Password}
    for name, verifier in VERIFIERS.items():
        answer = clients[name](Credentials(other.encode())).start(nonce + b"\0")
        verdict = verifier(challenge(password, nonce)).start(answer)
        assert verdict.accepted == (password == other)


@pytest.mark.parametrize("name", VERIFIERS)
@given(answer=st.binary(max_size=40))
def test_no_other_answer_is_right(name: str, answer: bytes) -> None:
    assert VERIFIERS[name](challenge()).start(answer) == Verdict(False)
    verifier = VERIFIERS[name](challenge())
    verifier.start(b"")
    assert verifier.more(answer).accepted is False


@pytest.mark.parametrize("name", VERIFIERS)
def test_a_password_of_bytes_that_are_no_text(name: str) -> None:
    clients = {"mysql_native_password": NativePassword, "caching_sha2_password": CachingSha2Password}
    answer = clients[name](Credentials(b"p\xff")).start(NONCE)
    assert VERIFIERS[name](challenge(b"p\xff".decode("utf-8", "surrogateescape"))).start(answer).accepted


def test_a_right_answer_with_one_bit_changed() -> None:
    for client, verifier in (
        (NativePassword, NativePasswordVerifier),
        (CachingSha2Password, CachingSha2PasswordVerifier),
    ):
        answer = client(Credentials(PASSWORD.encode())).start(NONCE)
        for bit in range(len(answer) * 8):
            wrong = (int.from_bytes(answer, "big") ^ 1 << bit).to_bytes(len(answer), "big")
            assert verifier(challenge()).start(wrong).accepted is False
        assert verifier(challenge()).start(answer + b"\0").accepted is False


def test_the_fast_path_tells_the_client_so() -> None:
    answer = CachingSha2Password(Credentials(PASSWORD.encode())).start(NONCE)
    assert CachingSha2PasswordVerifier(challenge()).start(answer) == Verdict(True, b"\x03")


def test_the_full_path_over_a_secure_transport() -> None:
    for sent, accepted in ((PASSWORD, True), ("other", False), ("", False)):
        verifier = CachingSha2PasswordVerifier(challenge(full=True, secure=True))
        client = CachingSha2Password(Credentials(sent.encode() or b"x", secure=True))
        assert verifier.start(client.start(NONCE)) == Verdict(None, b"\x04")
        answer = client.more(b"\x04")
        assert answer is not None
        assert verifier.more(answer) == Verdict(accepted)
    assert not verifier.more(PASSWORD.encode()).accepted, "without its zero"


@pytest.mark.parametrize("known_key", [None, PEM])
@pytest.mark.parametrize("sent", [PASSWORD, "other"])
def test_the_full_path_with_a_key(known_key: bytes | None, sent: str) -> None:
    verifier = CachingSha2PasswordVerifier(challenge(full=True, private_key=lambda: KEY))
    client = CachingSha2Password(
        Credentials(sent.encode(), server_public_key=known_key, get_server_public_key=True)
    )
    assert verifier.start(client.start(NONCE)) == Verdict(None, b"\x04")
    answer = client.more(b"\x04")
    assert answer is not None
    if known_key is None:
        verdict = verifier.more(answer)
        assert verdict == Verdict(None, PEM)
        answer = client.more(PEM)
        assert answer is not None
    assert verifier.more(answer) == Verdict(sent == PASSWORD)


def test_the_key_is_given_once_and_the_password_never_taken_in_clear() -> None:
    verifier = CachingSha2PasswordVerifier(challenge(full=True, private_key=lambda: KEY))
    verifier.start(b"x" * 32)
    assert verifier.more(b"\x02").accepted is None
    assert verifier.more(b"\x02").accepted is False
    assert verifier.more(PASSWORD.encode() + b"\0").accepted is False
    without_key = CachingSha2PasswordVerifier(challenge(full=True))
    without_key.start(b"x" * 32)
    assert without_key.more(b"\x02").accepted is False


def test_what_was_not_encrypted_decrypts_to_nothing() -> None:
    assert decrypt_password(b"", NONCE, KEY) == b""
    assert decrypt_password(bytes(256), NONCE, KEY) == b""
    assert public_pem(KEY) == PEM


def test_stored_passwords() -> None:
    assert StoredPassword.of("").is_empty
    assert not StoredPassword.of("x").is_empty
    assert StoredPassword.unknown() != StoredPassword.unknown()
    assert "secret" not in repr(StoredPassword.of("secret"))
    assert StoredPassword.of("secret").sha1.hex().upper() == "14E65567ABDB5135D0CFD9A70B3032C179A49EE7"
    with pytest.raises(ConfigurationError, match="sha256_password"):
        Account(StoredPassword.of("x"), "sha256_password")


def test_nonces() -> None:
    nonces = {create_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert all(len(nonce) == 20 and not {0, ord("$")} & set(nonce) for nonce in nonces)
    assert all(max(nonce) < 128 for nonce in nonces)
