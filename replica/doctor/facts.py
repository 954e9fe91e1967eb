"""What the doctor asks a source for: settings, privileges, other replicas, tables, and the newest binlog file.

All queries run as the stream's own user. A fact that this user may not see is None. Facts are judged in the checks.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from protocol.binlog.events import (
    BeginLoadQueryEvent,
    Event,
    ExecuteLoadQueryEvent,
    IntvarEvent,
    QueryEvent,
    RandEvent,
    UserVarEvent,
)
from protocol.constants import Capability
from protocol.errors import PrivilegeError, ReplicaError, ServerError
from protocol.records import record

from ..config.options import Options
from ..source.left_out import Replication, replication_of, replication_questions
from ..source.log_scan import LogScan
from ..source.semi_sync import enabled_by
from ..source.server_facts import Source, ask, log_status
from ..source.session import Session
from ..source.statement_answers import read_value
from ..sql.quoting import quoted
from ..sql.statement_kind import empties_table, kind_of
from .tables import Tables, look_at_tables

# How much of the newest binlog file is searched for statements; more would take too long.
_SCANNED_BYTES: Final = 16 << 20
_STATEMENT_EVENTS: Final = (IntvarEvent, RandEvent, UserVarEvent, BeginLoadQueryEvent, ExecuteLoadQueryEvent)
# Variables whose value in a session may differ from the global one.
_SESSION_VARIABLES: Final = ("binlog_format", "binlog_row_image", "sql_log_bin")
_SESSIONS: Final = (
    "SELECT t.PROCESSLIST_ID, v.VARIABLE_NAME, v.VARIABLE_VALUE FROM performance_schema.variables_by_thread v "
    "JOIN performance_schema.threads t USING (THREAD_ID) WHERE t.PROCESSLIST_ID <> CONNECTION_ID() "
    "AND (v.VARIABLE_NAME, v.VARIABLE_VALUE) NOT IN "
    "(('binlog_format', 'ROW'), ('binlog_row_image', 'FULL'), ('sql_log_bin', 'ON')) AND v.VARIABLE_NAME IN ("
    + ", ".join(f"'{name}'" for name in _SESSION_VARIABLES)
    + ")"
)

_STATUS: Final = "SHOW STATUS WHERE Variable_name LIKE 'Ssl%' OR Variable_name LIKE 'Rpl_semi_sync%'"

Row = tuple[str | None, ...]


@record(frozen=True, slots=True)
class OtherReplica:
    """A replica that is registered at the source; ``uuid`` is empty on MariaDB."""

    server_id: int
    host: str
    port: str
    uuid: str


@record(frozen=True, slots=True)
class SessionSetting:
    """A logging variable that has another value in one session than globally."""

    connection_id: str
    variable: str
    value: str


@record(frozen=True, slots=True)
class Statement:
    """A statement in the log, in place of the rows that it changed."""

    file: str
    position: int
    text: str


@record(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts. ``variables`` are global variables, ``status`` the connection's status; names are in lower case.

    ``chosen_id``: the user gave the server id, it is not random; only then the source is asked for other
    ``replicas``. ``refusal`` is the error with which the source refuses a binlog dump, None if it allows one.
    ``filters`` are the schemas of binlog_do_db (none: all are logged) and of binlog_ignore_db. ``semi_sync`` is the
    name of the variable that switches semi-synchronous replication on, and whether it is on.
    """

    options: Options
    source: Source
    chosen_id: bool
    variables: Mapping[str, str]
    status: Mapping[str, str]
    account: str
    grants: Sequence[str]
    refusal: ServerError | None
    uses_tls: bool
    offers_tls: bool
    may_see_log: bool
    filters: tuple[tuple[str, ...], tuple[str, ...]] | None
    replicas: Sequence[OtherReplica] | None
    replication: Replication
    sessions: Sequence[SessionSetting] | None
    tables: Tables | None
    semi_sync: tuple[str, bool] | None
    statement: Statement | None

    @property
    def is_mariadb(self) -> bool:
        """Whether the source is a MariaDB."""
        return self.source.is_mariadb

    @property
    def is_relay(self) -> bool:
        """Whether the source is a ``BinlogServer`` of this library, not a database server."""
        return self.source.is_relay

    @property
    def version(self) -> tuple[int, ...]:
        """The source's version, such as (8, 4, 3)."""
        return self.source.version

    def variable(self, *names: str) -> str | None:
        """The value of the first of these that the source knows."""
        return next((self.variables[name] for name in names if name in self.variables), None)

    def number(self, name: str) -> int:
        """The value of a variable or of a status variable that is a number; 0 without one."""
        text = self.variables.get(name) or self.status.get(name) or ""
        return int(text) if text.isdecimal() else 0


async def collect(session: Session, options: Options, *, chosen_id: bool) -> Facts:
    """Ask for all facts. Raises ``ConnectionLostError``; a query that the source refuses is a fact, not an error."""
    source = await ask(session)
    newest = await log_status(session, source)
    return Facts(
        options=options,
        source=source,
        chosen_id=chosen_id,
        variables=await _pairs(session, "SHOW GLOBAL VARIABLES"),
        status=await _pairs(session, _STATUS),
        account=_account(await session.query_value("SELECT CURRENT_USER()")),
        grants=[str(row[0]) for row in await rows(session, "SHOW GRANTS") or ()],
        uses_tls=session.uses_tls,
        offers_tls=Capability.SSL in session.handshake.capabilities,
        may_see_log=newest is not None or not source.log_bin,
        filters=await _filters(session, source),
        replicas=await _replicas(session, source) if chosen_id else None,
        replication=replication_of(await session.query_each(replication_questions(source)), source),
        sessions=await _sessions(session),
        tables=await look_at_tables(options),
        semi_sync=await enabled_by(session),
        statement=None if newest is None else await _first_statement(source, options, newest[0]),
        refusal=await _refusal(source, options),
    )


async def rows(session: Session, statement: str, columns: int | None = None) -> list[Row] | None:
    """The rows of a statement; None where the source refuses it. ``columns``: as in ``Session.query``."""
    try:
        found = await session.query(statement, columns)
    except ServerError:
        return None
    return [tuple(None if value is None else _text(value) for value in row) for row in found]


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


async def _pairs(session: Session, statement: str) -> dict[str, str]:
    return {str(name).lower(): value or "" for name, value in await rows(session, statement, 2) or ()}


def _account(current_user: str) -> str:
    """``user@host``, quoted as GRANT needs it."""
    user, _, host = current_user.rpartition("@")
    return "@".join(quoted(part, "'") for part in (user, host))


async def _filters(session: Session, source: Source) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    renamed = not source.is_mariadb and source.version >= (8, 2)
    found = await rows(session, "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS", 4)
    if not found:
        return None
    _, _, only, not_these = found[0]
    alone, ignored = (tuple(filter(None, (names or "").split(","))) for names in (only, not_these))
    return alone, ignored


async def _replicas(session: Session, source: Source) -> list[OtherReplica] | None:
    renamed = not source.is_mariadb and source.version >= (8, 0, 22)
    statement = "SHOW REPLICAS" if renamed else "SHOW SLAVE HOSTS"
    found = await rows(session, statement, 4 if source.is_mariadb or source.version < (5, 6) else 5)
    if found is None:
        return None
    # Server_Id, Host, Port, Source_Id and, on MySQL, Replica_UUID
    return [
        OtherReplica(
            read_value(int, server_id, statement), host or "", port or "", uuid[0] or "" if uuid else ""
        )
        for server_id, host, port, _, *uuid in found
    ]


async def _sessions(session: Session) -> list[SessionSetting] | None:
    found = await rows(session, _SESSIONS, 3)
    return None if found is None else [SessionSetting(*(value or "" for value in row)) for row in found]


async def _refusal(source: Source, options: Options) -> ServerError | None:
    """The error with which the source refuses a binlog dump for lack of a privilege; None if there is none.

    Sources check the privilege first. A client that only registered as a replica, without a dump, would stay in
    MySQL 5.6's list of replicas after it has left; the next SHOW SLAVE HOSTS would then read freed memory, and crash
    the server.
    """
    try:
        await LogScan(options, source).first_file()
    except PrivilegeError as error:
        return error
    except ReplicaError:
        # The trial reports all other errors.
        return None
    return None


async def _first_statement(source: Source, options: Options, file: str) -> Statement | None:
    """The first statement in the newest binlog file that changed rows; None if there is none."""
    first: Statement | None = None

    def visit(event: Event, file: str, position: int) -> bool:
        nonlocal first
        text = ""
        if isinstance(event, QueryEvent):
            if kind_of(event) == "dml" and not empties_table(event.sql):
                text = event.sql
        elif isinstance(event, _STATEMENT_EVENTS):
            text = type(event).__name__
        if text:
            first = Statement(event.file, event.position, text)
        return bool(text) or position > _SCANNED_BYTES

    try:
        await LogScan(options, source).walk(file, visit)
    except ReplicaError:
        # The trial reports a log that cannot be read.
        return None
    return first
