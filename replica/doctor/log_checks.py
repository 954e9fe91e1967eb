"""The doctor's checks of what the binary log holds: filters, retention, statements, sessions, compression."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

from ..config.table_filter import split_pattern
from ..source.left_out import domain_filters, left_out
from .facts import Facts
from .finding import Finding, Remedy, listed, option_file, shell, sql
from .settings import set_variable

_DAY: Final = 86400
_SHORT_RETENTION: Final = 3 * _DAY  # a long weekend
#: The variable that sets the retention -> a good value: a week.
GOOD_RETENTION: Final = MappingProxyType(
    {"expire_logs_days": "7", "binlog_expire_logs_seconds": str(7 * _DAY)}
)


def check_filters(facts: Facts) -> Iterator[Finding]:
    """binlog_do_db and binlog_ignore_db: selected schemas that the source does not log."""
    name = "log filters"
    if facts.filters is None:
        return
    alone, ignored = facts.filters
    unlogged = [schema for schema in ignored if _selects(facts.options.tables, schema)]
    lines = [f"binlog_ignore_db = {schema}" for schema in unlogged]
    if alone and any(not _is_within(pattern, alone) for pattern in facts.options.tables):
        lines += [f"binlog_do_db = {schema}" for schema in alone]
    if not lines:
        yield Finding(name, "ok", "all selected schemas are logged")
        return
    message = (
        f"only changes of {listed(alone)} are logged: the stream never sees those of other schemas"
        if alone
        else f"changes of {listed(unlogged)} are not logged: the stream never sees them"
    )
    yield Finding(name, "warning", message, tuple(Remedy("out of option file", line) for line in lines))


def _selects(patterns: Sequence[str], schema: str) -> bool:
    return any(re.match(translate(split_pattern(pattern)[0]), schema) for pattern in patterns)


def _is_within(pattern: str, schemas: Sequence[str]) -> bool:
    return split_pattern(pattern)[0] in schemas


def check_logged_updates(facts: Facts) -> Iterator[Finding]:
    """A source that is a replica itself must log what it replicates."""
    name = "log_replica_updates"
    known = next((known for known in (name, "log_slave_updates") if known in facts.variables), None)
    if known is None or facts.replication.is_replica is None:
        return
    if not facts.replication.is_replica:
        yield Finding(name, "ok", "the source is not a replica itself")
    elif facts.variables[known].upper() in ("ON", "1"):
        yield Finding(name, "ok", "ON: the source is a replica, and logs what it replicates")
    else:
        yield Finding(
            name,
            "warning",
            f"the source is a replica with {known} = OFF: its log lacks all changes that come from its own source",
            option_file(f"{known} = ON"),
        )


def check_replication_filters(facts: Facts) -> Iterator[Finding]:
    """A source that is a replica itself must not pass over changes of selected tables."""
    name = "replication filters"
    if not facts.replication.is_replica:
        return
    channels = facts.replication.channels
    found = {
        text: None
        for channel in channels
        for text in (*left_out(channel.filters, facts.options), *domain_filters(channel.filters))
    }
    if not found:
        yield Finding(name, "ok", "the source replicates all selected tables")
        return
    yield Finding(
        name,
        "warning",
        f"the source is a replica that passes over changes of selected tables ({'; '.join(found)}), by its option "
        "file or CHANGE REPLICATION FILTER: the stream never sees them",
        tuple(Remedy("out of option file", text) for text in found),
    )


def check_retention(facts: Facts) -> Iterator[Finding]:
    """How long binlog files are kept: a stream that was away for longer cannot resume."""
    name = "retention"
    size = facts.number("max_binlog_total_size")
    if size:
        yield Finding(
            name,
            "warning",
            f"the source keeps {size} bytes of binlog files and deletes older ones, even if they are new: a stream "
            "that was away meanwhile cannot resume",
            set_variable(facts, "max_binlog_total_size", "0"),
        )
        return
    variable, seconds = retention(facts)
    if not seconds or facts.variable("binlog_expire_logs_auto_purge") == "OFF":
        yield Finding(name, "ok", "binlog files are kept for ever")
    elif seconds < _SHORT_RETENTION:
        yield Finding(
            name,
            "warning",
            f"binlog files are kept for {seconds / 3600:g} hours: a stream that was away for longer cannot resume",
            set_variable(facts, variable, GOOD_RETENTION[variable]),
        )
    else:
        yield Finding(name, "ok", f"binlog files are kept for {seconds / _DAY:g} days")


def retention(facts: Facts) -> tuple[str, float]:
    """The variable that sets the retention, and its value in seconds; 0 means for ever."""
    name = "binlog_expire_logs_seconds"
    seconds = float(facts.variable(name) or 0)
    days = float(facts.variable("expire_logs_days") or 0)
    # MySQL 8.0 has both, and sets binlog_expire_logs_seconds to 0 if its option file has expire_logs_days.
    return (name, seconds) if seconds or not days else ("expire_logs_days", days * _DAY)


def check_statement(facts: Facts) -> Iterator[Finding]:
    """Changes logged as statements: before binlog_format was ROW, or by a session with its own binlog_format."""
    name = "statements in the log"
    if not facts.may_see_log:
        return
    if facts.statement is None:
        yield Finding(name, "ok", "the newest binlog file logs changes as rows")
        return
    text = " ".join(facts.statement.text.split())[:60]
    yield Finding(
        name,
        "warning",
        f"{facts.statement.file}:{facts.statement.position} logs a change as a statement: {text!r} -- a stream that "
        "starts before it does not get the changed rows; start after it",
        sql("FLUSH BINARY LOGS"),
    )


def check_sessions(facts: Facts) -> Iterator[Finding]:
    """Sessions with other logging variables than the global ones: they set their own, or are older than a change."""
    name = "sessions"
    if facts.sessions is None:
        return
    if not facts.sessions:
        yield Finding(name, "ok", "all sessions use the global logging variables")
        return
    named = [f"{one.connection_id} ({one.variable} = {one.value})" for one in facts.sessions]
    ids = dict.fromkeys(one.connection_id for one in facts.sessions)
    yield Finding(
        name,
        "warning",
        f"connections have their own logging variables: {listed(named)} -- their changes are not logged as full rows",
        sql(*(f"KILL {number}" for number in ids)),
    )


def check_compression(facts: Facts) -> Iterator[Finding]:
    """Whether zstd is installed here, if the source compresses transactions with it."""
    name = "compression"
    has_zstd = any(map(_can_import, ("compression.zstd", "backports.zstd")))
    if (facts.variable("binlog_transaction_compression") or "").upper() != "ON":
        yield Finding(name, "ok", "transactions are not compressed with zstd")
    elif has_zstd:
        yield Finding(name, "ok", "transactions are compressed with zstd, which is installed here")
    else:
        yield Finding(
            name,
            "failure",
            "transactions are compressed with zstd, which is not installed here: the first one ends the stream",
            shell("pip install 'mysql-replica[zstd]'"),
        )


def _can_import(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False
