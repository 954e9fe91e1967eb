"""The server's half of each authentication plugin: checks whether the client's answer proves the password.

``VERIFIERS`` has one class for each plugin; ``client_plugins`` has the clients' halves and names the sources of the
algorithms. Only double hashes of a password are stored: they can check an answer, but nobody can log in with them.
Comparisons take the same time wherever the difference is. This module knows no packets except the plugins' own data.
"""

import hashlib
import hmac
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1

from ..errors import ConfigurationError
from ..records import field, record
from ..wire import utf8_bytes
from .client_plugins import NONCE_SIZE, certificate_proof

_NONCE_CHARACTERS: Final = bytes(byte for byte in range(1, 128) if byte != ord("$"))

# Authentication data of caching_sha2_password (sha2_password.cc: request_public_key, fast_auth_success,
# perform_full_authentication).
_KEY_REQUEST: Final = b"\x02"
_FAST_SUCCESS: Final = b"\x03"
_FULL_AUTHENTICATION: Final = b"\x04"

_OAEP: Final = padding.OAEP(padding.MGF1(SHA1()), SHA1(), None)


def create_nonce() -> bytes:
    """20 random bytes for a greeting, from the same range of bytes as in servers (``generate_user_salt``)."""
    return bytes(secrets.choice(_NONCE_CHARACTERS) for _ in range(NONCE_SIZE))


@record(frozen=True, slots=True)
class StoredPassword:
    """The stored form of a password: its SHA-1 and its SHA-256, each hashed once more."""

    sha1: bytes = field(repr=False)
    sha256: bytes = field(repr=False)

    @classmethod
    def of(cls, password: str) -> "StoredPassword":
        """The stored form of ``password``."""
        # A password file may hold bytes that are not UTF-8; they are surrogate escapes here and bytes again below.
        data = utf8_bytes(password)
        return cls(_twice("sha1", data), _twice("sha256", data))

    @classmethod
    def unknown(cls) -> "StoredPassword":
        """A random password, for users that do not exist: they are refused as late as all others."""
        return cls.of(secrets.token_hex())

    def prove_certificate(self, nonce: bytes, fingerprint: bytes) -> str:
        """A proof for this certificate that only a server with the password can make, as in MariaDB 11.4."""
        return certificate_proof(self.sha1, nonce, fingerprint)

    @property
    def is_empty(self) -> bool:
        """Whether the password is empty."""
        return hmac.compare_digest(self.sha256, _twice("sha256", b""))


@record(frozen=True, slots=True)
class Account:
    """How one user logs in. ``plugin`` is one of ``VERIFIERS``.

    ``full``: caching_sha2_password asks for the password itself at each login, like a server with an empty cache.
    """

    password: StoredPassword
    plugin: str = "caching_sha2_password"
    full: bool = False

    def __post_init__(self) -> None:
        if self.plugin not in VERIFIERS:
            raise ConfigurationError(
                f"auth_plugin: {self.plugin!r} is not supported; use one of {', '.join(VERIFIERS)}"
            )


@record(frozen=True, slots=True)
class Verdict:
    """The result of an answer: ``send`` is for the client's plugin; ``accepted`` is None while an answer is due."""

    accepted: bool | None
    send: bytes | None = None


_REFUSED: Final = Verdict(False)


@record(frozen=True, slots=True)
class Challenge:
    """What a verifier may use.

    ``secure``: nobody can listen to the transport. ``private_key`` makes or returns the key that decrypts passwords
    on other transports; None refuses them there.
    """

    account: Account
    nonce: bytes
    secure: bool = False
    private_key: Callable[[], rsa.RSAPrivateKey] | None = field(default=None, repr=False)


class Verifier(ABC):
    """One attempt to log in: ``start()`` with the first answer, then ``more()`` for each further one."""

    def __init__(self, challenge: Challenge) -> None:
        self.challenge = challenge

    @abstractmethod
    def start(self, answer: bytes) -> Verdict:
        """Judge the answer to the nonce."""

    def more(self, answer: bytes) -> Verdict:
        """Judge a further answer."""
        return _REFUSED


class NativePasswordVerifier(Verifier):
    """mysql_native_password: 20 bytes, or none for an empty password."""

    def start(self, answer: bytes) -> Verdict:
        """Accepts or refuses at once."""
        password = self.challenge.account.password
        if password.is_empty or not answer:
            return Verdict(password.is_empty and not answer)
        mask = hashlib.sha1(self.challenge.nonce + password.sha1).digest()
        return Verdict(_proves(answer, mask, "sha1", password.sha1))


class CachingSha2PasswordVerifier(Verifier):
    """caching_sha2_password: 32 bytes, or a zero byte for an empty password; then, if asked for, the password."""

    def __init__(self, challenge: Challenge) -> None:
        super().__init__(challenge)
        self._key_was_sent = False

    def start(self, answer: bytes) -> Verdict:
        """Decides by the hash alone, unless the account asks for the password itself."""
        account = self.challenge.account
        is_empty = answer in (b"", b"\0")
        if account.password.is_empty or is_empty:
            return Verdict(account.password.is_empty and is_empty)
        if account.full:
            return Verdict(None, _FULL_AUTHENTICATION)
        mask = hashlib.sha256(account.password.sha256 + self.challenge.nonce).digest()
        is_right = _proves(answer, mask, "sha256", account.password.sha256)
        return Verdict(True, _FAST_SUCCESS) if is_right else _REFUSED

    def more(self, answer: bytes) -> Verdict:
        """Judge the password: in clear on a secure transport, else encrypted. Answer a request for the key."""
        if self.challenge.secure:
            return self._check(answer)
        if self.challenge.private_key is None:
            return _REFUSED
        key = self.challenge.private_key()
        if answer == _KEY_REQUEST and not self._key_was_sent:
            self._key_was_sent = True
            return Verdict(None, public_pem(key))
        return self._check(decrypt_password(answer, self.challenge.nonce, key))

    def _check(self, answer: bytes) -> Verdict:
        found = _twice("sha256", answer.removesuffix(b"\0"))
        is_right = hmac.compare_digest(found, self.challenge.account.password.sha256)
        return Verdict(is_right and answer.endswith(b"\0"))


VERIFIERS: Final[Mapping[str, type[Verifier]]] = MappingProxyType(
    {
        "mysql_native_password": NativePasswordVerifier,
        "caching_sha2_password": CachingSha2PasswordVerifier,
    }
)


def public_pem(key: rsa.RSAPrivateKey) -> bytes:
    """The public half of a key, in the PEM form that clients read."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def decrypt_password(data: bytes, nonce: bytes, key: rsa.RSAPrivateKey) -> bytes:
    """The reverse of ``client_plugins.encrypt_password``, with the zero byte; empty if the decryption fails."""
    try:
        masked = key.decrypt(data, _OAEP)
    except ValueError:
        return b""
    return bytes(byte ^ nonce[index % NONCE_SIZE] for index, byte in enumerate(masked))


def _twice(algorithm: str, data: bytes) -> bytes:
    return hashlib.new(algorithm, hashlib.new(algorithm, data).digest()).digest()


def _proves(answer: bytes, mask: bytes, algorithm: str, stored: bytes) -> bool:
    """Whether the answer, XORed with the mask, is a value whose hash is ``stored``."""
    if len(answer) != len(mask):
        return False
    once = bytes(a ^ b for a, b in zip(answer, mask, strict=True))
    return hmac.compare_digest(hashlib.new(algorithm, once).digest(), stored)
