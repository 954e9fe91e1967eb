"""Reads the low mark and the high mark of a chunk from its source. ``marks`` says why they are what they are."""

from protocol.errors import PrivilegeError
from protocol.gtid import GtidSet

from ..source.server_facts import Source, log_status
from ..source.session import Session
from .marks import FileMark, GtidMark, LowMark, Place

_ACCESS_DENIED = 1227


async def low_mark(session: Session, source: Source, *, knows_gtids: bool) -> LowMark:
    """What is visible in any read view opened from now on; ``knows_gtids``: the stream knows its GTID set."""
    if knows_gtids and source.has_gtids and not source.is_mariadb and source.version >= (5, 7):
        # gtid_mode may have been turned off since: nothing tells whether commits without GTIDs are visible.
        rows = await session.query(
            "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.binlog_order_commits, @@GLOBAL.gtid_mode"
        )
        if rows and [str(value) for value in rows[0][1:]] == ["1", "ON"]:
            return GtidMark(GtidSet(str(rows[0][0])))
    return FileMark((await _status(session, source))[0])


async def high_mark(session: Session, source: Source) -> Place:
    """The end of the log: nothing after it is visible in a read view opened before."""
    return Place(*await _status(session, source))


async def _status(session: Session, source: Source) -> tuple[str, int]:
    found = await log_status(session, source)
    if found is None:
        needed = "BINLOG MONITOR" if source.is_mariadb else "REPLICATION CLIENT"
        raise PrivilegeError(
            _ACCESS_DENIED,
            "42000",
            "the position of the log cannot be read, and a copy of tables needs it",
            f"GRANT {needed} ON *.* TO this user, and SELECT on the tables",
        )
    return found
