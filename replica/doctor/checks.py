"""All checks of the doctor, in the order in which they are told: each makes findings of facts and asks nobody."""

from collections.abc import Callable, Iterator
from typing import Final

from .connection_checks import check_clock, check_semi_sync, check_timeouts, check_tls
from .facts import Facts
from .finding import Finding
from .identity_checks import check_gtids, check_server_id, check_source_id
from .log_checks import (
    check_compression,
    check_filters,
    check_logged_updates,
    check_retention,
    check_statement,
    check_strays,
)
from .privileges import check_monitor_privilege, check_replication_privilege, check_select_privilege
from .settings import check_settings
from .table_checks import check_cascades, check_primary_keys


def check_version(facts: Facts) -> Iterator[Finding]:
    """Which server it is, and whether it is one that is tested."""
    family = "MariaDB" if facts.is_mariadb else "MySQL"
    version = ".".join(map(str, facts.version))
    served = ", served by mysql-replica: have its settings and tables looked at where the files were written"
    yield Finding("version", "ok", f"{family} {version}{served if facts.is_relay else ''}")


Check = Callable[[Facts], Iterator[Finding]]
#: All checks, in the order in which they are told.
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
    check_strays,
    check_statement,
    check_compression,
    check_semi_sync,
    check_timeouts,
    check_clock,
    check_primary_keys,
    check_cascades,
)
# A relay has settings and tables of nobody.
_OF_SERVERS: Final = frozenset(
    {
        check_select_privilege,
        check_settings,
        check_retention,
        check_filters,
        check_logged_updates,
        check_primary_keys,
        check_cascades,
    }
)


def all_findings(facts: Facts) -> list[Finding]:
    """What all checks find that apply."""
    checks = [check for check in CHECKS if not (facts.is_relay and check in _OF_SERVERS)]
    return [finding for check in checks for finding in check(facts)]
