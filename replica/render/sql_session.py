"""The settings of the session in which the SQL output runs: for row changes, and for each statement of the log.

Returns text, does no I/O. ``mysqlbinlog.query`` turns a statement's status variables into settings.
"""

import calendar
from collections.abc import Iterator
from datetime import datetime

from protocol.binlog.events import QueryEvent
from protocol.constants import RowsFlag
from protocol.wire import utf8_bytes

from ..mysqlbinlog.query import DELIMITER, Session
from ..mysqlbinlog.values import Flavor

# Strict, because a value that does not fit means that the target's table differs from the logged one. All dates that
# columns can hold are allowed, and 0 in an AUTO_INCREMENT column stays 0.
_STRICT = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
_LENIENT = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
_ROWS = (
    "SET NAMES utf8mb4;\n"
    f"SET @@session.time_zone='+00:00', @@session.sql_mode='{_STRICT}', @@session.foreign_key_checks=1, "
    "@@session.autocommit=1;\n"
)
# What a rows event says was not checked, and the setting for that.
_CHECKS = (
    (RowsFlag.NO_FOREIGN_KEY_CHECKS, "@@session.foreign_key_checks"),
    (RowsFlag.NO_CHECK_CONSTRAINT_CHECKS, "@@session.check_constraint_checks"),
)

# Only temporary tables of statement logging would need this setting.
_LEFT_OUT = b"SET @@session.pseudo_thread_id"
# The mysql client's own command for the character set in which it reads quotes and delimiters. It matters only for
# character sets whose characters may end in a quote or a backslash. It also changes the server's settings, so it
# comes before them.
_CLIENT = rb"/*!\C %b */"
_CLIENT_START, _CLIENT_END = _CLIENT.split(b"%b")
_USUAL = b"utf8mb4"
_WITH_ASCII_INSIDE = frozenset({b"big5", b"cp932", b"gb18030", b"gbk", b"sjis"})
_STATEMENT_MARKS = (";", "--", "#", "\\")


class SqlSession:
    """Tracks the current settings, and returns the SET statements needed next."""

    def __init__(self, disable_log: bool = False) -> None:
        self._disable_log = disable_log
        self._flavor: Flavor = "mysql"
        self._server_version = ""
        self._timestamp = ""
        self._statements: Session | None = None  # set while the settings are those of a statement of the log
        self._client = _USUAL

    def begin(self) -> str:
        """The first statements of the output."""
        return ("SET @@session.sql_log_bin=0;\n" if self._disable_log else "") + _ROWS

    def follow(self, flavor: Flavor, server_version: str) -> None:
        """Note the server that wrote the following events."""
        self._flavor, self._server_version = flavor, server_version

    def time(self, timestamp: int) -> str:
        """Set the time, for columns with ON UPDATE CURRENT_TIMESTAMP that an image lacks; empty if it is set."""
        return self._set_time(str(timestamp)) if timestamp else ""

    def moment(self, moment: datetime) -> str:
        """Set the time to the microsecond, for the periods of system-versioned rows; empty if it is set."""
        return self._set_time(f"{calendar.timegm(moment.utctimetuple())}.{moment.microsecond:06}")

    def after_moments(self, timestamp: int) -> str:
        """Set the time for rows of other tables, if it is one of ``moment``; else empty."""
        return self.time(timestamp) if "." in self._timestamp else ""

    def _set_time(self, timestamp: str) -> str:
        if timestamp == self._timestamp:
            return ""
        self._timestamp = timestamp
        return f"SET TIMESTAMP={timestamp};\n"

    def rows(self) -> str:
        """The settings for row changes that follow a statement of the log; empty if they are in force."""
        if self._statements is None:
            return ""
        self._statements = None
        return b"".join(self._read_as(_USUAL)).decode() + _ROWS

    def around(self, rows_flags: int, is_lenient: bool) -> tuple[str, str]:
        """SET statements before and after row changes that need unusual settings; empty if they need none."""
        unchecked = [name for flag, name in _CHECKS if rows_flags & flag]
        before, after = [f"{name}=0" for name in unchecked], [f"{name}=1" for name in unchecked]
        if is_lenient:
            before.append(f"@@session.sql_mode='{_LENIENT}'")
            after.append(f"@@session.sql_mode='{_STRICT}'")
        return (f"SET {', '.join(before)};\n", f"SET {', '.join(after)};\n") if before else ("", "")

    def statement(self, event: QueryEvent, sql: str) -> Iterator[bytes]:
        """A statement of the log in its own bytes, after the settings that it was logged with."""
        if self._statements is None:
            self._statements = Session(self._flavor, is_run=True)
            self._statements.follow(self._server_version)
        self._timestamp = str(event.header.timestamp)
        for line in self._statements.statements(event):
            setting = line.removesuffix(DELIMITER + b"\n")
            if setting.startswith(_CLIENT_START):
                yield from self._read_as(setting.removeprefix(_CLIENT_START).removesuffix(_CLIENT_END))
            elif not setting.startswith(_LEFT_OUT):
                yield setting + b";\n"
        text = utf8_bytes(sql)
        if any(mark in sql for mark in _STATEMENT_MARKS):
            # The client would end the statement at a semicolon inside, or read its end as part of a comment.
            end = DELIMITER
            yield b"DELIMITER %b\n%b\n%b\nDELIMITER ;\n" % (end, text, end)
        else:
            yield text + b";\n"

    def _read_as(self, charset: bytes) -> Iterator[bytes]:
        """Set the client's character set for the following text, if it matters."""
        needed = charset if charset in _WITH_ASCII_INSIDE else _USUAL
        if needed != self._client:
            self._client = needed
            yield _CLIENT % needed + b";\n"
