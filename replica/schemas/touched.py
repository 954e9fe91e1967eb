"""Which tables a statement is about, by name: whatever it does to them, and whether they exist or not."""

from collections.abc import Iterable, Iterator

from protocol.records import field, record

from ..sql import ddl_statements as ddl
from ..sql.ddl_reader import read_statement
from ..sql.token_reader import TableName
from .catalog import Statement


@record(slots=True, frozen=True)
class Touched:
    """Tables by name, and schemas with all their tables."""

    tables: frozenset[TableName] = frozenset()
    schemas: frozenset[str] = field(default_factory=frozenset)

    def __contains__(self, table: TableName) -> bool:
        return table in self.tables or table.schema in self.schemas

    def __bool__(self) -> bool:
        return bool(self.tables or self.schemas)

    def among(self, tables: Iterable[TableName]) -> list[TableName]:
        """Those of ``tables`` that are touched."""
        return [table for table in tables if table in self]


def touched_by(statements: Iterable[Statement]) -> Touched:
    """The tables of statements that may change a shape."""
    tables: set[TableName] = set()
    schemas: set[str] = set()
    for statement in statements:
        read = read_statement(statement.sql, statement.schema, statement.dialect)
        if isinstance(read, ddl.DropSchema | ddl.CreateSchema):
            schemas.add(read.schema)
        tables.update(_tables(read))
    return Touched(frozenset(tables), frozenset(schemas))


def _tables(read: object) -> Iterator[TableName]:
    match read:
        case ddl.CreateTable() | ddl.CreateSequence():
            yield read.table
        case ddl.DropTables() | ddl.Unread():
            yield from read.tables
        case ddl.RenameTables():
            for pair in read.pairs:
                yield from pair
        case ddl.AlterTable():
            yield read.table
            for clause in read.clauses:
                if isinstance(clause, ddl.RenameTo | ddl.ChangePartitions) and clause.table is not None:
                    yield clause.table
