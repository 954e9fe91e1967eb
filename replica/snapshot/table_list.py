"""Finds the tables to copy on the source, with their columns and keys: asks information_schema."""

from collections.abc import Iterable, Mapping
from typing import Final

from protocol.binlog.decoder import WantsTable
from protocol.errors import ConfigurationError
from protocol.records import record

from ..source.server_facts import Source
from ..source.session import Session
from ..sql.token_reader import TableName
from .read_plan import ReadPlan
from .table_shapes import read_shapes
from .transaction_touches import KeyColumns, TableId

_TABLES: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE, TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_TYPE IN "
    "('BASE TABLE', 'SYSTEM VERSIONED') AND TABLE_SCHEMA NOT IN ('information_schema', 'performance_schema', "
    "'mysql', 'sys')"
)
#: The engine whose read views a chunk needs.
_ENGINES: Final = frozenset({"innodb", "rocksdb"})


@record(slots=True, frozen=True)
class Listed:
    """A table of the source. ``estimate`` is the server's estimate of its rows."""

    schema: str
    name: str
    engine: str
    estimate: int

    @property
    def identity(self) -> TableId:
        """Schema and name."""
        return self.schema, self.name

    def check(self) -> None:
        """Raise ``ConfigurationError`` for an engine without read views."""
        if self.engine.lower() not in _ENGINES:
            raise ConfigurationError(
                f"{self.schema}.{self.name} cannot be copied exactly: its engine {self.engine or '(none)'} has no "
                "read views -- ALTER TABLE ... ENGINE=InnoDB, or leave it out with exclude_tables="
            )


async def list_tables(session: Session, wants: WantsTable | None) -> list[Listed]:
    """All tables that the user may see and the filter wants, in the order of their names; no views."""
    rows = await session.query(_TABLES)
    listed = [
        Listed(str(schema), str(name), str(engine or ""), int(str(estimate or 0)))
        for schema, name, engine, estimate in rows
    ]
    wanted = [one for one in listed if wants is None or wants(one.schema, one.name)]
    return sorted(wanted, key=lambda one: one.identity)


async def read_plans(
    session: Session, source: Source, tables: Iterable[TableId], where: Mapping[str, str], suffix: str = ""
) -> dict[TableId, ReadPlan]:
    """How to read each of these tables as it is now; a table that does not exist is left out."""
    shapes = await read_shapes(session, [TableName(*table) for table in tables])
    return {
        name: ReadPlan(
            *name, shape, is_mariadb=source.is_mariadb, where=where.get(str(name), ""), suffix=suffix
        )
        for name, shape in shapes.items()
    }


def key_columns_of(plan: ReadPlan) -> KeyColumns:
    """The key of a plan, for following the table in the log."""
    names = plan.table.column_names
    return KeyColumns(plan.key_names, tuple(names.index(name) for name in plan.key_names))
