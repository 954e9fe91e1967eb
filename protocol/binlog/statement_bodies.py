"""Parsers of QUERY, of the events around statement-based logging (variables, LOAD DATA), and of INCIDENT.

Layouts: MySQL's ``statement_events.h``, ``load_data_events.h`` and ``control_events.h``; for types 6, 8, 10 and 12
those of MySQL 5.7, the last version with these types.
"""

import struct
from decimal import Decimal

from ..constants import INTVAR_NAMES, EventType
from ..errors import DecodeError
from ..values.readers import decimal_reader
from ..wire import Reader, unpack_f64, utf8_text
from .events import (
    AppendBlockEvent,
    BeginLoadQueryEvent,
    CreateFileEvent,
    DeleteFileEvent,
    EventHeader,
    ExecuteLoadEvent,
    ExecuteLoadQueryEvent,
    IncidentEvent,
    IntvarEvent,
    LoadEvent,
    QueryEvent,
    RandEvent,
    UserVarEvent,
)

LoadParts = tuple[int, int, int, str, str, tuple[str, ...], tuple[bytes, ...], int]

_QUERY_HEADER = struct.Struct("<IIBHH")
_STRING, _REAL, _INTEGER, _DECIMAL = 0, 1, 2, 4
_UNSIGNED = 1


def query(header: EventHeader, file: str, position: int, body: Reader) -> QueryEvent:
    """QUERY, with one unpack instead of five reads: every transaction of MySQL 5.x to 9.x begins with a QUERY."""
    start = body.skip(_QUERY_HEADER.size)
    data = body.data
    thread_id, exec_time, schema_length, error_code, status_size = _QUERY_HEADER.unpack_from(data, start)
    status_variables = body.take(status_size)
    schema = _schema(body, schema_length)
    sql = utf8_text(data[body.position : body.end])
    return QueryEvent(header, file, position, thread_id, exec_time, error_code, schema, sql, status_variables)


def _schema(body: Reader, length: int) -> str:
    schema = utf8_text(body.take(length))
    if body.u8():
        raise DecodeError("the default schema of a statement does not end in a zero byte")
    return schema


def execute_load_query(header: EventHeader, file: str, position: int, body: Reader) -> ExecuteLoadQueryEvent:
    """EXECUTE_LOAD_QUERY: a QUERY with four more fields in its post-header."""
    thread_id, exec_time, schema_length, error_code = body.uint(4), body.uint(4), body.u8(), body.uint(2)
    status_size = body.uint(2)
    file_id, name_start, name_end, duplicates = body.uint(4), body.uint(4), body.uint(4), body.u8()
    status_variables = body.take(status_size)
    schema, sql = _schema(body, schema_length), body.rest()
    if not name_start <= name_end <= len(sql):
        raise DecodeError(
            f"the file name of LOAD DATA is at bytes {name_start} to {name_end} of a statement of {len(sql)} bytes"
        )
    return ExecuteLoadQueryEvent(
        header,
        file,
        position,
        thread_id,
        exec_time,
        error_code,
        schema,
        utf8_text(sql),
        status_variables,
        file_id,
        name_start,
        name_end,
        duplicates,
    )


def intvar(header: EventHeader, file: str, position: int, body: Reader) -> IntvarEvent:
    """INTVAR. A server passes over other variables (``Intvar_log_event::do_apply_event``); here they are damage."""
    variable, value = body.u8(), body.uint(8)
    if variable not in INTVAR_NAMES:
        raise DecodeError(f"an INTVAR event sets the unknown variable {variable}")
    return IntvarEvent(header, file, position, variable, value)


def rand(header: EventHeader, file: str, position: int, body: Reader) -> RandEvent:
    """RAND."""
    return RandEvent(header, file, position, body.uint(8), body.uint(8))


def user_var(header: EventHeader, file: str, position: int, body: Reader) -> UserVarEvent:
    """USER_VAR. Since about 5.1.50 flags follow the value; they say whether an integer is unsigned."""
    name = utf8_text(body.take(body.uint(4)))
    if body.u8():
        return UserVarEvent(header, file, position, name, None)
    value_type, collation = body.u8(), body.uint(4)
    raw = body.take(body.uint(4))
    flags = body.u8() if body.remaining else 0
    value = _user_value(value_type, raw, flags)
    return UserVarEvent(header, file, position, name, value, value_type, collation, raw, flags)


def _user_value(value_type: int, raw: bytes, flags: int) -> bytes | float | int | Decimal:
    if value_type == _STRING:
        return raw
    if value_type == _REAL and len(raw) == 8:
        (number,) = unpack_f64(raw)
        return float(number)
    if value_type == _INTEGER and len(raw) == 8:
        return int.from_bytes(raw, "little", signed=not flags & _UNSIGNED)
    if value_type == _DECIMAL and len(raw) > 2:
        return _decimal(raw)
    raise DecodeError(f"a user variable has the impossible type {value_type} with {len(raw)} bytes")


def _decimal(raw: bytes) -> Decimal:
    """Precision, scale, then the binary form of the number."""
    precision, scale = raw[0], raw[1]
    if not 0 < precision <= 81 or scale > precision:
        raise DecodeError(f"a user variable has the impossible type DECIMAL({precision},{scale})")
    return decimal_reader(precision, scale)(raw.ljust(2 + 40, b"\0"), 2)


def incident(header: EventHeader, file: str, position: int, body: Reader) -> IncidentEvent:
    """INCIDENT."""
    return IncidentEvent(header, file, position, body.uint(2), utf8_text(body.short_bytes()))


def _load_parts(header: EventHeader, body: Reader) -> tuple[LoadParts, int]:
    """All fields of a LOAD event except the file name, and the file id, which only CREATE_FILE has."""
    thread_id, exec_time, skip_lines = body.uint(4), body.uint(4), body.uint(4)
    body.skip(2)
    field_count = body.uint(4)
    file_id = body.uint(4) if header.type == EventType.CREATE_FILE else 0
    if header.type == EventType.LOAD:
        separators = tuple(body.take(1) for _ in range(5))
        option_flags = body.u8()
        body.skip(1)
    else:
        separators = tuple(body.short_bytes() for _ in range(5))
        option_flags = body.u8()
    body.skip(field_count)
    fields = tuple(utf8_text(body.nul_terminated()) for _ in range(field_count))
    table_name, schema = utf8_text(body.nul_terminated()), utf8_text(body.nul_terminated())
    parts = (thread_id, exec_time, skip_lines, schema, table_name, fields, separators, option_flags)
    return parts, file_id


def load(header: EventHeader, file: str, position: int, body: Reader) -> LoadEvent:
    """LOAD (separators of one character) and NEW_LOAD (strings)."""
    parts, _ = _load_parts(header, body)
    return LoadEvent(header, file, position, *parts, utf8_text(body.rest()))


def create_file(header: EventHeader, file: str, position: int, body: Reader) -> CreateFileEvent:
    """CREATE_FILE: a NEW_LOAD, then the first block of the file."""
    parts, file_id = _load_parts(header, body)
    file_name = utf8_text(body.nul_terminated())
    return CreateFileEvent(header, file, position, *parts, file_name, file_id, body.rest())


def append_block(header: EventHeader, file: str, position: int, body: Reader) -> AppendBlockEvent:
    """APPEND_BLOCK."""
    return AppendBlockEvent(header, file, position, body.uint(4), body.rest())


def begin_load_query(header: EventHeader, file: str, position: int, body: Reader) -> BeginLoadQueryEvent:
    """BEGIN_LOAD_QUERY."""
    return BeginLoadQueryEvent(header, file, position, body.uint(4), body.rest())


def execute_load(header: EventHeader, file: str, position: int, body: Reader) -> ExecuteLoadEvent:
    """EXEC_LOAD."""
    return ExecuteLoadEvent(header, file, position, body.uint(4))


def delete_file(header: EventHeader, file: str, position: int, body: Reader) -> DeleteFileEvent:
    """DELETE_FILE."""
    return DeleteFileEvent(header, file, position, body.uint(4))
