"""Semi-synchronous replication, where each commit on the source waits until a replica has acknowledged it.

Turns it on for a connection, and decides which place may be acknowledged. ``protocol.conversation.replica_side``
reads the headers and writes the packets; the stream knows when an event is done.
"""

import logging
from typing import Final

from protocol.errors import SourceConfigurationError
from protocol.position import FIRST_POSITION, Checkpoint

from ..config.log_facts import log_facts
from ..transactions.boundary import Progress
from .resolve_start import is_same_server
from .server_facts import Identity, Source
from .session import Session

_LOGGER: Final = logging.getLogger(__name__)

# MySQL has two plugins since 8.0.26, each with its own variable. In MariaDB it is built in since 10.3.
_VARIABLES: Final = ("rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled")
_ENABLED: Final = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN (" + ", ".join(f"'{name}'" for name in _VARIABLES) + ")"
)
# Each plugin reads the variable of its own name, and ignores the other.
_ASK: Final = "SET @rpl_semi_sync_replica = 1, @rpl_semi_sync_slave = 1"


def installing(source: Source) -> tuple[str, ...]:
    """The statements that install semi-synchronous replication on a source; none if it is built in."""
    if source.is_mariadb and source.version >= (10, 3):
        return ()
    word = "source" if not source.is_mariadb and source.version >= (8, 0, 26) else "master"
    return (f"INSTALL PLUGIN rpl_semi_sync_{word} SONAME 'semisync_{word}.so'",)


async def enabled_by(session: Session) -> tuple[str, bool] | None:
    """The variable that enables semi-synchronous replication, and whether it is ON; None if the source lacks it."""
    rows = await session.query(_ENABLED, 2)
    found = {str(name): str(value).upper() in ("ON", "1") for name, value in rows}
    return next(((name, found[name]) for name in _VARIABLES if name in found), None)


async def offer(session: Session, source: Source, *, is_first: bool) -> None:
    """Tell the source before the dump that this replica acknowledges; each event then has a semi-sync header.

    If the source has no semi-synchronous replication, the first connection raises ``SourceConfigurationError``. After
    a reconnect the stream continues without it, as a server's own replica does, and a warning is logged. If it is
    installed but OFF, a warning is logged, and commits wait as soon as it is switched on.
    """
    enabled = await enabled_by(session)
    if enabled is None:
        problem = "semi_sync: the source has no semi-synchronous replication, so its commits do not wait"
        remedy = "; ".join((*installing(source), f"SET GLOBAL {_variable(source)} = ON"))
        if is_first:
            raise SourceConfigurationError(f"{problem} -- as an administrator: {remedy}")
        facts = log_facts("semi-sync-off", source=session.options.address)
        _LOGGER.warning("%s -- as an administrator: %s", problem, remedy, extra=facts)
        return
    name, is_on = enabled
    if not is_on:
        _LOGGER.warning(
            "semi_sync: %s is OFF, so the source's commits do not wait -- as an administrator: SET GLOBAL %s = ON",
            name,
            name,
            extra=log_facts("semi-sync-off", source=session.options.address),
        )
    await session.query(_ASK)
    session.expect_semi_sync()


def _variable(source: Source) -> str:
    return _VARIABLES[source.is_mariadb or source.version < (8, 0, 26)]


def overdue_place(
    session: Session, source: Source, identity: Identity, place: Progress | Checkpoint
) -> tuple[str, int] | None:
    """The place to acknowledge unasked when a dump has begun after a place of that server; None if there is none.

    The acknowledgement of that place may have been lost with the previous connection or process. A dump by GTID
    leaves out the transactions that the replica has, so the source does not ask for them again (MariaDB). Before
    MySQL 5.7 the thread that sends the log also reads the acknowledgements: it would take an unasked acknowledgement
    for that of the next event, so none is sent.
    """
    has_receiver = source.version >= ((10, 3) if source.is_mariadb else (5, 7))
    if not (session.is_semi_sync and has_receiver and place.file and is_same_server(identity, source)):
        return None
    return place.file, place.position


def confirmed_place(progress: Progress, file: str, position: int) -> tuple[str, int]:
    """The place that may be acknowledged when all events up to ``file`` and ``position`` are done.

    This is that place itself if a transaction ends there, otherwise the beginning of the file. A source that has
    given up waiting asks for an acknowledgement after any event, also inside a transaction, and MySQL 5.6 sends
    nothing more until it gets one; the beginning of the file claims nothing new. After a failover ``progress`` may
    still be that of the previous server.
    """
    is_end = (progress.file, progress.position) == (file, position)
    return file, position if is_end else FIRST_POSITION
