"""Inline expressions give the same results as the plain readers: for every byte in every place, and random bytes."""

from __future__ import annotations

import ast
import decimal
import itertools
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import DecodeError
from protocol.values import inline, readers
from protocol.values.inline import Inline, Memo, Shared

Reader = Callable[[bytes, int], object]


@dataclass(frozen=True)
class Case:
    """A type with its inline expression, its plain reader, and values that a server could have stored."""

    inline: Inline
    plain: Reader
    size: int
    stored: tuple[bytes, ...]


def written(inline: Inline) -> str:
    """The expression with the names of variables filled in."""
    names = {f"v{number}": f"v{number}" for number in range(1, len(inline.code))}
    names |= {f"c{number}": f"c{number}" for number in range(len(inline.constants))}
    names |= {f"k{number}": f"k{number}" for number in range(inline.kept)}
    return inline.expression.format(v="v", f="plain", p="position", **names)


def reader(case: Case) -> Reader:
    """A function with the expression, as in generated code: the kept variables survive from call to call."""
    inline = case.inline
    unpack = struct.Struct((">" if inline.is_big_endian else "<") + inline.code)
    assert unpack.size == case.size
    constants = [c.make(*c.arguments) if isinstance(c, Shared) else c for c in inline.constants]
    namespace: dict[str, object] = {f"c{number}": constant for number, constant in enumerate(constants)}
    namespace |= {f"k{number}": None for number in range(inline.kept)}
    namespace |= {"plain": case.plain, "unpack": unpack.unpack_from}
    targets = ", ".join(["v", *(f"v{number}" for number in range(1, len(inline.code)))])
    kept = ", ".join(f"k{number}" for number in range(inline.kept))
    lines = [
        "def read(data, position):",
        *([f"    global {kept}"] if kept else []),
        f"    {targets}, = unpack(data, position)",
        f"    v = {written(inline)}",
        "    return v",
    ]
    exec("\n".join(lines), namespace)
    read = namespace["read"]
    assert callable(read)

    def in_context(data: bytes, position: int) -> object:
        with decimal.localcontext(inline.context) if inline.context else nullcontext():
            return read(data, position)

    return in_context


def outcome(read: Reader, data: bytes) -> tuple[str, str]:
    """Type and text of the value or the error; the text shows scale, sign of zero and time zone, too."""
    try:
        value = read(b"\xaa" + data + b"\x55", 1)
    except DecodeError as error:
        return "DecodeError", str(error)
    return type(value).__name__, repr(value)


def from_number(number: int, size: int) -> bytes:
    return (number % (1 << 8 * size)).to_bytes(size, "big")


def stored_decimal(precision: int, scale: int, unscaled: int) -> bytes:
    """Encodes a DECIMAL by the format's definition: groups of nine digits, first bit inverted, negatives inverted."""
    digits = f"{abs(unscaled):0{precision}}"
    data = b""
    for count in readers.decimal_groups(precision, scale):
        data += int(digits[:count]).to_bytes(readers.DIGITS_TO_BYTES[count], "big")
        digits = digits[count:]
    whole = bytes(byte ^ 0xFF for byte in data) if unscaled < 0 else data
    return bytes([whole[0] ^ 0x80]) + whole[1:]


def decimal_case(precision: int, scale: int) -> Case:
    highest = 10**precision - 1
    numbers = (0, 1, -1, highest, -highest, highest // 2, 10**scale, -(10**scale), highest // 10**9, 7)
    return Case(
        inline.decimal(precision, scale),
        readers.decimal_reader(precision, scale),
        readers.decimal_size(precision, scale),
        tuple(stored_decimal(precision, scale, number) for number in numbers),
    )


def fraction_bytes(microsecond: int, fsp: int) -> bytes:
    size = readers.fraction_size(fsp)
    unit: int = 100 ** (3 - size)
    return (microsecond // unit).to_bytes(size, "big")


def packed_moment(year: int, month: int, day: int, clock: int, microsecond: int, fsp: int) -> bytes:
    packed = 1 << 39 | (year * 13 + month) << 22 | day << 17 | clock
    return packed.to_bytes(5, "big") + fraction_bytes(microsecond, fsp)


def clock(hour: int, minute: int, second: int) -> int:
    return hour << 12 | minute << 6 | second


def datetime2_case(fsp: int) -> Case:
    moments = (
        (0, 0, 0, 0, 0),
        (1, 1, 1, 0, 0),
        (9999, 12, 31, clock(23, 59, 59), 999_999),
        (2024, 2, 29, clock(15, 59, 59), 100_000),
        (2024, 2, 29, clock(16, 0, 0), 983_040),
        (2026, 0, 15, clock(10, 11, 12), 500_000),
        (2026, 2, 31, clock(7, 8, 9), 0),
        (2026, 11, 21, clock(20, 20, 20), 123_456),
    )
    stored = tuple(packed_moment(*moment, fsp) for moment in moments)
    return Case(inline.datetime2(fsp), readers.datetime2_reader(fsp), 5 + readers.fraction_size(fsp), stored)


SECONDS = (0, 1, 255, 256, 65_535, 65_536, 1_700_000_000, 2**31 - 1, 2**31, 2**32 - 1)
MICROSECONDS = (0, 10_000, 123_456, 983_039, 983_040, 999_999)


def timestamp2_case(fsp: int) -> Case:
    pairs = zip(SECONDS, itertools.cycle(MICROSECONDS), strict=False)
    stored = (seconds.to_bytes(4, "big") + fraction_bytes(micro, fsp) for seconds, micro in pairs)
    size = 4 + readers.fraction_size(fsp)
    return Case(inline.timestamp2(fsp), readers.timestamp2_reader(fsp), size, tuple(stored))


CLOCKS = (
    *(clock(0, 0, 0), clock(838, 59, 59), clock(831, 59, 59), clock(832, 0, 0), clock(0, 0, 0)),
    *(clock(12, 4, 0), clock(9, 59, 1), clock(1, 0, 0)),
)


def time2_case(fsp: int) -> Case:
    size = 3 + readers.fraction_size(fsp)
    pairs = zip(CLOCKS, itertools.cycle(MICROSECONDS), strict=False)
    numbers = [int.from_bytes(part.to_bytes(3, "big") + fraction_bytes(micro, fsp)) for part, micro in pairs]
    middle = 0x80 << 8 * (size - 1)
    stored = (from_number(middle + sign * number, size) for number in numbers for sign in (1, -1))
    return Case(inline.time2(fsp), readers.time2_reader(fsp), size, tuple(stored))


def bit_case(size: int) -> Case:
    bits = inline.bits(size)
    assert bits is not None
    return Case(
        bits,
        lambda data, position: int.from_bytes(data[position : position + size], "big"),
        size,
        (bytes(range(1, size + 1)), b"\xff" * size),
    )


def medium_case(unsigned: bool) -> Case:
    return Case(
        inline.medium_integer(unsigned),
        lambda data, position: int.from_bytes(data[position : position + 3], "little", signed=not unsigned),
        3,
        (b"\0\0\0", b"\xff\xff\xff", b"\0\0\x80", b"\xff\xff\x7f"),
    )


DECIMALS = (
    *(
        (1, 0),
        (1, 1),
        (2, 1),
        (4, 2),
        (4, 4),
        (5, 0),
        (6, 4),
        (7, 1),
        (9, 0),
        (10, 0),
        (10, 1),
        (10, 2),
        (11, 3),
    ),
    *((12, 2), (12, 4), (15, 5), (15, 6), (16, 7), (18, 9), (18, 0), (20, 10), (23, 14), (30, 10), (38, 38)),
    *((65, 0), (65, 1), (65, 2), (65, 30), (65, 38), (81, 30)),
)
CASES: dict[str, Case] = {
    **{f"DECIMAL({precision},{scale})": decimal_case(precision, scale) for precision, scale in DECIMALS},
    **{f"DATETIME({fsp})": datetime2_case(fsp) for fsp in range(7)},
    **{f"TIMESTAMP({fsp})": timestamp2_case(fsp) for fsp in range(7)},
    **{f"TIME({fsp})": time2_case(fsp) for fsp in range(7)},
    **{f"BIT of {size} bytes": bit_case(size) for size in range(2, 9)},
    **{f"MEDIUMINT, unsigned {unsigned}": medium_case(unsigned) for unsigned in (False, True)},
    "old TIMESTAMP": Case(
        inline.timestamp(),
        readers.read_timestamp,
        4,
        tuple(seconds.to_bytes(4, "little") for seconds in SECONDS),
    ),
}
READERS = {name: reader(case) for name, case in CASES.items()}


def around(data: bytes) -> Iterator[bytes]:
    """The value's bytes, and all byte strings that differ from them in one byte."""
    yield data
    for index in range(len(data)):
        for byte in range(256):
            yield data[:index] + bytes([byte]) + data[index + 1 :]


@pytest.mark.parametrize("name", CASES)
def test_every_byte_in_every_place(name: str, thorough: bool) -> None:
    case, inlined = CASES[name], READERS[name]
    kinds = set()
    for data in {changed for stored in case.stored[: None if thorough else 2] for changed in around(stored)}:
        expected = outcome(case.plain, data)
        assert outcome(inlined, data) == expected, data.hex()
        kinds.add(expected[0])
    if not name.startswith(("BIT", "MEDIUM", "old", "TIMESTAMP")):
        assert "DecodeError" in kinds


@given(st.sampled_from(sorted(CASES)), st.binary(min_size=40, max_size=40))
def test_random_bytes(name: str, data: bytes) -> None:
    case = CASES[name]
    assert outcome(READERS[name], data[: case.size]) == outcome(case.plain, data[: case.size])


@given(st.data(), st.integers(1, 81))
def test_random_decimals(data: st.DataObject, precision: int) -> None:
    scale = data.draw(st.integers(0, precision))
    unscaled = data.draw(st.integers(1 - 10**precision, 10**precision - 1))
    stored = stored_decimal(precision, scale, unscaled)
    case = decimal_case(precision, scale)
    expected = outcome(case.plain, stored)
    assert expected[0] == "Decimal"
    assert outcome(reader(case), stored) == expected


@given(st.datetimes(), st.integers(0, 6))
def test_random_moments(moment: datetime, fsp: int) -> None:
    parts = moment.year, moment.month, moment.day, clock(moment.hour, moment.minute, moment.second)
    stored = packed_moment(*parts, moment.microsecond, fsp)
    name = f"DATETIME({fsp})"
    assert outcome(READERS[name], stored) == outcome(CASES[name].plain, stored)
    if fsp == 6:
        assert READERS[name](stored, 0) == moment


def test_rows_in_any_order_are_kept_apart(seed: int) -> None:
    """Variables kept from one row must not change the next: rows that differ in one byte only, shuffled."""
    rng = random.Random(seed)
    for name in ("DATETIME(0)", "DATETIME(6)", "TIMESTAMP(0)", "TIMESTAMP(3)", "old TIMESTAMP"):
        case = CASES[name]
        rows = [changed for stored in case.stored[-3:] for changed in around(stored)]
        rng.shuffle(rows)
        for data in rows:
            assert outcome(READERS[name], data) == outcome(case.plain, data), (name, data.hex())


def test_text_holds_only_integers_and_names() -> None:
    for case in CASES.values():
        for node in ast.walk(ast.parse(written(case.inline), mode="eval")):
            if isinstance(node, ast.Constant):
                assert type(node.value) is int


def test_no_such_type() -> None:
    assert inline.bits(9) is None
    for fsp in (-1, 7):
        for make in (inline.datetime2, inline.timestamp2, inline.time2):
            with pytest.raises(DecodeError):
                make(fsp)
    with pytest.raises(DecodeError):
        inline.decimal(5, 6)


def test_values_are_of_the_documented_types() -> None:
    moment = READERS["TIMESTAMP(0)"](b"\x65\x53\xf1\x00", 0)
    assert type(moment) is datetime
    assert moment.tzinfo is UTC
    assert type(READERS["DATETIME(3)"](packed_moment(2024, 2, 29, 0, 0, 3), 0)) is datetime
    length = READERS["TIME(0)"](b"\x80\0\0", 0)
    assert type(length) is timedelta
    assert not length
    zero = READERS["DECIMAL(10,2)"](stored_decimal(10, 2, 0), 0)
    assert str(zero) == "0.00"


def test_inverted_zero_has_no_sign() -> None:
    """A negative zero, which no server writes."""
    for name in ("DECIMAL(10,2)", "DECIMAL(5,0)", "DECIMAL(12,4)", "DECIMAL(12,2)"):
        case = CASES[name]
        data = b"\x7f" + b"\xff" * (case.size - 1)
        expected = outcome(case.plain, data)
        assert outcome(READERS[name], data) == expected
        assert "-" not in expected[1]


def test_a_memo_makes_each_value_once_and_has_an_end() -> None:
    made: list[int] = []

    def make(key: int) -> int:
        made.append(key)
        if key < 0:
            raise DecodeError("negative")
        return key * 2

    memo: Memo[int, int] = Memo(make, 3)
    assert [memo[key] for key in (1, 2, 1, 3, 2)] == [2, 4, 2, 6, 4]
    assert made == [1, 2, 3]
    for _ in range(2):
        with pytest.raises(DecodeError):
            memo[-1]
    assert made == [1, 2, 3, -1, -1]
    assert memo[4] == 8
    assert len(memo) == 1
    assert memo != Memo(make, 3)
    assert memo in {memo: 1}
