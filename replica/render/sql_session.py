"""The session that SQL runs in: its settings for row changes, and those that a statement of the log brings along.

Text only. What a statement needs comes from ``text_query``, which knows both families' status variables.
"""

from collections.abc import Iterator

from protocol.binlog.events import QueryEvent

from ..mysqlbinlog.query import DELIMITER, Session
from ..mysqlbinlog.values import Flavor

# Strict, as values that do not fit show a table that is not the logged one; but all dates that columns can hold are
# let in, and a 0 in an AUTO_INCREMENT column is a 0.
_STRICT = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
_LENIENT = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
_ROWS = (
    "SET NAMES utf8mb4;\n"
    f"SET @@session.time_zone='+00:00', @@session.sql_mode='{_STRICT}', @@session.foreign_key_checks=1, "
    "@@session.autocommit=1;\n"
)

# One that only temporary tables of the log would need.
_LEFT_OUT = b"SET @@session.pseudo_thread_id"
# The client's own setting: in which set it reads quotes and delimiters. It matters only where characters may end in a
# quote or a backslash. The client sets the server's sets with it, and so it comes first.
_CLIENT = rb"/*!\C %b */"
_CLIENT_START, _CLIENT_END = _CLIENT.split(b"%b")
_USUAL = b"utf8mb4"
_WITH_ASCII_INSIDE = frozenset({b"big5", b"cp932", b"gb18030", b"gbk", b"sjis"})
_STATEMENT_MARKS = (";", "--", "#", "\\")


class SqlSession:
    """Keeps what is set, and says what has to be set next."""

    def __init__(self, disable_log: bool = False) -> None:
        self._disable_log = disable_log
        self._flavor: Flavor = "mysql"
        self._server_version = ""
        self._timestamp = 0
        self._statements: Session | None = None  # there while settings are those of the log's statements
        self._client = _USUAL

    def begin(self) -> str:
        """What comes first."""
        return ("SET @@session.sql_log_bin=0;\n" if self._disable_log else "") + _ROWS

    def follow(self, flavor: Flavor, server_version: str) -> None:
        """Whose log it is from now on."""
        self._flavor, self._server_version = flavor, server_version

    def time(self, timestamp: int) -> str:
        """Have columns with ON UPDATE CURRENT_TIMESTAMP, where an image is without them, change as they did."""
        if not timestamp or timestamp == self._timestamp:
            return ""
        self._timestamp = timestamp
        return f"SET TIMESTAMP={timestamp};\n"

    def rows(self) -> str:
        """What has to be set before row changes, behind a statement of the log."""
        if self._statements is None:
            return ""
        self._statements = None
        return b"".join(self._read_as(_USUAL)).decode() + _ROWS

    def around(self, checks_foreign_keys: bool, is_lenient: bool) -> tuple[str, str]:
        """What stands before and behind row changes that need other settings than the usual ones."""
        before, behind = [], []
        if not checks_foreign_keys:
            before.append("@@session.foreign_key_checks=0")
            behind.append("@@session.foreign_key_checks=1")
        if is_lenient:
            before.append(f"@@session.sql_mode='{_LENIENT}'")
            behind.append(f"@@session.sql_mode='{_STRICT}'")
        return (f"SET {', '.join(before)};\n", f"SET {', '.join(behind)};\n") if before else ("", "")

    def statement(self, event: QueryEvent, sql: str) -> Iterator[bytes]:
        """A statement of the log, in its own bytes, behind the settings that it was logged with."""
        if self._statements is None:
            self._statements = Session(self._flavor)
            self._statements.follow(self._server_version)
        self._timestamp = event.header.timestamp
        for line in self._statements.statements(event):
            setting = line.removesuffix(DELIMITER + b"\n")
            if setting.startswith(_CLIENT_START):
                yield from self._read_as(setting.removeprefix(_CLIENT_START).removesuffix(_CLIENT_END))
            elif not setting.startswith(_LEFT_OUT):
                yield setting + b";\n"
        text = sql.encode("utf-8", "surrogateescape")
        if any(mark in sql for mark in _STATEMENT_MARKS):
            # The client would end it at a semicolon inside, or take its end for part of a comment.
            end = DELIMITER
            yield b"DELIMITER %b\n%b\n%b\nDELIMITER ;\n" % (end, text, end)
        else:
            yield text + b";\n"

    def _read_as(self, charset: bytes) -> Iterator[bytes]:
        """Have the client read what follows in this set, as far as that matters."""
        needed = charset if charset in _WITH_ASCII_INSIDE else _USUAL
        if needed != self._client:
            self._client = needed
            yield _CLIENT % needed + b";\n"
