"""Ends dumps of MariaDB that hold a new one up. What the dump of a stream does is asked by ``Session.activity``."""

import contextlib

from protocol.errors import ServerError

from ..config.options import Options
from .process_list import COLUMNS, PROCESS_LIST, connections
from .session import Session


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
        for one in connections(await session.query(PROCESS_LIST, COLUMNS)):
            if one.command == "Killed" and one.user == options.user:
                # It may have ended meanwhile, or belong to an account of the same name.
                with contextlib.suppress(ServerError):
                    await session.query(f"KILL CONNECTION {one.id}")
    finally:
        await session.aclose()
