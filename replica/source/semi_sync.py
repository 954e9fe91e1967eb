"""Semi-synchronous replication: a source that waits with each commit until a replica has acknowledged it.

Asks the source for it, and says what may be acknowledged. ``protocol.conversation.replica_side`` reads the
headers and writes the packets; the stream knows when an event is done.
"""

import logging
from typing import Final

from protocol.errors import SourceConfigurationError
from protocol.position import Checkpoint

from ..transactions.boundary import Progress
from .resolve_start import FIRST_POSITION, is_same_server
from .server_facts import Source
from .session import Session

_LOGGER: Final = logging.getLogger(__name__)

# MySQL has two plugins since 8.0.26, each with its own variable; MariaDB has had it built in since 10.3.
_VARIABLES: Final = ("rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled")
_ENABLED: Final = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN (" + ", ".join(f"'{name}'" for name in _VARIABLES) + ")"
)
# Each plugin looks for the name of its own time; to the other it is a user variable like any other.
_ASK: Final = "SET @rpl_semi_sync_replica = 1, @rpl_semi_sync_slave = 1"


def installing(source: Source) -> tuple[str, ...]:
    """The statements by which a source learns to wait; none where it is built in."""
    if source.is_mariadb and source.version >= (10, 3):
        return ()
    word = "source" if not source.is_mariadb and source.version >= (8, 0, 26) else "master"
    return (f"INSTALL PLUGIN rpl_semi_sync_{word} SONAME 'semisync_{word}.so'",)


async def enabled_by(session: Session) -> tuple[str, bool] | None:
    """The variable that switches it on, and whether it is on; None where the source does not have it."""
    rows = await session.query(_ENABLED)
    found = {str(name): str(value).upper() in ("ON", "1") for name, value in rows}
    return next(((name, found[name]) for name in _VARIABLES if name in found), None)


async def offer(session: Session, source: Source, *, is_first: bool) -> None:
    """Tell the source, before the dump, that we acknowledge; its events then carry the header of semi-sync.

    Where the source cannot wait at all, ``SourceConfigurationError`` is raised at the first connection; a stream
    that runs goes on without, as a server's own replica does, and a warning is logged. Where it can and is switched
    off, a warning is logged, and it waits as soon as it is switched on.
    """
    enabled = await enabled_by(session)
    if enabled is None:
        problem = "semi_sync: the source has no semi-synchronous replication, its commits wait for nobody"
        remedy = "; ".join((*installing(source), f"SET GLOBAL {_variable(source)} = ON"))
        if is_first:
            raise SourceConfigurationError(f"{problem} -- as an administrator: {remedy}")
        _LOGGER.warning("%s -- as an administrator: %s", problem, remedy)
        return
    name, is_on = enabled
    if not is_on:
        _LOGGER.warning(
            "semi_sync: %s is OFF, the source's commits wait for nobody -- as an administrator: SET GLOBAL %s = ON",
            name,
            name,
        )
    await session.query(_ASK)
    session.expect_semi_sync()


def _variable(source: Source) -> str:
    return _VARIABLES[source.is_mariadb or source.version < (8, 0, 26)]


def overdue_place(
    session: Session, source: Source, identity: tuple[str | None, int | None], place: Progress | Checkpoint
) -> tuple[str, int] | None:
    """What to acknowledge unasked when a dump has begun behind a place of that server; None if nothing.

    The acknowledgement may have been lost with the connection or the process before. A source that is asked for the
    log by GTID leaves out what we have, and so does not ask again (MariaDB). Where the thread that sends the log also
    reads the answers (MySQL before 5.7), one that it has not asked for would be taken for that to the next event.
    """
    has_receiver = source.version >= ((10, 3) if source.is_mariadb else (5, 7))
    if not (session.is_semi_sync and has_receiver and place.file and is_same_server(identity, source)):
        return None
    return place.file, place.position


def confirmed_place(progress: Progress, file: str, position: int) -> tuple[str, int]:
    """What may be acknowledged when all events up to a place of the log are done.

    That place, where a transaction ends there. A source that has given up waiting asks behind any event, also inside
    of a transaction, and MySQL 5.6 sends nothing more before it is answered: it gets the beginning of the file, which
    claims nothing new. After a failover ``progress`` may still be that of the server before.
    """
    is_end = (progress.file, progress.position) == (file, position)
    return file, position if is_end else FIRST_POSITION
