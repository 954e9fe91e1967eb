"""The field format that MySQL 8.3 and later use for new event types (GTID_TAGGED): WL#15294.

Numbers take one to nine bytes: the count of trailing one bits in the first byte is the count of bytes that follow. A
message is its version, its size, the id of its last mandatory field, then pairs of field id and value.
Layout: MySQL's ``libs/mysql/serialization/readme.md``.
"""

from collections.abc import Callable, Mapping

from ..errors import DecodeError
from ..wire import Reader, utf8_text


def read_unsigned(reader: Reader) -> int:
    """A variable-length unsigned number of up to 64 bits."""
    first = reader.u8()
    extra = 0
    while first >> extra & 1:
        extra += 1
    if extra == 8:
        return reader.uint(8)
    return (first | reader.uint(extra) << 8) >> (extra + 1)


def read_signed(reader: Reader) -> int:
    """A variable-length signed number: the lowest bit is the sign, and negative numbers are complemented."""
    value = read_unsigned(reader)
    return ~(value >> 1) if value & 1 else value >> 1


def read_text(reader: Reader) -> str:
    """A length and a string of that many bytes."""
    return utf8_text(reader.take(read_unsigned(reader)))


def read_message(reader: Reader, fields: Mapping[int, Callable[[Reader], object]]) -> dict[int, object]:
    """The values of the known fields by id. An unknown mandatory field is an error."""
    version = read_unsigned(reader)
    if version != 1:
        raise DecodeError(f"the serialization format has the unknown version {version}")
    read_unsigned(reader)
    last_needed = read_unsigned(reader)
    values: dict[int, object] = {}
    while reader.remaining:
        field_id = read_unsigned(reader)
        read = fields.get(field_id)
        if read is None:
            if field_id <= last_needed:
                raise DecodeError(f"the mandatory field {field_id} is unknown")
            break
        values[field_id] = read(reader)
    return values
