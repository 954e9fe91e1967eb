"""The doctor's checks of what the stream's user may do: replicate, ask where the log ends, look columns up."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ..sql.quoting import identifier, like_expression
from .facts import Facts
from .finding import Finding, listed, sql

# MariaDB's name since 10.5 for what was a part of REPLICATION CLIENT.
_MONITOR: Final = "BINLOG MONITOR"


def check_replication_privilege(facts: Facts) -> Iterator[Finding]:
    """REPLICATION SLAVE, found out by asking for the log."""
    name = "replication privilege"
    if facts.refusal is None:
        yield Finding(name, "ok", "the source gives us its log")
        return
    yield Finding(
        name,
        "failure",
        f"the source refuses us its log: {facts.refusal.message}",
        sql(f"GRANT REPLICATION SLAVE ON *.* TO {facts.account}"),
    )


def check_monitor_privilege(facts: Facts) -> Iterator[Finding]:
    """REPLICATION CLIENT, or BINLOG MONITOR: found out by asking where the log ends."""
    name = "monitor privilege"
    if facts.may_see_log:
        yield Finding(name, "ok", "we may ask where the log ends")
        return
    privilege = _MONITOR if facts.is_mariadb and facts.version >= (10, 5) else "REPLICATION CLIENT"
    yield Finding(
        name,
        "warning",
        "we may not ask where the log ends: without GTIDs, and for a start or stop at a time, the stream has to read "
        "the log to find it, and this check-up sees less",
        sql(f"GRANT {privilege} ON *.* TO {facts.account}"),
    )


def check_select_privilege(facts: Facts) -> Iterator[Finding]:
    """SELECT on what is selected, where the log has no column names."""
    name = "select privilege"
    if (facts.variable("binlog_row_metadata") or "").upper() == "FULL":
        yield Finding(name, "ok", "not needed: the log has the column names")
        return
    granted = _selectable(facts.grants)
    missing = [scope for scope in _scopes(facts.options.tables) if not _covers(granted, scope)]
    if not missing:
        yield Finding(name, "ok", "column names can be looked up")
        return
    yield Finding(
        name,
        "warning",
        f"column names are not in the log, and those of {listed(missing)} cannot be looked up: they are @1, @2...; "
        "tables without primary key and cascades cannot be seen here, either",
        sql(*(f"GRANT SELECT ON {scope} TO {facts.account}" for scope in missing)),
    )


_NAME: Final = r"(?:`(?:[^`]|``)+`|\*)"
_GRANT: Final = re.compile(rf"GRANT (?P<privileges>.*?) ON (?P<scope>{_NAME}\.{_NAME}) TO ", re.DOTALL)
_NAMED: Final = re.compile(r"`((?:[^`]|``)+)`|(\*)")
_PLAIN: Final = re.compile(r"[^*?\[\]]+")


def _selectable(grants: Sequence[str]) -> list[tuple[str, str]]:
    """Schema patterns (of LIKE) and tables of which SELECT is granted; ``*`` for all."""
    found = []
    for grant in grants:
        match = _GRANT.match(grant)
        if match is None or not re.search(r"\b(SELECT|ALL PRIVILEGES)\b(?! \()", match["privileges"]):
            continue
        parts = [(name or star).replace("``", "`") for name, star in _NAMED.findall(match["scope"])]
        if len(parts) == 2:
            found.append((parts[0], parts[1]))
    return found


def _scopes(patterns: Sequence[str]) -> list[str]:
    """What SELECT is to be granted on, so that all tables of these patterns are covered."""
    scopes = []
    for pattern in patterns:
        schema, _, table = pattern.partition(".")
        if not _PLAIN.fullmatch(schema):
            return ["*.*"]
        scopes.append(f"{identifier(schema)}.{identifier(table) if _PLAIN.fullmatch(table) else '*'}")
    return list(dict.fromkeys(scopes))


def _covers(granted: Sequence[tuple[str, str]], scope: str) -> bool:
    schema, table = ((name or star).replace("``", "`") for name, star in _NAMED.findall(scope))
    return any(
        (its_schema == "*" or (schema != "*" and re.fullmatch(like_expression(its_schema), schema)))
        and its_table in ("*", table)
        for its_schema, its_table in granted
    )
