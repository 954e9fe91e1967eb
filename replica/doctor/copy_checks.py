"""The doctor's checks of an initial copy: can the selected tables be copied, and is the log kept so long?"""

from collections.abc import Iterator
from typing import Final

from ..statistics.figures import number_of, size_text
from .facts import Facts
from .finding import Finding, Remedy, listed, sql, stream_option
from .log_checks import GOOD_RETENTION, retention
from .settings import set_variable

# The engines whose read views a copy needs.
_ENGINES: Final = frozenset({"innodb", "rocksdb"})
# What a slow consumer copies in a second; the log should be kept for twice the time.
_ROWS_PER_SECOND: Final = 10_000
_DAY: Final = 86400


def check_copied_tables(facts: Facts) -> Iterator[Finding]:
    """Engines without read views, and tables without a key by which they can be read in chunks."""
    name = "copy: tables"
    if facts.tables is None:
        return
    copied = facts.tables.copied
    others = [table for table in copied if table.engine.lower() not in _ENGINES]
    keyless = [table.name for table in copied if not table.has_key and table not in others]
    is_exact = _has_exact_gtids(facts)
    messages: list[str] = []
    remedies: tuple[Remedy, ...] = ()
    if facts.tables.unmatched:
        messages.append(
            f"no table matches {listed(facts.tables.unmatched)}, or the user may not see it: a copy cannot begin"
        )
    if others:
        named = [f"{table.name} ({table.engine or 'no engine'})" for table in others]
        messages.append(
            f"{listed(named)}: an engine without read views cannot be copied, and refuses the copy"
        )
        remedies += sql(*(f"ALTER TABLE {table.name} ENGINE=InnoDB" for table in others))
    if keyless and not is_exact:
        messages.append(
            f"{listed(keyless)}: without a primary key, or a unique key without NULL, a table can be copied here "
            "only with locks on its rows (MySQL 5.7 and later with GTIDs does without)"
        )
        remedies += stream_option("snapshot_locking=rows")
    if messages:
        yield Finding(name, "warning", "; ".join(messages), remedies)
    elif keyless:
        message = f"{listed(keyless)}: without a key a table is copied as one unit, and anew after a kill"
        yield Finding(name, "ok", message)
    else:
        yield Finding(name, "ok", f"{number_of(len(copied), 'table')} can be copied, in chunks by their keys")


def _has_exact_gtids(facts: Facts) -> bool:
    return (
        not facts.is_mariadb
        and facts.version >= (5, 7)
        and (facts.variable("gtid_mode") or "").upper() == "ON"
        and (facts.variable("binlog_order_commits") or "").upper() in ("ON", "1")
    )


def check_copy_log(facts: Facts) -> Iterator[Finding]:
    """The log must be kept until the copy has ended, and a killed copy goes on only while its place is there."""
    name = "copy: log"
    if facts.tables is None:
        return
    rows = sum(table.rows for table in facts.tables.copied)
    size = size_text(sum(table.size for table in facts.tables.copied))
    what = f"the selected tables have about {rows:,} rows ({size})"
    limit = facts.number("max_binlog_total_size")
    variable, seconds = retention(facts)
    if limit:
        message = f"{what}, and the source keeps {limit} bytes of its log: a copy during which more is written fails"
        yield Finding(name, "warning", message, set_variable(facts, "max_binlog_total_size", "0"))
    elif not seconds or facts.variable("binlog_expire_logs_auto_purge") == "OFF":
        yield Finding(name, "ok", f"{what}; the log is kept for ever, so a killed copy can go on at any time")
    elif 2 * rows / _ROWS_PER_SECOND > seconds:
        message = f"{what}, and the log is kept for {seconds / 3600:g} hours: a copy that lasts longer fails"
        yield Finding(name, "warning", message, set_variable(facts, variable, GOOD_RETENTION[variable]))
    else:
        days = f"{seconds / _DAY:g} days"
        yield Finding(name, "ok", f"{what}; a copy has to end, and a killed one to go on, within {days}")
