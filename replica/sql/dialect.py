"""What a statement's meaning depends on besides its text: the server's family and version, sql_mode, letter case."""

from typing import Final

from protocol.records import record

# Bits of sql_mode, the same on both families (sql/sql_class.h, system_variables.h: MODE_*).
REAL_AS_FLOAT: Final = 1 << 0
ANSI_QUOTES: Final = 1 << 2
ORACLE: Final = 1 << 9
MSSQL: Final = 1 << 10
MAXDB: Final = 1 << 12
NO_BACKSLASH_ESCAPES: Final = 1 << 20
STRICT: Final = (1 << 21) | (1 << 22)  # STRICT_TRANS_TABLES, STRICT_ALL_TABLES


@record(slots=True, frozen=True)
class Dialect:
    """The server and the session that a statement ran in.

    ``version`` is the numeric part of VERSION(): ``(10, 11, 6)``. ``sql_mode`` is the event's bits. ``folds_names``:
    the server has lower_case_table_names 1 or 2. ``explicit_timestamps`` is explicit_defaults_for_timestamp, None
    where it is not known. ``literal_charsets`` are the character sets that text in quotes goes through on its way to
    a column: character_set_client and that of collation_connection. ``wide_spaces``: in character_set_client the
    no-break space is white space.
    """

    is_mariadb: bool = False
    version: tuple[int, ...] = (8, 0, 0)
    sql_mode: int = 0
    folds_names: bool = False
    explicit_timestamps: bool | None = True
    literal_charsets: tuple[str, ...] = ()
    wide_spaces: bool = False

    def has(self, mode: int) -> bool:
        """Whether sql_mode has one of these bits."""
        return bool(self.sql_mode & mode)
