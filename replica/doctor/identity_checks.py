"""The doctor's checks of identity: GTIDs, and server ids, which must be unique in a topology."""

from collections.abc import Iterator
from typing import Final

from .facts import Facts
from .finding import Finding, option_file, sql, stream_option
from .settings import set_variable

_GTID_MODES: Final = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")
# Each node counts what it logs, and not all of it is in the logs of the others: MyISAM and Aria, say. With writes to
# an Aria table beside those to InnoDB, 2,190 of 7,980 GTIDs of one node of three were unknown to the next (11.8.9).
_GALERA_GTIDS: Final = Finding(
    "wsrep_gtid_mode",
    "warning",
    "wsrep_gtid_mode is OFF: each node of the cluster counts its transactions itself, and a GTID names others on "
    "another node once only one of them has logged something, such as a write to a MyISAM table: after a failover "
    "rows are then missing or come twice",
    option_file(
        "wsrep_gtid_mode = ON  # on all nodes, with the same wsrep_gtid_domain_id and the same server_id",
        "wsrep_gtid_domain_id = 1",
        "gtid_domain_id = 2  # another one on each node",
        "log_slave_updates = ON",
    ),
)


def check_gtids(facts: Facts) -> Iterator[Finding]:
    """GTIDs, with which a stream finds its position on another server of the topology."""
    name = "gtid_mode"
    if facts.is_mariadb:
        yield _GALERA_GTIDS if _numbers_alone(facts) else Finding(name, "ok", "MariaDB always has GTIDs")
        return
    mode = (facts.variable("gtid_mode") or "OFF").upper()
    if facts.source.has_gtids:
        consistency = facts.variable("enforce_gtid_consistency")
        # A BinlogServer does not have this variable.
        yield Finding(
            name, "ok", f"{mode}, enforce_gtid_consistency = {consistency}" if consistency else mode
        )
        return
    if facts.version < (5, 7, 6):
        lines = ["gtid_mode = ON", "enforce_gtid_consistency = ON", "log_slave_updates = ON"]
        if not facts.source.log_bin:
            # A log that is on keeps its name, else all positions in it would be lost.
            lines.append("log_bin = binlog")
        remedies = option_file(*lines)
    else:
        steps = _GTID_MODES[_GTID_MODES.index(mode) + 1 :] if mode in _GTID_MODES else _GTID_MODES
        changes = (("enforce_gtid_consistency", "ON"), *(("gtid_mode", step) for step in steps))
        found = [remedy for change in changes for remedy in set_variable(facts, *change)]
        lasting = ("gtid_mode = ON", "enforce_gtid_consistency = ON")
        remedies = tuple(r for r in found if r.where == "sql" or r.text in lasting)
    yield Finding(
        name,
        "warning",
        f"gtid_mode is {mode}: after a failover the stream cannot find its position on another server "
        "(SourceChangedError)",
        remedies,
    )


def _numbers_alone(facts: Facts) -> bool:
    return (facts.variable("wsrep_on"), facts.variable("wsrep_gtid_mode")) == ("ON", "OFF")


def check_source_id(facts: Facts) -> Iterator[Finding]:
    """A source with server_id 0 refuses all replicas."""
    name = "source's server_id"
    if facts.source.server_id:
        yield Finding(name, "ok", str(facts.source.server_id))
    else:
        message = "the source has server_id 0, with which it refuses all replicas"
        yield Finding(name, "failure", message, set_variable(facts, "server_id", "1"))


def check_server_id(facts: Facts) -> Iterator[Finding]:
    """Whether the source or another of its replicas has the stream's server id."""
    name = "server_id"
    ours = facts.options.server_id
    free = stream_option(f"server_id={_free_id(facts)}")
    duplicates = [other for other in facts.replicas or () if other.server_id == ours]
    if ours == facts.source.server_id:
        yield Finding(
            name,
            "warning",
            f"{ours} is the id of the source itself: every server of a topology needs an id of its own",
            free,
        )
    elif duplicates:
        where = f"the replica at {duplicates[0].host or 'unknown'}:{duplicates[0].port} has server_id {ours} as well"
        if facts.is_mariadb:
            message = f"{where}: the source closes the older of the two connections, again and again"
            yield Finding(name, "failure", message, free)
        else:
            yield Finding(name, "warning", f"{where}: SHOW REPLICAS cannot tell them apart", free)
    elif facts.replicas is None and facts.chosen_id:
        privilege = (
            "REPLICATION MASTER ADMIN"
            if facts.is_mariadb and facts.version >= (10, 5)
            else "REPLICATION SLAVE"
        )
        yield Finding(
            name,
            "warning",
            f"the user may not list the other replicas: one of them may have server_id {ours} as well",
            sql(f"GRANT {privilege} ON *.* TO {facts.account}"),
        )
    else:
        yield Finding(name, "ok", f"{ours}" if facts.chosen_id else "chosen at random for each stream")


def _free_id(facts: Facts) -> int:
    taken = {facts.source.server_id, *(other.server_id for other in facts.replicas or ())}
    return next(number for number in range(1001, 1 << 32) if number not in taken)
