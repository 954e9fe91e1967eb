"""The client's half of each authentication plugin: answers a server's challenge with proof of the password.

``PLUGINS`` has one class for each plugin, which takes the server's data and returns the bytes to send. Algorithms:
MySQL's ``sql-common/client_authentication.cc`` and ``sha2_password_common.cc``, MariaDB's ``plugin/auth_ed25519``,
``plugin/auth_parsec`` and ``plugin/auth_pam``; RSA and the Ed25519 of a seed come from ``cryptography``. This module
knows no packets except the plugins' own data. It does not set up TLS; ``Credentials`` says whether TLS is in use.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..errors import AuthenticationError, ConfigurationError, ProtocolError
from ..records import field, record
from . import ed25519

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

NONCE_SIZE = 20
_MARIADB_NONCE_SIZE = 32
_PARSEC_SALT_SIZE = 18
_PARSEC_MAX_COST = 3
_PASSWORD_QUESTIONS = frozenset({b"\x04", b"\x05"})
_AROUND_QUESTIONS = "\0 \n"
# Bytes that OAEP with SHA-1 adds.
_OAEP_SIZE = 42

# Numbers of MySQL's client library (errmsg.h), for errors that this library would raise in the same case.
CR_SSL_CONNECTION_ERROR = 2026
CR_SECURE_AUTH = 2049
CR_AUTH_PLUGIN_CANNOT_LOAD = 2059
CR_AUTH_PLUGIN_ERR = 2061


def client_error(code: int, message: str, remedy: str) -> AuthenticationError:
    """An authentication error found by the client, with the number that MySQL's client library gives it."""
    return AuthenticationError(code, "HY000", message, remedy)


@record(frozen=True, slots=True)
class Credentials:
    """The password and the settings for the plugins. ``secure``: nobody can listen (``tls``, or a Unix socket).

    ``server_public_key`` is in PEM form. If it is None, ``get_server_public_key`` allows a request to the server for
    it: a machine in the middle could send its own key, and read the password. ``enable_cleartext_plugin`` allows
    plugins that send the password itself.
    """

    password: bytes = field(repr=False)
    secure: bool = False
    tls: bool = False
    server_public_key: bytes | None = field(default=None, repr=False)
    get_server_public_key: bool = False
    enable_cleartext_plugin: bool = False


class AuthPlugin(ABC):
    """One attempt to authenticate: call ``start()`` once, then ``more()`` for each further message of the server."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        #: The password itself was sent, so the other end of the transport knows it.
        self.has_sent_password = False

    @abstractmethod
    def start(self, data: bytes) -> bytes:
        """The answer to the server's first data (its nonce, usually followed by a zero byte)."""

    def more(self, data: bytes) -> bytes | None:
        """The answer to a further message; None if there is nothing to send."""
        raise ProtocolError("the server sent more authentication data than its plugin allows")

    def stored_password(self) -> bytes | None:
        """The form in which the server stores the password; known after the last answer, None if never known."""
        return None


class NativePassword(AuthPlugin):
    """mysql_native_password: SHA-1 scramble of the password with the server's nonce."""

    def start(self, data: bytes) -> bytes:
        """20 bytes, or none for an empty password."""
        nonce = _nonce(data)
        return _scramble("sha1", self.credentials.password, nonce) if self.credentials.password else b""

    def stored_password(self) -> bytes:
        """SHA-1 of SHA-1."""
        return hashlib.sha1(hashlib.sha1(self.credentials.password).digest()).digest()


class ClearPassword(AuthPlugin):
    """mysql_clear_password: the password itself, as PAM and LDAP accounts need it."""

    def start(self, data: bytes) -> bytes:
        """The password and a zero byte; only if the user allows it and nobody can listen."""
        if not self.credentials.enable_cleartext_plugin:
            raise client_error(
                CR_AUTH_PLUGIN_CANNOT_LOAD,
                "the server asks for the password in clear",
                "enable_cleartext_plugin=True allows that, if this server may see the password",
            )
        if not self.credentials.secure:
            raise client_error(
                CR_AUTH_PLUGIN_ERR,
                "the server asks for the password in clear, and the connection is not encrypted",
                "tls='verify-identity' (or 'required')",
            )
        self.has_sent_password = True
        return self.credentials.password + b"\0"


class Dialog(ClearPassword):
    """dialog: questions of MariaDB's PAM accounts. The first question is answered if it asks for a password."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(credentials)
        self._has_answered = False

    def start(self, data: bytes) -> bytes:
        """The answer if the question is in ``data``; else no bytes, which asks for the question (``auth_pam.c``)."""
        return self.more(data) if data else super().start(data)[:0]

    def more(self, data: bytes) -> bytes:
        """The password and a zero byte, on the conditions of ``mysql_clear_password``."""
        # The lowest bit of the type marks the last question (auth_dialog: LAST_PASSWORD).
        if data[:1] not in _PASSWORD_QUESTIONS or self._has_answered:
            raise client_error(
                CR_AUTH_PLUGIN_ERR,
                f"the server asks {data[1:].decode('utf-8', 'backslashreplace').strip(_AROUND_QUESTIONS)!r}, "
                "which only a person can answer",
                "use an account that needs a password and nothing else",
            )
        self._has_answered = True
        return super().start(data)


class _RsaPassword(AuthPlugin):
    """Base of both SHA-2 plugins: sends the password itself, in clear or encrypted with RSA."""

    request_key: bytes

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(credentials)
        self._nonce = b""
        self._key_requested = False

    @property
    def _takes_clear(self) -> bool:
        """Whether the server expects the password in clear on this transport."""
        return self.credentials.secure

    def _send_password(self) -> bytes:
        credentials = self.credentials
        if self._takes_clear:
            self.has_sent_password = True
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
            "the server asks for the password itself, and the connection is not encrypted",
            "there are three ways: TLS (tls='verify-identity' or 'required', if the server has TLS); "
            "server_public_key_path, a copy of the server's file public_key.pem; get_server_public_key=True, which "
            "asks the server for its key: a machine in the middle could send its own key, and read the password",
        )

    def _receive_key(self, pem: bytes) -> bytes:
        self._key_requested = False
        try:
            return encrypt_password(self.credentials.password, self._nonce, load_public_key(pem))
        except ConfigurationError as error:
            raise ProtocolError(f"the server's public key cannot be used: {error}") from None


class CachingSha2Password(_RsaPassword):
    """caching_sha2_password: a SHA-256 scramble, and the password itself if the server has no cached hash."""

    request_key = b"\x02"

    def start(self, data: bytes) -> bytes:
        """32 bytes, or a single zero byte for an empty password."""
        self._nonce = _nonce(data)
        return (
            _scramble("sha256", self.credentials.password, self._nonce)
            if self.credentials.password
            else b"\0"
        )

    def more(self, data: bytes) -> bytes | None:
        """The answer to 3 (the scramble was right), 4 (send the password itself) or the key that was asked for."""
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

    @property
    def _takes_clear(self) -> bool:
        # Unlike for caching_sha2_password, servers do not treat a Unix socket as encrypted (my_vio_is_encrypted).
        return self.credentials.tls

    def start(self, data: bytes) -> bytes:
        """The password in clear or encrypted, the request for a key, or a single zero byte for an empty password."""
        self._nonce = _nonce(data)
        return self._send_password() if self.credentials.password else b"\0"

    def more(self, data: bytes) -> bytes | None:
        """The password, encrypted with the key that was asked for."""
        return self._receive_key(data) if self._key_requested else super().more(data)


class Ed25519Password(AuthPlugin):
    """client_ed25519 (MariaDB): a signature of the nonce, with the password as the key."""

    def start(self, data: bytes) -> bytes:
        """64 bytes, whatever the password."""
        return ed25519.sign(self.credentials.password, _mariadb_nonce(data))

    def stored_password(self) -> bytes:
        """The public key."""
        return ed25519.public_key(self.credentials.password)


class Parsec(AuthPlugin):
    """parsec (MariaDB 11.6 and later): a signature of both sides' nonces, with a key that is slow to derive."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(credentials)
        self._nonce = b""
        self._stored: bytes | None = None

    def start(self, data: bytes) -> bytes:
        """No bytes, which asks for the salt."""
        self._nonce = _mariadb_nonce(data)
        return b""

    def more(self, data: bytes) -> bytes:
        """A nonce and a signature, for the salt in ``data``: ``P``, the cost from 0 to 3, and 18 bytes."""
        if self._stored is not None:
            super().more(data)
        salt = data[2:]
        if data[:1] != b"P" or len(salt) != _PARSEC_SALT_SIZE or data[1] > _PARSEC_MAX_COST:
            raise ProtocolError(
                f"parsec: a salt of {len(salt)} bytes after 0x{data[:2].hex()} is not understood"
            )
        # Imported here, because cryptography takes long to import (see load_public_key).
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        rounds = 1024 << data[1]
        key = Ed25519PrivateKey.from_private_bytes(
            hashlib.pbkdf2_hmac("sha512", self.credentials.password, salt, rounds, 32)
        )
        self._stored = data + key.public_key().public_bytes_raw()
        nonce = os.urandom(_MARIADB_NONCE_SIZE)
        return nonce + key.sign(self._nonce + nonce)

    def stored_password(self) -> bytes | None:
        """The salt as the server sent it, and the public key."""
        return self._stored


PLUGINS: Mapping[str, type[AuthPlugin]] = MappingProxyType(
    {
        "mysql_native_password": NativePassword,
        "caching_sha2_password": CachingSha2Password,
        "sha256_password": Sha256Password,
        "client_ed25519": Ed25519Password,
        "parsec": Parsec,
        "mysql_clear_password": ClearPassword,
        "dialog": Dialog,
    }
)
DEFAULT_PLUGIN = "mysql_native_password"


def first_plugin(name: str) -> str:
    """The plugin to begin with if the greeting names ``name``; the server switches to another if necessary.

    The greeting names the server's default plugin, which may be unknown here or may send the password in clear.
    """
    return DEFAULT_PLUGIN if issubclass(PLUGINS.get(name, ClearPassword), ClearPassword) else name


def create_plugin(name: str, credentials: Credentials) -> AuthPlugin:
    """The plugin that the server asks for by name; ``AuthenticationError`` if it is not supported."""
    if name in ("", "mysql_old_password"):
        raise client_error(
            CR_SECURE_AUTH,
            "the account's password is stored in the form of servers before MySQL 4.1",
            "set the account's password again, with old_passwords=0",
        )
    if name not in PLUGINS:
        raise client_error(
            CR_AUTH_PLUGIN_CANNOT_LOAD,
            f"the server asks for the authentication plugin {name!r}, which is not supported",
            f"use an account of one of these plugins: {', '.join(PLUGINS)}",
        )
    return PLUGINS[name](credentials)


# cryptography is imported in the functions that need it: it takes a tenth of the import time of a stream, and most
# logins do without RSA.


def load_public_key(pem: bytes) -> "RSAPublicKey":
    """A server's RSA key; ``ConfigurationError`` if ``pem`` is not an RSA public key."""
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
    """The password and a zero byte, XORed with the repeated nonce, encrypted with OAEP (SHA-1) padding.

    Raises ``ConfigurationError`` if the key is too small, or no key of RSA's.
    """
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    oaep = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)
    clear = password + b"\0"
    repeated = nonce * (len(clear) // len(nonce) + 1)
    try:
        return key.encrypt(_xor(clear, repeated[: len(clear)]), oaep)
    except ValueError:
        if len(clear) > key.key_size // 8 - _OAEP_SIZE:
            raise ConfigurationError(
                f"a password of {len(password)} bytes is too long for the server's {key.key_size}-bit key: use TLS"
            ) from None
        raise ConfigurationError(f"the {key.key_size}-bit key is no key of RSA's") from None


def certificate_proof(stored_password: bytes, nonce: bytes, fingerprint: bytes) -> str:
    """The proof that a server with this stored password gives for the certificate's SHA-256 (MDEV-31855)."""
    return hashlib.sha256(stored_password + nonce + fingerprint).hexdigest().upper()


def _mariadb_nonce(data: bytes) -> bytes:
    if len(data) != _MARIADB_NONCE_SIZE:
        raise ProtocolError(f"the server's nonce has {len(data)} bytes, not {_MARIADB_NONCE_SIZE}")
    return data


def _nonce(data: bytes) -> bytes:
    if len(data) < NONCE_SIZE:
        raise ProtocolError(f"the server's nonce has {len(data)} bytes, not {NONCE_SIZE}")
    return data[:NONCE_SIZE]


def _scramble(algorithm: str, password: bytes, nonce: bytes) -> bytes:
    """The password's hash, XORed with a hash of the nonce and the password's double hash.

    The second hash takes the nonce first for SHA-1 (``password.cc``), last for SHA-256
    (``sha2_password_common.cc``: Generate_scramble).
    """
    once = hashlib.new(algorithm, password).digest()
    twice = hashlib.new(algorithm, once).digest()
    salted = nonce + twice if algorithm == "sha1" else twice + nonce
    return _xor(once, hashlib.new(algorithm, salted).digest())


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
