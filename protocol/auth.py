"""The client's halves of the authentication plugins: what answers a server's challenge for a password.

One class per plugin in ``PLUGINS``; each is given the server's data and says what to send. Algorithms:
MySQL's ``sql-common/client_authentication.cc`` and ``sha2_password_common.cc``; the RSA comes from
``cryptography``. It knows no packets beyond the plugins' own bytes, and decides nothing about TLS but asks
whether there is some.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from .errors import AuthenticationError, ConfigurationError, ProtocolError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

NONCE_SIZE = 20

# Errors that the server's own client library would raise have numbers of that library (errmsg.h).
CR_SECURE_AUTH = 2049
CR_AUTH_PLUGIN_CANNOT_LOAD = 2059
CR_AUTH_PLUGIN_ERR = 2061


def client_error(code: int, message: str, remedy: str) -> AuthenticationError:
    """A refusal that is decided on our side, numbered as MySQL's client library numbers it."""
    return AuthenticationError(code, "HY000", message, remedy)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the plugins may use. ``secure``: the transport cannot be listened to (TLS or a Unix socket).

    ``server_public_key`` is PEM and may be None; then ``get_server_public_key`` allows to ask the server for
    it. ``allow_cleartext``: mysql_clear_password may be used, and over TLS (``tls``) only.
    """

    password: bytes = field(repr=False)
    secure: bool = False
    tls: bool = False
    server_public_key: bytes | None = field(default=None, repr=False)
    get_server_public_key: bool = True
    allow_cleartext: bool = False


class AuthPlugin(ABC):
    """One attempt to authenticate: ``start()`` once, then ``more()`` for each further message of it."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials

    @abstractmethod
    def start(self, data: bytes) -> bytes:
        """The answer to the server's first data (its nonce, usually with a zero behind it)."""

    def more(self, data: bytes) -> bytes | None:
        """The answer to a further message; None if there is nothing to send."""
        raise ProtocolError("the server sends more authentication data than the plugin knows of")


class NativePassword(AuthPlugin):
    """mysql_native_password: SHA-1 scramble of the password with the server's nonce."""

    def start(self, data: bytes) -> bytes:
        """20 bytes, or none for an empty password."""
        nonce = _nonce(data)
        return _scramble("sha1", self.credentials.password, nonce) if self.credentials.password else b""


class ClearPassword(AuthPlugin):
    """mysql_clear_password: the password itself, as PAM and LDAP accounts need it."""

    def start(self, data: bytes) -> bytes:
        """The password with a zero behind it; only over TLS, and only if the user has allowed it."""
        if not self.credentials.allow_cleartext:
            raise client_error(
                CR_AUTH_PLUGIN_CANNOT_LOAD,
                "the server asks for the password in clear (mysql_clear_password)",
                "allow it explicitly if this server is to see the password, and use TLS",
            )
        if not self.credentials.tls:
            raise client_error(
                CR_AUTH_PLUGIN_ERR, "mysql_clear_password needs an encrypted connection", "turn TLS on"
            )
        return self.credentials.password + b"\0"


class _RsaPassword(AuthPlugin):
    """What both SHA-2 plugins share: sending the password itself, in clear or encrypted with RSA."""

    request_key: bytes

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(credentials)
        self._nonce = b""
        self._key_requested = False

    def _send_password(self) -> bytes:
        credentials = self.credentials
        if credentials.secure:
            return credentials.password + b"\0"
        if credentials.server_public_key is not None:
            return encrypt_password(
                credentials.password, self._nonce, load_public_key(credentials.server_public_key)
            )
        if credentials.get_server_public_key:
            self._key_requested = True
            return self.request_key
        raise client_error(
            CR_AUTH_PLUGIN_ERR,
            "the server wants the password and the connection is not encrypted",
            "turn TLS on, give the server's public key, or allow it to be fetched",
        )

    def _receive_key(self, pem: bytes) -> bytes:
        self._key_requested = False
        try:
            key = load_public_key(pem)
        except ConfigurationError as error:
            raise ProtocolError(f"the server's public key cannot be used: {error}") from None
        return encrypt_password(self.credentials.password, self._nonce, key)


class CachingSha2Password(_RsaPassword):
    """caching_sha2_password: a SHA-256 scramble, and the password itself if the server has no cached hash."""

    request_key = b"\x02"

    def start(self, data: bytes) -> bytes:
        """32 bytes, or a lone zero for an empty password."""
        self._nonce = _nonce(data)
        return (
            _scramble("sha256", self.credentials.password, self._nonce)
            if self.credentials.password
            else b"\0"
        )

    def more(self, data: bytes) -> bytes | None:
        """3: the scramble was right. 4: the password itself is wanted. Else: the key we have asked for."""
        if self._key_requested:
            return self._receive_key(data)
        if data == b"\x03":
            return None
        if data == b"\x04":
            return self._send_password()
        return super().more(data)


class Sha256Password(_RsaPassword):
    """sha256_password: always the password itself."""

    request_key = b"\x01"

    def start(self, data: bytes) -> bytes:
        """The password in clear or encrypted, the request for a key, or a lone zero for an empty password."""
        self._nonce = _nonce(data)
        return self._send_password() if self.credentials.password else b"\0"

    def more(self, data: bytes) -> bytes | None:
        """The key that we have asked for."""
        return self._receive_key(data) if self._key_requested else super().more(data)


PLUGINS: Mapping[str, type[AuthPlugin]] = MappingProxyType(
    {
        "mysql_native_password": NativePassword,
        "caching_sha2_password": CachingSha2Password,
        "sha256_password": Sha256Password,
        "mysql_clear_password": ClearPassword,
    }
)
DEFAULT_PLUGIN = "mysql_native_password"


def first_plugin(name: str) -> str:
    """What to begin with when the greeting names this plugin; the server switches if need be.

    The greeting names the server's default, which may be one that we lack or one that gives the password
    away.
    """
    return DEFAULT_PLUGIN if name not in PLUGINS or PLUGINS[name] is ClearPassword else name


def create_plugin(name: str, credentials: Credentials) -> AuthPlugin:
    """The plugin that the server asks for by name; AuthenticationError if we do not have it."""
    if not name:
        raise client_error(
            CR_SECURE_AUTH,
            "the account has a password of the form from before MySQL 4.1",
            "set the account's password anew",
        )
    if name not in PLUGINS:
        raise client_error(
            CR_AUTH_PLUGIN_CANNOT_LOAD,
            f"the server asks for the authentication plugin {name!r}, which is not supported",
            f"use an account of one of these plugins: {', '.join(PLUGINS)}",
        )
    return PLUGINS[name](credentials)


# cryptography takes a tenth of the time of importing all that a stream needs, and most logins do without RSA.


def load_public_key(pem: bytes) -> "RSAPublicKey":
    """A server's RSA key; ConfigurationError if it is none."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigurationError("this is not a public key in PEM form") from None
    if not isinstance(key, rsa.RSAPublicKey):
        raise ConfigurationError("the public key is not an RSA key")
    return key


def encrypt_password(password: bytes, nonce: bytes, key: "RSAPublicKey") -> bytes:
    """The password with its zero, XORed with the repeated nonce, encrypted with OAEP (SHA-1) padding."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    oaep = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)
    clear = password + b"\0"
    repeated = nonce * (len(clear) // len(nonce) + 1)
    try:
        return key.encrypt(_xor(clear, repeated[: len(clear)]), oaep)
    except ValueError:
        raise ConfigurationError(
            f"{len(password)} bytes of password are too many for the server's {key.key_size}-bit key: use TLS"
        ) from None


def _nonce(data: bytes) -> bytes:
    if len(data) < NONCE_SIZE:
        raise ProtocolError(f"the server's nonce has {len(data)} bytes, not {NONCE_SIZE}")
    return data[:NONCE_SIZE]


def _scramble(algorithm: str, password: bytes, nonce: bytes) -> bytes:
    """XOR of the password's hash and a hash of the nonce with its double hash.

    The order of the latter differs: SHA-1 takes the nonce first (``password.cc``), SHA-256 last
    (``sha2_password_common.cc``: Generate_scramble).
    """
    once = hashlib.new(algorithm, password).digest()
    twice = hashlib.new(algorithm, once).digest()
    salted = nonce + twice if algorithm == "sha1" else twice + nonce
    return _xor(once, hashlib.new(algorithm, salted).digest())


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
