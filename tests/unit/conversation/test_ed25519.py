"""Ed25519 from a password: published vectors, another implementation, and MariaDB's plugins that use it."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from protocol.conversation import ed25519
from protocol.conversation.client_plugins import Credentials, create_plugin
from protocol.errors import ProtocolError
from tests.support.examples import times

NONCE = bytes(range(32))

# RFC 8032, section 7.1: seed, public key, message, signature.
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
        "387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
        "4a7c15e9716ed28dc027beceea1ec40a",
    ),
    (
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        hashlib.sha512(b"abc").hexdigest(),
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e030"
        "3dca179c138ac17ad9bef1177331a704",
    ),
]

# MariaDB, plugin/auth_ed25519/ed25519-t.c: the password "foobar", and 32 times "A".
FOOBAR_KEY = "aafda61ba1d60aecb7d9295be71855e131d2b5ec0dcf65483553db824f97009f"
FOOBAR_SIGNATURE = (
    "e83dc93f433f33355649ee23aa7592d61a1123090884f58d3063423a24e4305473febba858a2f93923554feea76a4475"
    "3887ab2f140e854f0fe57ca0b0648a0e"
)


@pytest.mark.parametrize(("seed", "key", "message", "signature"), RFC_8032)
def test_a_seed_signs_as_rfc_8032_has_it(seed: str, key: str, message: str, signature: str) -> None:
    password = bytes.fromhex(seed)
    assert ed25519.public_key(password).hex() == key
    assert ed25519.sign(password, bytes.fromhex(message)).hex() == signature


def test_a_password_signs_as_mariadb_has_it() -> None:
    assert ed25519.public_key(b"foobar").hex() == FOOBAR_KEY
    assert ed25519.sign(b"foobar", b"A" * 32).hex() == FOOBAR_SIGNATURE


@times(0.2)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200))
def test_another_implementation_signs_the_same(seed: bytes, message: bytes) -> None:
    other = Ed25519PrivateKey.from_private_bytes(seed)
    assert ed25519.sign(seed, message) == other.sign(message)
    assert ed25519.public_key(seed) == other.public_key().public_bytes_raw()


@times(0.2)
@given(st.binary(max_size=100), st.binary(max_size=200))
def test_another_implementation_verifies(password: bytes, message: bytes) -> None:
    key = Ed25519PublicKey.from_public_bytes(ed25519.public_key(password))
    signature = ed25519.sign(password, message)
    key.verify(signature, message)
    with pytest.raises(InvalidSignature):
        key.verify(signature, message + b"x")


def test_the_plugin_signs_the_nonce() -> None:
    plugin = create_plugin("client_ed25519", Credentials(b"foobar"))
    assert plugin.start(b"A" * 32).hex() == FOOBAR_SIGNATURE
    assert plugin.stored_password() == bytes.fromhex(FOOBAR_KEY)
    with pytest.raises(ProtocolError):
        plugin.more(b"")


@pytest.mark.parametrize("cost", range(4))
def test_parsec_signs_both_nonces(cost: int) -> None:
    """The client's answer passes the checks of MariaDB's server_parsec.cc."""
    question = b"P" + bytes([cost]) + bytes(range(18))
    plugin = create_plugin("parsec", Credentials("pw-é".encode()))
    assert plugin.start(NONCE) == b""
    assert plugin.stored_password() is None
    answer = plugin.more(question)
    assert answer is not None
    seed = hashlib.pbkdf2_hmac("sha512", "pw-é".encode(), bytes(range(18)), 1024 << cost, 32)
    key = Ed25519PrivateKey.from_private_bytes(seed).public_key()
    nonce, signature = answer[:32], answer[32:]
    key.verify(signature, NONCE + nonce)
    assert plugin.stored_password() == question + key.public_bytes_raw()
    with pytest.raises(ProtocolError):
        plugin.more(question)


def test_parsec_uses_a_nonce_once() -> None:
    answers = set()
    for _ in range(3):
        plugin = create_plugin("parsec", Credentials(b"pw"))
        plugin.start(NONCE)
        answers.add(plugin.more(b"P\0" + bytes(18)))
    assert len({answer[:32] for answer in answers if answer}) == 3


@pytest.mark.parametrize("name", ["client_ed25519", "parsec"])
@pytest.mark.parametrize("size", [0, 20, 31, 33])
def test_nonces_of_another_size_are_refused(name: str, size: int) -> None:
    with pytest.raises(ProtocolError, match=f"{size} bytes, not 32"):
        create_plugin(name, Credentials(b"pw")).start(bytes(size))


# A server that may choose any cost could keep the client busy for hours.
@pytest.mark.parametrize(
    "question",
    [
        b"",
        b"P",
        b"P\0" + bytes(17),
        b"P\0" + bytes(19),
        b"Q\0" + bytes(18),
        b"P\4" + bytes(18),
        b"P0" + bytes(18),
    ],
)
def test_parsec_takes_no_other_salts(question: bytes) -> None:
    plugin = create_plugin("parsec", Credentials(b"pw"))
    plugin.start(NONCE)
    with pytest.raises(ProtocolError, match="not understood"):
        plugin.more(question)
