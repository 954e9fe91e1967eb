"""How a source is to prove who it is: TLS contexts by mode, and the key that encrypts passwords without TLS.

Files in, objects of ``ssl`` and PEM out. Every mistake is a ``ConfigurationError`` that names the option. Nothing
here connects.
"""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from protocol.auth import load_public_key
from protocol.errors import ConfigurationError

TlsMode = Literal["disabled", "preferred", "required", "verify-ca", "verify-identity"]

TLS_MODES: Final = ("disabled", "preferred", "required", "verify-ca", "verify-identity")
VERIFYING: Final = frozenset({"verify-ca", "verify-identity"})


def create_ssl_context(
    mode: TlsMode, ca: str | None = None, cert: str | None = None, key: str | None = None
) -> ssl.SSLContext:
    """A client's context. ``preferred`` and ``required`` do not ask who answers, as MySQL's own clients do not.

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
