"""The system variables of the served source, as far as replicas, tools and clients ask for them.

A table maps each name to the function that computes its value. SHOW prints ON and OFF, SELECT prints 1 and 0 instead.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from protocol.gtid import GtidSet, MariadbGtidSet
from protocol.records import record

from ..source.server_facts import RELAY_COMMENT
from .gtids import LogGtids
from .identity import Identity
from .replica_sql import SqlError
from .served_log import ServedLog

_UNKNOWN_VARIABLE: Final = 1193
_SWITCHES: Final = frozenset(
    {
        "log_bin",
        "log_bin_compress",
        "read_only",
        "super_read_only",
        "rpl_semi_sync_source_enabled",
        "rpl_semi_sync_master_enabled",
    }
)


@record(frozen=True, slots=True)
class Facts:
    """The facts that variables are computed from."""

    log: ServedLog
    gtids: LogGtids
    identity: Identity
    port: int
    semi_sync: bool

    async def executed(self) -> GtidSet | MariadbGtidSet:
        """All transactions of the log."""
        return (await self.gtids.state()).last if self.identity.is_mariadb else await self.gtids.executed()


async def _state(facts: Facts) -> str:
    return ",".join(map(str, (await facts.gtids.state()).gtids()))


async def _executed(facts: Facts) -> str:
    return str(await facts.executed())


async def _mode(facts: Facts) -> str:
    return await facts.gtids.mode()


async def _purged(facts: Facts) -> str:
    return str(facts.gtids.purged())


async def _checksum(facts: Facts) -> str:
    return "CRC32" if facts.log.newest_head().has_checksums else "NONE"


def _fixed(text: str) -> Callable[[Facts], Awaitable[str]]:
    async def value(facts: Facts) -> str:
        return text

    return value


def _fact(read: Callable[[Facts], object]) -> Callable[[Facts], Awaitable[str]]:
    async def value(facts: Facts) -> str:
        return str(read(facts))

    return value


_Variables = Mapping[str, Callable[[Facts], Awaitable[str]]]
_COMMON: Final[_Variables] = MappingProxyType(
    {
        "autocommit": _fixed("ON"),
        "binlog_checksum": _checksum,
        # Files may hold statements, too. Clients ask in order to know whether they can get rows.
        "binlog_format": _fixed("ROW"),
        "log_bin": _fixed("ON"),
        "lower_case_table_names": _fixed("0"),
        "max_allowed_packet": _fixed(str(1 << 30)),
        "port": _fact(lambda facts: facts.port),
        "read_only": _fixed("ON"),
        "server_id": _fact(lambda facts: facts.identity.server_id),
        "time_zone": _fixed("SYSTEM"),
        "version": _fact(lambda facts: facts.identity.version),
        "version_comment": _fixed(RELAY_COMMENT),
    }
)
_MYSQL: Final[_Variables] = MappingProxyType(
    {
        "gtid_executed": _executed,
        "gtid_mode": _mode,
        "gtid_owned": _fixed(""),
        "gtid_purged": _purged,
        "server_uuid": _fact(lambda facts: facts.identity.server_uuid),
        "super_read_only": _fixed("ON"),
    }
)
_MARIADB: Final[_Variables] = MappingProxyType(
    {
        "gtid_binlog_pos": _executed,
        "gtid_binlog_state": _state,
        "gtid_current_pos": _executed,
        "gtid_domain_id": _fixed("0"),
        "gtid_slave_pos": _fixed(""),
        "gtid_strict_mode": _fixed("0"),
    }
)
# Only with semi_sync: a server without the plugin does not know these variables, and then replicas send no ACK.
_SEMI_SYNC: Final[Mapping[bool, _Variables]] = MappingProxyType(
    {
        False: MappingProxyType({"rpl_semi_sync_source_enabled": _fixed("ON")}),
        True: MappingProxyType({"rpl_semi_sync_master_enabled": _fixed("ON")}),
    }
)


def variables_of(facts: Facts) -> dict[str, Callable[[Facts], Awaitable[str]]]:
    """The variables of this source."""
    is_mariadb = facts.identity.is_mariadb
    found = {**_COMMON, **(_MARIADB if is_mariadb else _MYSQL)}
    if facts.semi_sync:
        found |= _SEMI_SYNC[is_mariadb]
    return found


async def selected(facts: Facts, name: str) -> str:
    """The value of ``SELECT @@name``. Raises ``SqlError`` for an unknown variable."""
    read = variables_of(facts).get(name)
    if read is None:
        raise SqlError(_UNKNOWN_VARIABLE, "HY000", f"Unknown system variable '{name}'")
    value = await read(facts)
    return str(int(value == "ON")) if name in _SWITCHES else value
