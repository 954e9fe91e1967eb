"""What SHOW PROCESSLIST says of dumps from which nothing comes: some are at work, and some have to be ended.

Every user sees their own connections there; who has PROCESS sees all.
"""

import contextlib
from typing import Final, Literal

from protocol.errors import ServerError
from protocol.records import record

from ..config.options import Options
from .session import Session

Activity = Literal["searching", "writing", "none"]

_SENT_ALL: Final = "has sent all"
# The state while a thread writes to its socket (net.reading_or_writing), of MySQL 8.0 and later, of 5.6 and MariaDB.
_WRITING: Final = ("Sending to client", "Writing to net")


@record(frozen=True, slots=True)
class _Connection:
    """A row of the list. The command of one that has been told to end is "Killed" on MariaDB."""

    id: str
    user: str
    command: str
    state: str


async def dump_activity(options: Options, connection_id: int) -> Activity:
    """What the dump over that connection does, if nothing comes from it.

    "searching": it passes over transactions that the replica has, and may be silent for long. "writing": it sends,
    and waits while the socket's buffer is full. "none": it has ended, or "has sent all", and that did not arrive.
    """
    session = await Session.open(options)
    try:
        connections = await _connections(session)
    finally:
        await session.aclose()
    own = str(connection_id)
    for one in connections:
        if one.id == own and one.command.startswith("Binlog"):
            return "none" if _SENT_ALL in one.state else "writing" if one.state in _WRITING else "searching"
    return "none"


async def end_killed_dumps(options: Options) -> None:
    """Close the sockets of this user's connections to MariaDB that have been killed and still write to a lost client.

    MariaDB kills older dumps of a replica's server_id before it begins a new one, and waits for their end
    (kill_zombie_dump_threads, KILL_SLAVE_SAME_ID). That leaves their sockets open, so a dump that writes to a client
    behind a broken network ends after net_write_timeout, 60 seconds by default, and the new dump sends nothing until
    then. KILL CONNECTION closes the socket (enum killed_state in sql/sql_class.h). A user may kill their own
    connections.
    """
    session = await Session.open(options)
    try:
        for one in await _connections(session):
            if one.command == "Killed" and one.user == options.user:
                # It may have ended meanwhile, or belong to an account of the same name.
                with contextlib.suppress(ServerError):
                    await session.query(f"KILL CONNECTION {one.id}")
    finally:
        await session.aclose()


async def _connections(session: Session) -> list[_Connection]:
    # Id, User, Host, db, Command, Time, State
    rows = await session.query("SHOW PROCESSLIST", 7)
    return [_Connection(str(row[0]), str(row[1]), str(row[4]), str(row[6])) for row in rows]
