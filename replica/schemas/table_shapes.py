"""Reads the shapes of some tables from information_schema, as they are now.

The user needs SELECT on the tables. A shape is valid for a SELECT only if the server still announces its types:
``SelectList.check`` compares them.
"""

from collections.abc import Iterable

from protocol.conversation.messages import TextValue
from protocol.wire import utf8_text

from ..source.session import Session
from ..sql.quoting import hex_literal
from ..sql.token_reader import TableName
from .baseline import BaselineQueries, baseline
from .logged_statements import LogTraits
from .shape import Shape


async def read_shapes(session: Session, tables: Iterable[TableName]) -> dict[TableName, Shape]:
    """The shapes of those tables that exist and that the user may see; views are left out."""
    handshake = session.handshake
    traits = LogTraits(handshake.is_mariadb, handshake.version)
    shapes: dict[TableName, Shape] = {}
    for table in tables:
        where = f" AND TABLE_SCHEMA = {hex_literal(table.schema)} AND TABLE_NAME = {hex_literal(table.name)}"
        queries = BaselineQueries.of(traits, where)
        parts = [[tuple(map(_text, row)) for row in await session.query(sql)] for sql in _of_tables(queries)]
        for name, shape in baseline((), *parts).tables.items():
            if isinstance(shape, Shape):
                shapes[name] = shape
    return shapes


def _of_tables(queries: BaselineQueries) -> tuple[str, str, str]:
    return queries.tables, queries.columns, queries.keys


def _text(value: TextValue) -> str | None:
    return utf8_text(value) if isinstance(value, bytes) else value
