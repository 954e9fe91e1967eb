"""Finds out whether a server will get transactions that it lacks, because it is a replica that lags behind.

MySQL: it has received them. MariaDB: its replication runs, and the domain has not passed their sequence numbers; few
users have the privilege to see there which transactions were received.
"""

from collections.abc import Sequence
from typing import Final

from protocol.errors import ConnectionLostError, ServerError
from protocol.gtid import AnyGtidSet, GtidSet, MariadbGtid, MariadbGtidSet

from .server_facts import RUNNING_REPLICATION, Source, replica_status_statement
from .session import Session
from .statement_answers import read_value

# The place of Retrieved_Gtid_Set among the columns, from MySQL 5.6 to 9.7 (rpl_replica.cc: show_slave_status).
_RECEIVED: Final = 51


async def check_lag(
    lacking: AnyGtidSet, session: Session, source: Source, held: Sequence[MariadbGtid] = ()
) -> None:
    """Raise ``ConnectionLostError``, which is tried again, if the transactions will come.

    ``held``: the newest transactions that the server has.
    """
    if isinstance(lacking, GtidSet):
        is_coming = lacking <= await _received(session, source)
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


def _are_passed(lacking: MariadbGtidSet, held: Sequence[MariadbGtid]) -> bool:
    return any(
        one.domain_id == gtid.domain_id and one.sequence >= gtid.sequence for gtid in lacking for one in held
    )


async def _replicates(session: Session) -> bool:
    rows = await session.query(RUNNING_REPLICATION, 2)
    return any(row[1] != "0" for row in rows)
