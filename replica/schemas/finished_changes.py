"""Waits until the source has finished the statements about tables that its log may already have.

MySQL 8.0 and later write a statement into the log before information_schema shows what it did: of 12,149 readings
between two positions of the log on MySQL 9.7, 642 had the shape before a statement that the log had before them. With
GTIDs ``gtid_executed`` tells what is finished. Without them (the default) TABLE_ROWS does, if it is not taken from a
cache: it waits for the metadata lock that a statement holds until all can see its work (``read_stat_from_SE`` in
table_stats.cc). It reads nothing for the schema history.
"""

from collections.abc import Sequence
from typing import Final

from protocol.wire import utf8_text

from ..source.session import Session
from ..sql.quoting import hex_literal
from ..sql.token_reader import TableName

# ER_LOCK_WAIT_TIMEOUT: a statement changes a table at this moment. TABLE_COMMENT is then the text of the warning.
_LOCKED: Final = b"1205"
_SETTINGS: Final = "lock_wait_timeout = 1, information_schema_stats_expiry = 0"
# Tables that one statement waits for.
_TOGETHER: Final = 500


async def tables_in_change(session: Session, tables: Sequence[TableName]) -> list[TableName]:
    """Wait for each table. Those whose statement lasts longer than a second are returned."""
    await session.query(f"SET SESSION {_SETTINGS}")
    locked = list[TableName]()
    for begin in range(0, len(tables), _TOGETHER):
        some = tables[begin : begin + _TOGETHER]
        pairs = ", ".join(f"({hex_literal(one.schema)}, {hex_literal(one.name)})" for one in some)
        rows = await session.query(
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_ROWS, TABLE_COMMENT FROM information_schema.TABLES "
            f"WHERE (TABLE_SCHEMA, TABLE_NAME) IN ({pairs})",
            4,
        )
        warnings = await session.query("SHOW WARNINGS", 3)
        texts = {text for _, code, text in warnings if code == _LOCKED}
        # A table may have such a comment.
        locked += [
            TableName(utf8_text(schema), utf8_text(name))
            for schema, name, _, comment in rows
            if comment in texts and isinstance(schema, bytes) and isinstance(name, bytes)
        ]
    return locked
