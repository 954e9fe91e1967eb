"""Classifies a statement of the log: transaction frame (BEGIN, COMMIT), DML logged as a statement, or DDL.

The first word decides, for CREATE TABLE also whether a SELECT follows. This does not parse SQL.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, Literal

from protocol.binlog.events import QueryEvent
from protocol.binlog.query_status import StatusValue, parse_status_variables
from protocol.constants import STATEMENT_FRAME
from protocol.errors import DecodeError
from protocol.records import replace

from .client_text import client_text
from .ddl_reader import read_statement
from .ddl_statements import DdlStatement
from .dialect import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, Dialect
from .words import upper_words

StatementKind = Literal["frame", "dml", "ddl"]

# SELECT, DO and CALL are logged for the changes of a stored function; WITH also begins UPDATE and DELETE.
_DML: Final = frozenset({"INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD", "SELECT", "WITH", "CALL", "DO"})
_WITH_OBJECT: Final = frozenset({"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"})
_OBJECTS: Final = frozenset(
    {
        "TABLE",
        "VIEW",
        "INDEX",
        "DATABASE",
        "SCHEMA",
        "USER",
        "ROLE",
        "PROCEDURE",
        "FUNCTION",
        "TRIGGER",
        "EVENT",
    }
    | {"SEQUENCE", "SERVER", "TABLESPACE", "PACKAGE"}
)
# The object's type is among so many words; the rest of a long statement is not searched.
_HEAD: Final = 40
# SET DEFAULT ROLE; MariaDB: SET STATEMENT ... FOR GRANT.
_GRANTS: Final = frozenset({"GRANT", "REVOKE", "FLUSH", "SET"})
# DROP TABLE may be in UTF-8, and collations of MariaDB alone are of sets in UTF-8.
_ANY_SERVER: Final = Dialect(False, (5, 6))
_WHOLE_TABLE: Final = re.compile(r"DELETE FROM `(?:[^`]|``)+`\.`(?:[^`]|``)+`")


def kind_of(event: QueryEvent) -> StatementKind:
    """``statement_kind`` of a statement of the log, in the sql_mode of its session."""
    # Without these two characters every sql_mode reads the same words.
    mode = sql_mode_of(event) if "\\" in event.sql or '"' in event.sql else 0
    return statement_kind(event.sql, mode)


def sql_mode_of(event: QueryEvent) -> int:
    """The bits of sql_mode in which a statement of the log ran; 0 where the log does not tell."""
    return _sql_mode(_status(event))


def text_of(event: QueryEvent) -> str:
    """The statement, decoded by the character set of its client as far as the event tells it."""
    if event.sql.isascii():
        return event.sql
    return client_text(event.sql, _status(event).get("CHARSET"), _ANY_SERVER).sql


def read_event(event: QueryEvent, dialect: Dialect) -> DdlStatement | None:
    """What a statement of the log does to tables, read as its session had it; ``dialect`` is that of the server."""
    status = _status(event)
    dialect = replace(dialect, sql_mode=_sql_mode(status))
    text = client_text(event.sql, status.get("CHARSET"), dialect)
    return read_statement(text.sql, event.schema, replace(dialect, wide_spaces=text.wide_spaces))


def _status(event: QueryEvent) -> dict[str, StatusValue]:
    try:
        return parse_status_variables(event.status_variables)
    except DecodeError:
        return {}


def _sql_mode(status: dict[str, StatusValue]) -> int:
    mode = status.get("SQL_MODE")
    return mode if isinstance(mode, int) else 0


def statement_kind(sql: str, sql_mode: int = 0) -> StatementKind:
    """``frame`` if a statement only marks a transaction, ``dml`` if it changes rows, ``ddl`` otherwise."""
    if sql.startswith(STATEMENT_FRAME):
        return "frame"
    words = upper_words(
        sql,
        ansi_quotes=bool(sql_mode & ANSI_QUOTES),
        backslash_escapes=not sql_mode & NO_BACKSLASH_ESCAPES,
    )
    word = _first(words)
    if word == "SET" and next(words, "") == "STATEMENT":
        # MariaDB: SET STATEMENT ... FOR stands before the statement that it applies to.
        while next(words, "FOR") != "FOR":
            pass
        word = _first(words)
    return "dml" if word in _DML or (word == "CREATE" and _creates_with_rows(words)) else "ddl"


def _first(words: Iterator[str]) -> str:
    return next((word for word in words if word != "("), "")


def _creates_with_rows(words: Iterator[str]) -> bool:
    """Whether the words after CREATE are [OR REPLACE] TABLE ... SELECT.

    MySQL 8.0.19 and later: also TABLE or VALUES ROW(). In row format servers log the CREATE TABLE without its SELECT,
    and the rows follow.
    """
    word = next(words, "")
    if word == "OR" and next(words, "") == "REPLACE":
        word = next(words, "")
    if word != "TABLE":
        return False
    before = ""
    for word in words:
        # After a dot any word may be a name.
        if before != "." and (word in ("SELECT", "TABLE") or (before == "VALUES" and word == "ROW")):
            return True
        before = word
    return False


def statement_name(sql: str) -> str:
    """A name for a statement: its first word in capitals and the type of its object, such as ``"CREATE TABLE"``."""
    words = upper_words(sql)
    first = _first(words)
    if not first.isalpha():
        return "unknown"
    if first in _WITH_OBJECT:
        for word in islice(words, _HEAD):
            if word in _OBJECTS:
                return f"{first} {word}"
    return first


def empties_table(sql: str) -> bool:
    """Whether a statement is the DELETE by which MySQL up to 5.7 logs that a restart emptied a MEMORY table.

    Unlike a user's DELETE it stands alone, without BEGIN. Later servers log TRUNCATE TABLE.
    """
    return _WHOLE_TABLE.fullmatch(sql) is not None


def may_grant(sql: str) -> bool:
    """Whether a statement may let a user see other tables than before."""
    first, *rest = statement_name(sql).split()
    return first in _GRANTS or rest[-1:] in (["USER"], ["ROLE"])
