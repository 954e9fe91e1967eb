"""The doctor's checks of what is in the log, and for how long: filters, statements, other sessions, retention."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from importlib.util import find_spec
from typing import Final

from .facts import Facts
from .finding import Finding, Remedy, listed, option_file, shell, sql
from .settings import set_variable

_DAY: Final = 86400
_SHORT_RETENTION: Final = 3 * _DAY  # a long weekend
_GOOD_RETENTION: Final = 7 * _DAY


def check_filters(facts: Facts) -> Iterator[Finding]:
    """binlog_do_db and binlog_ignore_db: what the source does not log."""
    name = "log filters"
    if facts.filters is None:
        return
    alone, ignored = facts.filters
    unlogged = [schema for schema in ignored if _selects(facts.options.tables, schema)]
    lines = [f"binlog_ignore_db = {schema}" for schema in unlogged]
    if alone and any(not _is_within(pattern, alone) for pattern in facts.options.tables):
        lines += [f"binlog_do_db = {schema}" for schema in alone]
    if not lines:
        yield Finding(name, "ok", "all that is selected is logged")
        return
    message = (
        f"only changes of {listed(alone)} are logged"
        if alone
        else f"changes of {listed(unlogged)} are not logged"
    )
    remedies = tuple(Remedy("out of option file", line) for line in lines)
    yield Finding(name, "warning", f"{message}: the stream will never see the others", remedies)


def _selects(patterns: Sequence[str], schema: str) -> bool:
    return any(re.match(translate(pattern.partition(".")[0]), schema) for pattern in patterns)


def _is_within(pattern: str, schemas: Sequence[str]) -> bool:
    return pattern.partition(".")[0] in schemas


def check_logged_updates(facts: Facts) -> Iterator[Finding]:
    """A source that is a replica itself has to log what it replicates."""
    name = "log_replica_updates"
    known = next((known for known in (name, "log_slave_updates") if known in facts.variables), None)
    if known is None or facts.is_replica is None:
        return
    if not facts.is_replica:
        yield Finding(name, "ok", "the source is not a replica itself")
    elif facts.variables[known].upper() in ("ON", "1"):
        yield Finding(name, "ok", "ON: what the source replicates is in its log")
    else:
        yield Finding(
            name,
            "warning",
            f"the source is a replica, and with {known} OFF its log lacks all that it has from its own source",
            option_file(f"{known} = ON"),
        )


def check_retention(facts: Facts) -> Iterator[Finding]:
    """How long the log is kept: a stream that was away for longer cannot go on."""
    name = "retention"
    size = int(facts.variable("max_binlog_total_size") or 0)
    if size:
        yield Finding(
            name,
            "warning",
            f"the source keeps {size} bytes of its log, however young they are: a stream that was away meanwhile "
            "cannot go on",
            set_variable(facts, "max_binlog_total_size", "0"),
        )
        return
    variable, seconds = _retention(facts)
    if not seconds or facts.variable("binlog_expire_logs_auto_purge") == "OFF":
        yield Finding(name, "ok", "the log is kept for ever")
    elif seconds < _SHORT_RETENTION:
        days = variable == "expire_logs_days"
        yield Finding(
            name,
            "warning",
            f"the log is kept for {seconds / 3600:g} hours: a stream that was away for longer cannot go on",
            set_variable(facts, variable, str(_GOOD_RETENTION // (_DAY if days else 1))),
        )
    else:
        yield Finding(name, "ok", f"the log is kept for {seconds / _DAY:g} days")


def _retention(facts: Facts) -> tuple[str, float]:
    """The variable that rules it, and its value in seconds; 0 for ever."""
    name = "binlog_expire_logs_seconds"
    seconds = float(facts.variable(name) or 0)
    days = float(facts.variable("expire_logs_days") or 0)
    # MySQL 8.0 has both, and sets the seconds to 0 where its option file has the days.
    return (name, seconds) if seconds or not days else ("expire_logs_days", days * _DAY)


def check_statement(facts: Facts) -> Iterator[Finding]:
    """Statements in the log, from before its format was ROW, or from sessions that have their own."""
    name = "statements in the log"
    if not facts.may_see_log:
        return
    if facts.statement is None:
        yield Finding(name, "ok", "the newest file holds rows")
        return
    text = " ".join(facts.statement.text.split())[:60]
    yield Finding(
        name,
        "warning",
        f"{facts.statement.file}:{facts.statement.position} holds rows that were changed by a statement: {text!r} "
        "-- a stream from there on does not get them; begin behind it",
        sql("FLUSH BINARY LOGS"),
    )


def check_strays(facts: Facts) -> Iterator[Finding]:
    """Sessions with settings of their own, older than the global ones, or set by themselves."""
    name = "sessions"
    if facts.strays is None:
        return
    if not facts.strays:
        yield Finding(name, "ok", "all sessions log as the settings say")
        return
    told = [f"{stray.connection_id} ({stray.variable} = {stray.value})" for stray in facts.strays]
    ids = dict.fromkeys(stray.connection_id for stray in facts.strays)
    yield Finding(
        name,
        "warning",
        f"connections have settings of their own: {listed(told)} -- what they change is not logged as rows",
        sql(*(f"KILL {number}" for number in ids)),
    )


def check_compression(facts: Facts) -> Iterator[Finding]:
    """Compressed transactions need zstd here."""
    name = "compression"
    has_zstd = any(map(_can_import, ("compression.zstd", "backports.zstd")))
    if (facts.variable("binlog_transaction_compression") or "").upper() != "ON":
        yield Finding(name, "ok", "transactions are not compressed, or in a way that needs nothing more")
    elif has_zstd:
        yield Finding(name, "ok", "transactions are compressed, and zstd is here")
    else:
        yield Finding(
            name,
            "failure",
            "transactions are compressed, and zstd is missing here: the first one ends the stream",
            shell("pip install 'mysql-replica[zstd]'"),
        )


def _can_import(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False
