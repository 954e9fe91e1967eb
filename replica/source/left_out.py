"""Changes that a server's log leaves out: replicated changes, and changes of tables that filters name.

A replica without log_replica_updates (MariaDB's default, there log_slave_updates) logs nothing that it replicates: a
stream that waits there gets nothing, and then the rows that are written after the promotion. A replica with filters
(replicate_ignore_table, CHANGE REPLICATION FILTER) does not execute changes of some tables; with binlog_do_db or
binlog_ignore_db a server does not log some schemas. GTID sets do not tell: they have these transactions.

A stream may begin at such a server, and a warning is logged. It does not move there from another one, but for
MariaDB's filters by domain (IGNORE_DOMAIN_IDS), which do not tell what they leave out.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from protocol.conversation.messages import TextValue
from protocol.errors import ConnectionLostError, ServerError, SourceChangedError
from protocol.records import record

from ..config.log_facts import log_facts
from ..config.options import Options
from ..config.selection import Selection
from ..config.table_filter import TableFilter, is_exact, split_pattern
from ..sql.quoting import like_expression
from .server_facts import RUNNING_REPLICATION, Identity, Source, replica_status_statement, status_question
from .session import Session
from .statement_answers import Answer, Question

_LOGGER: Final = logging.getLogger(__name__)

_KINDS: Final = ("do_db", "ignore_db", "do_table", "ignore_table", "wild_do_table", "wild_ignore_table")
_CHANNEL_FILTERS: Final = tuple(f"replicate_{kind}" for kind in _KINDS)
_LOG_FILTERS: Final = ("binlog_do_db", "binlog_ignore_db")
# The place of Replicate_Do_DB among the columns of a channel's status. MariaDB has two more in front.
_FIRST_FILTER: Final = 12
_SOURCE_ID: Final = 39
# Replicate_Do_Domain_Ids and the next column are MariaDB's. Replicate_Rewrite_DB is where MariaDB 10.6 has a number.
_DOMAIN_FILTERS: Final = ("replicate_do_domain_ids", "replicate_ignore_domain_ids")
_FIRST_DOMAIN_FILTER: Final = 44
_REWRITE: Final = "replicate_rewrite_db"
_REWRITE_MARIADB, _REWRITE_MYSQL = 53, 54
# (from,to) of MySQL, from->to of MariaDB.
_REWRITTEN: Final = re.compile(r"\(([^,()]+),([^,()]+)\)|([^,>]+)->([^,]+)")
# Cloud providers filter their servers' own tables. Only a user who names their schema wants them.
_INTERNAL: Final = frozenset({"mysql", "sys", "information_schema", "performance_schema", "innodb_memcache"})

#: Names of filters, such as replicate_do_db, and their values as a server shows them: lists with commas.
Filters = Mapping[str, str]


@record(frozen=True, slots=True)
class Channel:
    """A channel of a replica: its filters, and the server_id of its source as text; empty if it is not known."""

    filters: Filters
    source_id: str = ""


@record(frozen=True, slots=True)
class Replication:
    """Whether a server is a replica (None: it does not say), and its channels.

    ``hides``: the user may not see filters by domain, nor those of MariaDB's named connections.
    """

    is_replica: bool | None
    channels: tuple[Channel, ...] = ()
    hides: bool = False


def replication_questions(source: Source) -> list[Question]:
    """The questions for ``replication_of``. MariaDB shows a channel's status to few users, and its filters to all."""
    status = Question(replica_status_statement(source))
    if not source.is_mariadb:
        return [status]
    return [
        status,
        Question(RUNNING_REPLICATION, 2),
        Question(r"SHOW GLOBAL VARIABLES LIKE 'replicate\_%'", 2),
    ]


def replication_of(answers: Sequence[Answer], source: Source) -> Replication:
    """The replication of a server by its answers to ``replication_questions``."""
    status, *others = answers
    if not isinstance(status, ServerError):
        return Replication(bool(status), tuple(_channel(row, source) for row in status))
    if not others or any(isinstance(answer, ServerError) for answer in others):
        return Replication(None)
    running, variables = (dict(answer) for answer in others if not isinstance(answer, ServerError))
    if running.get("Slaves_running", "0") == "0":
        return Replication(None)
    names = (*_CHANNEL_FILTERS, _REWRITE)
    return Replication(True, (Channel(_filters(names, map(variables.get, names))),), hides=True)


def _channel(row: Sequence[TextValue], source: Source) -> Channel:
    row = row[2 * source.is_mariadb :]
    filters = {**_filters(_CHANNEL_FILTERS, row[_FIRST_FILTER:])}
    if source.is_mariadb:
        filters |= _filters(_DOMAIN_FILTERS, row[_FIRST_DOMAIN_FILTER:])
    filters |= _filters([_REWRITE], row[_REWRITE_MARIADB if source.is_mariadb else _REWRITE_MYSQL :])
    return Channel(filters, str(row[_SOURCE_ID]) if len(row) > _SOURCE_ID else "")


def _filters(names: Sequence[str], values: Iterator[TextValue] | Sequence[TextValue]) -> Filters:
    texts = (
        value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "") for value in values
    )
    return dict(zip(names, texts, strict=False))


async def check_left_out(session: Session, source: Source, moved_from: Identity | None = None) -> None:
    """Log a warning, once for a stream and server, if its log lacks changes of selected tables.

    A stream that moves there from another server (``moved_from``) gets an error. ``ConnectionLostError``, which is
    tried again, for a replica that does not log what it replicates: it can be used once it is promoted.
    ``SourceChangedError`` for filters, if ``tables=`` names what they leave out.
    """
    options, told = session.options, f"left out by {source.name}"
    is_known = told in session.options.warned
    if source.is_relay or (is_known and moved_from is None):
        return
    options.warned.add(told)
    questions = replication_questions(source)
    if not source.is_semi_sync:
        # A semi-synchronous MariaDB does not answer this while it waits for this replica: see ``check_same_log``.
        questions.append(status_question(source, 4))
    answers = await session.query_each(questions)
    log: Answer = [] if source.is_semi_sync else answers.pop()
    replication = replication_of(answers, source)
    if replication.is_replica and not source.logs_replicated:
        name = "log_slave_updates" if source.is_mariadb else "log_replica_updates"
        text = (
            f"{options.address} is a replica, and has {name}=OFF: its log lacks what it replicates -- set {name} to "
            "ON, or wait until it is promoted (RESET REPLICA ALL)"
        )
        if moved_from is not None:
            raise ConnectionLostError(text)
        _warn(text, options)
    unlogged = [] if isinstance(log, ServerError) else [_filters(_LOG_FILTERS, row[2:]) for row in log]
    lost = [left_out(filters, options) for filters in unlogged]
    by_channel = [left_out(channel.filters, options) for channel in replication.channels]
    found = sorted({text for texts in (*lost, *by_channel) for text in texts})
    domains = sorted({text for channel in replication.channels for text in domain_filters(channel.filters)})
    if not is_known and (domains or (replication.hides and moved_from is not None and not found)):
        _warn(_domains_text(options, domains), options)
    if not found:
        return
    text = (
        f"{options.address} leaves out changes of selected tables: {'; '.join(found)} -- take a server that logs "
        "them, or leave these tables out, too (tables=, exclude_tables=)"
    )
    if moved_from is not None and "*" not in options.tables:
        # The channel from the server before brings the tables. Without such a channel, any of them may bring them.
        pairs = list(zip(replication.channels, by_channel, strict=True))
        own = [texts for channel, texts in pairs if channel.source_id == str(moved_from[1])]
        if any(lost) or all(own or by_channel):
            raise SourceChangedError(text)
    if not is_known:
        _warn(text, options)


def _warn(text: str, options: Options) -> None:
    _LOGGER.warning("%s", text, extra=log_facts("changes-unlogged", source=options.address, reason=text))


def domain_filters(filters: Filters) -> list[str]:
    """MariaDB's filters by gtid_domain_id. Nobody can tell which tables are written in a domain."""
    return [f"{name}={value}" for name in _DOMAIN_FILTERS if (value := filters.get(name, ""))]


def _domains_text(options: Options, domains: Sequence[str]) -> str:
    if domains:
        return (
            f"{options.address} is a replica that passes over domains of its source: {'; '.join(domains)} -- if "
            "selected tables are written in these domains, take a server without this filter"
        )
    return (
        f"{options.address} is a replica, and does not show the user whether IGNORE_DOMAIN_IDS, DO_DOMAIN_IDS or "
        "filters of named connections leave out changes of selected tables -- GRANT SLAVE MONITOR ON *.* to the user"
    )


def left_out(filters: Filters, selection: Selection) -> list[str]:
    """The filters that may leave out tables of the selection, as texts such as "replicate_ignore_db=shop"."""
    tables = [split_pattern(pattern) for pattern in selection.tables]
    named = {schema for schema, _ in tables}
    wanted = TableFilter(selection.tables, selection.exclude_tables)
    rewritten = _REWRITTEN.findall(filters.get(_REWRITE, ""))
    lists = {
        name: [item.strip() for item in value.split(",") if item]
        for name, value in filters.items()
        if name not in (*_DOMAIN_FILTERS, _REWRITE)
    }
    executed = [item for name, items in lists.items() if name.endswith("do_table") for item in items]
    found = []
    for name, items in lists.items():
        if name.endswith("do_db"):
            lost = [] if named <= {*items} else items
        elif name.endswith("do_table"):
            lost = [] if all(_is_within(one, executed) for one in tables) else items
        else:
            lost = [
                item
                for item in items
                if (schema := item.partition(".")[0].replace("\\", "")) not in _INTERNAL or schema in named
                if _concerns(name, item, tables, wanted)
                if _as_pattern(item) not in selection.exclude_tables
            ]
        if lost:
            found.append(f"{name}={','.join(lost)}")
    # Its log has these changes under another name.
    pairs = [(one[0] or one[2], one[1] or one[3]) for one in rewritten]
    found += [f"{_REWRITE}={old}->{new}" for old, new in pairs if wanted.may_want_tables_of(old.strip())]
    return found


def _concerns(name: str, item: str, tables: Sequence[tuple[str, str]], wanted: TableFilter) -> bool:
    if name.endswith("_db"):
        return wanted.may_want_tables_of(item)
    schema, _, table = item.partition(".")
    if "wild" not in name:
        return wanted(schema, table)
    return any(_meet(one, schema) and _meet(other, table) for one, other in tables)


def _as_pattern(item: str) -> str:
    """The pattern of ``exclude_tables`` for the schema or tables that a filter ignores."""
    pattern = item.replace("\\", "").replace("%", "*")
    return pattern if "." in pattern else f"{pattern}.*"


def _is_within(table: tuple[str, str], executed: Sequence[str]) -> bool:
    """Whether one of these filters, with wildcards as in LIKE, lets all tables of a pattern through."""
    return any(
        all(
            like == "%" or (is_exact(part) and re.fullmatch(like_expression(like), part) is not None)
            for part, like in zip(table, item.split(".", 1), strict=False)
        )
        for item in executed
    )


def _meet(pattern: str, like: str) -> bool:
    """Whether a name may match both a pattern and a LIKE expression."""
    if is_exact(pattern):
        return re.fullmatch(like_expression(like), pattern) is not None
    return "%" in like or fnmatchcase(like.replace("\\", ""), pattern)
