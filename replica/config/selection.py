"""The options that streams and binlog files share: where to start and stop, which tables, events and columns to read.

Reads keyword arguments and DSN texts. A wrong value is a ``ConfigurationError`` that names the option. Opens no file
and no connection.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal, Self, TypeVar

from protocol.binlog.events import Event
from protocol.constants import MAX_EVENT_SIZE
from protocol.errors import ConfigurationError
from protocol.gtid import AnyGtidSet, GtidSet, MariadbGtidSet, parse_gtid_set
from protocol.position import FIRST_POSITION, BinlogPosition, Checkpoint
from protocol.records import field, record
from protocol.rows.table import table_text

from .table_names import split_list, split_text, unquoted, written_parts

_Given = TypeVar("_Given")
_Value = TypeVar("_Value")

Start = Literal["now", "earliest", "snapshot"] | BinlogPosition | AnyGtidSet | Checkpoint | datetime
Stop = Literal["now"] | BinlogPosition | AnyGtidSet | datetime
SchemaMismatch = Literal["error", "positional"]
# Gets an option's name and its text from a DSN (or its argument), returns the option's value.
OptionReader = Callable[[str, object], object]

_WORD: Final = r"[A-Za-z_]+"
_POSITION: Final = r"[^:,\s]+\.\d+:\d+"
# The smallest max_event_bytes with which the events at the start of a log can be read, and the largest size that an
# event header can announce.
_LEAST_EVENT_LIMIT: Final = 1 << 12
_MOST_EVENT_LIMIT: Final = (1 << 32) - 1
_TIME: Final = r"\d{4}-\d\d-\d\d[T ]"
_DATE: Final = r"(19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"


@record(slots=True, frozen=True, kw_only=True)
class Selection:
    """Where to read, and what. ``replica.connect`` and ``open_binlog`` explain each option."""

    start: Start = "now"
    stop: Stop | None = None
    tables: tuple[str, ...] = ("*",)
    exclude_tables: tuple[str, ...] = ()
    events: tuple[type[Event], ...] = (Event,)
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    row_values: bool = True
    verify_checksum: bool = True
    on_schema_mismatch: SchemaMismatch = "error"
    max_event_bytes: int = MAX_EVENT_SIZE

    @classmethod
    def read(cls, given: Mapping[str, object]) -> Self:
        """Make a selection from arguments; None means not given. Raises ``ConfigurationError``, naming the option."""
        values = {name: value for name, value in given.items() if value is not None}
        read = {name: SELECTION_READERS[name](name, value) for name, value in values.items()}
        return cls(**read)  # type: ignore[arg-type]


def parse_start(text: str) -> Start:
    """Parse ``now``, ``earliest``, ``binlog.000003:154``, a GTID set, or an ISO 8601 time with its zone.

    Raises ``ConfigurationError`` for any other text.
    """
    text = text.strip()
    if text == "now":
        return "now"
    if text == "earliest":
        return "earliest"
    if re.fullmatch(_WORD, text):
        raise ConfigurationError(
            f"{text!r} is not a place: now is the end of the log, and earliest its beginning"
        )
    if re.fullmatch(_POSITION, text):
        return BinlogPosition.parse(text)
    # A date alone also parses as a MariaDB GTID, in a domain that most logs do not have: the whole log would be read.
    if re.fullmatch(_DATE, text):
        raise ConfigurationError(f"{text} is a date without time and zone: write {text}T00:00:00Z")
    return parse_time(text) if re.match(_TIME, text) else parse_gtid_set(text)


def parse_time(text: str) -> datetime:
    """Parse a time in ISO 8601 with its zone. Raises ``ConfigurationError``."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is not a time in ISO 8601") from error
    return _with_zone(moment)


def _with_zone(moment: datetime) -> datetime:
    if moment.utcoffset() is None:
        raise ConfigurationError(
            f"{moment} has no time zone: give an aware datetime, or a text such as 2026-01-31T12:00:00Z"
        )
    return moment


def named(name: str, parse: Callable[[_Given], _Value], given: _Given) -> _Value:
    """``parse(given)``; a ``ConfigurationError`` of it names the option."""
    try:
        return parse(given)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from error


# One reader per option.


def near_options(name: str, known: Iterable[str]) -> str:
    """The options that an unknown name may mean, to be added to an error; empty if none is near.

    They contain the name, or one is much like it. ``tls-ca``, ``tlsCa`` and ``tls_ca`` are one name here.
    """
    from difflib import get_close_matches

    def plain(text: str) -> str:
        return re.sub("[-_]", "", text.lower())

    wanted, names = plain(name), {plain(one): one for one in known}
    near = [one for one in names if wanted and wanted in one] or get_close_matches(wanted, names, 1)
    return f" (did you mean {' or '.join(names[one] for one in near[:2])}?)" if near else ""


def wrong_value(name: str, value: object, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{name}: {expected}, not {value!r}")


def read_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise wrong_value(name, value, "a text")
    return value


def read_names(name: str, value: object) -> tuple[str, ...]:
    """Read the names of several columns."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise wrong_value(name, value, "a list of column names")
    return tuple(read_text(name, column) for column in value)


def read_path(name: str, value: object) -> str:
    """Read the path of a file."""
    path = getattr(value, "__fspath__", lambda: value)()
    if not isinstance(path, str) or not path or "\0" in path:
        raise wrong_value(name, value, "the path of a file")
    return path


def read_boolean(name: str, value: object) -> bool:
    if isinstance(value, str):
        value = {"true": True, "1": True, "false": False, "0": False}.get(value.strip().lower(), value)
    if not isinstance(value, bool):
        raise wrong_value(name, value, "true or false")
    return value


def one_of(*choices: str) -> Callable[[str, object], str]:
    def read(name: str, value: object) -> str:
        if value not in choices:
            raise wrong_value(name, value, f"one of {', '.join(choices)}")
        return str(value)

    return read


def whole_number(low: int, high: int | None = None) -> Callable[[str, object], int]:
    def read(name: str, value: object) -> int:
        number = int(value) if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,20}\s*", value) else value
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= (high or number):
            limits = f"of at least {low}" if high is None else f"from {low} to {high}"
            raise wrong_value(name, value, f"a whole number {limits}")
        return number

    return read


def _start(name: str, value: object) -> Start:
    if isinstance(value, str):
        value = named(name, parse_start, value)
    if isinstance(value, datetime):
        value = named(name, _with_zone, value)
    if isinstance(value, BinlogPosition) and value.position < FIRST_POSITION:
        raise wrong_value(name, str(value), "a position of 4 or more (a file's first event is at 4)")
    if isinstance(value, Checkpoint):
        value = named(name, Checkpoint.from_dict, value.to_dict())
    known = (BinlogPosition, GtidSet, MariadbGtidSet, Checkpoint, datetime)
    if isinstance(value, known) or value == "now" or value == "earliest":
        return value
    raise wrong_value(name, value, "'now', 'earliest', a position, a GTID set, a checkpoint or a time")


def _stop(name: str, value: object) -> Stop:
    stop = _start(name, value)
    if isinstance(stop, Checkpoint) or stop == "earliest" or stop == "snapshot":
        raise wrong_value(name, value, "'now', a position, a GTID set or a time")
    return stop


def table_patterns(name: str, value: object) -> tuple[str, ...]:
    """Read a pattern such as ``"shop.*"``, several with commas between, or an iterable of patterns."""
    if isinstance(value, str):
        value = split_list(value)
    if not isinstance(value, Iterable):
        raise wrong_value(name, value, "patterns such as 'shop.*'")
    patterns = tuple(read_text(name, pattern) for pattern in value)
    if not patterns and name != "exclude_tables":
        raise ConfigurationError(
            f"{name}: the list is empty, so no table would be read: leave out {name}= to read all"
        )
    for pattern in patterns:
        if pattern != "*":
            _check_parts(name, pattern, "'shop.orders' or 'shop.*'")
            if written_parts(pattern)[1].startswith("."):
                # Far more often a slip than a table called so, of which an exclusion would say nothing.
                raise wrong_value(name, pattern, "one dot, or a table such as '.orders' in backticks")
    return patterns


def read_table(name: str, value: object) -> tuple[str, str]:
    """Read the schema and the table of a text such as ``shop.orders`` or `` `a.b`.c ``."""
    return split_text(_check_parts(name, value, "'shop.orders'"))


def read_table_text(name: str, value: object) -> str:
    """Read a table as ``read_table`` does; its ``table_text``."""
    return table_text(*read_table(name, value))


def _check_parts(name: str, value: object, examples: str) -> str:
    text = value if isinstance(value, str) else ""
    parts = written_parts(text)
    if any(part.startswith("`") and unquoted(part) is None for part in parts):
        raise wrong_value(
            name,
            value,
            "a name in backticks ends with one, and has those inside doubled, as in '`a.b`.`c``d`'",
        )
    if not all(parts):
        raise wrong_value(name, value, f"schema and table with a dot between, such as {examples}")
    return text


def _events(name: str, value: object) -> tuple[type[Event], ...]:
    kinds = (value,) if isinstance(value, type) else value
    if isinstance(kinds, str) or not isinstance(kinds, Iterable):
        raise wrong_value(name, value, "event classes")
    classes = tuple(kinds)
    if not classes:
        raise ConfigurationError(f"{name}: the list is empty: leave out {name}= for events of all classes")
    for kind in classes:
        if not (isinstance(kind, type) and issubclass(kind, Event)):
            raise wrong_value(name, kind, "event classes")
    return classes


def _columns(name: str, value: object) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise wrong_value(name, value, "a mapping such as {'shop.orders': ['id', 'status']}")
    columns: dict[str, tuple[str, ...]] = {}
    for table, names in value.items():
        columns[read_table_text(name, table)] = read_names(f"{name}[{table!r}]", names)
    return MappingProxyType(columns)


SELECTION_READERS: Final[Mapping[str, OptionReader]] = MappingProxyType(
    {
        "start": _start,
        "stop": _stop,
        "tables": table_patterns,
        "exclude_tables": table_patterns,
        "events": _events,
        "columns": _columns,
        "row_values": read_boolean,
        "verify_checksum": read_boolean,
        "on_schema_mismatch": one_of("error", "positional"),
        "max_event_bytes": whole_number(_LEAST_EVENT_LIMIT, _MOST_EVENT_LIMIT),
    }
)
