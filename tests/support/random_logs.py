"""Random table maps and rows events as bytes that a server could have written, every column type among them.

``KINDS`` are the makers of columns by name; everything else about a log comes from one ``random.Random``.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from protocol.constants import ColumnType, EventType
from tests.support import binlog_encoder as encoder
from tests.support.plain_decoder import PlainColumn, has_charset, has_sign

TABLE_ID = 0x0102030405
UPDATES = (EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS)
ROWS_EVENTS = (
    *(EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1),
    *(EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS),
)

Values = Callable[[random.Random], bytes]


@dataclass
class Spec:
    """A column to be: its type byte and metadata, and what makes values for it."""

    code: int
    metadata: bytes
    values: Values
    collation: int = 63
    labels: list[bytes] | None = None

    @property
    def column(self) -> PlainColumn:
        return PlainColumn(ColumnType(self.code if self.labels is None else self.metadata[0]), 0)


@dataclass
class Log:
    """Bodies of a table map and of a rows event on it."""

    mariadb: bool
    checksum: bool
    table_map: bytes
    kind: EventType
    rows: bytes


# ---------------------------------------------------------------------------------------------- values


def exact(size: int) -> Values:
    """So many random bytes, or one of the extremes of integers, in either byte order."""
    extremes = [bytes(size), b"\xff" * size, bytes(size - 1) + b"\x80", b"\xff" * (size - 1) + b"\x7f"]
    extremes += [extreme[::-1] for extreme in extremes]
    return lambda rng: rng.choice(extremes) if rng.random() < 0.3 else rng.randbytes(size)


def behind_length(length_size: int, content: Values, limit: int = 1 << 30) -> Values:
    limit = min(limit, (1 << 8 * length_size) - 1)

    def make(rng: random.Random) -> bytes:
        data = content(rng)[:limit]
        return len(data).to_bytes(length_size, "little") + data

    return make


def text(rng: random.Random) -> bytes:
    """Text of several character sets, which a limit may cut in the middle of a character; or any bytes."""
    letters = rng.choices("aZ'\\\n\0 äßЖא中が😀\ud800", k=rng.randrange(9))
    whole = "".join(letters)
    return rng.choice(
        [
            b"",
            rng.randbytes(rng.randrange(12)),
            whole.encode("utf-8", "surrogatepass"),
            whole.encode("utf-16-be", "surrogatepass"),
            whole.encode("latin-1", "replace"),
            whole.encode("gb18030", "replace"),
            b"x" * rng.randrange(250, 300),
            b"ends in zero bytes \0\0",
        ]
    )


def decimal(groups: list[int]) -> Values:
    """DECIMAL whose groups have so many digits each."""
    sizes = [(0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[digits] for digits in groups]

    def make(rng: random.Random) -> bytes:
        parts = [rng.choice([0, 1, 10**digits - 1, rng.randrange(10**digits)]) for digits in groups]
        data = bytearray(
            b"".join(part.to_bytes(size, "big") for part, size in zip(parts, sizes, strict=True))
        )
        if rng.random() < 0.5:
            data = bytearray(byte ^ 0xFF for byte in data)
        data[0] ^= 0x80
        return bytes(data)

    return make


def day(rng: random.Random) -> tuple[int, int, int]:
    extremes = [
        (0, 0, 0),
        (9999, 12, 31),
        (1000, 1, 1),
        (2024, 2, 29),
        (2023, 2, 29),
        (2023, 0, 15),
        (0, 1, 1),
    ]
    some = rng.randrange(10000), rng.randrange(13), rng.randrange(32)
    return rng.choice([*extremes, some, some, some])


def clock(rng: random.Random) -> tuple[int, int, int]:
    some = rng.randrange(24), rng.randrange(60), rng.randrange(60)
    return rng.choice([(0, 0, 0), (23, 59, 59), some, some])


def fraction(rng: random.Random, digits: int) -> bytes:
    size = (digits + 1) // 2
    most = (0, 99, 9999, 999_999)[size]
    return rng.choice([0, min(1, most), most, rng.randint(0, most)]).to_bytes(size, "big")


def packed_datetime(rng: random.Random, digits: int) -> bytes:
    (year, month, date), (hour, minute, second) = day(rng), clock(rng)
    packed = 1 << 39 | (year * 13 + month) << 22 | date << 17 | hour << 12 | minute << 6 | second
    return packed.to_bytes(5, "big") + fraction(rng, digits)


def packed_time(rng: random.Random, digits: int) -> bytes:
    _, minute, second = clock(rng)
    hours = rng.choice([0, 23, 24, 838, rng.randrange(839)])
    whole = (hours << 12 | minute << 6 | second).to_bytes(3, "big") + fraction(rng, digits)
    number = int.from_bytes(whole, "big")
    middle = 0x80 << 8 * (len(whole) - 1)
    return (middle + rng.choice([number, -number])).to_bytes(len(whole), "big")


def packed_date(rng: random.Random) -> bytes:
    year, month, date = day(rng)
    return (year << 9 | month << 5 | date).to_bytes(3, "little")


def old_datetime(rng: random.Random) -> bytes:
    digits = "{:04}{:02}{:02}{:02}{:02}{:02}".format(*day(rng), *clock(rng))
    return int(digits).to_bytes(8, "little")


def old_time(rng: random.Random) -> bytes:
    _, minute, second = clock(rng)
    number = rng.randrange(839) * 10000 + minute * 100 + second
    return rng.choice([number, -number]).to_bytes(3, "little", signed=True)


# {"a": [1, -1.5, null, "x"], "b": true}, an empty object, a string, and nothing at all.
DOCUMENTS = [
    bytes.fromhex(
        "00 0200 2e00 1200 0100 1300 0100 02 1400 04 0100 61 62"
        "0400 1a00 05 0100 0b 1000 04 0000 0c 1800 000000000000f8bf 01 78"
    ),
    bytes.fromhex("00 0000 0400"),
    bytes.fromhex("0c 05 68656c6c6f"),
    b"",
]


# --------------------------------------------------------------------------------------------- columns

# 63 is binary; 600 and 2304 are MariaDB's alone; 1 is big5, 1000 nobody's.
COLLATIONS = (63, 63, 63, 8, 33, 45, 46, 255, 28, 13, 35, 54, 60, 7, 11, 95, 1, 600, 1000, 2304)


def plain(kind: ColumnType, size: int, metadata: bytes = b"") -> Callable[[random.Random], Spec]:
    return lambda rng: Spec(kind, metadata, exact(size))


def _decimal(rng: random.Random) -> Spec:
    precision = rng.randint(1, 65)
    scale = rng.randint(0, min(30, precision))
    whole = precision - scale
    groups = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    return Spec(
        ColumnType.NEWDECIMAL, bytes([precision, scale]), decimal([digits for digits in groups if digits])
    )


def _bit(rng: random.Random) -> Spec:
    count = rng.randint(1, 64)
    return Spec(ColumnType.BIT, bytes([count % 8, count // 8]), exact((count + 7) // 8))


def _datetime2(rng: random.Random) -> Spec:
    digits = rng.randint(0, 6)
    return Spec(ColumnType.DATETIME2, bytes([digits]), lambda rng: packed_datetime(rng, digits))


def _time2(rng: random.Random) -> Spec:
    digits = rng.randint(0, 6)
    return Spec(ColumnType.TIME2, bytes([digits]), lambda rng: packed_time(rng, digits))


def _timestamp2(rng: random.Random) -> Spec:
    digits = rng.randint(0, 6)
    seconds = exact(4)
    return Spec(ColumnType.TIMESTAMP2, bytes([digits]), lambda rng: seconds(rng) + fraction(rng, digits))


def _string(rng: random.Random) -> Spec:
    """CHAR and BINARY up to 1020 bytes; above 255, bits of the length hide in the type."""
    length = rng.choice([0, 1, 5, 20, 255, 256, 300, 1020])
    metadata = bytes([0xFE ^ (length >> 8) << 4, length & 0xFF])
    values = behind_length(2 if length > 255 else 1, text, length)
    return Spec(ColumnType.STRING, metadata, values, rng.choice(COLLATIONS))


def compressed(rng: random.Random) -> bytes:
    """A value of a COMPRESSED column of MariaDB: empty, as it is behind a zero byte, or in a zlib stream."""
    data = text(rng)
    if not data or rng.random() < 0.5:
        return b"\0" + data if data else b""
    header = rng.choice([0, 8])
    stream = zlib.compressobj(wbits=-15 if header else 15)
    size = rng.randint((len(data).bit_length() + 7) // 8, 4)
    packed = stream.compress(data) + stream.flush()
    return bytes([0x80 | header | size]) + len(data).to_bytes(size, "big") + packed


def variable(kind: ColumnType, content: Values = text) -> Callable[[random.Random], Spec]:
    def make(rng: random.Random) -> Spec:
        length = rng.choice([0, 1, 255, 256, 65535])
        values = behind_length(2 if length > 255 else 1, content)
        return Spec(kind, length.to_bytes(2, "little"), values, rng.choice(COLLATIONS))

    return make


def blob(kind: ColumnType, content: Values = text) -> Callable[[random.Random], Spec]:
    def make(rng: random.Random) -> Spec:
        size = rng.randint(1, 4)
        # 252 is a multiple of the four bytes of a vector's floats.
        return Spec(kind, bytes([size]), behind_length(size, content, 252), rng.choice(COLLATIONS))

    return make


def labelled(kind: ColumnType) -> Callable[[random.Random], Spec]:
    def make(rng: random.Random) -> Spec:
        size = rng.choice([1, 2] if kind is ColumnType.ENUM else [1, 2, 3, 4, 8])
        labels = [text(rng)[:9] for _ in range(rng.randint(1, 8))]
        most = len(labels) if kind is ColumnType.ENUM else (1 << len(labels)) - 1
        return Spec(
            ColumnType.STRING,
            bytes([kind, size]),
            lambda rng: rng.choice([0, 1, most, rng.randint(0, most)]).to_bytes(size, "little"),
            rng.choice(COLLATIONS),
            labels,
        )

    return make


KINDS: Mapping[str, Callable[[random.Random], Spec]] = MappingProxyType(
    {
        "TINY": plain(ColumnType.TINY, 1),
        "SHORT": plain(ColumnType.SHORT, 2),
        "INT24": plain(ColumnType.INT24, 3),
        "LONG": plain(ColumnType.LONG, 4),
        "LONGLONG": plain(ColumnType.LONGLONG, 8),
        "FLOAT": plain(ColumnType.FLOAT, 4, b"\x04"),
        "DOUBLE": plain(ColumnType.DOUBLE, 8, b"\x08"),
        "YEAR": plain(ColumnType.YEAR, 1),
        "NEWDECIMAL": _decimal,
        "BIT": _bit,
        "DATE": lambda rng: Spec(ColumnType.DATE, b"", packed_date),
        "NEWDATE": lambda rng: Spec(ColumnType.NEWDATE, b"", packed_date),
        "DATETIME": lambda rng: Spec(ColumnType.DATETIME, b"", old_datetime),
        "TIME": lambda rng: Spec(ColumnType.TIME, b"", old_time),
        "TIMESTAMP": plain(ColumnType.TIMESTAMP, 4),
        "DATETIME2": _datetime2,
        "TIME2": _time2,
        "TIMESTAMP2": _timestamp2,
        "STRING": _string,
        "VARCHAR": variable(ColumnType.VARCHAR),
        "VAR_STRING": variable(ColumnType.VAR_STRING),
        "TINY_BLOB": blob(ColumnType.TINY_BLOB),
        "BLOB": blob(ColumnType.BLOB),
        "MEDIUM_BLOB": blob(ColumnType.MEDIUM_BLOB),
        "LONG_BLOB": blob(ColumnType.LONG_BLOB),
        "GEOMETRY": blob(ColumnType.GEOMETRY),
        "VECTOR": blob(ColumnType.VECTOR, lambda rng: rng.randbytes(4 * rng.randrange(6))),
        "JSON": blob(ColumnType.JSON, lambda rng: rng.choice(DOCUMENTS)),
        "MARIADB_VARCHAR_COMPRESSED": variable(ColumnType.MARIADB_VARCHAR_COMPRESSED, compressed),
        "MARIADB_BLOB_COMPRESSED": blob(ColumnType.MARIADB_BLOB_COMPRESSED, compressed),
        "ENUM": labelled(ColumnType.ENUM),
        "SET": labelled(ColumnType.SET),
    }
)


# ------------------------------------------------------------------------------------------------ logs


def _collations(rng: random.Random, wanted: list[int], default_code: int, list_code: int) -> dict[int, bytes]:
    """All one by one, or a default with exceptions: a server takes the shorter one, a decoder both."""
    if not wanted:
        return {}
    if rng.random() < 0.5:
        return {list_code: encoder.lenenc_list(wanted)}
    default = rng.choice(wanted)
    pairs = [(index, number) for index, number in enumerate(wanted) if number != default]
    return {default_code: encoder.lenenc_list([default, *(number for pair in pairs for number in pair)])}


def _minimal_metadata(rng: random.Random, specs: list[Spec], mariadb: bool) -> dict[int, bytes]:
    signs = [rng.random() < 0.5 for spec in specs if has_sign(spec.column)]
    wanted = [spec.collation for spec in specs if has_charset(spec.column, mariadb)]
    return ({1: encoder.high_bitmap(signs)} if signs else {}) | _collations(rng, wanted, 2, 3)


def _full_metadata(rng: random.Random, specs: list[Spec], mariadb: bool) -> dict[int, bytes]:
    optional = _minimal_metadata(rng, specs, mariadb)
    with_labels = [spec for spec in specs if spec.labels is not None]
    optional |= _collations(rng, [spec.collation for spec in with_labels], 10, 11)
    optional[4] = encoder.name_list(text(rng)[:5] + b"%d" % index for index in range(len(specs)))
    for code, kind in ((5, ColumnType.SET), (6, ColumnType.ENUM)):
        lists = [spec.labels or [] for spec in with_labels if spec.column.type is kind]
        if lists:
            optional[code] = encoder.label_lists(lists)
    for code, kind in ((7, ColumnType.GEOMETRY), (13, ColumnType.VECTOR)):
        numbers = [rng.randrange(400) for spec in specs if spec.column.type is kind]
        if numbers:
            optional[code] = encoder.lenenc_list(numbers)
    key = rng.sample(range(len(specs)), rng.randint(0, min(3, len(specs))))
    if key and rng.random() < 0.5:
        optional[8] = encoder.lenenc_list(key)
    elif key:
        optional[9] = encoder.lenenc_list(number for index in key for number in (index, 7))
    if rng.random() < 0.5:
        optional[12] = encoder.high_bitmap([rng.random() < 0.5 for _ in specs])
    # A field of some later server.
    if rng.random() < 0.3:
        optional[99] = b"later"
    return optional


@dataclass
class TableInLog:
    """A table with the body of its table map; ``specs`` make the values of its columns."""

    mariadb: bool
    specs: list[Spec]
    nullable: list[bool]
    table_map: bytes


def random_table(rng: random.Random, kinds: list[str]) -> TableInLog:
    """A table with a column of each of the kinds, in order."""
    specs = [KINDS[kind](rng) for kind in kinds]
    mariadb = rng.random() < 0.5
    nullable = [rng.random() < 0.5 for _ in specs]
    make_metadata = rng.choice([lambda *_: {}, _minimal_metadata, _full_metadata, _full_metadata])
    table_map = encoder.table_map(
        TABLE_ID,
        text(rng)[:9],
        text(rng)[:9],
        bytes(spec.code for spec in specs),
        b"".join(spec.metadata for spec in specs),
        nullable,
        make_metadata(rng, specs, mariadb),
    )
    return TableInLog(mariadb, specs, nullable, table_map)


def random_log(rng: random.Random, kinds: list[str]) -> Log:
    """A table with a column of each of the kinds, in order, and one to twelve rows."""
    table = random_table(rng, kinds)
    form = random_form(rng, table)
    body = random_rows(rng, table, form, rng.choice([1, 2, 4, 12]))
    return Log(table.mariadb, rng.random() < 0.5, table.table_map, form.event, body)


@dataclass
class RowsForm:
    """A type of rows events, and the columns that each of a row's images holds."""

    event: EventType
    images: list[list[bool]]


def random_form(rng: random.Random, table: TableInLog) -> RowsForm:
    """A form that rows of a table may have."""
    event = rng.choice(ROWS_EVENTS)
    images = [_present(rng, len(table.specs)) for _ in range(2 if event in UPDATES else 1)]
    if not any(map(any, images)):
        images[0][0] = True
    return RowsForm(event, images)


def random_rows(
    rng: random.Random, table: TableInLog, form: RowsForm, count: int, *, nulls: float = 0.2
) -> bytes:
    """The body of a rows event with so many rows; ``nulls`` is the share of the values that are NULL.

    A few are where the column is NOT NULL, which no server writes and every reader has to bear.
    """
    specs = table.specs
    shares = [nulls if is_nullable else nulls / 20 for is_nullable in table.nullable]
    rows = b"".join(
        encoder.row_image(
            image,
            [
                None if rng.random() < share else spec.values(rng)
                for spec, share in zip(specs, shares, strict=True)
            ],
        )
        for _ in range(count)
        for image in form.images
    )
    extra = rng.choice([b"", b"\x00\x03abc"])
    return encoder.rows_event(form.event, TABLE_ID, len(specs), form.images, rows, extra)


def _present(rng: random.Random, width: int) -> list[bool]:
    share = rng.choice([1.0, 1.0, 0.7, 0.2])
    return [rng.random() < share for _ in range(width)]
