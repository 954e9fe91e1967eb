"""What a statement of the log is to its transaction: a part of the frame, rows changed out of sight, or a DDL.

Told by its first words, and for CREATE TABLE by what else it holds: this is no parser of SQL.
"""

import re
from typing import Final, Literal

StatementKind = Literal["frame", "dml", "ddl"]

#: What servers write themselves between the rows of transactions, and around them.
FRAME: Final = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE SAVEPOINT", "XA ")
# SELECT, DO and CALL are logged for the changes that a stored function makes; WITH begins UPDATE and DELETE, too.
_DML: Final = frozenset({"INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD", "SELECT", "WITH", "CALL", "DO"})

# What is never closed goes on to the end: no search begins twice at the same place.
_COMMENT: Final = r"/\*(?!M?!).*?(?:\*/|\Z)|--(?=\s|\Z)[^\n]*|#[^\n]*"
# The mark of a comment that the server executes counts as space; so do opening brackets.
_BEFORE_FIRST_WORD: Final = re.compile(rf"(?:[\s(]|/\*M?!\d*|{_COMMENT})*+", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z]*")
_OUT_OF_SIGHT: Final = re.compile(
    rf"""'(?:[^'\\]|\\.)*+'?|"(?:[^"\\]|\\.)*+"?|`[^`]*`?|{_COMMENT}""", re.DOTALL
)
# MariaDB's settings for one statement stand before it.
_SET_STATEMENT: Final = re.compile(r"\ASET\s+STATEMENT\s.*?\bFOR\b", re.DOTALL | re.IGNORECASE)
# In row format the table is logged without its SELECT (MySQL 8.0.19: or TABLE, or VALUES ROW()), and the rows follow.
_CREATE_WITH_ROWS: Final = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b.*?\b(?:SELECT|TABLE|VALUES\s+ROW)\b", re.DOTALL | re.IGNORECASE
)
_WITH_OBJECT: Final = frozenset({"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"})
_OBJECT: Final = re.compile(
    r"\b(?:TABLE|VIEW|INDEX|DATABASE|SCHEMA|USER|ROLE|PROCEDURE|FUNCTION|TRIGGER|EVENT|SEQUENCE|SERVER|TABLESPACE|PACKAGE)\b",
    re.IGNORECASE,
)
# Where that stands at the latest; what comes behind is long and says nothing more.
_HEAD: Final = 400
_WHOLE_TABLE: Final = re.compile(r"DELETE FROM `(?:[^`]|``)+`\.`(?:[^`]|``)+`")


def statement_kind(sql: str) -> StatementKind:
    """``frame`` for what only marks the transaction, ``dml`` for what changes rows, ``ddl`` for everything else."""
    if sql.startswith(FRAME):
        return "frame"
    text, word = _from_first_word(sql)
    if word == "SET":
        text, word = _from_first_word(_SET_STATEMENT.sub("", _OUT_OF_SIGHT.sub(" ", text)))
    is_dml = word in _DML or (word == "CREATE" and _CREATE_WITH_ROWS.match(_OUT_OF_SIGHT.sub(" ", text)))
    return "dml" if is_dml else "ddl"


def _from_first_word(sql: str) -> tuple[str, str]:
    """The text from its first word on, and that word in capitals."""
    text = _BEFORE_FIRST_WORD.sub("", sql, count=1)
    word = _WORD.match(text)
    return text, word[0].upper() if word else ""


def statement_name(sql: str) -> str:
    """What a statement is called: its first word in capitals, with what it is done to: ``"CREATE TABLE"``."""
    text, word = _from_first_word(sql)
    if word not in _WITH_OBJECT:
        return word or "unknown"
    found = _OBJECT.search(_OUT_OF_SIGHT.sub(" ", text[:_HEAD]))
    return f"{word} {found[0].upper()}" if found else word


def empties_table(sql: str) -> bool:
    """Whether it has the form in which MySQL up to 5.7 logs that a MEMORY table is empty after a restart.

    That stands alone, without BEGIN, as no DELETE of a user does; later servers log TRUNCATE TABLE.
    """
    return _WHOLE_TABLE.fullmatch(sql) is not None
