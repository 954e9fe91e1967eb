"""Finds XA transactions that are prepared and not decided at a place: the log has their rows, tables do not.

A copy of tables that begins at the place has to get them again, or the rows of their XA COMMIT would be missing.
MySQL 8.0 and later let few users ask for XA RECOVER, so the current log file is read, and the one before, as the
source may just have begun a file: rows are not decoded. What was prepared in an older file is not found.
"""

from typing import Final

from protocol.binlog.events import Event, GtidEvent, QueryEvent, XaPrepareEvent
from protocol.constants import EventType
from protocol.gtid import Gtid, GtidSet

from ..sql.xa import Xid, ends_prepared, statement_xid
from .log_scan import LogScan
from .server_facts import Source
from .session import Session

_KINDS: Final = frozenset(
    bytes([kind])
    for kind in (
        EventType.FORMAT_DESCRIPTION,
        EventType.ROTATE,
        EventType.GTID,
        EventType.GTID_TAGGED,
        EventType.QUERY,
        EventType.XA_PREPARE,
    )
)


async def has_prepared_xa(session: Session) -> bool:
    """Whether the server has begun an XA transaction since it started, which one must be before it is prepared.

    Com_xa_prepare does not count what a replica applies (XA_prepare_log_event::do_commit, sql/log_event.cc).
    """
    rows = await session.query("SHOW GLOBAL STATUS LIKE 'Com_xa_start'", 2)
    return bool(rows) and str(rows[0][1]) != "0"


async def are_xa_prepared(session: Session, source: Source) -> bool:
    """Whether XA transactions are prepared and not decided now; MySQL from 8.0 on: whether they may be."""
    if not await has_prepared_xa(session):
        return False
    # MariaDB and MySQL up to 5.7 tell every user.
    tells_all = source.is_mariadb or source.version < (8,)
    return not tells_all or bool(await session.query("XA RECOVER", 4))


async def undecided_xa(session: Session, scan: LogScan, file: str, executed: GtidSet) -> GtidSet:
    """The GTIDs of XA PREPARE in ``executed``, from the file before ``file`` on, whose decision is not in it.

    If the server has begun no XA transaction since it started, nothing is read. Raises the errors of a dump.
    """
    if not await has_prepared_xa(session):
        return GtidSet()
    prepared: dict[Xid, Gtid] = {}
    current: Gtid | None = None

    def visit(event: Event, file: str, position: int) -> bool:
        nonlocal current
        if isinstance(event, GtidEvent):
            current = event.gtid
        elif current is None or current not in executed:
            return False
        elif isinstance(event, XaPrepareEvent) and not event.one_phase:
            prepared[Xid.of(event)] = current
        elif isinstance(event, QueryEvent) and ends_prepared(event.sql):
            xid = statement_xid(event.sql)
            if xid is not None:
                prepared.pop(xid, None)
        return False

    await scan.walk(await scan.file_before(file), visit, _KINDS)
    return GtidSet(prepared.values())
