"""How a source is to prove who it is: TLS contexts by mode, the key that encrypts passwords without TLS, and what
the errors of OpenSSL mean.

Files in, objects of ``ssl`` and PEM out. Every mistake is a ``ConfigurationError`` that names the option. Nothing
here connects.
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
# Those that ask authorities.
VERIFYING: Final = frozenset({"verify-ca", "verify-identity"})

# x509_vfy.h: X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH.
_OTHER_NAME: Final = frozenset({62, 64})
# RFC 8446, section 6.2: the alerts that a server sends when it does not take our certificate. The last is for one
# that an authority of the right name, and of another key, has issued.
_CERTIFICATE_ALERT: Final = re.compile("ALERT_.*(CERTIFICATE|UNKNOWN_CA|DECRYPT_ERROR)")


def create_ssl_context(
    mode: TlsMode, ca: str | None = None, cert: str | None = None, key: str | None = None
) -> ssl.SSLContext:
    """A client's context. ``preferred`` and ``required`` do not ask who answers, as MySQL's own clients do not;
    ``verify-password`` asks at the login (``protocol.conversation.login``).

    ``ca``, ``cert`` (ours, for accounts that REQUIRE one) and ``key`` are paths of PEM files; without ``ca`` the
    system's authorities are trusted, without ``key`` it stands in the file of the certificate.
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
    """The PEM of a server's public RSA key: the file that its ``caching_sha2_password_public_key_path`` names."""
    pem: list[bytes] = []
    _load("server_public_key_path", path, lambda: pem.append(Path(path).read_bytes()))
    try:
        load_public_key(pem[0])
    except ConfigurationError as error:
        raise ConfigurationError(f"server_public_key_path: {path}: {error}") from None
    return pem[0]


def handshake_error(error: ssl.SSLError, address: str) -> ReplicaError:
    """For a change to TLS that has failed: ``ConfigurationError`` or ``SourceConfigurationError``."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_refused(error, address) or SourceConfigurationError(
            f"no TLS connection with {address}: {error.reason or error} -- servers before MySQL 5.7 know only "
            "TLS 1.0 and 1.1: there, tls='disabled', or an ssl_context that allows them"
        )
    remedy = "give its authority with tls_ca, or tls='required' to encrypt without verifying"
    if error.verify_code in _OTHER_NAME:
        remedy = "connect by a name that it has, or tls='verify-ca' to take any name of this authority"
    return ConfigurationError(
        f"tls: the certificate of {address} is not trusted: {error.verify_message.rstrip('.')} -- {remedy}"
    )


def broken_error(error: Exception, address: str) -> ReplicaError:
    """For a connection that has broken: with TLS 1.3 a server refuses our certificate behind the handshake."""
    refused = _certificate_refused(error, address) if isinstance(error, ssl.SSLError) else None
    return refused or ConnectionLostError(f"the connection with {address} broke: {error}")


def _certificate_refused(error: ssl.SSLError, address: str) -> ConfigurationError | None:
    if not _CERTIFICATE_ALERT.search(error.reason or ""):
        return None
    return ConfigurationError(
        f"tls_cert: {address} does not take our certificate: {error.reason} -- it is to be valid, and issued by the "
        "authority that the server's ssl_ca names"
    )


def _no_passphrase() -> str:
    # Otherwise OpenSSL would ask at the terminal, and wait.
    raise ConfigurationError(
        "tls_key: the key is encrypted: give an ssl_context that has loaded it with its passphrase"
    )


def _load(name: str, path: str, load: Callable[[], object]) -> None:
    try:
        load()
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(f"{name}: {path}: {error.strerror or error}") from error
