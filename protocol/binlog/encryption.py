"""Decrypts binlog files of MySQL and MariaDB while they are read.

MySQL (WL#10957, ``rpl_log_encryption.cc``, ``stream_cipher.cc``) encrypts everything after a header of 512 bytes.
The header holds the file's password, encrypted with a key of the keyring; the password gives the key of an
AES-256-CTR stream. MariaDB (``log_event.cc``, Log_event_writer) encrypts each event after START_ENCRYPTION
separately. ``keys`` reads the keys; this module opens no file.
"""

import hashlib
from collections.abc import Callable
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ..constants import ENCRYPTED_BINLOG_MAGIC, EVENT_SIZE_OFFSET
from ..errors import ConfigurationError, DecodeError
from ..records import record
from ..wire import ReadBytes, Reader, utf8_text

_VERSION: Final = 1
_FIELD_END, _FIELD_KEY_ID, _FIELD_PASSWORD, _FIELD_IV = range(4)
_PASSWORD_SIZE: Final = 32
_MASTER_KEY_SIZE: Final = 32
_BLOCK: Final = 16

_SCHEME: Final = 1
_NONCE_SIZE: Final = 12
# ENCRYPTION_KEY_SYSTEM_DATA: the one key that MariaDB encrypts logs with.
MARIADB_LOG_KEY: Final = 1


@record(slots=True, frozen=True)
class EncryptionHeader:
    """The start of an encrypted MySQL log: the encrypted password of the file, and the id of the key for it."""

    key_id: str
    encrypted_password: bytes
    iv: bytes

    @classmethod
    def parse(cls, data: bytes) -> "EncryptionHeader":
        """Read the 512 bytes, magic bytes included. Raises ``DecodeError`` (``TruncatedError``)."""
        reader = Reader(data)
        reader.skip(len(ENCRYPTED_BINLOG_MAGIC))
        version = reader.u8()
        if version != _VERSION:
            raise DecodeError(f"the encryption header has version {version}; only {_VERSION} can be read")
        fields: dict[int, bytes] = {}
        while reader.remaining and (kind := reader.u8()) != _FIELD_END:
            if kind == _FIELD_KEY_ID:
                fields[kind] = reader.short_bytes()
            elif kind == _FIELD_PASSWORD:
                fields[kind] = reader.take(_PASSWORD_SIZE)
            elif kind == _FIELD_IV:
                fields[kind] = reader.take(_BLOCK)
            else:
                raise DecodeError(f"the encryption header has the unknown field {kind}")
        if len(fields) != 3:
            raise DecodeError("the encryption header lacks the key's id, the password or the password's IV")
        key_id = utf8_text(fields[_FIELD_KEY_ID])
        return cls(key_id, fields[_FIELD_PASSWORD], fields[_FIELD_IV])

    def decrypting(self, read: ReadBytes, master_key: bytes) -> ReadBytes:
        """A ``read`` function of the decrypted file; the given ``read`` starts after this header."""
        if len(master_key) != _MASTER_KEY_SIZE:
            raise ConfigurationError(f"keyring: a replication key has 32 bytes, not {len(master_key)}")
        unlock = Cipher(algorithms.AES(master_key), modes.CBC(self.iv)).decryptor()
        password = unlock.update(self.encrypted_password) + unlock.finalize()
        material = hashlib.sha512(password).digest()
        # The first half of the counter block is the IV, the second half counts from 0.
        counter = material[32:40] + bytes(8)
        update = Cipher(algorithms.AES(material[:32]), modes.CTR(counter)).decryptor().update
        return lambda size: update(read(size))

    def wrong_key(self) -> ConfigurationError:
        """The error for a key with which the decrypted bytes are no binlog file."""
        return ConfigurationError(f"keyring: the key given for {self.key_id!r} does not open the log")


class EventDecryptor:
    """Decrypts the events after MariaDB's START_ENCRYPTION event, whose body is ``body``.

    The IV is the nonce and the event's offset. The server writes the timestamp over the size, encrypts everything
    from the fifth byte on, moves the four encrypted bytes in the place of the size to the front, and puts the plain
    size back.
    """

    def __init__(self, key_of: Callable[[int], bytes], body: bytes) -> None:
        reader = Reader(body)
        scheme = reader.u8()
        if scheme != _SCHEME:
            raise DecodeError(f"the events are encrypted with scheme {scheme}; only {_SCHEME} can be read")
        self.key_version = reader.uint(4)
        self._nonce = reader.take(_NONCE_SIZE)
        self._algorithm = algorithms.AES(key_of(MARIADB_LOG_KEY))
        self._mode = _cbc

    def use_counter_mode(self) -> None:
        """Decrypt as with file_key_management_encryption_algorithm=aes_ctr, which the log does not record."""
        self._mode = _ctr

    def wrong_key(self) -> ConfigurationError:
        """The error for a key with which the decrypted bytes are no events."""
        return ConfigurationError(f"key_file: key {MARIADB_LOG_KEY} of the key file does not open the log")

    def decrypt(self, raw: bytes, position: int) -> bytes:
        """The decrypted event of an encrypted event at this offset of the file.

        The first ``ENCRYPTED_PREFIX_SIZE`` bytes of an event are enough to decrypt its header.
        """
        iv = self._nonce + (position & 0xFFFFFFFF).to_bytes(4, "little")
        moved = raw[4:EVENT_SIZE_OFFSET] + raw[:4] + raw[EVENT_SIZE_OFFSET + 4 :]
        plain = self._mode(self._algorithm, iv, moved)
        timestamp = EVENT_SIZE_OFFSET - 4
        return b"".join(
            (
                plain[timestamp:EVENT_SIZE_OFFSET],
                plain[:timestamp],
                raw[EVENT_SIZE_OFFSET : EVENT_SIZE_OFFSET + 4],
                plain[EVENT_SIZE_OFFSET:],
            )
        )


def _cbc(algorithm: algorithms.AES, iv: bytes, data: bytes) -> bytes:
    """AES-CBC without padding; the bytes after the last whole block are masked (``my_crypt.cc``, MyCTX_nopad)."""
    whole = len(data) - len(data) % _BLOCK
    decryptor = Cipher(algorithm, modes.CBC(iv)).decryptor()
    plain = decryptor.update(data[:whole]) + decryptor.finalize()
    rest = data[whole:]
    if not rest:
        return plain
    # One block of CBC over zeros is the encrypted IV.
    mask = Cipher(algorithm, modes.CBC(iv)).encryptor().update(bytes(_BLOCK))
    return plain + bytes(byte ^ other for byte, other in zip(rest, mask, strict=False))


def _ctr(algorithm: algorithms.AES, iv: bytes, data: bytes) -> bytes:
    return Cipher(algorithm, modes.CTR(iv)).decryptor().update(data)
