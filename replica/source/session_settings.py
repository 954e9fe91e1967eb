"""The settings of each session: what a server or its init_connect sets for all sessions must not change answers.

With sql_select_limit a list of tables is cut, and so are the settings themselves; another character set damages
names; limits of time and of joined rows refuse the tables of large servers; completion_type=RELEASE ends a session
with each COMMIT; with autocommit=0 a session keeps the read view, and the tables' locks, of its first SELECT. No
privilege is needed to set any of these for oneself.
"""

from typing import Final

from protocol.conversation.messages import Handshake

_SETTINGS: Final = (
    "SET NAMES utf8mb4, sql_mode = '', sql_select_limit = 18446744073709551615, sql_big_selects = 1, "
    "completion_type = 0, sql_quote_show_create = 1"
)
#: What MySQL 5.6 is asked, and what it then gets if it answers 0: there a session that had set it, and was killed,
#: stayed in the server with its locks. Status flags do not tell of a global autocommit=0.
AUTOCOMMIT: Final = "SELECT @@SESSION.autocommit"
SET_AUTOCOMMIT: Final = "SET SESSION autocommit = 1"


def settings_for(server: Handshake) -> str:
    """The statement that a session begins with."""
    settings = _SETTINGS if asks_for_autocommit(server) else f"{_SETTINGS}, autocommit = 1"
    if server.is_mariadb:
        return f"{settings}, max_statement_time = 0"
    if server.version >= (5, 7, 8):
        settings += ", max_execution_time = 0"
    if server.version >= (8, 0, 30):
        # Else a key that the server made is not listed, and the log has it.
        settings += ", show_gipk_in_create_table_and_information_schema = 1"
    return settings


def asks_for_autocommit(server: Handshake) -> bool:
    """Whether autocommit is set only where it is off."""
    return not server.is_mariadb and server.version < (5, 7)
