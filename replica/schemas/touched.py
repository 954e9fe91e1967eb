"""The names of the tables that a statement is about, whatever it does to them, and whether they exist or not."""

from collections.abc import Iterable
from operator import itemgetter
from typing import Final, TypeVar

from protocol.records import field, record

from ..sql import ddl_statements as ddl
from ..sql.ddl_reader import read_statement
from ..sql.token_reader import TableName
from .catalog import Statement

_Place = TypeVar("_Place")
#: Stands for every table; no schema has this name.
EVERY: Final = ""


@record(slots=True, frozen=True)
class Touched:
    """Tables by name, and schemas with all their tables; or every table, if it is not known which."""

    tables: frozenset[TableName] = frozenset()
    schemas: frozenset[str] = field(default_factory=frozenset)
    is_every: bool = False

    def __contains__(self, table: TableName) -> bool:
        return self.is_every or table in self.tables or table.schema in self.schemas

    def __bool__(self) -> bool:
        return bool(self.is_every or self.tables or self.schemas)

    def among(self, tables: Iterable[TableName]) -> list[TableName]:
        """Those of ``tables`` that are touched."""
        return [table for table in tables if table in self]


@record(slots=True, frozen=True)
class Linked:
    """The tables, and schemas or ``EVERY``, that a statement changes.

    ``sources`` are the tables from which its tables get their columns.
    """

    changed: frozenset[TableName | str]
    sources: frozenset[TableName] = frozenset()


def linked_by(read: ddl.DdlStatement | None) -> Linked:
    """``Linked`` of what ``read_statement`` returns."""
    tables = frozenset[TableName]() if read is None else frozenset(ddl.tables_of(read))
    match read:
        case ddl.CreateSchema() | ddl.AlterSchema() | ddl.DropSchema():
            return Linked(frozenset([read.schema]))
        case ddl.Unread(is_about_any=True):
            return Linked(frozenset([EVERY]))
        case ddl.DropViews():
            return Linked(frozenset(read.views))
        case ddl.CreateTemporary():
            # It hides a table of its name from the CREATE TABLE ... LIKE of its session.
            return Linked(frozenset([read.table]))
        case ddl.CreateTable(like=TableName() as like):
            return Linked(tables, tables | {like})
        case ddl.RenameTables() | ddl.AlterTable():
            return Linked(tables, tables)
        case _:
            return Linked(tables)


def touched_by(statements: Iterable[Statement]) -> Touched:
    """The tables of statements that may change a shape."""
    return touched_in(read_statement(one.sql, one.schema, one.dialect) for one in statements)


def touched_in(reads: Iterable[ddl.DdlStatement | None]) -> Touched:
    """The same for results of ``read_statement``."""
    tables: set[TableName] = set()
    schemas: set[str] = set()
    is_every = False
    for read in reads:
        if isinstance(read, ddl.DropSchema | ddl.CreateSchema | ddl.AlterSchema):
            schemas.add(read.schema)
        if read is not None:
            tables.update(ddl.tables_of(read))
            is_every = is_every or (isinstance(read, ddl.Unread) and read.is_about_any)
    return Touched(frozenset(tables), frozenset(schemas), is_every)


def last_touches(
    statements: Iterable[tuple[Statement, _Place]], tables: Iterable[TableName]
) -> dict[TableName, _Place]:
    """For each of ``tables`` that some statements are about, the place of the last one in the order of the log."""
    last: dict[TableName | str, tuple[int, _Place]] = {}
    for number, (statement, place) in enumerate(statements):
        touched = touched_by([statement])
        every = [EVERY] if touched.is_every else []
        last.update(dict.fromkeys([*touched.tables, *touched.schemas, *every], (number, place)))
    found = dict[TableName, _Place]()
    for table in tables:
        touches = [last[name] for name in (table, table.schema, EVERY) if name in last]
        if touches:
            found[table] = max(touches, key=itemgetter(0))[1]
    return found
