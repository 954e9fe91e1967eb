"""QUERY events as ``Statement``: what the session of a statement was, from the event's status variables."""

from protocol.binlog.events import QueryEvent
from protocol.binlog.query_status import (
    StatusValue,
    is_unfinished_alter,
    logs_explicit_timestamps,
    parse_status_variables,
)
from protocol.charset import charset_of_collation
from protocol.constants import STATEMENT_FRAME, EventFlag, SessionFlag
from protocol.errors import DecodeError
from protocol.records import record, replace

from ..sql.client_text import client_text
from ..sql.ddl_reader import may_change_shapes
from ..sql.dialect import Dialect
from .catalog import Statement


@record(slots=True, frozen=True)
class LogTraits:
    """What is the same for all statements of a log.

    ``folds_names``: lower_case_table_names is 1 or 2. ``explicit_timestamps``: the global value of
    explicit_defaults_for_timestamp, for servers that do not log the session's: MySQL before 8.0, and MariaDB before
    10.5.17, 10.6.9 and 10.10; None if it is not known.
    """

    is_mariadb: bool
    version: tuple[int, ...]
    folds_names: bool = False
    explicit_timestamps: bool | None = None


def statement_of(event: QueryEvent, traits: LogTraits) -> Statement:
    """The statement of an event, for ``Catalog.apply`` and ``SchemaHistory.apply``."""
    try:
        status = parse_status_variables(event.status_variables)
    except DecodeError:
        status = {}
    sql_mode = _number(status.get("SQL_MODE")) or 0
    dialect = Dialect(
        traits.is_mariadb,
        traits.version,
        sql_mode,
        traits.folds_names,
        _explicit_timestamps(status, traits),
    )
    text = client_text(event.sql, status.get("CHARSET"), dialect)
    return Statement(
        text.sql,
        event.schema,
        replace(dialect, literal_charsets=text.literal_charsets, wide_spaces=text.wide_spaces),
        _server_charset(status, traits),
        event.error_code,
        bool(event.header.flags & EventFlag.THREAD_SPECIFIC),
        text.doubt,
    )


def shape_statement(event: QueryEvent, traits: LogTraits) -> Statement | None:
    """The statement of an event if it may change shapes. Others are not worth keeping: MySQL has a BEGIN for each
    transaction, and DML may be logged as statements."""
    if event.sql.startswith(STATEMENT_FRAME) or is_unfinished_alter(event.status_variables):
        return None
    statement = statement_of(event, traits)
    return statement if may_change_shapes(statement.sql, statement.dialect) else None


def _explicit_timestamps(status: dict[str, StatusValue], traits: LogTraits) -> bool | None:
    logged = _number(status.get("EXPLICIT_DEFAULTS_FOR_TIMESTAMP"))
    if logged is not None:
        return bool(logged)
    flags = _number(status.get("FLAGS2")) or 0
    if traits.is_mariadb and logs_explicit_timestamps(traits.version):
        return bool(flags & SessionFlag.MARIADB_EXPLICIT_DEF_TIMESTAMP)
    return traits.explicit_timestamps


def _server_charset(status: dict[str, StatusValue], traits: LogTraits) -> str | None:
    """The character set of collation_server, the third of CHARSET."""
    collations = status.get("CHARSET")
    if not isinstance(collations, tuple) or len(collations) < 3:
        return None
    collation = collations[2]
    charset = charset_of_collation(collation, traits.is_mariadb) if isinstance(collation, int) else None
    return None if charset is None else charset.name


def _number(value: StatusValue | None) -> int | None:
    return value if isinstance(value, int) else None
