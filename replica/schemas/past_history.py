"""The history of tables before a place at which they are known: for a start in the past.

Statements are undone from the known end to the beginning, then applied again from there: a table that one of them
creates is known from that statement on. If this leads to another shape than the known one, the log lacks statements
about the table, and its shape before the end is unknown.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

from protocol.position import BinlogPosition
from protocol.records import record

from ..sql.ddl_reader import read_statement
from ..sql.ddl_statements import CreateSchema, DdlStatement, DropSchema, Unread, tables_of
from ..sql.token_reader import TableName
from .catalog import Catalog, Statement, Unknown, by_schema, other_tables
from .shape import ColumnShape, Shape
from .timeline import SchemaHistory, State
from .undo import Doomed, undo


@record(slots=True, frozen=True)
class LoggedStatement:
    """A statement with the end of its event."""

    end: BinlogPosition
    statement: Statement


def history_before(
    source: str, begin: BinlogPosition, catalog: Catalog, statements: Sequence[LoggedStatement]
) -> SchemaHistory:
    """The history from ``begin`` on, up to the last of ``statements``, after which ``catalog`` is valid.

    ``statements`` are all statements of the log between the two places. ``source``: see ``SchemaHistory``.
    """
    before = Catalog(catalog.tables, catalog.schemas)
    reads = [_read(logged.statement) for logged in statements]
    steps = list(zip(statements, reads, _doomed(statements, reads), strict=True))
    behind = [undo(before, logged.statement, read, doomed) for logged, read, doomed in reversed(steps)][::-1]
    history = _followed(source, begin, before, statements, behind)
    touched = {table for states in behind for table in states}
    wrong = {table for table in touched if contradict(history.catalog.get(table), catalog.get(table))}
    if wrong:
        before = Catalog(before.tables, before.schemas)
        for table in wrong:
            before.set(table, _unlogged(table))
        history = _followed(source, begin, before, statements, behind, wrong)
    last = {table: logged.end for logged, states in zip(statements, behind, strict=True) for table in states}
    for table in touched - wrong:
        known = catalog.get(table)
        if isinstance(known, Shape) and isinstance(history.catalog.get(table), Shape):
            # Statements may tell less: of a shape that was undone, not whether a key forbids NULL.
            history.set_at(table, last[table], known)
    return history


def _read(statement: Statement) -> DdlStatement | None:
    return read_statement(statement.sql, statement.schema, statement.dialect)


def _doomed(statements: Sequence[LoggedStatement], reads: Sequence[DdlStatement | None]) -> Iterator[Doomed]:
    """For each statement about a schema or about any tables, the tables that it may have found.

    After a DROP DATABASE, and before a CREATE DATABASE, a schema has no tables. So the next such statement finds only
    tables that statements since have named. The first one may have found any tables.
    """
    every = by_schema(name for read in reads if read is not None for name in tables_of(read))
    since: dict[str, dict[TableName, None]] = {}
    for logged, read in zip(statements, reads, strict=True):
        doomed = Doomed()
        if isinstance(read, CreateSchema | DropSchema):
            schema = read.schema
            if schema in since:
                doomed = Doomed(since[schema])
            else:
                doomed = Doomed((*every.get(schema, ()), other_tables(schema)), has_others=True)
            if _leaves_none(read, logged.statement):
                since[schema] = {}
        elif isinstance(read, Unread) and read.is_about_any:
            doomed = Doomed(list(chain.from_iterable(every.values())), has_others=True)
        for name in () if read is None else tables_of(read):
            if name.schema in since:
                since[name.schema][name] = None
        yield doomed


def _leaves_none(read: CreateSchema | DropSchema, statement: Statement) -> bool:
    """Whether a schema has no tables after a statement about it."""
    is_done = not (statement.error_code or statement.doubt)
    return is_done and (isinstance(read, DropSchema) or read.is_replaced or not read.is_conditional)


def _followed(
    source: str,
    begin: BinlogPosition,
    before: Catalog,
    statements: Sequence[LoggedStatement],
    behind: Sequence[Mapping[TableName, State]],
    wrong: Collection[TableName] = (),
) -> SchemaHistory:
    """Apply the statements one after another; a shape that this leaves unknown is taken from undoing."""
    history = SchemaHistory(source, begin, Catalog(before.tables, before.schemas))
    for logged, states in zip(statements, behind, strict=True):
        history.apply(logged.statement, logged.end)
        for table, state in states.items():
            if table in wrong:
                history.set_at(table, logged.end, _unlogged(table))
            elif is_doubtful(made := history.catalog.get(table)) and not (
                isinstance(made, Shape) and is_doubtful(state)
            ):
                history.set_at(table, logged.end, state)
    return history


def _unlogged(table: TableName) -> Unknown:
    return Unknown(f"the statements of the log do not lead to the columns that {table} has")


def is_doubtful(state: State) -> bool:
    """Whether a table exists, or may exist, and its whole shape is not known."""
    return state is not None and not (isinstance(state, Shape) and state.is_whole)


def contradict(made: State, known: State) -> bool:
    """Whether the known state of a table differs from the state that statements have made."""
    if isinstance(made, Unknown) or isinstance(known, Unknown):
        return False
    if made is None or known is None:
        return made is not known
    if not (made.is_whole and known.is_whole):
        return False
    return len(made.columns) != len(known.columns) or not all(map(_is_same, made.columns, known.columns))


def _is_same(one: ColumnShape, other: ColumnShape) -> bool:
    """Whether two columns have the same name, and the same type for reading values."""
    return (one.name, one.type, one.numbers, one.unsigned, one.charset, one.labels) == (
        other.name,
        other.type,
        other.numbers,
        other.unsigned,
        other.charset,
        other.labels,
    )
