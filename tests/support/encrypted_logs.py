"""Encrypted logs of both families, made here, and the files that hold their keys."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from protocol.constants import EventType
from tests.support.log_builder import LogBuilder

KEY_ID = "MySQLReplicationKey_3e11fa47-71ca-11e1-9e33-c80aa9429562_2"
MASTER_KEY = bytes(range(32))
PASSWORD = bytes(range(100, 132))
NONCE = bytes(range(50, 62))
LOG_KEY = bytes(range(7, 23))
# 1;000102030405060708090a0b0c0d0e0f, encrypted by OpenSSL 3.0: openssl enc -aes-256-cbc -k s3cret
OPENSSL_FILES = {
    # -md sha1
    0: (
        "53616c7465645f5fc9b7383f524cd78f12c59ba660f72779a01659427631c775db60f28060a62094157c5f04b53e73c1"
        "fd7eddf523de98b4207c834e002c1758"
    ),
    # -md sha512
    -1: (
        "53616c7465645f5fd1c108a0ea7ba5e7c51a9a1ec7b004b36640fb70694b9dd6cfafd326e57ce5e063fd052ec7180763"
        "fd3c5ef44443612da3533266a729f7f9"
    ),
    # -md sha256 -pbkdf2 -iter 1000
    1000: (
        "53616c7465645f5f20922742996ad0cbe0b791e2b06baddd332b92272e99ff6558497ae1187f96b1209ad2ff5cc6b573"
        "41890e530d1ef8f60cdf20db74d8226d"
    ),
}


def encryption_header(
    password: bytes = PASSWORD, master_key: bytes = MASTER_KEY, key_id: str = KEY_ID, version: int = 1
) -> bytes:
    iv = bytes(range(16))
    encryptor = Cipher(algorithms.AES(master_key), modes.CBC(iv)).encryptor()
    fields = b"\1" + bytes([len(key_id)]) + key_id.encode() + b"\2" + encryptor.update(password) + b"\3" + iv
    return (b"\xfdbin" + bytes([version]) + fields).ljust(512, b"\0")


def mysql_encrypted(plain: bytes) -> bytes:
    digest = hashlib.sha512(PASSWORD).digest()
    encryptor = Cipher(algorithms.AES(digest[:32]), modes.CTR(digest[32:40] + bytes(8))).encryptor()
    return encryption_header() + encryptor.update(plain)


def cbc(iv: bytes, data: bytes) -> bytes:
    """CBC, and what is left over masked by the encrypted IV."""
    whole = len(data) // 16 * 16
    encrypted = Cipher(algorithms.AES(LOG_KEY), modes.CBC(iv)).encryptor().update(data[:whole])
    mask = Cipher(algorithms.AES(LOG_KEY), modes.ECB()).encryptor().update(iv)
    return encrypted + bytes(left ^ right for left, right in zip(data[whole:], mask, strict=False))


def ctr(iv: bytes, data: bytes) -> bytes:
    return Cipher(algorithms.AES(LOG_KEY), modes.CTR(iv)).encryptor().update(data)


def mariadb_log(*, checksum: bool = True) -> LogBuilder:
    """A log whose second event says that the following ones are encrypted, which is still to be done."""
    log = LogBuilder(version="11.8.6-MariaDB-log", checksum=checksum)
    log.add(EventType.MARIADB_START_ENCRYPTION, b"\1" + struct.pack("<I", 1) + NONCE)
    for value in range(20):
        log.transaction([value] * (value + 1))
    # Without a checksum it has less than a block to encrypt.
    log.add(EventType.STOP, b"")
    return log


def mariadb_encrypted(log: LogBuilder, encrypt: Callable[[bytes, bytes], bytes]) -> bytes:
    data = bytearray(log.data[: log.offsets[2]])
    for index in range(2, len(log.offsets)):
        event = log.event(index)
        iv = NONCE + struct.pack("<I", log.offsets[index])
        result = bytearray(b"    " + encrypt(iv, event[4:9] + event[:4] + event[13:]))
        result[:4], result[9:13] = result[9:13], event[9:13]
        data += result
    return bytes(data)


def json_keyring(*entries: tuple[str, bytes]) -> bytes:
    elements = [
        {"user": "", "data_id": name, "data_type": "AES", "data": key.hex().upper(), "extension": []}
        for name, key in entries
    ]
    return json.dumps({"version": "1.0", "elements": elements}).encode()
