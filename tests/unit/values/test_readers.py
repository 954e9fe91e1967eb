"""Plain readers of column values: published vectors, all boundaries, random round trips through a test encoder."""

from __future__ import annotations

import decimal
import json
import sys
from array import array
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import DecodeError
from protocol.values import readers
from tests.support.decimals import decimals, encode_decimal
from tests.support.places import CORPUS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZERO_TIMESTAMP = "0000-00-00 00:00:00"


# ------------------------------------------------------------------------------------------ the vectors


def _expected_time(text: str) -> timedelta:
    negative = text.startswith("-")
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    value = timedelta(
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(whole),
        microseconds=int((fraction + "000000")[:6]),
    )
    return -value if negative else value


def _expected_datetime(text: str) -> datetime:
    if text.endswith(" UTC"):
        return _expected_datetime(text.removesuffix(" UTC")).replace(tzinfo=UTC)
    whole, _, fraction = text.partition(".")
    return datetime.fromisoformat(whole).replace(microsecond=int((fraction + "000000")[:6]))


def _unix(value: int | str) -> datetime:
    seconds, _, fraction = str(value).partition(".")
    return EPOCH + timedelta(seconds=int(seconds), microseconds=int((fraction + "000000")[:6]))


def _whole(size: int, read: Callable[[bytes, int], Any]) -> Callable[[bytes], Any]:
    """Checks that the reader's value ends where the vector ends; also reads the vector between other bytes."""

    def run(data: bytes) -> Any:
        assert len(data) == size
        return read(b"\xaa" + data + b"\x55", 1)

    return run


Case = tuple[Callable[[bytes], Any], Callable[[Any], Any]]

# Type -> a function from metadata to the reader and to the vectors' form of the expected value.
READERS: dict[str, Callable[[Any], Case]] = {
    "NEWDECIMAL": lambda meta: (
        _whole(
            readers.decimal_size(meta["precision"], meta["scale"]),
            readers.decimal_reader(meta["precision"], meta["scale"]),
        ),
        Decimal,
    ),
    "DATE": lambda meta: (_whole(3, readers.read_date), date.fromisoformat),
    "NEWDATE": lambda meta: (_whole(3, readers.read_date), date.fromisoformat),
    "TIME": lambda meta: (_whole(3, readers.read_time), _expected_time),
    "TIMESTAMP": lambda meta: (_whole(4, readers.read_timestamp), _expected_datetime),
    "DATETIME": lambda meta: (_whole(8, readers.read_datetime), _expected_datetime),
    "TIME2": lambda fsp: (
        _whole(3 + readers.fraction_size(fsp), readers.time2_reader(fsp)),
        _expected_time,
    ),
    "DATETIME2": lambda fsp: (
        _whole(5 + readers.fraction_size(fsp), readers.datetime2_reader(fsp)),
        _expected_datetime,
    ),
    "TIMESTAMP2": lambda fsp: (
        _whole(4 + readers.fraction_size(fsp), readers.timestamp2_reader(fsp)),
        lambda expected: _expected_datetime(expected) if str(expected).endswith("UTC") else _unix(expected),
    ),
}

# Vectors of these kinds belong to other modules: plain numbers to the row reader, strings to charset, JSON to
# jsonb. ENUM and SET vectors are plain integers, too, because they name no labels.
ELSEWHERE = {
    *(
        "TINY",
        "SHORT",
        "INT24",
        "LONG",
        "LONGLONG",
        "FLOAT",
        "DOUBLE",
        "VARCHAR",
        "ENUM",
        "SET",
        "YEAR",
        "BIT",
    ),
    *("JSON", "JSON-binary"),
}

EXCEPTIONS = {
    "value_newdecimal_12.34_prose": "the article leaves the sign bit out; the corrected bytes are tested",
}


def _vectors() -> list[tuple[str, str, Any, str, Any]]:
    """(name, type, metadata, hex, expected) of every vector whose type has a reader here."""
    if not CORPUS.exists():
        return []
    found = []
    for number, vector in enumerate(json.loads((CORPUS / "value_vectors.json").read_text())):
        if vector["kind"] == "value" and vector["type"] not in ELSEWHERE:
            meta = vector["meta"]
            meta = meta["meta"] if isinstance(meta, dict) and "meta" in meta else meta
            found.append((f"value_vectors-{number}", vector["type"], meta, vector["hex"], vector["expected"]))
    for vector in json.loads((CORPUS / "seed_vectors.json").read_text()):
        if vector["kind"] == "value" and "type" in vector["expected"] and "value" in vector["expected"]:
            shape, _, arguments = vector["expected"]["type"].partition("(")
            numbers = [int(number) for number in arguments.rstrip(")").split(",") if number]
            meta = dict(zip(("precision", "scale"), numbers, strict=False)) if len(numbers) == 2 else None
            meta = numbers[0] if len(numbers) == 1 else meta
            data = vector["hex"]
            if vector["doubtful"]:
                assert vector["name"] in EXCEPTIONS
                data = vector["corrected_hex"]
            if shape not in ELSEWHERE:
                found.append((vector["name"], shape, meta, data, vector["expected"]["value"]))
    return found


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not here")
def test_there_are_vectors_of_every_reader() -> None:
    assert {kind for _, kind, *_ in _vectors()} == set(READERS)


def test_published_vectors() -> None:
    for name, kind, meta, data, expected in _vectors():
        read, expect = READERS[kind](meta)
        value = read(bytes.fromhex(data))
        assert value == expect(expected), name
        if kind == "NEWDECIMAL":
            assert f"{value:f}".lstrip("-") == expected.lstrip("-"), name  # the scale is kept


# --------------------------------------------------------------------------------------------- DECIMAL


@given(decimals())
def test_decimal_round_trip(case: tuple[Decimal, int, int]) -> None:
    value, precision, scale = case
    data = encode_decimal(value, precision, scale)
    assert len(data) == readers.decimal_size(precision, scale)
    read = readers.decimal_reader(precision, scale)(b"\0" + data + b"\xff", 1)
    assert read == value
    assert read.as_tuple().exponent == -scale


def test_decimal_does_not_depend_on_the_callers_context() -> None:
    value = Decimal("-12345678901234567890123456789012345.678901234567890123456789012345")
    data = encode_decimal(value, 65, 30)
    with decimal.localcontext(decimal.Context(prec=3)):
        read = readers.decimal_reader(65, 30)(data, 0)
    assert str(read) == str(value)


@pytest.mark.parametrize(("precision", "scale"), [(0, 0), (5, 6), (82, 0), (5, -1), (-1, -1)])
def test_no_such_decimal_type(precision: int, scale: int) -> None:
    with pytest.raises(DecodeError, match="DECIMAL"):
        readers.decimal_reader(precision, scale)


@pytest.mark.parametrize(
    ("precision", "scale", "data"),
    [
        (4, 2, "e364"),  # 99.100
        (4, 2, "e463"),  # 100.99
        (4, 2, "1b9c"),  # -100.99
        (9, 0, "bb9aca00"),  # ten digits in nine
        (20, 10, "893b9ac9ff3b9aca0009"),
        (5, 0, "8186a0"),
    ],
)
def test_too_many_digits_in_a_group(precision: int, scale: int, data: str) -> None:
    with pytest.raises(DecodeError):
        readers.decimal_reader(precision, scale)(bytes.fromhex(data), 0)


# ------------------------------------------------------------------------------------------- temporals


def _date_bytes(year: int, month: int, day: int) -> bytes:
    return (year << 9 | month << 5 | day).to_bytes(3, "little")


@given(st.dates())
def test_date_round_trip(day: date) -> None:
    data = _date_bytes(day.year, day.month, day.day)
    assert readers.read_date(b"\xff" + data + b"\xff", 1) == day


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((0, 0, 0), "0000-00-00"),
        ((2026, 0, 15), "2026-00-15"),
        ((2026, 1, 0), "2026-01-00"),
        ((2026, 2, 31), "2026-02-31"),
        ((0, 1, 1), "0000-01-01"),
    ],
)
def test_dates_python_has_not(parts: tuple[int, int, int], text: str) -> None:
    assert readers.read_date(_date_bytes(*parts), 0) == text


@pytest.mark.parametrize("parts", [(2026, 13, 1), (2026, 15, 1), (10000, 1, 1), (16383, 1, 1)])
def test_dates_no_server_has(parts: tuple[int, int, int]) -> None:
    with pytest.raises(DecodeError):
        readers.read_date(_date_bytes(*parts), 0)


def _cut(microsecond: int, fsp: int) -> int:
    unit: int = 10 ** (6 - fsp)
    return microsecond // unit * unit


def _fraction_bytes(microsecond: int, fsp: int) -> bytes:
    size = (fsp + 1) // 2
    unit: int = 100 ** (3 - size)
    return (microsecond // unit).to_bytes(size, "big")


def _datetime2_bytes(parts: tuple[int, int, int, int, int, int, int], fsp: int) -> bytes:
    year, month, day, hour, minute, second, microsecond = parts
    packed = (((year * 13 + month) << 5 | day) << 17) | hour << 12 | minute << 6 | second
    return (packed + (1 << 39)).to_bytes(5, "big") + _fraction_bytes(microsecond, fsp)


@given(st.datetimes(), st.integers(0, 6))
def test_datetime2_round_trip(moment: datetime, fsp: int) -> None:
    moment = moment.replace(microsecond=_cut(moment.microsecond, fsp), fold=0)
    parts = (*moment.timetuple()[:6], moment.microsecond)
    assert readers.datetime2_reader(fsp)(b"\xff" + _datetime2_bytes(parts, fsp) + b"\xff", 1) == moment


@pytest.mark.parametrize(
    ("parts", "fsp", "text"),
    [
        ((0, 0, 0, 0, 0, 0, 0), 0, "0000-00-00 00:00:00"),
        ((0, 0, 0, 0, 0, 0, 0), 6, "0000-00-00 00:00:00.000000"),
        ((0, 0, 0, 0, 0, 0, 0), 1, "0000-00-00 00:00:00.0"),
        ((2026, 0, 15, 10, 11, 12, 500), 6, "2026-00-15 10:11:12.000500"),
        ((2026, 12, 0, 10, 11, 12, 120000), 3, "2026-12-00 10:11:12.120"),
        ((2026, 2, 31, 23, 59, 59, 990000), 2, "2026-02-31 23:59:59.99"),
    ],
)
def test_datetimes_python_has_not(
    parts: tuple[int, int, int, int, int, int, int], fsp: int, text: str
) -> None:
    assert readers.datetime2_reader(fsp)(_datetime2_bytes(parts, fsp), 0) == text


@pytest.mark.parametrize(
    ("data", "fsp"),
    [
        (_datetime2_bytes((10000, 1, 1, 0, 0, 0, 0), 0), 0),
        (_datetime2_bytes((2026, 1, 1, 24, 0, 0, 0), 0), 0),
        (_datetime2_bytes((2026, 1, 1, 0, 60, 0, 0), 0), 0),
        (_datetime2_bytes((2026, 1, 1, 0, 0, 60, 0), 3), 3),
        (bytes(5), 0),  # the sign bit of a DATETIME is always set
        (bytes(8), 6),
        (_datetime2_bytes((2026, 1, 1, 0, 0, 0, 0), 0) + b"\x64", 2),  # 100 hundredths
        (_datetime2_bytes((2026, 1, 1, 0, 0, 0, 0), 0) + b"\xff\xff\xff", 6),
        (_datetime2_bytes((2026, 0, 0, 0, 0, 0, 0), 0) + b"\xff\xff\xff", 6),
    ],
)
def test_datetimes_no_server_has(data: bytes, fsp: int) -> None:
    with pytest.raises(DecodeError):
        readers.datetime2_reader(fsp)(data, 0)


@given(st.integers(0, 2**32 - 1), st.integers(0, 999_999), st.integers(0, 6))
def test_timestamp2_round_trip(seconds: int, microsecond: int, fsp: int) -> None:
    microsecond = _cut(microsecond, fsp)
    data = seconds.to_bytes(4, "big") + _fraction_bytes(microsecond, fsp)
    value = readers.timestamp2_reader(fsp)(b"\xff" + data + b"\xff", 1)
    if seconds or microsecond:
        assert value == EPOCH + timedelta(seconds=seconds, microseconds=microsecond)
        assert isinstance(value, datetime)
        assert value.tzinfo is UTC
    else:
        assert value == ZERO_TIMESTAMP + ("." + "0" * fsp if fsp else "")


def test_the_last_timestamps() -> None:
    assert readers.timestamp2_reader(0)(b"\x7f\xff\xff\xff", 0) == datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC)
    last = datetime(2106, 2, 7, 6, 28, 15, 999_999, tzinfo=UTC)
    assert readers.timestamp2_reader(6)(b"\xff\xff\xff\xff\x0f\x42\x3f", 0) == last
    assert readers.read_timestamp(b"\0\0\0\0", 0) == ZERO_TIMESTAMP
    assert readers.read_timestamp(b"\1\0\0\0", 0) == EPOCH + timedelta(seconds=1)


def test_a_timestamp_fraction_out_of_range() -> None:
    for data, fsp in ((b"\0\0\0\1\x64", 1), (b"\0\0\0\1\xff\xff", 4), (b"\0\0\0\0\x0f\x42\x40", 6)):
        with pytest.raises(DecodeError):
            readers.timestamp2_reader(fsp)(data, 0)


TIME_LIMIT = 838 * 3600 + 59 * 60 + 59


def _time2_bytes(micros: int, fsp: int) -> bytes:
    """Encodes as the server does: seconds and fraction separately, complemented if negative."""
    seconds, microsecond = divmod(abs(micros), 1_000_000)
    packed = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
    size = (fsp + 1) // 2
    whole = packed << 8 * size | int.from_bytes(_fraction_bytes(microsecond, fsp), "big")
    return ((0x800000 << 8 * size) + (-whole if micros < 0 else whole)).to_bytes(3 + size, "big")


@given(st.integers(-TIME_LIMIT * 1_000_000 - 999_999, TIME_LIMIT * 1_000_000 + 999_999), st.integers(0, 6))
def test_time2_round_trip(micros: int, fsp: int) -> None:
    micros = _cut(abs(micros), fsp) * (-1 if micros < 0 else 1)
    data = _time2_bytes(micros, fsp)
    assert readers.time2_reader(fsp)(b"\xff" + data + b"\xff", 1) == timedelta(microseconds=micros)


@pytest.mark.parametrize(
    ("data", "fsp"),
    [
        ("000000", 0),  # -2048 hours
        ("ffffff", 0),
        ("b47000", 0),  # 839:00:00
        ("80003c", 0),  # 60 seconds
        ("800f00", 0),  # 60 minutes
        ("80000164", 2),
        ("7fffff010000", 6),  # a fraction of 0xff0000, complemented
    ],
)
def test_times_no_server_has(data: str, fsp: int) -> None:
    with pytest.raises(DecodeError):
        readers.time2_reader(fsp)(bytes.fromhex(data), 0)


@pytest.mark.parametrize("fsp", [-1, 7, 255])
def test_no_such_precision(fsp: int) -> None:
    for reader in (readers.datetime2_reader, readers.timestamp2_reader, readers.time2_reader):
        with pytest.raises(DecodeError, match="fractional"):
            reader(fsp)


def test_old_time() -> None:
    for stored, expected in ((0, 0), (-8385959, -TIME_LIMIT), (8385959, TIME_LIMIT), (-1, -1), (100, 60)):
        assert readers.read_time(stored.to_bytes(3, "little", signed=True), 0) == timedelta(seconds=expected)
    for bad in (8386000, 60, 6000, -60, -8388608):
        with pytest.raises(DecodeError):
            readers.read_time(bad.to_bytes(3, "little", signed=True), 0)


def test_old_datetime() -> None:
    def read(number: int) -> datetime | str:
        return readers.read_datetime(b"\xff" + number.to_bytes(8, "little") + b"\xff", 1)

    assert read(20260131235958) == datetime(2026, 1, 31, 23, 59, 58)
    assert read(0) == "0000-00-00 00:00:00"
    assert read(20260015101112) == "2026-00-15 10:11:12"
    for bad in (20261301000000, 20260101240000, 20260101006000, 100000101000000, 2**64 - 1):
        with pytest.raises(DecodeError):
            read(bad)


# --------------------------------------------------------------------------------------------- the rest


def test_enum_labels() -> None:
    assert [readers.enum_label(value, ("a", "b")) for value in (0, 1, 2)] == ["", "a", "b"]
    with pytest.raises(DecodeError, match="2 labels"):
        readers.enum_label(3, ("a", "b"))


def test_set_labels() -> None:
    labels = ("a", "b", "c")
    assert [readers.set_labels(bits, labels) for bits in (0, 1, 5, 7)] == ["", "a", "a,c", "a,b,c"]
    with pytest.raises(DecodeError, match="3 labels"):
        readers.set_labels(8, labels)
    assert readers.set_labels(2**63, [str(n) for n in range(64)]) == "63"


def test_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    assert readers.read_vector(b"\0\0\x80\x3f\0\0\0\xc0") == array("f", [1.0, -2.0])
    assert readers.read_vector(b"") == array("f")
    monkeypatch.setattr(sys, "byteorder", "big" if sys.byteorder == "little" else "little")
    swapped = readers.read_vector(b"\x3f\x80\0\0" if sys.byteorder == "big" else b"\0\0\x80\x3f")
    assert swapped == array("f", [1.0])
    with pytest.raises(DecodeError, match="multiple of 4"):
        readers.read_vector(b"\0\0\0")


@given(st.binary(min_size=16, max_size=16), st.integers(0, 6))
def test_only_decode_errors_escape(data: bytes, fsp: int) -> None:
    calls: list[Callable[[], object]] = [
        lambda: readers.read_date(data, 0),
        lambda: readers.datetime2_reader(fsp)(data, 0),
        lambda: readers.timestamp2_reader(fsp)(data, 0),
        lambda: readers.time2_reader(fsp)(data, 0),
        lambda: readers.read_timestamp(data, 0),
        lambda: readers.read_datetime(data, 0),
        lambda: readers.read_time(data, 0),
        lambda: readers.decimal_reader(10 + fsp, fsp)(data, 0),
        lambda: readers.decimal_reader(30 + fsp, 3 * fsp)(data, 0),
    ]
    for read in calls:
        try:
            read()
        except DecodeError:
            continue
