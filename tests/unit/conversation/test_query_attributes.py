"""Statements after query attributes, as MySQL's clients send them."""

from __future__ import annotations

import struct

import pytest

from protocol.constants import ColumnType
from protocol.conversation.commands import Query
from protocol.conversation.query_attributes import parse_query
from protocol.errors import ProtocolError
from tests.support.feeding import check_parser

QUERY = Query("SELECT UNIX_TIMESTAMP()")


def test_as_replicas_send_it() -> None:
    payload = b"\x03\x00\x01SELECT UNIX_TIMESTAMP()"
    assert check_parser(parse_query, payload, shortest=3, open_ended=True) == QUERY


def test_attributes_are_passed_over() -> None:
    attributes = [
        (ColumnType.STRING, b"traceparent", b"\x0500-4b"),
        (ColumnType.LONGLONG, b"n", struct.pack("<q", -5)),
        (ColumnType.LONG, b"", struct.pack("<i", 7)),
        (ColumnType.TINY, b"t", b"\1"),
        (ColumnType.SHORT, b"s", b"\1\2"),
        (ColumnType.DOUBLE, b"d", struct.pack("<d", 1.5)),
        (ColumnType.DATETIME, b"when", b"\x04\xe8\x07\x05\x01"),
        (ColumnType.TIME, b"no time", b"\0"),
        (ColumnType.NULL, b"nothing", None),
        (ColumnType.STRING, b"null", None),
    ]
    nulls = sum(1 << index for index, (_, _, value) in enumerate(attributes) if value is None)
    types = b"".join(
        bytes([kind, 0x80 * (kind == ColumnType.LONGLONG), len(name)]) + name for kind, name, _ in attributes
    )
    values = b"".join(value or b"" for _, _, value in attributes)
    before = bytes([3, len(attributes), 1]) + nulls.to_bytes(2, "little") + b"\1" + types + values
    payload = before + QUERY.sql.encode()
    assert check_parser(parse_query, payload, shortest=len(before), open_ended=True) == QUERY


@pytest.mark.parametrize(
    "payload",
    [
        b"\x01",
        b"\x03\x00\x02SELECT 1",
        b"\x03\x00\x00SELECT 1",
        b"\x03\x01\x01\0\0SELECT 1",
        b"\x03\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x03\xfd\xff\xff\xff\x01SELECT",
    ],
)
def test_what_is_no_query(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_query(payload)
