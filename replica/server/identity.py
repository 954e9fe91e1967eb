"""The identity of the served log's source: server id, server uuid and version; and the keys of the server.

Version and server id are read from the binlog files. The uuid is not in them: servers keep it in ``auto.cnf``, and so
does a relay.
"""

import configparser
import datetime
import ipaddress
import os
import ssl
import tempfile
import threading
import uuid
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from protocol.binlog.checksum import version_numbers
from protocol.errors import ConfigurationError
from protocol.records import field, record

from ..config.checkpoint import replace_file
from .served_log import ServedLog

AUTO_CNF: Final = "auto.cnf"

_NAMESPACE: Final = uuid.UUID("5cf2bd5c-52b5-5b3d-9d5f-6f5c3f9a1f3e")
_KEY_SIZE: Final = 2048
_MAX_SERVER_ID: Final = 0xFFFFFFFF
_VALID: Final = datetime.timedelta(days=3650)
# MariaDB puts this before its version in the greeting until version 11, for replicas that read "10" as "1".
_OLD_PREFIX: Final = "5.5.5-"


@record(frozen=True, slots=True)
class Identity:
    """The identity of one source. ``version`` is the server's full text; ``server_uuid`` is empty on MariaDB."""

    server_id: int
    server_uuid: str
    version: str
    is_mariadb: bool

    @property
    def greeting_version(self) -> str:
        """The version as it is sent in the greeting."""
        is_old = self.is_mariadb and version_numbers(self.version) < (11, 0, 0)
        return _OLD_PREFIX + self.version if is_old else self.version

    @classmethod
    def of(cls, log: ServedLog, server_id: int | None = None, server_uuid: str | None = None) -> "Identity":
        """Read the identity from a log; ``server_id`` and ``server_uuid`` replace what the log says.

        Raises ``ConfigurationError``.
        """
        head = log.newest_head()
        if server_id is not None and not 0 < server_id <= _MAX_SERVER_ID:
            raise ConfigurationError(
                f"server_id: {server_id} is out of range; use a whole number from 1 to {_MAX_SERVER_ID}"
            )
        own_id = head.server_id if server_id is None else server_id
        if head.is_mariadb:
            return cls(own_id, "", head.version, True)
        name = log.names[-1]
        known = (
            _checked_uuid(server_uuid) if server_uuid else read_server_uuid(os.path.dirname(log.path(name)))
        )
        base = name.rpartition(".")[0]
        return cls(own_id, known or str(uuid.uuid5(_NAMESPACE, f"{own_id}/{base}")), head.version, False)


def _checked_uuid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise ConfigurationError(f"server_uuid: {text!r} is not a UUID") from None


def read_server_uuid(folder: str) -> str | None:
    """The uuid in a directory's ``auto.cnf``; None without that file. ``ConfigurationError`` if it is malformed."""
    path = os.path.join(folder, AUTO_CNF)
    parser = configparser.ConfigParser(interpolation=None)
    try:
        if not parser.read(path):
            return None
        text = parser.get("auto", "server-uuid", fallback=None) or parser.get(
            "auto", "server_uuid", fallback=""
        )
        return str(uuid.UUID(text))
    except (configparser.Error, ValueError, OSError) as error:
        raise ConfigurationError(f"{path} has no valid server-uuid in its section [auto]: {error}") from error


def write_server_uuid(folder: str, server_uuid: str) -> None:
    """Write a source's uuid into ``auto.cnf`` beside its binlog files, as servers do."""
    replace_file(os.path.join(folder, AUTO_CNF), f"[auto]\nserver-uuid={server_uuid}\n".encode())


@record(slots=True)
class ServerKeys:
    """The RSA key and the TLS context of one server, made when they are first needed and never stored.

    ``given`` is the user's own TLS context, whose certificate is not known here.
    """

    given: ssl.SSLContext | None = None
    has_tls: bool = True
    _key: rsa.RSAPrivateKey | None = field(default=None, repr=False)
    _context: ssl.SSLContext | None = field(default=None, repr=False)
    _fingerprint: bytes | None = field(default=None, repr=False)
    # Several clients may need the keys at once, each in its own thread.
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def private_key(self) -> rsa.RSAPrivateKey:
        """The RSA key for passwords and for the self-signed certificate. The first call takes 0.1 s."""
        with self._lock:
            if self._key is None:
                self._key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_SIZE)
            return self._key

    def prepare(self) -> None:
        """Make the TLS context, if it is needed and not made yet."""
        with self._lock:
            if self._context is not None or not self.has_tls:
                return
            if self.given is not None:
                self._context = self.given
                return
            certificate = create_certificate(self.private_key())
            self._fingerprint = certificate.fingerprint(hashes.SHA256())
            self._context = _create_context(certificate, self.private_key())

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS context; None without TLS, and before ``prepare``."""
        return self._context

    @property
    def fingerprint(self) -> bytes | None:
        """SHA-256 of the self-signed certificate; None for a given context."""
        return self._fingerprint


def create_certificate(key: rsa.RSAPrivateKey) -> x509.Certificate:
    """A self-signed certificate for localhost, 127.0.0.1 and ::1, valid for ten years."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mysql-replica")])
    now = datetime.datetime.now(datetime.UTC)
    addresses = [ipaddress.ip_address(address) for address in ("127.0.0.1", "::1")]
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), *map(x509.IPAddress, addresses)])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + _VALID)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.add_extension(names, critical=False).sign(key, hashes.SHA256())


def _create_context(certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> ssl.SSLContext:
    pem = serialization.Encoding.PEM
    data = certificate.public_bytes(pem) + key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # load_cert_chain() only takes a file. Only this user can read it, and it is deleted at once.
    with tempfile.NamedTemporaryFile(prefix="mysql-replica-", suffix=".pem") as file:
        file.write(data)
        file.flush()
        context.load_cert_chain(file.name)
    return context
