"""The effects of statements of the log on copies of tables: rows come, go, or get another name. Pure: no I/O."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from protocol.records import record

from ..sql import ddl_statements as ddl
from .table_copy import TableProgress
from .transaction_touches import TableId

# Statements of these kinds wait until all transactions on their table have ended, and block new ones meanwhile.
_EXCLUSIVE: Final = (
    ddl.AlterTable,
    ddl.TruncateTable,
    ddl.RenameTables,
    ddl.DropTables,
    ddl.DropSchema,
    ddl.CreateTable,
)
# Clauses of ALTER TABLE, by their first words, that bring rows which the log does not show.
_BRING_ROWS: Final = frozenset(
    {"EXCHANGE PARTITION", "CONVERT PARTITION", "CONVERT TABLE", "IMPORT TABLESPACE"}
)
# Clauses by which rows come or go.
_TAKE_ROWS: Final = _BRING_ROWS | {"DROP PARTITION", "TRUNCATE PARTITION", "DISCARD TABLESPACE"}


def waits_for_transactions(statement: object) -> bool:
    """Whether all transactions on the tables of a statement were visible when it ended."""
    return isinstance(statement, _EXCLUSIVE) and not getattr(statement, "is_conditional", False)


def takes_rows_away(statement: object) -> bool:
    """Whether a statement removes rows of a table, or brings others, that the log does not show."""
    if isinstance(statement, ddl.AlterTable):
        return _has(statement, _TAKE_ROWS) or any(
            isinstance(clause, ddl.RenameTo) for clause in statement.clauses
        )
    if isinstance(statement, ddl.CreateTable | ddl.CreateSequence):
        return statement.is_replaced
    return isinstance(statement, ddl.TruncateTable | ddl.DropTables | ddl.RenameTables | ddl.DropSchema)


def _reorders(statement: object, key: Sequence[str]) -> bool:
    """Whether a statement may change the order of rows by a key, because it redefines a column of the key.

    ``key`` has the names of the columns after the statement, or before it.
    """
    names = {name.casefold() for name in key}
    return isinstance(statement, ddl.AlterTable) and any(
        isinstance(clause, ddl.ConvertCharset)
        or (
            isinstance(clause, ddl.ChangeColumn)
            and not names.isdisjoint((clause.name.casefold(), clause.column.name.casefold()))
        )
        for clause in statement.clauses
        if names
    )


def changed_tables(statement: ddl.DdlStatement | None) -> set[TableId]:
    """The tables whose columns or rows a statement changes, new names of renamed ones included."""
    if isinstance(statement, ddl.TruncateTable):
        return {statement.table}
    return set() if statement is None else set(ddl.tables_of(statement))


@record(slots=True)
class Coverage:
    """Which tables a copy is about. ``wants``: it is about all tables of these names, also those that come later.

    None: it is about tables that were ordered one by one. ``restarts``: the consumer cannot follow statements.
    """

    wants: Callable[[str, str], bool] | None = None
    restarts: bool = False

    def begins_anew(self, statement: object, progress: TableProgress, key: Sequence[str]) -> bool:
        """Whether a statement about a table begins its copy anew; ``key`` has the names of the key's columns.

        The log does not show which rows the statement removes, and the consumer may have them: from chunks or, if the
        stream began before the copy, from the log. If the order of the key changes, unread rows may lie before the
        bound up to which rows were read.
        """
        if self.restarts or progress.is_whole:
            return self.restarts
        return takes_rows_away(statement) or (progress.is_begun and _reorders(statement, key))


def moved_tables(
    statement: object, tables: Mapping[TableId, TableProgress], coverage: Coverage
) -> dict[TableId, TableProgress | None]:
    """The tables with other rows after a statement, and the progress of their copies; None: it leaves the copy.

    A table that is renamed to a copied name is copied anew, unless the consumer has its rows: the table was copied,
    or the stream has seen its CREATE TABLE. Then the consumer gives these rows the new name. The log does not show
    the rows that EXCHANGE PARTITION and the like bring, so the table is copied anew. Call this after ``begins_anew``.
    """
    wants, moved = coverage.wants, dict[TableId, TableProgress | None]()

    def begin(table: TableId) -> None:
        if table in tables or (wants is not None and wants(*table)):
            moved[table] = tables.get(table, TableProgress()).anew()

    for old in names_gone(statement, tables) if wants is not None else ():
        if old in tables and tables[old].is_whole:
            moved[old] = None
    for origin, new in _renamed(statement):
        known = tables.get(origin)
        if wants is not None and wants(*new) and known is not None and known.is_whole:
            moved[new] = known
        else:
            begin(new)
    if isinstance(statement, ddl.AlterTable) and _has(statement, _BRING_ROWS):
        for table in changed_tables(statement):
            begin(table)
    if (
        isinstance(statement, ddl.CreateTable)
        and _is_made(statement, coverage)
        and statement.table not in tables
    ):
        # All of its rows are in the log.
        moved[statement.table] = TableProgress(is_read=True, is_whole=True)
    return moved


def _has(statement: ddl.AlterTable, words: frozenset[str]) -> bool:
    return any(
        isinstance(clause, ddl.ChangePartitions) and clause.words in words for clause in statement.clauses
    )


def _is_made(statement: ddl.CreateTable, coverage: Coverage) -> bool:
    wants = coverage.wants
    return (
        not (statement.is_conditional or coverage.restarts) and wants is not None and wants(*statement.table)
    )


def _pairs(statement: object) -> Iterable[tuple[TableId, TableId]]:
    if isinstance(statement, ddl.RenameTables):
        return statement.pairs
    if isinstance(statement, ddl.AlterTable):
        return [
            (statement.table, clause.table)
            for clause in statement.clauses
            if isinstance(clause, ddl.RenameTo)
        ]
    return ()


def _renamed(statement: object) -> Iterator[tuple[TableId, TableId]]:
    """The tables that a statement renames: their names before and after it."""
    origins: dict[TableId, TableId] = {}
    for old, new in _pairs(statement):
        origins[new] = origins.pop(old, old)
    return ((origin, new) for new, origin in origins.items() if origin != new)


def names_gone(statement: object, tables: Iterable[TableId]) -> Iterable[TableId]:
    """The names that no table has after a statement."""
    if isinstance(statement, ddl.DropTables):
        return statement.tables
    if isinstance(statement, ddl.DropSchema):
        return [table for table in tables if table[0] == statement.schema]
    renamed = list(_renamed(statement))
    return {origin for origin, _ in renamed} - {new for _, new in renamed}
