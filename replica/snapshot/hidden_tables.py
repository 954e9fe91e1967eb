"""Finds tables that wait in a checkpoint, and that the user may no longer see: their copies would be left out.

A checkpoint names the first of many waiting tables, and has a digest of all their names. Tables that statements of
the log made while the copy ran, or made or dropped since the checkpoint, may exist or not; all others have to be
listed. The digest is the exclusive or of the digests of the names. So the tables of statements explain a difference
if the digests of some of them give it together.
"""

from collections.abc import Container, Iterable
from typing import Final

from protocol.binlog.decoder import WantsTable
from protocol.errors import PrivilegeError
from protocol.gtid import GtidSet
from protocol.position import BinlogPosition

from ..schemas.catalog import Statement
from ..schemas.reading import TableReader
from ..schemas.touched import touched_in
from ..source.server_facts import Source
from ..source.session import Session
from ..sql import ddl_statements as ddl
from ..sql.ddl_reader import read_statement
from .copy_outline import name_digest
from .copy_state import Unnamed
from .source_marks import high_mark
from .statement_effects import names_gone
from .transaction_touches import TableId

# ER_TABLEACCESS_DENIED_ERROR
_DENIED: Final = 1142
# A checkpoint names few of them, and each CREATE TABLE and each checkpoint took as long as there were tables.
_MOST_STATED: Final = 1000


async def check_unnamed(
    unnamed: Unnamed,
    waiting: Iterable[TableId],
    begin: BinlogPosition | GtidSet,
    session: Session,
    source: Source,
) -> None:
    """Raise ``PrivilegeError`` if not all tables that waited are among ``waiting``, and no statement tells why.

    ``waiting`` are listed tables, but for those that the checkpoint names as begun or whole. ``begin`` is its place.
    """
    digest, listed = unnamed.digest, set(waiting)
    for table in listed:
        if table >= unnamed.first:
            digest ^= name_digest(table)
    if _is_sum_of(digest, map(name_digest, unnamed.stated)):
        return
    high = await high_mark(session, source)
    found = await TableReader(session, source).statements(begin, BinlogPosition(high.file, high.position))
    statements = [logged.statement for logged in found]
    reads = [read_statement(one.sql, one.schema, one.dialect) for one in statements]
    touched = touched_in(reads)
    is_untold = touched.is_every or any(isinstance(read, ddl.DropSchema) for read in reads)
    unsure = set[TableId](unnamed.stated)
    for table, was_there in _before(statements, reads).items():
        if table in unsure or was_there == (table in listed):
            continue
        if was_there is False:
            # It did not wait.
            digest ^= name_digest(table) if table >= unnamed.first else 0
        else:
            unsure.add(table)
    # Nothing tells the tables of a dropped schema, or of a statement that cannot be read.
    if is_untold or _is_sum_of(digest, map(name_digest, unsure)):
        return
    raise PrivilegeError(
        _DENIED,
        "42000",
        f"of the tables that wait to be copied, {'.'.join(unnamed.first)} or behind it, some are hidden from the "
        "user since the checkpoint, or shown since",
        "GRANT SELECT on those again, or REVOKE it from these; or copy the tables anew",
    )


def stated_with(
    stated: frozenset[TableId] | None,
    statement: ddl.DdlStatement | None,
    copied: Container[TableId],
    wants: WantsTable | None = None,
) -> frozenset[TableId] | None:
    """``Unnamed.stated`` after one more statement; None if the tables that it made are unknown, or too many.

    ``copied`` are the tables of the copy after the statement: of these the checkpoint tells whether they wait. The
    copy is about tables that ``wants`` lets through.
    """
    if stated is None or (isinstance(statement, ddl.Unread) and statement.is_about_any):
        return None
    if isinstance(statement, ddl.CreateTable | ddl.RenameTables | ddl.AlterTable | ddl.Unread):
        named = stated.union(one for one in ddl.tables_of(statement) if wants is None or wants(*one))
    else:
        named = stated
    gone = set(names_gone(statement, named))
    found = frozenset(table for table in named if table not in gone and table not in copied)
    return found if len(found) <= _MOST_STATED else None


def _before(
    statements: Iterable[Statement], reads: Iterable[ddl.DdlStatement | None]
) -> dict[TableId, bool | None]:
    """For each table of statements whether it was there before the first of them; None where that is not sure.

    More than 128 unsure tables explain any digest.
    """
    before: dict[TableId, bool | None] = {}
    for statement, read in zip(statements, reads, strict=True):
        for table in () if read is None else ddl.tables_of(read):
            before.setdefault(table, _was_there(statement, read, table))
    return before


def _was_there(statement: Statement, read: ddl.DdlStatement | None, table: TableId) -> bool | None:
    if statement.error_code or statement.doubt or statement.uses_temporary:
        return None
    match read:
        case ddl.CreateTable(is_conditional=False, is_replaced=False):
            return False
        case ddl.AlterTable() if table == read.table and "EXISTS" not in statement.sql.upper():
            return True
        case ddl.RenameTables() if not statement.dialect.is_mariadb:
            # MariaDB logs also that a temporary table is renamed.
            return table == next(old for old, new in read.pairs if table in (old, new))
        case _:
            return None


def _is_sum_of(wanted: int, digests: Iterable[int]) -> bool:
    """Whether some of ``digests`` have ``wanted`` as exclusive or: by elimination, bit by bit."""
    reduced: dict[int, int] = {}
    for one in digests:
        rest = _reduce(one, reduced)
        if rest:
            reduced[rest.bit_length()] = rest
    return not _reduce(wanted, reduced)


def _reduce(value: int, reduced: dict[int, int]) -> int:
    while value and (other := reduced.get(value.bit_length())):
        value ^= other
    return value
