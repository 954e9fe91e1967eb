"""Parses the files in which servers keep the keys of encrypted binlog files.

MySQL: the file of ``component_keyring_file`` (JSON, ``json_reader.cc``) and of its predecessor, the plugin
``keyring_file`` (``keyring_key.cc``, ``buffered_file_io.cc``). MariaDB: the key file of ``file_key_management``
(``parser.cc``), plain or encrypted by ``openssl enc``. This module takes bytes and opens no file. Modules that few
logs need are imported inside functions.
"""

import re
from collections.abc import Mapping
from typing import Final

from ..errors import ConfigurationError, TruncatedError
from ..records import field, record
from ..wire import Reader

_KEY_SIZES: Final = (16, 24, 32)

_OLD_KEYRING: Final = b"Keyring file version:"
_OLD_KEYRING_END: Final = b"EOF"
_OLD_KEYRING_MASK: Final = b"*305=Ljt0*!@$Hnm(*-9-w;:"
_DIGEST_SIZES: Final = {b"1.0": 0, b"2.0": 32}

_OPENSSL_MAGIC: Final = b"Salted__"
_SALT_SIZE: Final = 8
# The values of file_key_management_digest, the default first.
_DIGESTS: Final = ("sha1", "sha256", "sha512", "sha384", "sha224")
# OpenSSL counts them in an int.
_MOST_ITERATIONS: Final = (1 << 31) - 1
_BLOCK: Final = 16
_KEY_LINE: Final = rb"\s*([0-9]{1,10});([0-9a-fA-F]+)(?![0-9a-fA-F])"


@record(slots=True, frozen=True)
class LogKeys:
    """The keys that the user gave: ``keyring`` has MySQL's by key id, ``key_file`` MariaDB's by key number.

    ``any_key`` is a replication key of MySQL that is used for every key id not in ``keyring``.
    """

    keyring: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    key_file: Mapping[int, bytes] = field(default_factory=dict, repr=False)
    any_key: bytes | None = field(default=None, repr=False)

    def mysql_key(self, key_id: str) -> bytes:
        """The replication key with this id. ``ConfigurationError`` if it was not given."""
        key = self.keyring.get(key_id, self.any_key)
        if key is None:
            known = ", ".join(name for name in self.keyring if name.startswith("MySQLReplicationKey"))
            raise ConfigurationError(
                f"keyring: the log is encrypted with the key {key_id!r}, which "
                + (
                    f"is none of {known}"
                    if known
                    else "the keyring does not hold"
                    if self.keyring
                    else "is not given"
                )
            )
        return key

    def mariadb_key(self, key_id: int) -> bytes:
        """The key with this number. ``ConfigurationError`` if it was not given."""
        key = self.key_file.get(key_id)
        if key is None:
            held = f"the key file holds {sorted(self.key_file)}" if self.key_file else "no key file is given"
            raise ConfigurationError(f"key_file: the log is encrypted with key {key_id}; {held}")
        if len(key) not in _KEY_SIZES:
            raise ConfigurationError(f"key_file: a key has 16, 24 or 32 bytes, not {len(key)}")
        return key


def parse_keyring(data: bytes) -> dict[str, bytes]:
    """All keys of a keyring file by id, in either of MySQL's formats. ``ConfigurationError`` for any other file."""
    if data.startswith(_OLD_KEYRING):
        return _parse_old_keyring(data)
    import json

    try:
        document = json.loads(data)
        return {str(entry["data_id"]): bytes.fromhex(entry["data"]) for entry in document["elements"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigurationError(
            "keyring: the file has neither the format of component_keyring_file nor that of keyring_file"
        ) from None


def _parse_old_keyring(data: bytes) -> dict[str, bytes]:
    version_end = len(_OLD_KEYRING) + 3
    digest_size = _DIGEST_SIZES.get(data[len(_OLD_KEYRING) : version_end])
    if digest_size is None:
        raise ConfigurationError(
            f"keyring: the keyring_file has the unknown version {data[len(_OLD_KEYRING) : version_end]!r}"
        )
    end = len(data) - digest_size
    if data[end - len(_OLD_KEYRING_END) : end] != _OLD_KEYRING_END:
        raise ConfigurationError("keyring: the file is cut short: its end mark is missing")
    reader = Reader(data, version_end, end - len(_OLD_KEYRING_END))
    keys: dict[str, bytes] = {}
    try:
        while reader.remaining:
            key_id, key = _old_key(reader)
            keys[key_id] = key
    except TruncatedError as error:
        raise ConfigurationError(f"keyring: the file is damaged: {error}") from None
    return keys


def _old_key(reader: Reader) -> tuple[str, bytes]:
    """One key: five sizes (entry, id, type, user, key; ``size_t`` each), the four parts, padding to 8 bytes."""
    start = reader.position
    whole, *sizes = (reader.uint(8) for _ in range(5))
    key_id, _, _, masked = (reader.take(size) for size in sizes)
    mask = (_OLD_KEYRING_MASK * (len(masked) // len(_OLD_KEYRING_MASK) + 1))[: len(masked)]
    reader.skip(start + whole - reader.position)
    return key_id.decode("utf-8", "replace"), bytes(
        byte ^ other for byte, other in zip(masked, mask, strict=True)
    )


def parse_key_file(data: bytes, secret: bytes = b"", iterations: int = 0) -> dict[int, bytes]:
    """The keys of a MariaDB key file by number: lines of ``number;hexadecimal key``, and comments after ``#``.

    An encrypted file needs ``secret``, the server's file_key_management_filekey; ``iterations`` is its
    file_key_management_use_pbkdf2. Raises ``ConfigurationError`` when it cannot be read.
    """
    if not (isinstance(iterations, int) and 0 <= iterations <= _MOST_ITERATIONS):
        raise ConfigurationError(
            f"key_file: the iterations are a number from 0 to {_MOST_ITERATIONS}, not {iterations!r}"
        )
    if not data.startswith(_OPENSSL_MAGIC):
        return _parse_key_lines(data)
    if not secret:
        raise ConfigurationError(
            "key_file: the file is encrypted: give its secret (file_key_management_filekey)"
        )
    # The file does not name the digest. A wrong digest gives wrong padding, or text that is no list of keys.
    for digest in _DIGESTS:
        plain = _decrypt_openssl(data, secret, digest, iterations)
        if plain is not None:
            try:
                return _parse_key_lines(plain)
            except ConfigurationError:
                continue
    raise ConfigurationError("key_file: the secret does not open the file")


def _parse_key_lines(data: bytes) -> dict[int, bytes]:
    keys: dict[int, bytes] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        found = re.match(_KEY_LINE, line)
        if not found or len(found[2]) not in [size * 2 for size in _KEY_SIZES]:
            raise ConfigurationError(
                f"key_file: line {number} has no key of the form number;hexadecimal of 16, 24 or 32 bytes"
            )
        keys[int(found[1])] = bytes.fromhex(found[2].decode("ascii"))
    return keys


def _decrypt_openssl(data: bytes, secret: bytes, digest: str, iterations: int) -> bytes | None:
    """The plain text of ``openssl enc -aes-256-cbc``; None if the padding shows that the key is wrong."""
    salt_end = len(_OPENSSL_MAGIC) + _SALT_SIZE
    salt, encrypted = data[len(_OPENSSL_MAGIC) : salt_end], data[salt_end:]
    if len(salt) != _SALT_SIZE or not encrypted or len(encrypted) % _BLOCK:
        raise ConfigurationError("key_file: the encrypted file is cut short")
    import hashlib

    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    if iterations:
        material = hashlib.pbkdf2_hmac(digest, secret, salt, iterations, 32 + _BLOCK)
    else:
        material = _bytes_to_key(secret, salt, digest, 32 + _BLOCK)
    decryptor = Cipher(algorithms.AES(material[:32]), modes.CBC(material[32:])).decryptor()
    padded = decryptor.update(encrypted) + decryptor.finalize()
    padding = padded[-1]
    if not 1 <= padding <= _BLOCK or padded[-padding:] != bytes([padding]) * padding:
        return None
    return padded[:-padding]


def _bytes_to_key(secret: bytes, salt: bytes, digest: str, size: int) -> bytes:
    """OpenSSL's EVP_BytesToKey with one round."""
    import hashlib

    material = block = b""
    while len(material) < size:
        block = hashlib.new(digest, block + secret + salt).digest()
        material += block
    return material[:size]
