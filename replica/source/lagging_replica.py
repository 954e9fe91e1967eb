"""Finds out whether a server will get transactions that it lacks, because it is a replica that lags behind.

MySQL: it has received them, or it is of the group that gave them their GTIDs. MariaDB: its replication runs, and the
domain has not passed their sequence numbers. Few users have the privilege to see what was received there, or what a
member of a group has received (performance_schema): SHOW REPLICA STATUS leaves the group's channels out.
"""

from collections.abc import Sequence
from typing import Final

from protocol.errors import ConnectionLostError, ServerError
from protocol.gtid import AnyGtidSet, GtidSet, MariadbGtid, MariadbGtidSet

from .server_facts import RUNNING_REPLICATION, Source, replica_status_statement
from .server_name import variables_of, variables_statement
from .session import Session
from .statement_answers import read_value

# The place of Retrieved_Gtid_Set among the columns, from MySQL 5.6 to 9.7 (rpl_replica.cc: show_slave_status).
_RECEIVED: Final = 51
# What a group gives GTIDs by; the second is AUTOMATIC by default, for the first. Without the plugin there are none.
_GROUP: Final = ("group_replication_group_name", "group_replication_view_change_uuid")


async def check_lag(
    lacking: AnyGtidSet, session: Session, source: Source, held: Sequence[MariadbGtid] = ()
) -> None:
    """Raise ``ConnectionLostError``, which is tried again, if the transactions will come.

    ``held``: the newest transactions that the server has.
    """
    if isinstance(lacking, GtidSet):
        is_coming = lacking <= await _received(session, source) or await _are_of_group(lacking, session)
    else:
        is_coming = not _are_passed(lacking, held) and await _replicates(session)
    if is_coming:
        raise ConnectionLostError(
            f"{session.options.address} is a replica that lags behind, and does not have these transactions of the "
            f"start set yet: {lacking}"
        )


async def _received(session: Session, source: Source) -> GtidSet:
    sql = replica_status_statement(source)
    received = GtidSet()
    try:
        channels = await session.query(sql)
    except ServerError:
        # The user lacks the privilege to see them.
        return received
    for channel in channels:
        received |= read_value(GtidSet, channel[_RECEIVED] if len(channel) > _RECEIVED else "", sql)
    return received


async def _are_of_group(lacking: GtidSet, session: Session) -> bool:
    found = variables_of(await session.query(variables_statement(_GROUP), 2))
    return {str(one.source_id) for one in lacking.intervals()} <= {
        found.get(name, "").lower() for name in _GROUP
    }


def _are_passed(lacking: MariadbGtidSet, held: Sequence[MariadbGtid]) -> bool:
    return any(
        one.domain_id == gtid.domain_id and one.sequence >= gtid.sequence for gtid in lacking for one in held
    )


async def _replicates(session: Session) -> bool:
    rows = await session.query(RUNNING_REPLICATION, 2)
    return any(row[1] != "0" for row in rows)
