"""The doctor's checks of privileges: may the stream's user replicate, find the log's end, and look up columns?"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from protocol.records import field, record

from ..config.table_filter import is_exact, split_pattern
from ..sql.quoting import identifier, like_expression
from .facts import Facts
from .finding import Finding, listed, sql, stream_option

# MariaDB's name, since 10.5, for this part of REPLICATION CLIENT.
_MONITOR: Final = "BINLOG MONITOR"


def check_replication_privilege(facts: Facts) -> Iterator[Finding]:
    """REPLICATION SLAVE, tested with a binlog dump."""
    name = "replication privilege"
    if facts.refusal is None:
        yield Finding(name, "ok", "the user may read the binary log")
        return
    yield Finding(
        name,
        "failure",
        f"the user may not read the binary log: {facts.refusal.message}",
        sql(f"GRANT REPLICATION SLAVE ON *.* TO {facts.account}"),
    )


def check_monitor_privilege(facts: Facts) -> Iterator[Finding]:
    """REPLICATION CLIENT or BINLOG MONITOR, tested with SHOW BINARY LOG STATUS."""
    name = "monitor privilege"
    if facts.may_see_log:
        yield Finding(name, "ok", "the user may ask where the log ends")
        return
    yield Finding(
        name,
        "warning",
        "the user may not ask where the log ends: without GTIDs, and for a start or stop at a time, the stream has "
        "to read the log to find its end, and the doctor cannot check the log's content",
        sql(f"GRANT {_monitor(facts)} ON *.* TO {facts.account}"),
    )


def check_select_privilege(facts: Facts) -> Iterator[Finding]:
    """SELECT on the selected tables, if the log has no column names."""
    name = "select privilege"
    if (facts.variable("binlog_row_metadata") or "").upper() == "FULL":
        yield Finding(name, "ok", "not needed: the log has column names")
        return
    missing = _unreadable(facts.grants, facts.options.tables)
    if not missing:
        yield Finding(name, "ok", "the stream can read the columns of the tables")
        return
    effect = "columns are called @1, @2...; the doctor does not see missing primary keys and cascades there"
    if readable := _readable_part(facts):
        lack = f"may read only those of {listed(readable)}: elsewhere"
        remedies = stream_option(f"tables={','.join(readable)}")
    else:
        lack = f"may not read those of {listed(missing)}:"
        remedies = sql(*(f"GRANT SELECT ON {scope} TO {facts.account}" for scope in missing))
    yield Finding(name, "warning", f"the log has no column names, and the user {lack} {effect}", remedies)


def check_copy_privileges(facts: Facts) -> Iterator[Finding]:
    """An initial copy needs SELECT besides REPLICATION SLAVE, and the right to ask where the log ends."""
    name = "copy: privileges"
    readable = _readable_part(facts)
    # A copy takes the selected tables that the user sees.
    missing = [] if readable else _unreadable(facts.grants, facts.options.tables)
    grants = [f"GRANT SELECT ON {scope} TO {facts.account}" for scope in missing]
    if not facts.may_see_log:
        grants.append(f"GRANT {_monitor(facts)} ON *.* TO {facts.account}")
    if not grants:
        copied = f"selected tables of {listed(readable)}, and no others" if readable else "selected tables"
        yield Finding(name, "ok", f"the user may copy the {copied}")
        return
    lacks = [*(f"SELECT on {listed([scope])}" for scope in missing[:1])]
    lacks += [] if facts.may_see_log else [_monitor(facts)]
    yield Finding(
        name,
        "warning",
        f"an initial copy of the tables is not possible: no {' and no '.join(lacks)}",
        sql(*grants),
    )


def _monitor(facts: Facts) -> str:
    return _MONITOR if facts.is_mariadb and facts.version >= (10, 5) else "REPLICATION CLIENT"


_ALL_TABLES: Final = "*.*"
_NAME: Final = r"(?:`(?:[^`]|``)+`|\*)"
_GRANT: Final = re.compile(rf"GRANT (?P<privileges>.*?) ON (?P<scope>{_NAME}\.{_NAME}) TO ", re.DOTALL)
# MySQL 8.0.16 and later, with partial_revokes: what a grant ON *.* leaves out.
_REVOKE: Final = re.compile(rf"REVOKE (?P<privileges>.*?) ON (?P<scope>{_NAME}\.{_NAME}) FROM ", re.DOTALL)
_SYSTEM_SCHEMAS: Final = frozenset({"mysql", "sys", "information_schema", "performance_schema"})
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_NAMED: Final = re.compile(r"`((?:[^`]|``)+)`|(\*)")


def _unreadable(grants: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The scopes on which SELECT has to be granted to see all tables of these patterns."""
    granted = _selectable(grants, _GRANT)
    revoked = {schema for schema, _ in _selectable(grants, _REVOKE)} - {schema for schema, _ in granted}
    missing, by_table = [], _by_table(granted)
    for scope in _scopes(patterns):
        schema = _names_of(scope)[0]
        if schema in revoked or not _covers(by_table, scope):
            missing.append(scope)
        elif schema == "*":
            missing += [f"{identifier(one)}.*" for one in sorted(revoked - _SYSTEM_SCHEMAS)]
    return missing


def _readable_part(facts: Facts) -> list[str]:
    """Patterns of the tables that the user may read, if more are selected: tables of all schemas. Else empty."""
    patterns = [split_pattern(pattern) for pattern in facts.options.tables]
    if _unreadable(facts.grants, facts.options.tables) != [_ALL_TABLES]:
        return []
    return list(
        dict.fromkeys(
            f"{_pattern_of(schema)}.{tables if name == '*' else name if is_exact(name) else identifier(name)}"
            for schema, name in _selectable(facts.grants, _GRANT)
            for selected, tables in patterns
            if fnmatchcase(schema, selected) and (name == "*" or fnmatchcase(name, tables))
        )
    )


def _pattern_of(schema: str) -> str:
    r"""The schema of a grant, a pattern of LIKE, as one of ``tables=``. An underline stands for itself in both."""
    pattern = re.sub(r"\\(.)|%", lambda found: found[1] or "*", schema)
    return identifier(pattern) if "." in pattern and is_exact(pattern) else pattern.replace(".", "?")


def _names_of(scope: str) -> list[str]:
    return [(name or star).replace("``", "`") for name, star in _NAMED.findall(scope)]


def _selectable(grants: Sequence[str], statement: re.Pattern[str]) -> list[tuple[str, str]]:
    """Schema patterns (of LIKE) and tables on which SELECT is granted, or revoked; ``*`` for all."""
    found = []
    for grant in grants:
        match = statement.match(grant)
        if match is None or not re.search(r"\b(SELECT|ALL PRIVILEGES)\b(?! \()", match["privileges"]):
            continue
        parts = _names_of(match["scope"])
        if len(parts) == 2:
            found.append((parts[0], parts[1]))
    return found


def _scopes(patterns: Sequence[str]) -> list[str]:
    """The scopes of GRANT SELECT that together cover all tables of these patterns."""
    scopes = []
    for pattern in patterns:
        schema, table = split_pattern(pattern)
        if not is_exact(schema):
            return [_ALL_TABLES]
        scopes.append(f"{identifier(schema)}.{identifier(table) if is_exact(table) else '*'}")
    return list(dict.fromkeys(scopes))


@record(slots=True)
class _Schemas:
    """The schemas of grants on one table, or on all: as they are written, and the patterns among them."""

    names: set[str] = field(default_factory=set)
    patterns: dict[str, re.Pattern[str]] = field(default_factory=dict)

    def add(self, pattern: str) -> None:
        # A wildcard matches itself, too.
        self.names.add(_ESCAPED.sub(r"\1", pattern))
        if not {"%", "_"}.isdisjoint(pattern) and pattern not in self.patterns:
            self.patterns[pattern] = re.compile(like_expression(pattern))

    def cover(self, schema: str) -> bool:
        if "*" in self.names or schema == "*":
            return "*" in self.names
        return schema in self.names or any(pattern.fullmatch(schema) for pattern in self.patterns.values())


def _by_table(granted: Sequence[tuple[str, str]]) -> dict[str, _Schemas]:
    """Accounts may have thousands of grants, one for each of as many tables."""
    found: dict[str, _Schemas] = {}
    for schema, table in granted:
        found.setdefault(table, _Schemas()).add(schema)
    return found


def _covers(granted: Mapping[str, _Schemas], scope: str) -> bool:
    schema, table = _names_of(scope)
    return any(granted[one].cover(schema) for one in ("*", table) if one in granted)
