"""The SET and use statements before a statement: session settings that differ from those of the last statement.

Returns bytes, does no I/O. Formats: ``Query_log_event::print_query_header`` of MySQL's ``sql/log_event.cc`` and
MariaDB's ``sql/log_event_client.cc``.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from protocol.binlog.checksum import is_mariadb_version, version_numbers
from protocol.binlog.events import QueryEvent
from protocol.binlog.query_status import StatusValue, logs_explicit_timestamps, parse_status_variables
from protocol.charset import charset_of_collation
from protocol.constants import EventFlag, SessionFlag
from protocol.wire import utf8_bytes

from .collations import collation_name
from .rows import quoted_name
from .values import Flavor

DELIMITER = b"/*!*/;"

Variables = Mapping[str, StatusValue]

#: Equal status variables come again and again, twice for each statement: parsing them took a fifth of a text's time.
status_variables: Callable[[bytes], Variables] = lru_cache(maxsize=64)(parse_status_variables)

_FlagVariables = tuple[tuple[bytes, int, bool], ...]

# Session variable, its bit in FLAGS2 (plain numbers: see below), whether a set bit means 0.
_FLAGS2: _FlagVariables = (
    (b"foreign_key_checks", int(SessionFlag.NO_FOREIGN_KEY_CHECKS), True),
    (b"sql_auto_is_null", int(SessionFlag.AUTO_IS_NULL), False),
    (b"unique_checks", int(SessionFlag.RELAXED_UNIQUE_CHECKS), True),
    (b"autocommit", int(SessionFlag.NOT_AUTOCOMMIT), True),
)
_CHECK_CONSTRAINTS = (
    b"check_constraint_checks",
    int(SessionFlag.MARIADB_NO_CHECK_CONSTRAINT_CHECKS),
    True,
)
_IF_EXISTS = (b"sql_if_exists", int(SessionFlag.MARIADB_IF_EXISTS), False)
_EXPLICIT_TIMESTAMPS = (
    b"explicit_defaults_for_timestamp",
    int(SessionFlag.MARIADB_EXPLICIT_DEF_TIMESTAMP),
    False,
)
# Servers before 10.11 do not log it, but the tool prints it once.
_INSERT_HISTORY = (b"system_versioning_insert_history", int(SessionFlag.MARIADB_INSERT_HISTORY), False)
_IF_EXISTS_SINCE = (10, 5, 2)
_INSERT_HISTORY_SINCE = (10, 11)
# SQL modes that MySQL 8.0.5 removed; later servers refuse them.
_REMOVED_SQL_MODES = 0x1003FF00

# utf8mb3_general_ci
_UTF8MB3 = 33

# Plain numbers: `&` with a member of an IntFlag takes 540 ns instead of 9.
_SUPPRESS_USE = int(EventFlag.SUPPRESS_USE)
_THREAD_SPECIFIC = int(EventFlag.THREAD_SPECIFIC)

# Statements that begin, mark or end a transaction need no default schema.
_FRAME_EXACT = frozenset({"BEGIN", "COMMIT"})
_FRAME_PREFIXES = ("SAVEPOINT", "ROLLBACK", "XA ")


def is_transaction_frame(sql: str) -> bool:
    """Whether a statement begins, ends or marks a transaction (``is_trans_keyword``)."""
    return sql in _FRAME_EXACT or sql[:9].upper().startswith(_FRAME_PREFIXES)


class Session:
    """Keeps the settings printed last, and yields those that the next statement changes.

    ``is_run``: a server of the log's version runs the statements; the tool prints some that older servers refuse.
    """

    def __init__(self, flavor: Flavor, *, is_run: bool = False) -> None:
        self.flavor: Flavor = flavor
        self._is_run = is_run
        self._flag_variables = _FLAGS2 if flavor == "mysql" else self._of_mariadb(())
        self._schema = ""
        self._thread_id: int | None = None
        self._printed: dict[str, object] = {}
        # The status variables of the last statement: the same ones change no settings. None: not known.
        self._last: bytes | None = None

    def follow(self, server_version: str) -> None:
        """Note the server's version, which decides which settings exist."""
        if is_mariadb_version(server_version) and self.flavor == "mariadb":
            self._flag_variables = self._of_mariadb(version_numbers(server_version))

    def statements(self, event: QueryEvent) -> Iterator[bytes]:
        """The SET and use statements to run before the event's statement, each with delimiter and newline."""
        variables = status_variables(event.status_variables)
        for statement in self._settings(event, variables):
            yield b"%b%b\n" % (statement, DELIMITER)

    def around_name(self, *, is_text: bool) -> tuple[bytes, bytes]:
        """MySQL's statements around a statement with a name in utf8mb3; ``is_text``: its value is text or NULL.

        The statements after it restore the settings printed last; both are empty if none were printed.
        """
        printed = self._printed.get("CHARSET")
        if not isinstance(printed, tuple):
            return b"", b""
        named = (_UTF8MB3, _UTF8MB3 if is_text else printed[1], _UTF8MB3)
        before, after = (
            b"".join(b"%b%b\n" % (statement, DELIMITER) for statement in self._charset(value))
            for value in (named, printed)
        )
        return before, after

    def state(self) -> dict[str, object]:
        """The settings that were printed, for another session to go on with."""
        return vars(self) | {"_last": None}

    def _of_mariadb(self, version: tuple[int, ...]) -> _FlagVariables:
        """The variables that ``mariadb-binlog`` 11.8 prints for the logs of this version."""
        known = (
            (_IF_EXISTS, version >= _IF_EXISTS_SINCE),
            (_EXPLICIT_TIMESTAMPS, logs_explicit_timestamps(version)),
            (_INSERT_HISTORY, not self._is_run or version >= _INSERT_HISTORY_SINCE),
        )
        return (*_FLAGS2, _CHECK_CONSTRAINTS, *(variable for variable, is_printed in known if is_printed))

    def _settings(self, event: QueryEvent, variables: Variables) -> Iterator[bytes]:
        header = event.header
        yield from self._use(event, header.flags)
        microsecond = variables.get("MICROSECONDS") or variables.get("MARIADB_HRNOW")
        fraction = b".%06d" % microsecond if isinstance(microsecond, int) and microsecond else b""
        yield b"SET TIMESTAMP=%d%b" % (header.timestamp, fraction)
        is_other = header.flags & _THREAD_SPECIFIC and event.thread_id != self._thread_id
        if self._thread_id is None or is_other:
            self._thread_id = event.thread_id
            yield b"SET @@session.pseudo_thread_id=%d" % event.thread_id
        is_repeated, self._last = event.status_variables == self._last, event.status_variables
        if not is_repeated:
            yield from self._flags(variables)
        for name, default, write in _ALWAYS_SETTINGS if is_repeated else _SETTINGS:
            value = variables.get(name, default)
            if value is not None and (name in _ALWAYS or self._printed.get(name) != value):
                self._printed[name] = value
                yield from write(self, value)

    def _use(self, event: QueryEvent, flags: int) -> Iterator[bytes]:
        is_frame = is_transaction_frame(event.sql)
        if is_frame:
            return
        if flags & _SUPPRESS_USE:
            self._schema = ""
            return
        is_new = event.schema != self._schema
        self._schema = event.schema
        if event.schema and is_new:
            yield b"use %b" % quoted_name(event.schema)

    def _flags(self, variables: Variables) -> Iterator[bytes]:
        flags = variables.get("FLAGS2")
        if not isinstance(flags, int):
            return
        before = self._printed.get("FLAGS2")
        self._printed["FLAGS2"] = flags
        changed = ~0 if not isinstance(before, int) else before ^ flags
        settings = [
            b"@@session.%b=%d" % (name, bool(flags & bit) ^ inverted)
            for name, bit, inverted in self._flag_variables
            if changed & bit
        ]
        if settings:
            yield b"SET " + b", ".join(settings)

    def _sql_mode(self, value: StatusValue) -> Iterator[bytes]:
        assert isinstance(value, int)
        is_removed = value & _REMOVED_SQL_MODES and self.flavor == "mysql"
        yield b"SET @@session.sql_mode=%d" % value + (b"/*!80005 &~0x1003ff00*/" if is_removed else b"")

    def _charset(self, value: StatusValue) -> Iterator[bytes]:
        assert isinstance(value, tuple)
        client = value[0]
        assert isinstance(client, int)
        charset = charset_of_collation(client, self.flavor == "mariadb")
        name = b"%d" % client
        if charset is not None:
            yield b"/*!\\C %b */" % charset.name.encode()
            if self.flavor == "mariadb":
                name = charset.name.encode()
        connection, server = (str(collation).encode() for collation in value[1:])
        yield (
            b"SET @@session.character_set_client=%b,@@session.collation_connection=%b,@@session.collation_server=%b"
            % (name, connection, server)
        )

    def _charset_collations(self, value: StatusValue) -> Iterator[bytes]:
        assert isinstance(value, tuple)
        pairs = zip(value[::2], value[1::2], strict=True)
        collations = ",".join(
            f"{_charset_name(default)}={_collation_text(chosen)}" for default, chosen in pairs
        )
        yield b"SET @@session.character_set_collations='%b'" % collations.encode()

    def _auto_increment(self, value: StatusValue) -> Iterator[bytes]:
        assert isinstance(value, tuple)
        increment, offset = (str(number).encode() for number in value)
        yield (
            b"SET @@session.auto_increment_increment=%b, @@session.auto_increment_offset=%b"
            % (increment, offset)
        )

    def _time_zone(self, value: StatusValue) -> Iterator[bytes]:
        yield b"SET @@session.time_zone='%b'" % utf8_bytes(str(value))

    def _database_collation(self, value: StatusValue) -> Iterator[bytes]:
        yield b"SET @@session.collation_database=%b" % (str(value).encode() if value else b"DEFAULT")


def _charset_name(collation: object) -> str:
    charset = charset_of_collation(int(str(collation)), mariadb=True)
    return str(collation) if charset is None else charset.name


def _collation_text(collation: object) -> str:
    return collation_name(int(str(collation))) or str(collation)


_Write = Callable[[Session, StatusValue], Iterator[bytes]]


def _number(form: bytes) -> _Write:
    def write(session: Session, value: StatusValue) -> Iterator[bytes]:
        assert isinstance(value, int)
        yield form % value

    return write


# Settings that are printed before each statement that has them, changed or not.
_ALWAYS = frozenset(
    {"EXPLICIT_DEFAULTS_FOR_TIMESTAMP", "SQL_REQUIRE_PRIMARY_KEY", "DEFAULT_TABLE_ENCRYPTION"}
    | {"MARIADB_CHARACTER_SET_COLLATIONS"}
)
# Status variable, the value that its absence means (None: no change), its printer; in the order of printing.
_SETTINGS: tuple[tuple[str, StatusValue | None, _Write], ...] = (
    ("SQL_MODE", None, Session._sql_mode),
    ("AUTO_INCREMENT", (1, 1), Session._auto_increment),
    ("CHARSET", None, Session._charset),
    ("MARIADB_CHARACTER_SET_COLLATIONS", None, Session._charset_collations),
    ("TIME_ZONE", None, Session._time_zone),
    ("LC_TIME_NAMES", 0, _number(b"SET @@session.lc_time_names=%d")),
    ("CHARSET_DATABASE", 0, Session._database_collation),
    (
        "EXPLICIT_DEFAULTS_FOR_TIMESTAMP",
        None,
        _number(b"SET @@session.explicit_defaults_for_timestamp=%d"),
    ),
    (
        "DEFAULT_COLLATION_FOR_UTF8MB4",
        None,
        _number(b"/*!80011 SET @@session.default_collation_for_utf8mb4=%d*/"),
    ),
    ("SQL_REQUIRE_PRIMARY_KEY", None, _number(b"/*!80013 SET @@session.sql_require_primary_key=%d*/")),
    ("DEFAULT_TABLE_ENCRYPTION", None, _number(b"/*!80016 SET @@session.default_table_encryption=%d*/")),
)
_ALWAYS_SETTINGS = tuple(setting for setting in _SETTINGS if setting[0] in _ALWAYS)
