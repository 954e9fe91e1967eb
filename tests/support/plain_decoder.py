"""A second decoder of TABLE_MAP and rows events, slow and plain, to check the compiled one against.

It follows the servers' sources line by line: one cursor, one branch per column type, every row from scratch.
It shares no code with ``protocol.binlog`` but the reader of JSON documents, and takes character sets from
``protocol.charset``.

Sources: MySQL's ``libs/mysql/binlog/event/rows_event.cpp`` (events, optional metadata), ``sql/field.cc``
(``save_field_metadata``, ``pack``), ``sql/field_common_properties.h`` (which columns have a sign bit),
``strings/decimal.cc`` and ``mysys/my_time.cc`` (values); MariaDB's ``sql/log_event_server.cc`` and
``sql/field_comp.cc``.
"""

from __future__ import annotations

import array
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.charset import Charset, charset_of_collation
from protocol.constants import ColumnType, EventType
from protocol.errors import DecodeError, TruncatedError
from protocol.values.jsonb import decode_json
from tests.support.plain_values import (
    FRACTION_UNITS,
    date_value,
    datetime2_value,
    decimal_size,
    decimal_value,
    enum_value,
    old_datetime_value,
    old_time_value,
    set_value,
    time2_value,
    timestamp_value,
    uncompressed,
)

ABSENT = object()

UPDATES = {EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS}
ROWS_V2 = {EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS}

BLOBS = {ColumnType.TINY_BLOB, ColumnType.BLOB, ColumnType.MEDIUM_BLOB, ColumnType.LONG_BLOB}
MARIADB_COMPRESSED = {ColumnType.MARIADB_BLOB_COMPRESSED, ColumnType.MARIADB_VARCHAR_COMPRESSED}


@dataclass
class PlainColumn:
    """Attributes are named and meant as those of ``protocol.rows.column.Column``."""

    type: ColumnType
    metadata: int
    name: str = ""
    nullable: bool = False
    unsigned: bool | None = None
    charset: str | None = None
    collation: int | None = None
    labels: tuple[str, ...] | None = None
    visible: bool = True
    geometry_type: int | None = None
    dimension: int | None = None


@dataclass
class PlainTable:
    table_id: int
    schema: str
    name: str
    columns: list[PlainColumn]
    primary_key: list[str] = field(default_factory=list)
    names_from: str | None = None
    mariadb: bool = False


class Cursor:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, count: int) -> bytes:
        if count > self.left():
            raise TruncatedError("plain: the data ends early")
        taken = self.data[self.position : self.position + count]
        self.position += count
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def signed(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little", signed=True)

    def big_endian(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def packed(self) -> int:
        """A length-encoded integer (net_field_length)."""
        first = self.number(1)
        if first < 251:
            return first
        if first == 252:
            return self.number(2)
        if first == 253:
            return self.number(3)
        if first == 254:
            return self.number(8)
        raise DecodeError("plain: not a length-encoded integer")

    def packed_list(self) -> list[int]:
        numbers = []
        while self.left():
            numbers.append(self.packed())
        return numbers

    def high_bits(self) -> list[bool]:
        """A bitmap whose first bit is the highest of the first byte."""
        return [byte & 128 >> bit != 0 for byte in self.take(self.left()) for bit in range(8)]


def low_bits(data: bytes, count: int) -> list[bool]:
    """A bitmap whose first bit is the lowest of the first byte."""
    return [data[index // 8] & 1 << index % 8 != 0 for index in range(count)]


# ------------------------------------------------------------------------------------------ TABLE_MAP


def plain_table_map(body: bytes, mariadb: bool = False) -> PlainTable:
    """The table that a TABLE_MAP event's body (neither header nor checksum) describes."""
    cursor = Cursor(body)
    table_id = cursor.number(6)
    cursor.number(2)
    schema, name = _table_name(cursor), _table_name(cursor)
    count = cursor.packed()
    types = cursor.take(count)
    metadata = Cursor(cursor.take(cursor.packed()))
    columns = [_column(code, metadata) for code in types]
    if metadata.left():
        raise DecodeError("plain: metadata for more columns than there are")
    nullable = low_bits(cursor.take((count + 7) // 8), count)
    for index, column in enumerate(columns):
        column.nullable = nullable[index]
        column.name = f"@{index + 1}"
    table = PlainTable(table_id, schema, name, columns, mariadb=mariadb)
    fields = {}
    while cursor.left():
        code = cursor.number(1)
        fields[code] = cursor.take(cursor.packed())
    _apply_optional_metadata(table, fields)
    return table


def _table_name(cursor: Cursor) -> str:
    name = cursor.take(cursor.number(1))
    if cursor.take(1) != b"\0":
        raise DecodeError("plain: a name that does not end in a zero byte")
    return name.decode("utf-8", "surrogateescape")


def _column(code: int, metadata: Cursor) -> PlainColumn:
    """Type and metadata of one column (table_def::table_def, Field::save_field_metadata)."""
    if code not in list(ColumnType):
        raise DecodeError("plain: no such type")
    kind = ColumnType(code)
    if kind in (ColumnType.NULL, ColumnType.INVALID, ColumnType.BOOL):
        raise DecodeError("plain: not a type of columns")
    if kind in (ColumnType.STRING, ColumnType.ENUM, ColumnType.SET):
        real, length = metadata.number(1), metadata.number(1)
        if real & 0x30 != 0x30:
            # Field_string::do_save_field_metadata: bits 8 and 9 of the length, inverted.
            length |= (real & 0x30 ^ 0x30) << 4
            real |= 0x30
        if real not in (ColumnType.STRING, ColumnType.ENUM, ColumnType.SET, ColumnType.VAR_STRING):
            raise DecodeError("plain: STRING that is something else")
        kind = ColumnType(real)
        if kind is ColumnType.ENUM and length not in (1, 2):
            raise DecodeError("plain: ENUM size")
        if kind is ColumnType.SET and not 1 <= length <= 8:
            raise DecodeError("plain: SET size")
        return PlainColumn(kind, length)
    if kind in (ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.MARIADB_VARCHAR_COMPRESSED):
        return PlainColumn(kind, metadata.number(2))
    if kind is ColumnType.BIT:
        bits, whole_bytes = metadata.number(1), metadata.number(1)
        if not 1 <= whole_bytes * 8 + bits <= 64:
            raise DecodeError("plain: BIT size")
        return PlainColumn(kind, whole_bytes * 8 + bits)
    if kind is ColumnType.NEWDECIMAL:
        precision, scale = metadata.number(1), metadata.number(1)
        if not (scale <= precision <= 65 and precision > 0):
            raise DecodeError("plain: DECIMAL size")
        return PlainColumn(kind, precision << 8 | scale)
    if kind in (ColumnType.FLOAT, ColumnType.DOUBLE):
        size = metadata.number(1)
        if size != (4 if kind is ColumnType.FLOAT else 8):
            raise DecodeError("plain: float size")
        return PlainColumn(kind, size)
    if kind in BLOBS or kind in (
        ColumnType.GEOMETRY,
        ColumnType.JSON,
        ColumnType.VECTOR,
        ColumnType.MARIADB_BLOB_COMPRESSED,
    ):
        size = metadata.number(1)
        if not 1 <= size <= 4:
            raise DecodeError("plain: length of a blob's length")
        return PlainColumn(kind, size)
    if kind in (ColumnType.TIME2, ColumnType.DATETIME2, ColumnType.TIMESTAMP2):
        digits = metadata.number(1)
        if digits > 6:
            raise DecodeError("plain: fractional digits")
        return PlainColumn(kind, digits)
    if kind is ColumnType.TYPED_ARRAY:
        return PlainColumn(kind, _column(metadata.number(1), metadata).type)
    return PlainColumn(kind, 0)


def has_sign(column: PlainColumn) -> bool:
    """has_signedess_information_type; MariaDB's Field_num and its heirs."""
    return column.type in (
        ColumnType.TINY,
        ColumnType.SHORT,
        ColumnType.INT24,
        ColumnType.LONG,
        ColumnType.LONGLONG,
        ColumnType.NEWDECIMAL,
        ColumnType.DECIMAL,
        ColumnType.FLOAT,
        ColumnType.DOUBLE,
        ColumnType.YEAR,
    )


def has_charset(column: PlainColumn, mariadb: bool) -> bool:
    """is_character_type in log_event.cc; in MariaDB, GEOMETRY is a BLOB that has the character set binary."""
    if column.type is ColumnType.GEOMETRY:
        return mariadb
    return column.type in BLOBS | MARIADB_COMPRESSED | {
        ColumnType.STRING,
        ColumnType.VAR_STRING,
        ColumnType.VARCHAR,
        ColumnType.VECTOR,
    }


def _apply_optional_metadata(table: PlainTable, fields: dict[int, bytes]) -> None:
    columns = table.columns
    if 1 in fields:
        signs = Cursor(fields[1]).high_bits()
        _deal(signs, [column for column in columns if has_sign(column)], "unsigned")
    with_charset = [column for column in columns if has_charset(column, table.mariadb)]
    with_labels = [column for column in columns if column.type in (ColumnType.ENUM, ColumnType.SET)]
    for code, receivers in ((2, with_charset), (10, with_labels)):
        if code in fields:
            numbers = Cursor(fields[code]).packed_list()
            if len(numbers) % 2 == 0:
                raise DecodeError("plain: no default, or half a pair")
            default, pairs = numbers[0], numbers[1:]
            exceptions = dict(zip(pairs[::2], pairs[1::2], strict=True))
            _deal([exceptions.get(n, default) for n in range(len(receivers))], receivers, "collation")
    for code, receivers in ((3, with_charset), (11, with_labels)):
        if code in fields:
            _deal(Cursor(fields[code]).packed_list(), receivers, "collation")
    for column in columns:
        charset = _charset(table, column)
        column.charset = None if charset is None else charset.name
    if 4 in fields:
        cursor = Cursor(fields[4])
        for column in columns:
            column.name = cursor.take(cursor.packed()).decode("utf-8", "surrogateescape")
        if cursor.left():
            raise DecodeError("plain: names for more columns than there are")
        table.names_from = "log"
    for code, kind in ((5, ColumnType.SET), (6, ColumnType.ENUM)):
        if code in fields:
            receivers = [column for column in columns if column.type is kind]
            lists = _label_lists(Cursor(fields[code]))
            texts = [
                tuple(_text(label, _charset(table, column)) for label in labels)
                for labels, column in zip(lists, receivers, strict=False)
            ]
            _deal(texts, receivers, "labels")
    for code, kind, attribute in (
        (7, ColumnType.GEOMETRY, "geometry_type"),
        (13, ColumnType.VECTOR, "dimension"),
    ):
        if code in fields:
            _deal(
                Cursor(fields[code]).packed_list(),
                [column for column in columns if column.type is kind],
                attribute,
            )
    if 12 in fields:
        _deal(Cursor(fields[12]).high_bits(), columns, "visible")
    key = Cursor(fields.get(8, b"")).packed_list() or Cursor(fields.get(9, b"")).packed_list()[::2]
    if any(index >= len(columns) for index in key):
        raise DecodeError("plain: a key column that does not exist")
    table.primary_key = [columns[index].name for index in key]


def _deal(values: Sequence[object], columns: list[PlainColumn], attribute: str) -> None:
    if len(values) < len(columns):
        raise DecodeError(f"plain: {attribute} of too few columns")
    for value, column in zip(values, columns, strict=False):
        setattr(column, attribute, value)


def _label_lists(cursor: Cursor) -> list[list[bytes]]:
    lists = []
    while cursor.left():
        labels = []
        for _ in range(cursor.packed()):
            labels.append(cursor.take(cursor.packed()))
        lists.append(labels)
    return lists


def _charset(table: PlainTable, column: PlainColumn) -> Charset | None:
    return None if column.collation is None else charset_of_collation(column.collation, table.mariadb)


def _text(data: bytes, charset: Charset | None) -> str:
    if charset is None or charset.decode is None:
        return data.decode("utf-8", "surrogateescape")
    return charset.decode(data)


# ---------------------------------------------------------------------------------------- rows events


def plain_extra(data: bytes, is_update: bool) -> None:
    """Parts of NDB (a zero, a length that counts itself) and of partitions, up to another tag."""
    while data[:1] in (b"\0", b"\1"):
        if data[0] == 0 and len(data) == 1:
            raise DecodeError("plain: extra data without its length")
        size = 1 + data[1] if data[0] == 0 else 1 + (4 if is_update else 2)
        if size > len(data):
            raise DecodeError("plain: extra data end early")
        data = data[size:]


def plain_rows(body: bytes, event_type: int, table: PlainTable) -> list[object]:
    """The rows of a rows event's body: tuples, or pairs of tuples for updates."""
    cursor = Cursor(body)
    if cursor.number(6) != table.table_id:
        raise DecodeError("plain: another table")
    cursor.number(2)
    if event_type in ROWS_V2:
        extra = cursor.number(2)
        if extra < 2:
            raise DecodeError("plain: extra data that does not hold its own length")
        plain_extra(cursor.take(extra - 2), event_type in UPDATES)
    width = cursor.packed()
    if width != len(table.columns):
        raise DecodeError("plain: another number of columns")
    images = [low_bits(cursor.take((width + 7) // 8), width)]
    if event_type in UPDATES:
        images.append(low_bits(cursor.take((width + 7) // 8), width))
    # Rows without columns take no bytes; such an event is for one row, and a server applies it once.
    takes_bytes = any(map(any, images))
    rows: list[object] = []
    while cursor.left() if takes_bytes else not rows:
        row = [_image(cursor, table, present) for present in images]
        rows.append(tuple(row) if event_type in UPDATES else row[0])
    if cursor.left():
        raise DecodeError("plain: bytes behind the rows")
    return rows


def _image(cursor: Cursor, table: PlainTable, present: list[bool]) -> tuple[object, ...]:
    held = [column for column, is_held in zip(table.columns, present, strict=True) if is_held]
    nulls = low_bits(cursor.take((len(held) + 7) // 8), len(held))
    values = iter(
        [
            None if is_null else _value(cursor, column, _charset(table, column))
            for column, is_null in zip(held, nulls, strict=True)
        ]
    )
    return tuple(next(values) if is_held else ABSENT for is_held in present)


def _value(cursor: Cursor, column: PlainColumn, charset: Charset | None) -> object:
    """One value that is not NULL."""
    kind, metadata = column.type, column.metadata
    integer_sizes = {
        ColumnType.TINY: 1,
        ColumnType.SHORT: 2,
        ColumnType.INT24: 3,
        ColumnType.LONG: 4,
        ColumnType.LONGLONG: 8,
    }
    if kind in integer_sizes:
        size = integer_sizes[kind]
        return cursor.number(size) if column.unsigned else cursor.signed(size)
    if kind is ColumnType.FLOAT:
        return struct.unpack("<f", cursor.take(4))[0]
    if kind is ColumnType.DOUBLE:
        return struct.unpack("<d", cursor.take(8))[0]
    if kind is ColumnType.NEWDECIMAL:
        precision, scale = metadata >> 8, metadata & 0xFF
        return decimal_value(cursor.take(decimal_size(precision, scale)), precision, scale)
    if kind is ColumnType.BIT:
        return cursor.big_endian((metadata + 7) // 8)
    if kind is ColumnType.YEAR:
        year = cursor.number(1)
        return 1900 + year if year else 0
    if kind in (ColumnType.DATE, ColumnType.NEWDATE):
        packed = cursor.number(3)
        return date_value(packed >> 9, packed >> 5 & 15, packed & 31)
    if kind is ColumnType.TIME:
        return old_time_value(cursor.signed(3))
    if kind is ColumnType.DATETIME:
        return old_datetime_value(cursor.number(8))
    if kind is ColumnType.TIMESTAMP:
        return timestamp_value(cursor.number(4), 0, 0)
    if kind is ColumnType.TIME2:
        return time2_value(cursor.take(3 + (metadata + 1) // 2), metadata)
    if kind is ColumnType.DATETIME2:
        return datetime2_value(cursor.big_endian(5), _fraction(cursor, metadata), metadata)
    if kind is ColumnType.TIMESTAMP2:
        return timestamp_value(cursor.big_endian(4), _fraction(cursor, metadata), metadata)
    if kind in (ColumnType.STRING, ColumnType.VARCHAR, ColumnType.VAR_STRING):
        data = cursor.take(cursor.number(2 if metadata > 255 else 1))
        if kind is ColumnType.STRING and charset is not None and charset.name == "binary":
            return data + bytes(max(0, metadata - len(data)))
        return data if charset is None or charset.decode is None else charset.decode(data)
    if kind in BLOBS:
        data = cursor.take(cursor.number(metadata))
        return data if charset is None or charset.decode is None else charset.decode(data)
    if kind in MARIADB_COMPRESSED:
        varchar_length = 2 if metadata > 255 else 1
        length_size = varchar_length if kind is ColumnType.MARIADB_VARCHAR_COMPRESSED else metadata
        data = uncompressed(cursor.take(cursor.number(length_size)))
        return data if charset is None or charset.decode is None else charset.decode(data)
    if kind is ColumnType.GEOMETRY:
        return cursor.take(cursor.number(metadata))
    if kind is ColumnType.JSON:
        return decode_json(cursor.take(cursor.number(metadata)))
    if kind is ColumnType.VECTOR:
        data = cursor.take(cursor.number(metadata))
        if len(data) % 4:
            raise DecodeError("plain: part of a float")
        vector = array.array("f", data)
        if sys.byteorder == "big":
            vector.byteswap()
        return vector
    if kind is ColumnType.ENUM:
        return enum_value(cursor.number(metadata), column.labels)
    if kind is ColumnType.SET:
        return set_value(cursor.number(metadata), column.labels)
    raise DecodeError("plain: a type that rows do not have")


def _fraction(cursor: Cursor, digits: int) -> int:
    size = (digits + 1) // 2
    return cursor.big_endian(size) * FRACTION_UNITS[size]
