"""Whether the user may read all columns of a table."""

from typing import Final

from protocol.errors import ServerError

from ..sql.quoting import identifier
from .session import Session

#: ER_TABLEACCESS_DENIED_ERROR, ER_COLUMNACCESS_DENIED_ERROR
DENIED: Final = frozenset({1142, 1143})


async def hides_columns(session: Session, schema: str, table: str) -> bool:
    """Whether the user may not read all columns of a table: information_schema does not show these."""
    try:
        await session.query(f"SELECT * FROM {identifier(schema)}.{identifier(table)} LIMIT 0")
    except ServerError as error:
        return error.code in DENIED
    return False
