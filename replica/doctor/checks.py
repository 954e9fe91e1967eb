"""All checks of the doctor, in the order of the report. A check turns facts into findings; it asks no server."""

from collections.abc import Callable, Iterator
from typing import Final

from .connection_checks import check_clock, check_semi_sync, check_timeouts, check_tls
from .copy_checks import check_copied_tables, check_copy_log
from .facts import Facts
from .finding import Finding
from .identity_checks import check_gtids, check_server_id, check_source_id
from .log_checks import (
    check_compression,
    check_filters,
    check_logged_updates,
    check_replication_filters,
    check_retention,
    check_sessions,
    check_statement,
)
from .privileges import (
    check_copy_privileges,
    check_monitor_privilege,
    check_replication_privilege,
    check_select_privilege,
)
from .settings import check_settings
from .table_checks import check_cascades, check_generated_columns, check_primary_keys


def check_version(facts: Facts) -> Iterator[Finding]:
    """Family and version of the source, and whether it is a ``BinlogServer`` of this library."""
    family = "MariaDB" if facts.is_mariadb else "MySQL"
    version = ".".join(map(str, facts.version))
    served = ", files served by mysql-replica: check settings and tables on the server that wrote the files"
    yield Finding("version", "ok", f"{family} {version}{served if facts.is_relay else ''}")


Check = Callable[[Facts], Iterator[Finding]]
#: All checks, in the order of the report.
CHECKS: Final[tuple[Check, ...]] = (
    check_version,
    check_tls,
    check_replication_privilege,
    check_monitor_privilege,
    check_select_privilege,
    check_settings,
    check_source_id,
    check_server_id,
    check_gtids,
    check_retention,
    check_filters,
    check_logged_updates,
    check_replication_filters,
    check_sessions,
    check_statement,
    check_compression,
    check_semi_sync,
    check_timeouts,
    check_clock,
    check_primary_keys,
    check_cascades,
    check_generated_columns,
    check_copy_privileges,
    check_copied_tables,
    check_copy_log,
)
# Skipped for a BinlogServer, which has no settings and no tables of its own.
_SERVERS_ONLY: Final = frozenset(
    {
        check_select_privilege,
        check_settings,
        check_retention,
        check_filters,
        check_logged_updates,
        check_replication_filters,
        check_primary_keys,
        check_cascades,
        check_generated_columns,
        check_copy_privileges,
        check_copied_tables,
        check_copy_log,
    }
)


def all_findings(facts: Facts) -> list[Finding]:
    """The findings of all checks that apply to this source."""
    checks = [check for check in CHECKS if not (facts.is_relay and check in _SERVERS_ONLY)]
    return [finding for check in checks for finding in check(facts)]
