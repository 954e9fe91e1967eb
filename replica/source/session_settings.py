"""The settings of each session: what a server or its init_connect sets for all sessions must not change answers.

With sql_select_limit a list of tables is cut, and so are the settings themselves; another character set damages
names; limits of time and of joined rows refuse the tables of large servers; completion_type=RELEASE ends a session
with each COMMIT; with autocommit=0 a session keeps the read view, and the tables' locks, of its first SELECT. No
privilege is needed to set any of these for oneself.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from protocol.conversation.messages import Handshake, TextValue
from protocol.errors import ServerError

# ER_UNKNOWN_SYSTEM_VARIABLE. A server of another family may tell the version of one that has them all.
_UNKNOWN_VARIABLE: Final = 1193
# What every server knows.
_COMMON: Final = (
    "SET NAMES utf8mb4, sql_mode = '', sql_select_limit = 18446744073709551615, sql_big_selects = 1, "
    "completion_type = 0, sql_quote_show_create = 1"
)
# What MySQL 5.6 is asked, and what it then gets if it answers 0: there a session that had set it, and was killed,
# stayed in the server with its locks. Status flags do not tell of a global autocommit=0.
_AUTOCOMMIT: Final = "SELECT @@SESSION.autocommit"
_SET_AUTOCOMMIT: Final = "SET SESSION autocommit = 1"


async def make_settings(
    server: Handshake, query: Callable[[str], Awaitable[Sequence[tuple[TextValue, ...]]]]
) -> None:
    """Ask for the settings, with ``query``. Raises ``ServerError``, also that of an init_connect that has failed."""
    asks_for_autocommit = not server.is_mariadb and server.version < (5, 7)
    settings = _COMMON if asks_for_autocommit else f"{_COMMON}, autocommit = 1"
    try:
        # Alone: when init_connect has failed, the first statement gets the error, and the connection is closed.
        await query(settings + _own_settings(server))
    except ServerError as error:
        if error.code != _UNKNOWN_VARIABLE:
            raise
        await query(settings)
    if asks_for_autocommit and await query(_AUTOCOMMIT) == [("0",)]:
        await query(_SET_AUTOCOMMIT)


def _own_settings(server: Handshake) -> str:
    """Settings that not every server knows."""
    if server.is_mariadb:
        return ", max_statement_time = 0" if server.version >= (10, 1, 2) else ""
    settings = ", max_execution_time = 0" if server.version >= (5, 7, 8) else ""
    if server.version >= (8, 0, 30):
        # Else a key that the server made is not listed, and the log has it.
        settings += ", show_gipk_in_create_table_and_information_schema = 1"
    return settings
