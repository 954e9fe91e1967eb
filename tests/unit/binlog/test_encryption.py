"""Encrypted logs of both families, and the files that hold their keys."""

from __future__ import annotations

import contextlib
import hashlib
import io
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.binlog.encryption import EncryptionHeader
from protocol.binlog.keys import LogKeys, parse_key_file, parse_keyring
from protocol.binlog.raw_reader import CHUNK_SIZE, RawEventReader
from protocol.constants import EventType
from protocol.errors import ConfigurationError, DecodeError, TruncatedError
from tests.support.encrypted_logs import (
    KEY_ID,
    LOG_KEY,
    MASTER_KEY,
    OPENSSL_FILES,
    cbc,
    ctr,
    encryption_header,
    json_keyring,
    mariadb_encrypted,
    mariadb_log,
    mysql_encrypted,
)
from tests.support.log_builder import LogBuilder
from tests.support.places import CORPUS

LOGS = CORPUS / "files" / "mysql-testsuite-9.7.4"


def read_all(data: bytes, keys: LogKeys | None) -> list[tuple[int, bytes]]:
    reader = RawEventReader(io.BytesIO(data).read, file="log", keys=keys)
    events = []
    while (raw := reader.read_event()) is not None:
        events.append((reader.event_position, raw))
    return events


def test_mysql_log() -> None:
    log = LogBuilder()
    for value in range(100):
        log.transaction([value])
    log.statement("x" * CHUNK_SIZE)
    log.transaction([1])
    expected = [(offset, log.event(index)) for index, offset in enumerate(log.offsets)]
    data = mysql_encrypted(bytes(log.data))
    assert read_all(data, LogKeys(keyring={"other": bytes(32), KEY_ID: MASTER_KEY})) == expected
    assert read_all(data, LogKeys(any_key=MASTER_KEY)) == expected
    # The file is read in pieces of any size.
    stream = io.BytesIO(data)
    reader = RawEventReader(lambda size: stream.read(min(size, 1000)), keys=LogKeys(any_key=MASTER_KEY))
    assert [reader.read_event() for _ in expected] == [raw for _, raw in expected]


def test_mysql_log_without_its_key() -> None:
    data = mysql_encrypted(bytes(LogBuilder().data))
    with pytest.raises(ConfigurationError, match=f"{KEY_ID}', which is not given"):
        read_all(data, None)
    with pytest.raises(ConfigurationError, match="which the keyring does not hold"):
        read_all(data, LogKeys(keyring={"INNODBKey": MASTER_KEY}))
    with pytest.raises(ConfigurationError, match="is none of MySQLReplicationKey_x_1"):
        read_all(data, LogKeys(keyring={"MySQLReplicationKey_x_1": MASTER_KEY}))
    with pytest.raises(ConfigurationError, match="does not open the log"):
        read_all(data, LogKeys(any_key=bytes(32)))
    with pytest.raises(ConfigurationError, match="32 bytes, not 16"):
        read_all(data, LogKeys(any_key=bytes(16)))


def test_mysql_header() -> None:
    header = EncryptionHeader.parse(encryption_header())
    assert header.key_id == KEY_ID
    assert header.iv == bytes(range(16))
    for size in range(4, 512):
        with pytest.raises(TruncatedError):
            read_all(encryption_header()[:size], LogKeys(any_key=MASTER_KEY))
    with pytest.raises(DecodeError, match="version 2"):
        read_all(encryption_header(version=2), LogKeys(any_key=MASTER_KEY))
    with pytest.raises(DecodeError, match="unknown field 9"):
        EncryptionHeader.parse(b"\xfdbin\1\x09".ljust(512, b"\0"))
    with pytest.raises(DecodeError, match="lacks"):
        EncryptionHeader.parse(b"\xfdbin\1".ljust(512, b"\0"))


@given(st.binary(max_size=507))
def test_any_mysql_header(fields: bytes) -> None:
    with contextlib.suppress(DecodeError):
        EncryptionHeader.parse((b"\xfdbin\1" + fields).ljust(512, b"\0"))


@pytest.mark.skipif(not LOGS.is_dir(), reason="the corpus is not there")
def test_a_log_of_mysql_8_0_14() -> None:
    name = "rpl_nogtid_encryption_master-bin.000002"
    encrypted, plain = (LOGS / name).read_bytes(), (LOGS / f"{name}.DECRYPTED").read_bytes()
    events = read_all(encrypted, LogKeys(any_key=bytes(32)))
    assert events == read_all(plain, None)
    assert len(events) == 15


@pytest.mark.parametrize("encrypt", [cbc, ctr])
@pytest.mark.parametrize("checksum", [True, False])
def test_mariadb_log(encrypt: Callable[[bytes, bytes], bytes], checksum: bool, thorough: bool) -> None:
    """Whole, and cut anywhere."""
    log = mariadb_log(checksum=checksum)
    expected = [(offset, log.event(index)) for index, offset in enumerate(log.offsets)]
    data = mariadb_encrypted(log, encrypt)
    assert data != log.data
    assert read_all(data, LogKeys(key_file={1: LOG_KEY, 2: bytes(16)})) == expected
    for size in range(log.offsets[1], len(data), 1 if thorough else 17):
        found = read_all(data[:size], LogKeys(key_file={1: LOG_KEY}))
        assert found == [(offset, raw) for offset, raw in expected if offset + len(raw) <= size]


@pytest.mark.parametrize("encrypt", [cbc, ctr])
def test_damage_to_a_mariadb_log(encrypt: Callable[[bytes, bytes], bytes]) -> None:
    log = mariadb_log()
    data = mariadb_encrypted(log, encrypt)
    for index in range(2, 12):
        start, end = log.offsets[index], log.ends[index]
        for position in range(start, end, 3):
            damaged = bytearray(data)
            damaged[position] ^= 0x21
            reader = RawEventReader(io.BytesIO(damaged).read, keys=LogKeys(key_file={1: LOG_KEY}))
            whole = {log.event(number) for number in range(len(log.offsets))}
            found, passed = [], 0
            while True:
                try:
                    raw = reader.read_event()
                    if raw is None:
                        break
                    if raw not in whole:
                        raise DecodeError("damage")
                    found.append(reader.event_position)
                except DecodeError:
                    passed += reader.resynchronize()
                except ConfigurationError:
                    # The first encrypted event shows whether the key fits.
                    assert index == 2
                    break
            else:
                assert found == log.offsets[:index] + log.offsets[index + 1 :]
                assert passed == end - start


def test_mariadb_log_without_its_key() -> None:
    data = mariadb_encrypted(mariadb_log(), cbc)
    with pytest.raises(ConfigurationError, match="encrypted with key 1; no key file is given"):
        read_all(data, None)
    with pytest.raises(ConfigurationError, match=r"encrypted with key 1; the key file holds \[2, 3\]"):
        read_all(data, LogKeys(key_file={3: LOG_KEY, 2: LOG_KEY}))
    with pytest.raises(ConfigurationError, match="key 1 of the key file does not open the log"):
        read_all(data, LogKeys(key_file={1: bytes(16)}))
    with pytest.raises(ConfigurationError, match="not 5"):
        read_all(data, LogKeys(key_file={1: bytes(5)}))


def test_mariadb_scheme() -> None:
    for body, error in ((b"\2" + bytes(16), DecodeError), (b"\1\1\0\0\0short", TruncatedError)):
        log = LogBuilder(checksum=False)
        log.add(EventType.MARIADB_START_ENCRYPTION, body)
        with pytest.raises(error) as caught:
            read_all(bytes(log.data), LogKeys(key_file={1: LOG_KEY}))
        assert caught.value.position == log.offsets[1]
        assert caught.value.event_type == EventType.MARIADB_START_ENCRYPTION


# Key files


def old_keyring(*entries: tuple[str, bytes], version: str = "2.0") -> bytes:
    mask = b"*305=Ljt0*!@$Hnm(*-9-w;:"
    data = f"Keyring file version:{version}".encode()
    for name, key in entries:
        masked = bytes(byte ^ mask[index % 24] for index, byte in enumerate(key))
        parts = (name.encode(), b"AES", b"", masked)
        size = 40 + sum(map(len, parts))
        size += -size % 8
        data += (struct.pack("<5Q", size, *map(len, parts)) + b"".join(parts)).ljust(size, b"\0")
    return data + b"EOF" + (hashlib.sha256(data).digest() if version == "2.0" else b"")


ENTRIES = ((KEY_ID, MASTER_KEY), ("INNODBKey-1", bytes(reversed(MASTER_KEY))), ("k", b"x" * 16))


@pytest.mark.parametrize(
    "data", [json_keyring(*ENTRIES), old_keyring(*ENTRIES), old_keyring(*ENTRIES, version="1.0")]
)
def test_keyring(data: bytes) -> None:
    assert parse_keyring(data) == dict(ENTRIES)
    for size in range(len(data)):
        with pytest.raises(ConfigurationError):
            parse_keyring(data[:size])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"elements": [{"data_id": "a"}]}',
        b'{"elements": [{"data_id": "a", "data": "xyz"}]}',
        b'{"elements": [1]}',
        b'{"elements": null}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"Keyring file version:3.0EOF",
        b"Keyring file version:1.0" + struct.pack("<5Q", 2**63, 1, 1, 1, 1) + b"EOF",
        b"Keyring file version:1.0" + struct.pack("<5Q", 0, 0, 0, 0, 0) + b"EOF",
    ],
)
def test_what_is_no_keyring(data: bytes) -> None:
    with pytest.raises(ConfigurationError, match="keyring: "):
        parse_keyring(data)


def test_key_file() -> None:
    data = (
        b"# keys\n1;"
        + LOG_KEY.hex().encode()
        + b"\r\n\n  2;"
        + b"0Ff0" * 16
        + b" of the year 2020\n3;"
        + b"0" * 48
    )
    assert parse_key_file(data) == {1: LOG_KEY, 2: b"\x0f\xf0" * 16, 3: bytes(24)}
    for line in (b"1:00", b"x;" + b"0" * 32, b"1;" + b"0" * 34, b"1;" + b"0" * 33, b"1;" + b"0" * 62 + b"zz"):
        with pytest.raises(ConfigurationError, match="line 2 has no key"):
            parse_key_file(b"# keys\n" + line)


@pytest.mark.parametrize("iterations", [-1, 1 << 31, "1000"])
def test_iterations_of_a_key_file_that_no_server_has(iterations: Any) -> None:
    """hashlib raised ValueError, OverflowError and TypeError."""
    data = bytes.fromhex(next(iter(OPENSSL_FILES.values())))
    with pytest.raises(
        ConfigurationError, match="key_file: the iterations are a number from 0 to 2147483647"
    ):
        parse_key_file(data, b"s3cret", iterations)


@pytest.mark.parametrize(("iterations", "encrypted"), OPENSSL_FILES.items())
def test_encrypted_key_file(iterations: int, encrypted: str) -> None:
    data = bytes.fromhex(encrypted)
    iterations = max(iterations, 0)
    assert parse_key_file(data, b"s3cret", iterations) == {1: bytes(range(16))}
    with pytest.raises(ConfigurationError, match="does not open the file"):
        parse_key_file(data, b"wrong", iterations)
    with pytest.raises(ConfigurationError, match="give its secret"):
        parse_key_file(data)
    for size in range(8, len(data)):
        with pytest.raises(ConfigurationError):
            parse_key_file(data[:size], b"s3cret", iterations)
