"""Keys of rows as bounds of chunks: which key a table is read by, and its values as SQL literals.

Bounds come from the server and go back to it, byte for byte. No code here compares two keys, because only the server
knows the order of its collations.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_address
from typing import Final

from protocol.constants import ColumnType
from protocol.errors import CheckpointError
from protocol.records import record
from protocol.rows.column import Column

from ..schemas.shape import ColumnShape, Key, Shape
from ..sql.quoting import quoted

#: The values of a key, in the order of its columns. Numbers and times are ASCII text; text is in the column's own
#: character set; ENUM and SET are their numbers; UUID and INET are their bytes.
KeyBytes = tuple[bytes, ...]

_NUMBER: Final = re.compile(rb"-?\d+(\.\d+)?(e[+-]?\d+)?")
_TIME: Final = re.compile(rb"[\d:. -]+")
_SECONDS_PER_HOUR: Final = 3600


@record(slots=True, frozen=True)
class KeyRange:
    """The rows behind ``after`` up to and including ``upto``; None: from the first row, to the last one."""

    after: KeyBytes | None = None
    upto: KeyBytes | None = None


def key_of(shape: Shape) -> Key | None:
    """The key by which a table is read in chunks: the primary key, else a unique key without NULL; None without any.

    Keys over prefixes or expressions do not determine a row's place, and hash keys have no order.
    """
    columns = {column.name: column for column in shape.columns}
    keys = [shape.primary] if shape.primary is not None else []
    keys += [key for key in shape.keys or () if key.kind == "unique"]
    return next((key for key in keys if _is_usable(key, columns)), None)


def _is_usable(key: Key, columns: Mapping[str, ColumnShape]) -> bool:
    parts = [columns.get(name) for name, _ in key.parts]
    has_prefix = any(length for _, length in key.parts)
    return (
        not key.is_hash
        and not has_prefix
        and all(part is not None and part.nullable is False for part in parts)
    )


def key_columns(key: Key, shape: Shape) -> tuple[str, ...]:
    """The columns of a key, without the end of a system-versioned table's period: current rows all have the same."""
    ends = {column.name for column in shape.columns if column.role == "end"}
    return tuple(name for name, _ in key.parts if name not in ends)


def key_bytes(value: object) -> bytes:
    """One value of a key for ``KeyBytes``, from the value of a row whose text was left undecoded."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, timedelta):
        return _time_text(value).encode()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ").encode()
    if isinstance(value, date):
        return value.isoformat().encode()
    if isinstance(value, Decimal):
        return f"{value:f}".encode()
    return str(value).encode()


def _time_text(value: timedelta) -> str:
    magnitude = abs(value)
    seconds = magnitude.days * 24 * _SECONDS_PER_HOUR + magnitude.seconds
    sign = "-" if value < timedelta(0) else ""
    hours, rest = divmod(seconds, _SECONDS_PER_HOUR)
    return f"{sign}{hours:02d}:{rest // 60:02d}:{rest % 60:02d}.{magnitude.microseconds:06d}"


def key_literal(column: Column, kind: str, data: bytes) -> str:
    """One value of a key as a literal with which the server compares exactly; ``kind`` is the column's DATA_TYPE.

    ``CheckpointError`` if the bytes are no value of the column: they come from a checkpoint of another table.
    """
    if kind in _ADDRESSES:
        try:
            return _ADDRESSES[kind](data)
        except ValueError:
            raise _no_value(column, data) from None
    if column.type in _TEXTS:
        introducer = "" if column.charset in (None, "binary") else f"_{_introducer(column.charset or '')} "
        return f"{introducer}X'{data.hex()}'"
    pattern = _TIME if column.type in _TIMES else _NUMBER
    if not pattern.fullmatch(data):
        raise _no_value(column, data)
    text = data.decode()
    if column.type in _TIMES:
        return quoted(text, "'")
    # A decimal literal would be compared as DECIMAL, which has no room for all exponents.
    return f"{text}e0" if column.type in _FLOATS and "e" not in text else text


def _no_value(column: Column, data: bytes) -> CheckpointError:
    return CheckpointError(
        f"{data!r} cannot be a value of the key column {column.name!r} -- is the checkpoint of another table?"
    )


def _introducer(charset: str) -> str:
    # MySQL 5.6 does not know the name utf8mb3.
    return "utf8" if charset == "utf8mb3" else charset


def _uuid(data: bytes) -> str:
    digits = data.hex()
    return f"'{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}'"


def _address(data: bytes) -> str:
    return f"'{ip_address(data)}'"


_ADDRESSES: Final[Mapping[str, Callable[[bytes], str]]] = {
    "uuid": _uuid,
    "inet4": _address,
    "inet6": _address,
}
_TEXTS: Final = frozenset(
    {ColumnType.STRING, ColumnType.VARCHAR, ColumnType.BLOB, ColumnType.GEOMETRY, ColumnType.VECTOR}
)
_FLOATS: Final = frozenset({ColumnType.FLOAT, ColumnType.DOUBLE})
_TIMES: Final = frozenset({ColumnType.DATE, ColumnType.TIME2, ColumnType.DATETIME2, ColumnType.TIMESTAMP2})


@record(slots=True, frozen=True)
class KeyColumn:
    """A column of a key in conditions: its name in SQL, and the number of labels of an ENUM (else 0)."""

    name: str
    labels: int = 0

    def compared(self, operator: str, literal: str) -> str:
        """The comparison with a literal. Servers use a key over an ENUM for equality only: its numbers are listed."""
        if not self.labels:
            return f"{self.name} {operator} {literal}"
        # Not the number itself: a server that lies has a key of 10**18.
        number = min(int(literal), self.labels)
        wanted = range(number + 1, self.labels + 1) if operator == ">" else range(number + (operator == "<="))
        return f"{self.name} IN ({', '.join(map(str, wanted))})" if wanted else "1 = 0"


def behind(columns: Sequence[KeyColumn], literals: Sequence[str]) -> str:
    """The condition ``(columns) > (literals)``, in brackets.

    It is spelled out as ranges of the key, because MySQL does not use an index for a comparison of rows. With
    ``a >= 1 AND (a > 1 OR b > 2)`` servers would look at all rows with the first value again for each chunk.
    """
    return _beyond(columns, literals, ">", ">")


def up_to(columns: Sequence[KeyColumn], literals: Sequence[str]) -> str:
    """The condition ``(columns) <= (literals)``, in brackets."""
    return _beyond(columns, literals, "<", "<=")


def _beyond(columns: Sequence[KeyColumn], literals: Sequence[str], strict: str, last: str) -> str:
    """The first value is beyond its literal, or it is equal and the others decide."""
    column, literal = columns[0], literals[0]
    if len(columns) == 1:
        return f"({column.compared(last, literal)})"
    others = _beyond(columns[1:], literals[1:], strict, last)
    return f"({column.compared(strict, literal)} OR ({column.name} = {literal} AND {others}))"
