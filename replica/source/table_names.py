"""Lists the tables of a source that the user may see, over a connection of its own. Knows no columns."""

from typing import Final

from protocol.errors import ServerError

from ..config.options import Options
from .hosts import first_host
from .session import Session

_TABLES: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA NOT IN "
    "('information_schema', 'performance_schema')"
)


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
