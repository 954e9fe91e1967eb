"""Answers to statements: their rows and values, as ``Session`` asks for them. Nothing is sent or received here."""

import contextlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from protocol.conversation.messages import PackedRows, ResultSet, TextValue
from protocol.conversation.replica_side import ConnectionEvent
from protocol.errors import ProtocolError, ServerError
from protocol.records import record
from protocol.wire import utf8_text

_LONGEST_SHOWN: Final = 100

_Value = TypeVar("_Value")
_Row = TypeVar("_Row")


def read_value(kind: Callable[[str], _Value], value: TextValue, sql: str) -> _Value:
    """``kind(value)`` for a value that answers ``sql``; ``ProtocolError`` if it is not of that kind, or NULL."""
    text = utf8_text(value) if isinstance(value, bytes) else value
    if text is not None:
        with contextlib.suppress(ValueError):
            return kind(text)
    raise ProtocolError(
        f"{(text or 'NULL')[:_LONGEST_SHOWN]!r} answers {sql!r}, which is no value of its kind"
    )


@record(frozen=True, slots=True)
class Question:
    """A statement for ``Session.query_each``. Its rows are those of ``query``, or the payloads of their packets."""

    sql: str
    columns: int | None = None
    is_packed: bool = False


#: The rows that answer a question, or the server's refusal.
Answer = list[Any] | ServerError


def rows_of(answer: Answer) -> list[Any]:
    """The rows of an answer; a refusal is raised."""
    if isinstance(answer, ServerError):
        raise answer
    return answer


def only_row(rows: list[_Row], sql: str) -> _Row:
    """The row of an answer that has one; ``ProtocolError`` for any other number of rows."""
    if len(rows) != 1:
        raise ProtocolError(f"{len(rows)} rows answer {sql!r}, and one was asked for")
    return rows[0]


def first_text(rows: list[tuple[TextValue, ...]]) -> str:
    """The first value of the first row as text; empty for NULL or no row."""
    value = rows[0][0] if rows else None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def taken(answer: ConnectionEvent, question: Question) -> list[Any]:
    """The rows of an answer, with as many values as the question asks for; none without a result set."""
    if not isinstance(answer, ResultSet | PackedRows):
        return []
    columns = question.columns
    if columns is None:
        return answer.rows
    if answer.rows and len(answer.columns) < columns:
        raise ProtocolError(
            f"{len(answer.columns)} columns answer {question.sql!r}, and {columns} were asked for"
        )
    return answer.rows if question.is_packed else [row[:columns] for row in answer.rows]
