"""Parses the status variables of QUERY events: the session state in which a statement ran.

Layout: MySQL's ``libs/mysql/binlog/event/statement_events.h`` (Q_*_CODE), MariaDB's ``sql/log_event.h``.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..constants import ALTER_NOT_DONE
from ..errors import DecodeError
from ..wire import Reader, utf8_text

StatusValue = int | str | tuple[int, ...] | tuple[str, ...]

_MAX_DATABASES = 254
# MDEV-28632 and MDEV-29078; 10.10 and later do.
_EXPLICIT_TIMESTAMPS_SINCE: Mapping[tuple[int, ...], tuple[int, ...]] = MappingProxyType(
    {(10, 5): (10, 5, 17), (10, 6): (10, 6, 9), (10, 7): (10, 7, 5), (10, 8): (10, 8, 4), (10, 9): (10, 9, 2)}
)


def _text(reader: Reader) -> str:
    return utf8_text(reader.short_bytes())


def _numbers(count: int, size: int) -> Callable[[Reader], tuple[int, ...]]:
    return lambda reader: tuple(reader.uint(size) for _ in range(count))


def _number(size: int) -> Callable[[Reader], int]:
    return lambda reader: reader.uint(size)


def _terminated_catalog(reader: Reader) -> str:
    """Servers 5.0.0 to 5.0.3 wrote a zero byte after the catalog's name."""
    name = _text(reader)
    reader.skip(1)
    return name


def _database_names(reader: Reader) -> tuple[str, ...]:
    """Databases that the statement touched; the count 254 means "too many to list"."""
    count = reader.u8()
    if count == _MAX_DATABASES:
        return ()
    return tuple(utf8_text(reader.nul_terminated()) for _ in range(count))


def _alter_flags(reader: Reader) -> tuple[int, ...]:
    """Extra GTID flags; with a COMMIT or ROLLBACK ALTER (bits 2 and 3) also the START ALTER's sequence number."""
    flags = reader.u8()
    return (flags, reader.uint(8)) if flags & 0x0C else (flags,)


def _collation_pairs(reader: Reader) -> tuple[int, ...]:
    """@@character_set_collations: pairs of collation ids, flattened (MariaDB 11.2+)."""
    return tuple(reader.uint(2) for _ in range(reader.u8() * 2))


_VARIABLES: dict[int, tuple[str, Callable[[Reader], StatusValue]]] = {
    0: ("FLAGS2", _number(4)),
    1: ("SQL_MODE", _number(8)),
    2: ("CATALOG", _terminated_catalog),
    3: ("AUTO_INCREMENT", _numbers(2, 2)),
    4: ("CHARSET", _numbers(3, 2)),
    5: ("TIME_ZONE", _text),
    6: ("CATALOG_NZ", _text),
    7: ("LC_TIME_NAMES", _number(2)),
    8: ("CHARSET_DATABASE", _number(2)),
    9: ("TABLE_MAP_FOR_UPDATE", _number(8)),
    10: ("MASTER_DATA_WRITTEN", _number(4)),
    11: ("INVOKER", lambda reader: (_text(reader), _text(reader))),
    12: ("UPDATED_DB_NAMES", _database_names),
    13: ("MICROSECONDS", _number(3)),
    14: ("COMMIT_TS", _number(8)),
    15: ("COMMIT_TS2", _number(8)),
    16: ("EXPLICIT_DEFAULTS_FOR_TIMESTAMP", _number(1)),
    17: ("DDL_LOGGED_WITH_XID", _number(8)),
    18: ("DEFAULT_COLLATION_FOR_UTF8MB4", _number(2)),
    19: ("SQL_REQUIRE_PRIMARY_KEY", _number(1)),
    20: ("DEFAULT_TABLE_ENCRYPTION", _number(1)),
    128: ("MARIADB_HRNOW", _number(3)),
    129: ("MARIADB_XID", _number(8)),
    130: ("MARIADB_GTID_FLAGS3", _alter_flags),
    131: ("MARIADB_CHARACTER_SET_COLLATIONS", _collation_pairs),
}


def parse_status_variables(data: bytes) -> dict[str, StatusValue]:
    """Status variables by name, in logged order.

    Parsing stops at the first unknown code, as in servers, because its length is unknown. Raises ``TruncatedError``
    if a known variable does not fit.
    """
    reader = Reader(data)
    variables: dict[str, StatusValue] = {}
    while reader.remaining:
        known = _VARIABLES.get(reader.u8())
        if known is None:
            break
        name, read = known
        try:
            variables[name] = read(reader)
        except DecodeError as error:
            raise type(error)(f"status variable {name}: {error.reason}") from None
    return variables


def logs_explicit_timestamps(version: tuple[int, ...]) -> bool:
    """Whether MariaDB of this version logs explicit_defaults_for_timestamp, as a bit of FLAGS2.

    Older ones do not let a session set it (``deduct_options_written_to_bin_log``).
    """
    return version >= _EXPLICIT_TIMESTAMPS_SINCE.get(version[:2], (10, 10))


def is_unfinished_alter(data: bytes) -> bool:
    """Whether the status variables are those of an ALTER TABLE of MariaDB that has begun or failed.

    When it succeeds, it is logged once more.
    """
    try:
        flags = parse_status_variables(data).get("MARIADB_GTID_FLAGS3")
    except DecodeError:
        return False
    return isinstance(flags, tuple) and bool(int(flags[0]) & ALTER_NOT_DONE)
