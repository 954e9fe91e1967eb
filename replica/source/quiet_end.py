"""Finds an end of the log before which everything is visible in the tables, on sources without exact GTIDs.

A transaction is in the log before readers see it, and its session runs its statement until they do. So if at some
moment no statement but ours runs, all transactions that were in the log before are visible. ``Threads_running``
counts statements, those of other users too, and needs no privilege. It also counts dumps, of which a user sees its
own.
A thread that applies another source's log is not counted, nor one of Galera that applies what other nodes write, nor
the event scheduler: with these nothing is proven.
"""

import asyncio
from typing import Final

from protocol.position import BinlogPosition

from .prepared_xa import are_xa_prepared
from .server_facts import Source, log_status
from .session import Session

# Seconds to the next look. A source that is busy all the time is not waited for.
_PAUSES: Final = (0.002, 0.005, 0.01, 0.02, 0.02, 0.02, 0.02, 0.02)
_RUNNING: Final = (
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_running', 'Slave_running', 'Slaves_running')"
)
_DUMPS: Final = "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%' ORDER BY ID"


async def quiet_end(session: Session, source: Source) -> BinlogPosition | None:
    """The end of the log at a moment when nothing else ran; None if there was no such moment, or none can be proven.

    Also None while XA transactions are prepared: their rows may be in the log before this end, and are not visible.
    MySQL 5.7 and later do not tell every user whether they apply another source's log.
    """
    if not await _shows_all(session, source):
        return None
    for pause in _PAUSES:
        end = await log_status(session, source)
        if end is None:
            return None
        if await _is_alone(session):
            # Asked last: a transaction may have been prepared meanwhile.
            return None if await are_xa_prepared(session, source) else BinlogPosition(*end)
        await asyncio.sleep(pause)
    return None


async def is_quiet(session: Session, source: Source) -> bool:
    """Whether nothing else ran at some moment of this call: what was in the log before is visible."""
    return await _shows_all(session, source) and await _is_alone(session)


async def _shows_all(session: Session, source: Source) -> bool:
    """Whether the source tells of all that may write."""
    if source.is_galera or (not source.is_mariadb and source.version >= (5, 7)):
        return False
    return await session.query_value("SELECT @@GLOBAL.event_scheduler") != "ON"


async def _is_alone(session: Session) -> bool:
    """Whether no statement but ours ran, and the source applies no other source's log."""
    dumps = await session.query(_DUMPS)
    counts = {str(name): str(value) for name, value in await session.query(_RUNNING, 2)}
    if counts.get("Slave_running", "ON") != "OFF" or counts.get("Slaves_running", "0") != "0":
        return False
    # Dumps that are there before and after were among the statements meanwhile.
    return counts.get("Threads_running") == str(1 + len(dumps)) and await session.query(_DUMPS) == dumps
