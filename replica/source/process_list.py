"""Reads SHOW PROCESSLIST: what a server does for a connection from which nothing comes.

Every user sees their own connections there; who has PROCESS sees all. Nothing is asked here: ``Session.activity`` and
``killed_dumps`` do that.
"""

from collections.abc import Iterable
from typing import Final, Literal

from protocol.conversation.messages import TextValue
from protocol.records import record

#: "working": it searches its log, or runs a statement, and may be silent for long. "locked": its statement waits for
#: others. "writing": it sends, and waits while the socket's buffer is full. "none": it has ended, or has sent
#: everything, or waits for a command.
Activity = Literal["working", "locked", "writing", "none"]

PROCESS_LIST: Final = "SHOW PROCESSLIST"
#: Columns of the list that all servers have: Id, User, Host, db, Command, Time, State.
COLUMNS: Final = 7
_SENT_ALL: Final = "has sent all"
# The state while a thread writes to its socket (net.reading_or_writing), of MySQL 8.0 and later, of 5.6 and MariaDB.
_WRITING: Final = frozenset({"Sending to client", "Writing to net"})
_IDLE: Final = frozenset({"Sleep", "Killed"})


@record(frozen=True, slots=True)
class ListedConnection:
    """A row of the list. On MariaDB the command of a connection that has been told to end is "Killed"."""

    id: str
    user: str
    command: str
    state: str


def connections(rows: Iterable[tuple[TextValue, ...]]) -> list[ListedConnection]:
    """The rows of the list's answer."""
    return [ListedConnection(str(row[0]), str(row[1]), str(row[4]), str(row[6])) for row in rows]


def activity_of(rows: Iterable[tuple[TextValue, ...]], connection_id: int) -> Activity:
    """The server's work for this connection."""
    for one in connections(rows):
        if one.id == str(connection_id):
            if one.command in _IDLE or _SENT_ALL in one.state:
                return "none"
            if one.state.startswith("Waiting for "):
                return "locked"
            return "writing" if one.state in _WRITING else "working"
    return "none"
