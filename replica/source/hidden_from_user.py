"""Which tables of a source the user may see, and whether all of their columns. Knows no columns."""

from typing import Final

from protocol.errors import ServerError

from ..config.options import Options
from ..sql.quoting import identifier
from .hosts import first_host
from .session import Session

_TABLES: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA NOT IN "
    "('information_schema', 'performance_schema')"
)

#: ER_TABLEACCESS_DENIED_ERROR, ER_COLUMNACCESS_DENIED_ERROR
DENIED: Final = frozenset({1142, 1143})


async def hides_columns(session: Session, schema: str, table: str) -> bool:
    """Whether the user may not read all columns of a table: information_schema does not show these."""
    try:
        await session.query(f"SELECT * FROM {identifier(schema)}.{identifier(table)} LIMIT 0")
    except ServerError as error:
        return error.code in DENIED
    return False


async def visible_tables(options: Options) -> list[tuple[str, str]]:
    """Schema and name of each table that the user may see; none if the source refuses to list them.

    Raises what connecting raises.
    """
    session = await first_host(options, Session.open)
    try:
        return [(str(schema), str(table)) for schema, table in await session.query(_TABLES, 2)]
    except ServerError:
        return []
    finally:
        await session.aclose()
