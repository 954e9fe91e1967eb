"""X.509 for tests: an authority, a server's certificate for 127.0.0.1 and clients' certificates, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

_VALID_FROM = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_VALID_TO = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)

# From Python 3.13 on ssl.create_default_context() asks an authority for it, and for an identifier of its key
# (VERIFY_X509_STRICT).
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Authority:
    """Writes into `directory`: `ca.pem` at once, `NAME.pem` and `NAME-key.pem` for each certificate it issues."""

    directory: Path
    key: rsa.RSAPrivateKey
    name: x509.Name

    @classmethod
    def create(cls, directory: Path, name: str = "authority") -> Authority:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        authority = cls(directory, key, _subject(name))
        builder = authority._builder(authority.name, key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_SIGNS_CERTIFICATES, critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        authority._write("ca.pem", builder.sign(key, hashes.SHA256()))
        return authority

    @property
    def path(self) -> Path:
        return self.directory / "ca.pem"

    def issue(self, name: str) -> tuple[Path, Path]:
        """The files of a certificate with this common name, which also serves 127.0.0.1, and of its key."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        addresses = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = self._builder(_subject(name), key).add_extension(addresses, critical=False)
        # From Python 3.13 on ssl.create_default_context() wants to have it.
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        certificate = self._write(f"{name}.pem", builder.sign(self.key, hashes.SHA256()))
        key_path = self.directory / f"{name}-key.pem"
        # The form that yaSSL reads; readable for the server's user.
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        return certificate, key_path

    def _builder(self, subject: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_VALID_FROM)
            .not_valid_after(_VALID_TO)
        )

    def _write(self, file: str, certificate: x509.Certificate) -> Path:
        path = self.directory / file
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return path


def _subject(name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "mysql-replica"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
