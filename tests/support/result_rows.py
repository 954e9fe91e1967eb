"""Random columns of a result set, random values, and the rows of the binary protocol that hold them.

The bytes are written after MySQL's documents, value by value, without the project's readers.
"""

from __future__ import annotations

import json
import random
import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from protocol.constants import ColumnType
from protocol.rows.column import Column
from protocol.rows.result_cells import result_cells, usual_form
from protocol.rows.result_compiler import ResultColumn, select_order


@dataclass(frozen=True)
class ResultKind:
    """A column, and a maker of a value with its bytes in a row."""

    column: Column
    make: Callable[[random.Random], tuple[object, bytes]]


def string(data: bytes) -> bytes:
    """Bytes behind their length."""
    size = len(data)
    if size < 251:
        return bytes([size]) + data
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little") + data
    return b"\xfd" + size.to_bytes(3, "little") + data


def row(values: Sequence[bytes | None]) -> bytes:
    """A row without its first byte: the bitmap, whose first two bits are unused, and what is not NULL."""
    bits = sum(1 << index + 2 for index, value in enumerate(values) if value is None)
    bitmap = bits.to_bytes((len(values) + 9) // 8, "little")
    return bitmap + b"".join(value for value in values if value is not None)


def _column(kind: ColumnType, metadata: int = 0, **options: object) -> Column:
    return Column("c", kind, metadata, True, **options)  # type: ignore[arg-type]


def _number(kind: ColumnType, code: str, *, unsigned: bool = False) -> ResultKind:
    def make(rng: random.Random) -> tuple[object, bytes]:
        data = rng.randbytes(struct.calcsize(code))
        return struct.unpack("<" + code, data)[0], data

    return ResultKind(_column(kind, unsigned=unsigned), make)


def _medium(rng: random.Random) -> tuple[object, bytes]:
    value = rng.randrange(-(1 << 23), 1 << 23)
    return value, struct.pack("<i", value)


def _year(rng: random.Random) -> tuple[object, bytes]:
    value = rng.choice([0, 1901, 2155])
    return value, struct.pack("<H", value)


def _float(rng: random.Random) -> tuple[object, bytes]:
    data = struct.pack("<f", rng.uniform(-1e6, 1e6))
    return struct.unpack("<f", data)[0], data


def _double(rng: random.Random) -> tuple[object, bytes]:
    value = rng.uniform(-1e300, 1e300)
    return value, struct.pack("<d", value)


def _decimal(rng: random.Random) -> tuple[object, bytes]:
    text = f"{rng.choice(['', '-'])}{rng.randrange(10**30)}.{rng.randrange(100):02}"
    return Decimal(text), string(text.encode())


def _decimals(digits: int, scale: int) -> ResultKind:
    """Numbers of few and of many digits."""

    def make(rng: random.Random) -> tuple[object, bytes]:
        text = f"{rng.choice(['', '-'])}{rng.randrange(10 ** rng.randint(1, digits - scale))}"
        if scale:
            text += f".{rng.randrange(10**scale):0{scale}}"
        return Decimal(text), string(text.encode())

    return ResultKind(_column(ColumnType.NEWDECIMAL, digits << 8 | scale), make)


def _bits(rng: random.Random) -> tuple[object, bytes]:
    value = rng.randrange(1 << 12)
    return value, string(value.to_bytes(2, "big"))


def _day(rng: random.Random) -> tuple[object, bytes]:
    if rng.random() < 0.2:
        return rng.choice(
            [("0000-00-00", b"\0"), ("2026-00-15", b"\4\xea\7\0\x0f"), ("2023-02-31", b"\4\xe7\7\2\x1f")]
        )
    value = date.fromordinal(rng.randrange(1, 3_000_000))
    return value, string(struct.pack("<HBB", value.year, value.month, value.day))


def _moment_bytes(moment: datetime) -> bytes:
    data = struct.pack("<HBB", moment.year, moment.month, moment.day)
    if moment.hour or moment.minute or moment.second or moment.microsecond:
        data += bytes([moment.hour, moment.minute, moment.second])
    if moment.microsecond:
        data += struct.pack("<I", moment.microsecond)
    return string(data)


def _moments(kind: ColumnType, digits: int) -> ResultKind:
    def make(rng: random.Random) -> tuple[object, bytes]:
        zero = "0000-00-00 00:00:00" + ("." + "0" * digits if digits else "")
        if rng.random() < 0.1:
            return zero, b"\0"
        micro = rng.choice([0, rng.randrange(1_000_000)]) if digits else 0
        clock = rng.choice([(0, 0, 0), (rng.randrange(24), rng.randrange(60), rng.randrange(60))])
        moment = datetime(
            rng.randrange(1970, 2038), rng.randrange(1, 13), rng.randrange(1, 29), *clock, micro
        )
        aware = moment.replace(tzinfo=UTC) if kind is ColumnType.TIMESTAMP2 else moment
        return aware, _moment_bytes(moment)

    return ResultKind(_column(kind, digits), make)


def _time(rng: random.Random) -> tuple[object, bytes]:
    seconds, micro = rng.choice([0, rng.randrange(3_020_399)]), rng.choice([0, rng.randrange(1_000_000)])
    sign = rng.choice([0, 1])
    if not seconds and not micro:
        return timedelta(0), b"\0"
    days, rest = divmod(seconds, 86_400)
    data = struct.pack("<BIBBB", sign, days, rest // 3600, rest // 60 % 60, rest % 60)
    if micro:
        data += struct.pack("<I", micro)
    value = timedelta(seconds=seconds, microseconds=micro)
    return -value if sign else value, string(data)


def _text(rng: random.Random) -> tuple[object, bytes]:
    text = "".join(rng.choices("aé日💾", k=4)) * rng.choice([0, 1, 15, 16, 62, 75, 5000])
    return text, string(text.encode())


def _short_text(rng: random.Random) -> tuple[object, bytes]:
    text = "".join(rng.choices("aé", k=rng.randrange(100)))
    return text, string(text.encode("latin-1"))


def _broken_text(rng: random.Random) -> tuple[object, bytes]:
    data = rng.choice([b"ok", b"\xffbroken"])
    return data.decode("utf-8", "surrogateescape"), string(data)


def _bytes(rng: random.Random) -> tuple[object, bytes]:
    data = rng.randbytes(2) * rng.choice([0, 1, 150, 35_000])
    return data, string(data)


def _whole_bytes(rng: random.Random) -> tuple[object, bytes]:
    data = rng.randbytes(6) + rng.choice([b"\0\0", b"xx"])
    return data, string(data)


def _label(rng: random.Random) -> tuple[object, bytes]:
    number = rng.randrange(4)
    return ("", "a", "b", "c")[number], struct.pack("<Q", number)


def _labels(rng: random.Random) -> tuple[object, bytes]:
    bits = rng.randrange(8)
    return ",".join(label for index, label in enumerate("abc") if bits >> index & 1), struct.pack("<Q", bits)


def _document(rng: random.Random) -> tuple[object, bytes]:
    value = rng.choice([None, True, 1, -1.5, 2**64 - 1, "ä", [1, [2]], {"a": {"b": None}}])
    return value, string(json.dumps(value, ensure_ascii=False).encode())


def _vector(rng: random.Random) -> tuple[object, bytes]:
    data = struct.pack("<3f", *(rng.uniform(-9, 9) for _ in range(3)))
    return array("f", data), string(data)


RESULT_KINDS: tuple[ResultKind, ...] = (
    _number(ColumnType.TINY, "b"),
    _number(ColumnType.SHORT, "H", unsigned=True),
    _number(ColumnType.LONG, "i"),
    _number(ColumnType.LONGLONG, "Q", unsigned=True),
    ResultKind(_column(ColumnType.INT24, unsigned=False), _medium),
    ResultKind(_column(ColumnType.YEAR), _year),
    ResultKind(_column(ColumnType.FLOAT, 4), _float),
    ResultKind(_column(ColumnType.DOUBLE, 8), _double),
    ResultKind(_column(ColumnType.NEWDECIMAL, 32 << 8 | 2), _decimal),
    ResultKind(_column(ColumnType.BIT, 12), _bits),
    ResultKind(_column(ColumnType.DATE), _day),
    _moments(ColumnType.DATETIME2, 0),
    _moments(ColumnType.DATETIME2, 6),
    _moments(ColumnType.TIMESTAMP2, 0),
    _moments(ColumnType.TIMESTAMP2, 6),
    ResultKind(_column(ColumnType.TIME2, 6), _time),
    ResultKind(_column(ColumnType.VARCHAR, 80_000, charset="utf8mb4"), _text),
    ResultKind(_column(ColumnType.STRING, 100, charset="latin1"), _short_text),
    ResultKind(_column(ColumnType.VARCHAR, 40, charset="utf8mb4"), _broken_text),
    ResultKind(_column(ColumnType.BLOB, 3, charset="binary"), _bytes),
    ResultKind(_column(ColumnType.STRING, 8, charset="binary"), _whole_bytes),
    ResultKind(_column(ColumnType.ENUM, 1, labels=("a", "b", "c")), _label),
    ResultKind(_column(ColumnType.SET, 1, labels=("a", "b", "c")), _labels),
    ResultKind(_column(ColumnType.JSON, 4), _document),
    ResultKind(_column(ColumnType.GEOMETRY, 4), _bytes),
    ResultKind(_column(ColumnType.VECTOR, 4), _vector),
    *(_decimals(digits, scale) for digits, scale in ((9, 0), (12, 2), (18, 2), (18, 8), (8, 7), (18, 9))),
)


def result_columns(columns: list[Column]) -> list[ResultColumn]:
    cells = result_cells()
    return [ResultColumn(cells.cell(column), column.nullable, usual_form(column)) for column in columns]


def random_table(
    rng: random.Random, kinds: list[int]
) -> tuple[list[Column], list[bytes], list[tuple[object, ...]]]:
    """Columns, rows and their values, in the order in which they are best selected."""
    chosen: list[ResultKind] = [RESULT_KINDS[kind] for kind in kinds]
    columns = [replace(kind.column, nullable=rng.random() < 0.5) for kind in chosen]
    order = select_order(result_columns(columns)) if rng.random() < 0.8 else list(range(len(columns)))
    chosen, columns = [chosen[index] for index in order], [columns[index] for index in order]
    payloads, rows = [], []
    for _ in range(rng.randrange(1, 6)):
        values: list[object] = []
        parts: list[bytes | None] = []
        for kind, column in zip(chosen, columns, strict=True):
            value, data = (None, None) if column.nullable and rng.random() < 0.3 else kind.make(rng)
            values.append(value)
            parts.append(data)
        payloads.append(row(parts))
        rows.append(tuple(values))
    return columns, payloads, rows
