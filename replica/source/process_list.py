"""What SHOW PROCESSLIST says of dumps from which nothing comes: some are at work, and some have to be ended.

Every user sees their own connections there; who has PROCESS sees all.
"""

import contextlib

from protocol.errors import ServerError
from protocol.records import record

from ..config.options import Options
from .server_facts import Source
from .session import Session


@record(frozen=True, slots=True)
class _Connection:
    """A row of the list. The command of one that has been told to end is "Killed" on MariaDB."""

    id: str
    user: str
    command: str
    state: str


async def is_seeking(source: Source, options: Options, connection_id: int) -> bool:
    """Whether the source still searches its log for the first transaction to send over that connection.

    During the search it may be silent for long. A dump that "has sent all" is not searching: then the data it sent
    did not arrive.
    """
    session = await Session.open(options)
    try:
        connections = await _connections(session)
    finally:
        await session.aclose()
    own = str(connection_id)
    states = [one.state for one in connections if one.id == own and one.command.startswith("Binlog")]
    return bool(states) and "has sent all" not in states[0]


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
