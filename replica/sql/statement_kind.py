"""The kind of a statement in the log: part of a transaction's frame, a change of rows without their rows, or DDL.

Told by its first words, and for CREATE TABLE by what else it holds: this is no parser of SQL.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, Literal

from .words import upper_words

StatementKind = Literal["frame", "dml", "ddl"]

#: What servers write themselves between the rows of transactions, and around them.
FRAME: Final = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE SAVEPOINT", "XA ")
# SELECT, DO and CALL are logged for the changes that a stored function makes; WITH begins UPDATE and DELETE, too.
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
# The object is among so many words; what comes behind is long and says nothing more.
_HEAD: Final = 40
_WHOLE_TABLE: Final = re.compile(r"DELETE FROM `(?:[^`]|``)+`\.`(?:[^`]|``)+`")


def statement_kind(sql: str) -> StatementKind:
    """``frame`` for what only marks the transaction, ``dml`` for what changes rows, ``ddl`` for everything else."""
    if sql.startswith(FRAME):
        return "frame"
    words = upper_words(sql)
    word = _first(words)
    if word == "SET" and next(words, "") == "STATEMENT":
        # MariaDB's settings for one statement stand before it.
        while next(words, "FOR") != "FOR":
            pass
        word = _first(words)
    return "dml" if word in _DML or (word == "CREATE" and _creates_with_rows(words)) else "ddl"


def _first(words: Iterator[str]) -> str:
    return next((word for word in words if word != "("), "")


def _creates_with_rows(words: Iterator[str]) -> bool:
    """Whether CREATE goes on as [OR REPLACE] TABLE, with a SELECT.

    In row format the table is logged without its SELECT, and the rows follow. MySQL 8.0.19: also with TABLE or
    VALUES ROW().
    """
    word = next(words, "")
    if word == "OR" and next(words, "") == "REPLACE":
        word = next(words, "")
    if word != "TABLE":
        return False
    before = ""
    for word in words:
        # Behind a dot, a name may be any word.
        if before != "." and (word in ("SELECT", "TABLE") or (before == "VALUES" and word == "ROW")):
            return True
        before = word
    return False


def statement_name(sql: str) -> str:
    """What a statement is called: its first word in capitals, with what it is done to: ``"CREATE TABLE"``."""
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
    """Whether it has the form in which MySQL up to 5.7 logs that a MEMORY table is empty after a restart.

    That stands alone, without BEGIN, as no DELETE of a user does; later servers log TRUNCATE TABLE.
    """
    return _WHOLE_TABLE.fullmatch(sql) is not None
