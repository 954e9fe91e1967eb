"""COM_QUERY of clients that agreed on QUERY_ATTRIBUTES: named values precede the statement.

Clients of MySQL 8.0.23 and later send at least the number of attributes (``page_protocol_com_query``). This module
skips attributes when it reads a query and writes queries without any.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..constants import ColumnType, Command
from ..errors import ProtocolError
from ..wire import Reader, bitmap_size, bits_set
from .commands import Query
from .messages import decode_text, message_reader

_MAX_ATTRIBUTES: Final = 65535
_TYPE_MASK: Final = 0xFF  # the bits above say whether the value is unsigned

# Size in bytes of a value in the binary protocol; values of other types start with their length.
_SIZES: Final[Mapping[int, int]] = MappingProxyType(
    {
        ColumnType.NULL: 0,
        ColumnType.TINY: 1,
        ColumnType.SHORT: 2,
        ColumnType.YEAR: 2,
        ColumnType.LONG: 4,
        ColumnType.INT24: 4,
        ColumnType.FLOAT: 4,
        ColumnType.LONGLONG: 8,
        ColumnType.DOUBLE: 8,
    }
)
_MOMENTS: Final = frozenset({ColumnType.DATE, ColumnType.DATETIME, ColumnType.TIMESTAMP, ColumnType.TIME})


def parse_query(payload: bytes) -> Query:
    """The statement, without its attributes; ``ProtocolError`` if the attributes are malformed."""
    reader = message_reader(payload)
    if reader.u8() != Command.QUERY:
        raise ProtocolError("COM_QUERY expected")
    count, sets = reader.lenenc_int(), reader.lenenc_int()
    if sets != 1 or count > _MAX_ATTRIBUTES:
        raise ProtocolError(
            f"COM_QUERY has {count} query attributes in {sets} sets; one set of up to {_MAX_ATTRIBUTES} is allowed"
        )
    if count:
        _skip_attributes(reader, count)
    return Query(decode_text(reader.rest()))


def _skip_attributes(reader: Reader, count: int) -> None:
    is_null = bits_set(reader.take(bitmap_size(count)), count)
    if reader.u8() != 1:
        raise ProtocolError("COM_QUERY has query attributes without their types")
    types = []
    for _ in range(count):
        types.append(reader.uint(2) & _TYPE_MASK)
        reader.lenenc_bytes()
    for kind, null in zip(types, is_null, strict=True):
        if not null:
            _skip_value(reader, kind)


def _skip_value(reader: Reader, kind: int) -> None:
    if kind in _MOMENTS:
        reader.short_bytes()
    elif kind in _SIZES:
        reader.skip(_SIZES[kind])
    else:
        reader.lenenc_bytes()
