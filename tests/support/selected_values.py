"""What a server's SELECT prints -> the Python value that the project promises for it.

Independent of the project's own readers: texts are read here, row images there.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json

Raw = str | bytes


def text_of(raw: Raw) -> str:
    assert isinstance(raw, str), raw
    return raw


def bytes_of(raw: Raw) -> bytes:
    assert isinstance(raw, bytes), raw
    return raw


def read_date(raw: Raw) -> object:
    try:
        return datetime.date.fromisoformat(text_of(raw))
    except ValueError:
        return raw


def read_datetime(raw: Raw) -> object:
    try:
        return datetime.datetime.fromisoformat(text_of(raw))
    except ValueError:
        return raw


def read_timestamp(raw: Raw) -> object:
    """Selected with time_zone = '+00:00'."""
    value = read_datetime(raw)
    return value.replace(tzinfo=datetime.UTC) if isinstance(value, datetime.datetime) else value


def read_time(raw: Raw) -> datetime.timedelta:
    text = text_of(raw)
    hours, minutes, seconds = text.removeprefix("-").split(":")
    whole, _, fraction = seconds.partition(".")
    value = datetime.timedelta(
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(whole),
        microseconds=int(fraction.ljust(6, "0")),
    )
    return -value if text.startswith("-") else value


class JsonNumber(str):
    """A number as the server's JSON text shows it."""


def read_json(raw: Raw) -> object:
    return json.loads(text_of(raw), parse_int=JsonNumber, parse_float=JsonNumber)


def json_equals(streamed: object, read: object) -> bool:
    """A streamed document is what the server's text says, in the types that the document holds."""
    if isinstance(read, JsonNumber):
        if isinstance(streamed, float):
            return float(read) == streamed
        if isinstance(streamed, decimal.Decimal):
            return decimal.Decimal(read).as_tuple() == streamed.as_tuple()
        return type(streamed) is int and str(streamed) == read
    if isinstance(read, list):
        return (
            isinstance(streamed, list)
            and len(streamed) == len(read)
            and all(map(json_equals, streamed, read))
        )
    if isinstance(read, dict):
        return (
            isinstance(streamed, dict)
            and streamed.keys() == read.keys()
            and all(json_equals(streamed[key], read[key]) for key in read)
        )
    if isinstance(read, str) and not isinstance(streamed, str):
        return _json_opaque(streamed, read)
    return type(streamed) is type(read) and streamed == read


def _json_opaque(streamed: object, read: str) -> bool:
    """Dates print with six digits of fraction; bytes as base64 behind the number of their type."""
    if isinstance(streamed, bytes):
        return read == f"base64:type15:{base64.b64encode(streamed).decode()}" or (
            read.startswith("base64:type") and base64.b64decode(read.split(":")[2]) == streamed
        )
    if isinstance(streamed, datetime.timedelta):
        return read_time(read) == streamed
    if isinstance(streamed, datetime.datetime):
        return read_datetime(read) == streamed
    return isinstance(streamed, datetime.date) and read_date(read) == streamed
