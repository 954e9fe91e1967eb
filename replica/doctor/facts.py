"""What a source tells the doctor: settings, privileges, other replicas, tables, and what stands in its newest log.

It asks over one connection, as the stream's own user; where that user may not ask, the fact is None. It judges
nothing.
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
from ..source.log_scan import LogScan
from ..source.semi_sync import enabled_by
from ..source.server_facts import Source, ask, log_status
from ..source.session import Session
from ..sql.quoting import quoted
from ..sql.statement_kind import empties_table, statement_kind
from .tables import Tables, look_at_tables, quote_plainly

# Of the newest file, from its beginning; more of it would only take longer.
_SCANNED_BYTES: Final = 16 << 20
_STATEMENT_EVENTS: Final = (IntvarEvent, RandEvent, UserVarEvent, BeginLoadQueryEvent, ExecuteLoadQueryEvent)
# Of sessions, these may differ from what is set for all.
_OF_SESSIONS: Final = ("binlog_format", "binlog_row_image", "sql_log_bin")
# What replica.server says of itself.
_RELAY: Final = "mysql-replica"
_STRAYS: Final = (
    "SELECT t.PROCESSLIST_ID, v.VARIABLE_NAME, v.VARIABLE_VALUE FROM performance_schema.variables_by_thread v "
    "JOIN performance_schema.threads t USING (THREAD_ID) WHERE t.PROCESSLIST_ID <> CONNECTION_ID() "
    "AND (v.VARIABLE_NAME, v.VARIABLE_VALUE) NOT IN "
    "(('binlog_format', 'ROW'), ('binlog_row_image', 'FULL'), ('sql_log_bin', 'ON')) AND v.VARIABLE_NAME IN ("
    + ", ".join(f"'{name}'" for name in _OF_SESSIONS)
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
class Stray:
    """A session whose changes are logged otherwise than the settings say."""

    connection_id: str
    variable: str
    value: str


@record(frozen=True, slots=True)
class Statement:
    """Rows that were changed by a statement, which stands in the log instead of them."""

    file: str
    position: int
    text: str


@record(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that was asked. ``variables`` are the global ones, ``status`` that of the connection, names in lower case.

    ``chosen_id``: the server id is the user's, not one that was made up; only then the other ``replicas`` are asked
    for. ``refusal`` is what the source says to who asks for its log, None where it lets us. ``filters`` are the
    schemas that alone are logged (all, if there are none), and those that are not. ``semi_sync`` is the variable that
    switches it on, and whether it is on.
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
    is_replica: bool | None
    strays: Sequence[Stray] | None
    tables: Tables | None
    semi_sync: tuple[str, bool] | None
    statement: Statement | None

    @property
    def is_mariadb(self) -> bool:
        """Whether the source is a MariaDB."""
        return self.source.is_mariadb

    @property
    def is_relay(self) -> bool:
        """Whether it is no server, but files that this library serves."""
        return self.variables.get("version_comment") == _RELAY

    @property
    def version(self) -> tuple[int, ...]:
        """The source's version."""
        return self.source.version

    def variable(self, *names: str) -> str | None:
        """The value of the first of these that the source knows."""
        return next((self.variables[name] for name in names if name in self.variables), None)


async def collect(session: Session, options: Options, *, chosen_id: bool) -> Facts:
    """Ask for everything. Raises ``ConnectionLostError``; refusals are facts."""
    source = await ask(session)
    newest = await log_status(session, source)
    await quote_plainly(session)
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
        is_replica=await _is_replica(session, source),
        strays=await _strays(session),
        tables=await look_at_tables(options),
        semi_sync=await enabled_by(session),
        statement=None if newest is None else await _first_statement(source, options, newest[0]),
        refusal=await _refusal(source, options),
    )


async def rows(session: Session, statement: str) -> list[Row] | None:
    """The rows of a statement; None where the source refuses it."""
    try:
        found = await session.query(statement)
    except ServerError:
        return None
    return [tuple(None if value is None else _text(value) for value in row) for row in found]


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


async def _pairs(session: Session, statement: str) -> dict[str, str]:
    return {str(name).lower(): value or "" for name, value, *_ in await rows(session, statement) or ()}


def _account(current_user: str) -> str:
    """``user@host`` as it stands in GRANT."""
    user, _, host = current_user.rpartition("@")
    return "@".join(quoted(part, "'") for part in (user, host))


async def _filters(session: Session, source: Source) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    renamed = not source.is_mariadb and source.version >= (8, 2)
    found = await rows(session, "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS")
    if not found:
        return None
    _, _, only, not_these, *_ = found[0]
    alone, ignored = (tuple(filter(None, (names or "").split(","))) for names in (only, not_these))
    return alone, ignored


async def _replicas(session: Session, source: Source) -> list[OtherReplica] | None:
    renamed = not source.is_mariadb and source.version >= (8, 0, 22)
    found = await rows(session, "SHOW REPLICAS" if renamed else "SHOW SLAVE HOSTS")
    if found is None:
        return None
    # Server_Id, Host, Port, Source_Id and, on MySQL, Replica_UUID
    return [
        OtherReplica(int(row[0] or 0), row[1] or "", row[2] or "", (row[4] or "") if len(row) > 4 else "")
        for row in found
    ]


async def _is_replica(session: Session, source: Source) -> bool | None:
    renamed = not source.is_mariadb and source.version >= (8, 0, 22)
    found = await rows(session, "SHOW REPLICA STATUS" if renamed else "SHOW SLAVE STATUS")
    return None if found is None else bool(found)


async def _strays(session: Session) -> list[Stray] | None:
    found = await rows(session, _STRAYS)
    return None if found is None else [Stray(*(value or "" for value in row)) for row in found]


async def _refusal(source: Source, options: Options) -> ServerError | None:
    """Asked for the log, which a source refuses before anything else.

    Who registers as a replica and then leaves without a dump stays in MySQL 5.6's list, and the next one who asks for
    the list makes it read memory that is not there any more: it dies.
    """
    try:
        await LogScan(options, source).first_file()
    except PrivilegeError as error:
        return error
    except ReplicaError:
        # That is the trial's to tell.
        return None
    return None


async def _first_statement(source: Source, options: Options, file: str) -> Statement | None:
    """The first change of rows that stands in the newest file as a statement."""
    first: Statement | None = None

    def visit(event: Event, file: str, position: int) -> bool:
        nonlocal first
        text = ""
        if isinstance(event, QueryEvent):
            if statement_kind(event.sql) == "dml" and not empties_table(event.sql):
                text = event.sql
        elif isinstance(event, _STATEMENT_EVENTS):
            text = type(event).__name__
        if text:
            first = Statement(event.file, event.position, text)
        return bool(text) or position > _SCANNED_BYTES

    try:
        await LogScan(options, source).walk(file, visit)
    except ReplicaError:
        # Whether the log can be read at all, the trial says.
        return None
    return first
