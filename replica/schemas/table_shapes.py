"""Reads the shapes of some tables from information_schema, as they are now.

The user needs SELECT on the tables. A shape is valid for a SELECT only if the server still announces its types:
``SelectList.check`` compares them.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from protocol.conversation.messages import TextValue
from protocol.wire import utf8_text

from ..source.session import Session
from ..source.statement_answers import Question, rows_of
from ..sql.quoting import hex_literal
from ..sql.token_reader import TableName
from .baseline import VIEWS, BaselineQueries, Row, baseline
from .logged_statements import LogTraits
from .shape import Shape

# Tables that are asked for together: their columns are held at once.
_TOGETHER: Final = 500
# For so many single tables, the queries are sent together: three for each.
_SENT: Final = 33
_SINGLE: Final = " AND TABLE_NAME ="
# Fewer tables of a schema are asked for one by one: if asked for several, MariaDB and MySQL 5.6 open all tables of
# the schema (calc_lookup_values_from_cond() in sql_show.cc uses only names that are compared with =).
_FEW: Final = 16
# Tables are read so many times while some of them are dropped, renamed or made.
_READS: Final = 5


async def read_shapes(session: Session, tables: Iterable[TableName]) -> dict[TableName, Shape]:
    """The shapes of those tables that exist and that the user may see; views are left out.

    Sends three queries for each table, or for each 500 tables of a schema, and those of 33 tables at once.
    """
    handshake = session.handshake
    traits = LogTraits(handshake.is_mariadb, handshake.version)
    shapes: dict[TableName, Shape] = {}
    for group in _groups(conditions_of(tables)):
        asked = [Question(sql) for where in group for sql in _of_tables(BaselineQueries.of(traits, where))]
        for _ in range(_READS):
            answers = await session.query_each(asked)
            # The answers to the queries of tables, of columns and of keys.
            parts = [
                [tuple(map(_text, row)) for one in answers[at::3] for row in rows_of(one)] for at in range(3)
            ]
            if not _is_torn(*parts):
                break
        for name, shape in baseline((), *parts).tables.items():
            if isinstance(shape, Shape):
                shapes[name] = shape
    return shapes


def _groups(conditions: Iterable[str]) -> Iterator[list[str]]:
    """The conditions in groups that are sent together: those of single tables, as 5,000 schemas may have one each."""
    single = list[str]()
    for where in conditions:
        if _SINGLE not in where:
            yield [where]
            continue
        single.append(where)
        if len(single) == _SENT:
            yield single
            single = []
    if single:
        yield single


def conditions_of(tables: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Conditions that select these tables in information_schema, some at a time, for the end of a WHERE clause."""
    schemas: dict[str, list[str]] = {}
    for schema, name in tables:
        schemas.setdefault(schema, []).append(hex_literal(name))
    for schema, names in schemas.items():
        left, size = iter(names), 1 if len(names) < _FEW else _TOGETHER
        while some := list(islice(left, size)):
            those = f"= {some[0]}" if len(some) == 1 else f"IN ({', '.join(some)})"
            yield f" AND TABLE_SCHEMA = {hex_literal(schema)} AND TABLE_NAME {those}"


def _of_tables(queries: BaselineQueries) -> tuple[str, str, str]:
    return queries.tables, queries.columns, queries.keys


def _is_torn(tables: Sequence[Row], columns: Sequence[Row], keys: Sequence[Row]) -> bool:
    """Whether a table was dropped, renamed or made between the queries: its columns or its key are missing."""
    with_columns, with_keys = ({row[:2] for row in rows} for rows in (columns, keys))
    has_lost_columns = any(row[:2] not in with_columns for row in tables if VIEWS.isdisjoint(row[2:3]))
    # COLUMN_KEY of a column says that a key has it.
    return has_lost_columns or any(any(row[8:9]) and row[:2] not in with_keys for row in columns)


def _text(value: TextValue) -> str | None:
    return utf8_text(value) if isinstance(value, bytes) else value
