"""TLS settings: an ``ssl`` context for each mode, the server's RSA key, and typed errors for those of OpenSSL.

Reads PEM files, returns ``ssl`` contexts and PEM bytes. A wrong setting is a ``ConfigurationError`` that names the
option. Opens no connection.
"""

import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from protocol.conversation.client_plugins import load_public_key
from protocol.errors import ConfigurationError, ConnectionLostError, ReplicaError, SourceConfigurationError

TlsMode = Literal["disabled", "preferred", "required", "verify-ca", "verify-identity", "verify-password"]

TLS_MODES: Final = ("disabled", "preferred", "required", "verify-ca", "verify-identity", "verify-password")
# The modes that check the certificate against trusted authorities.
VERIFYING: Final = frozenset({"verify-ca", "verify-identity"})

# x509_vfy.h: X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH.
_OTHER_NAME: Final = frozenset({62, 64})
# RFC 8446, section 6.2: the alerts of a server that rejects the client's certificate. DECRYPT_ERROR: the certificate
# was issued by an authority of the right name but with another key.
_CERTIFICATE_ALERT: Final = re.compile("ALERT_.*(CERTIFICATE|UNKNOWN_CA|DECRYPT_ERROR)")


def create_ssl_context(
    mode: TlsMode, ca: str | None = None, cert: str | None = None, key: str | None = None
) -> ssl.SSLContext:
    """A client context for a TLS mode.

    ``preferred`` and ``required`` do not verify the server, like MySQL's own clients. ``verify-password`` verifies it
    at the login (``protocol.conversation.login``). ``ca``, ``cert`` (the client's, for accounts that REQUIRE one) and
    ``key`` are paths of PEM files. Without ``ca`` the system's authorities are trusted; without ``key`` the key is
    read from the certificate's file. Raises ``ConfigurationError`` for a file that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = mode == "verify-identity"
    if mode not in VERIFYING:
        context.verify_mode = ssl.CERT_NONE
    elif ca is None:
        context.load_default_certs()
    else:
        _load("tls_ca", ca, lambda: context.load_verify_locations(ca))
    if cert is not None:
        _load("tls_cert", cert, lambda: context.load_cert_chain(cert, key, _no_passphrase))
    return context


def read_public_key(path: str) -> bytes:
    """Read a server's public RSA key (PEM), a file that the server calls caching_sha2_password_public_key_path."""
    pem: list[bytes] = []
    _load("server_public_key_path", path, lambda: pem.append(Path(path).read_bytes()))
    try:
        load_public_key(pem[0])
    except ConfigurationError as error:
        raise ConfigurationError(f"server_public_key_path: {path}: {error}") from None
    return pem[0]


def handshake_error(error: ssl.SSLError, address: str) -> ReplicaError:
    """The error for a failed TLS handshake: ``ConfigurationError`` or ``SourceConfigurationError``."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_refused(error, address) or SourceConfigurationError(
            f"no TLS connection with {address}: {error.reason or error} -- servers before MySQL 5.7 support only "
            "TLS 1.0 and 1.1: for those set tls='disabled', or give an ssl_context that allows TLS 1.0 and 1.1"
        )
    remedy = "name its authority with tls_ca, or set tls='required' to encrypt without verifying"
    if error.verify_code in _OTHER_NAME:
        remedy = "connect to a host name in the certificate, or set tls='verify-ca' to accept any host name"
    return ConfigurationError(
        f"tls: the certificate of {address} is not trusted: {error.verify_message.rstrip('.')} -- {remedy}"
    )


def broken_error(error: Exception, address: str) -> ReplicaError:
    """The error for a broken connection. With TLS 1.3 a server rejects a client's certificate after the handshake."""
    refused = _certificate_refused(error, address) if isinstance(error, ssl.SSLError) else None
    return refused or ConnectionLostError(f"the connection with {address} broke: {error}")


def _certificate_refused(error: ssl.SSLError, address: str) -> ConfigurationError | None:
    if not _CERTIFICATE_ALERT.search(error.reason or ""):
        return None
    return ConfigurationError(
        f"tls_cert: {address} rejects the client's certificate: {error.reason} -- the certificate must be valid and "
        "issued by the authority in the server's ssl_ca"
    )


def _no_passphrase() -> str:
    # Otherwise OpenSSL would prompt at the terminal and wait.
    raise ConfigurationError(
        "tls_key: the key is encrypted: give an ssl_context into which the key is loaded with its passphrase"
    )


def _load(name: str, path: str, load: Callable[[], object]) -> None:
    try:
        load()
    # ssl.SSLError is an OSError; a ValueError comes for a text that is no path.
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{name}: {path}: {getattr(error, 'strerror', None) or error}") from error
