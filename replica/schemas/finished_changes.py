"""Waits until the source has finished the statements about tables that its log may already have.

MySQL 8.0 and later write a statement into the log before information_schema shows what it did: of 12,149 readings
between two positions of the log on MySQL 9.7, 642 had the shape before a statement that the log had before them. With
GTIDs ``gtid_executed`` tells what is finished. Without them (the default) SHOW CREATE TABLE does: it waits for the
metadata lock that a statement holds until all can see its work. It reads nothing for the schema history.
"""

from collections.abc import Sequence
from typing import Final

from protocol.errors import ServerError

from ..source.session import Session
from ..source.statement_answers import Question
from ..sql.quoting import identifier
from ..sql.token_reader import TableName

# ER_LOCK_WAIT_TIMEOUT: a statement changes the table at this moment.
_LOCKED: Final = 1205
# Tables whose answers are in memory at once.
_TOGETHER: Final = 100


async def tables_in_change(session: Session, tables: Sequence[TableName]) -> list[TableName]:
    """Wait for each table. Those whose statement lasts longer than a second are returned."""
    await session.query("SET SESSION lock_wait_timeout = 1")
    locked = list[TableName]()
    for begin in range(0, len(tables), _TOGETHER):
        # Each answer is a whole CREATE TABLE, and nobody reads it.
        some = tables[begin : begin + _TOGETHER]
        answers = await session.query_each(
            [Question(f"SHOW CREATE TABLE {identifier(one.schema)}.{identifier(one.name)}") for one in some]
        )
        locked += [
            table
            for table, answer in zip(some, answers, strict=True)
            if isinstance(answer, ServerError) and answer.code == _LOCKED
        ]
    return locked
