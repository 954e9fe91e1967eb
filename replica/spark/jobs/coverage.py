"""Check that a live source's log reaches back to the CREATE TABLE of every table that a job keeps.

A job without a seed does this once, before it begins. A table created before the log begins is found by its creation
time in information_schema. For the other tables the log is read, without rows, up to their last CREATE TABLE. This
module does not apply statements: ``micro_batch`` does.
"""

from collections.abc import Callable, Iterable
from typing import Final

from protocol.binlog.events import QueryEvent
from protocol.errors import ConfigurationError
from protocol.position import file_number
from protocol.records import replace
from protocol.rows.table import table_text

from ...config.options import Options
from ...config.table_names import split_text
from ...files.log_files import gaps
from ...source.dump import Greeted
from ...sql import ddl
from ...sql.quoting import first_names
from ...sql.statement_kind import sql_mode_of, text_of
from ...stream.binlog_stream import BinlogStream
from .blocking import run_aside

SYSTEM_SCHEMAS: Final = frozenset({"mysql", "sys", "information_schema", "performance_schema"})
_TABLES: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, UNIX_TIMESTAMP(CREATE_TIME) FROM information_schema.TABLES "
    "WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')"
)
Wants = Callable[[str], bool]


def check_log(options: Options, wants: Wants) -> bool:
    """Raises ``ConfigurationError``, which names the tables, unless the log has CREATE TABLE for all wanted tables.

    Returns whether the log begins with the server's first binlog file.
    """
    return run_aside(_check(options, wants))


def folds_names(options: Options) -> bool:
    """Whether a live source stores table names in lower case (lower_case_table_names=1)."""
    return run_aside(_ask_folds(options))


async def _ask_folds(options: Options) -> bool:
    greeted = await Greeted.open(options)
    try:
        return await _folds(greeted)
    finally:
        await greeted.session.aclose()


async def _folds(greeted: Greeted) -> bool:
    return await greeted.session.query_value("SELECT @@GLOBAL.lower_case_table_names") == "1"


def files_begin(names: Iterable[str]) -> bool:
    """Whether the first of these files is a server's first binlog file."""
    return next((file_number(name) == 1 for name in names), False)


def check_files(names: Iterable[str]) -> None:
    """Raises ``ConfigurationError`` if files between these are missing."""
    for before, name in gaps(names):
        raise ConfigurationError(
            f"path: {name} follows {before}; files between them are missing, and tables would lack their changes"
        )


async def _check(options: Options, wants: Wants) -> bool:
    greeted = await Greeted.open(options)
    try:
        first = await greeted.scan().first_file()
        begun = await greeted.scan().created(first)
        found = await greeted.session.query(_TABLES, 3)
        folds = await _folds(greeted)
    finally:
        await greeted.session.aclose()
    is_birth = file_number(first) == 1
    created = {table_text(str(schema), str(table)): time for schema, table, time in found}
    wanted = {name: time for name, time in created.items() if wants(name)}
    older = [name for name, time in wanted.items() if time is not None and float(time) < begun]
    if older:
        raise _unreached(older, f"the log begins with {first}, after these tables were created")
    missing = set(wanted) - await _creations(options, set(wanted), Creations(is_birth, folds))
    if missing:
        raise _unreached(sorted(missing), f"the log, which begins with {first}, has no such statement")
    return is_birth


async def _creations(options: Options, wanted: set[str], found: "Creations") -> set[str]:
    """The tables whose creation the log has."""
    selection = replace(options, start="earliest", stop="now", tables=(), events=(QueryEvent,))
    async with BinlogStream(selection) as stream:
        async for event in stream:
            assert isinstance(event, QueryEvent)
            found.add(text_of(event), event.schema, sql_mode_of(event))
            if wanted <= found.tables:
                break
    return found.tables


class Creations:
    """The tables that the statements of a log have created."""

    def __init__(self, is_birth: bool, folds: bool = False) -> None:
        self.tables: set[str] = set()
        self._schemas: set[str] = set()
        self._absent: set[str] = set()
        self._is_birth = is_birth
        self._folds = folds

    def add(self, sql: str, schema: str, sql_mode: int = 0) -> None:
        """Take the next statement."""
        for action in ddl.table_actions(sql, schema, folds=self._folds, sql_mode=sql_mode):
            if isinstance(action, ddl.CreateTable):
                name = action.table
                is_new = self._is_birth or name in self._absent or split_text(name)[0] in self._schemas
                if is_new or not action.is_conditional:
                    self.tables.add(name)
            elif isinstance(action, ddl.CreateSchema):
                if self._is_birth or not action.is_conditional:
                    self._schemas.add(action.schema)
            elif isinstance(action, ddl.DropTable):
                self.tables.discard(action.table)
                self._absent.add(action.table)
            elif isinstance(action, ddl.DropSchema):
                self._schemas.add(action.schema)
                self.tables = {name for name in self.tables if split_text(name)[0] != action.schema}
            elif isinstance(action, ddl.RenameTable):
                self._rename(action)

    def _rename(self, action: ddl.RenameTable) -> None:
        self._absent.add(action.table)
        if action.table in self.tables:
            self.tables.discard(action.table)
            self.tables.add(action.new_table)


def _unreached(names: list[str], why: str) -> ConfigurationError:
    return ConfigurationError(
        f"the log does not reach back to the CREATE TABLE of {first_names(names)}: {why} -- give the state of these "
        "tables at a checkpoint (seed=), or exclude them"
    )
