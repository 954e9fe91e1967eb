"""Finds the tables to copy on the source, with their columns and keys: asks information_schema."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from zlib import crc32

from protocol.binlog.decoder import WantsTable
from protocol.errors import ConfigurationError, PrivilegeError, ServerError
from protocol.records import record, replace
from protocol.rows.table import table_text
from protocol.wire import is_characters, utf8_bytes

from ..config.options import Options
from ..config.reconnect import is_passing_refusal
from ..config.table_filter import TableFilter
from ..schemas.shape import Shape
from ..schemas.table_shapes import conditions_of, read_shapes
from ..source.hidden_from_user import DENIED
from ..source.server_facts import Source, has_exact_gtids
from ..source.session import Session
from ..source.statement_answers import read_value
from ..sql.quoting import first_names, identifier
from ..sql.token_reader import TableName
from .read_plan import ReadPlan
from .row_keys import key_of
from .transaction_touches import KeyColumns, TableId

#: The schemas of the server itself.
SYSTEM_SCHEMAS: Final = ("information_schema", "performance_schema", "mysql", "sys")
_TABLES: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE, TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_TYPE IN "
    f"('BASE TABLE', 'SYSTEM VERSIONED') AND TABLE_SCHEMA NOT IN {SYSTEM_SCHEMAS}"
)
#: The engine whose read views a chunk needs.
_ENGINES: Final = frozenset({"innodb", "rocksdb"})
#: ER_NO_SUCH_TABLE, ER_BAD_DB_ERROR, ER_BAD_TABLE_ERROR, ER_VIEW_INVALID: a view that was renamed, without its tables
NO_TABLE: Final = frozenset({1146, 1049, 1051, 1356})


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


class Refusals:
    """All errors that keep a copy from beginning, so that a user does not meet one after another."""

    def __init__(self) -> None:
        self._found: list[ConfigurationError] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Keep a ``ConfigurationError`` that is raised inside, for ``check``."""
        try:
            yield
        except ConfigurationError as error:
            self._found.append(error)

    def check(self) -> None:
        """Raise ``ConfigurationError`` if there is any."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            raise ConfigurationError("; ".join(map(str, self._found)))


def check_tables(tables: Iterable[Listed]) -> None:
    """Raise ``ConfigurationError`` with all tables whose engines have no read views."""
    refused = [one for one in tables if one.engine.lower() not in _ENGINES]
    if len(refused) > 1:
        names = first_names([f"{one.schema}.{one.name} ({one.engine or 'none'})" for one in refused])
        raise ConfigurationError(
            f"{names} cannot be copied exactly: their engines have no read views -- ALTER TABLE ... ENGINE=InnoDB, "
            "or leave them out with exclude_tables="
        )
    for one in refused:
        one.check()


async def list_tables(session: Session, wants: WantsTable | None) -> list[Listed]:
    """All tables that the user may see and the filter wants, in the order of their names; no views."""
    listed = await _list(session, _TABLES)
    wanted = [one for one in listed if wants is None or wants(one.schema, one.name)]
    return sorted(wanted, key=lambda one: one.identity)


async def list_named(session: Session, tables: Iterable[TableId]) -> list[Listed]:
    """Those of the tables that exist and that the user may see; no views. The query names these tables only."""
    return [one for where in conditions_of(tables) for one in await _list(session, _TABLES + where)]


async def _list(session: Session, sql: str) -> list[Listed]:
    return [
        Listed(
            read_value(_name, schema, _TABLES),
            read_value(_name, name, _TABLES),
            str(engine or ""),
            read_value(int, estimate or "0", _TABLES),
        )
        for schema, name, engine, estimate in await session.query(sql, 4)
    ]


def _name(text: str) -> str:
    # No statement could name it.
    if not is_characters(text):
        raise ValueError(text)
    return text


async def check_found(
    session: Session, patterns: Iterable[str], found: Collection[TableId], conditions: Iterable[str] = ()
) -> None:
    """Raise ``ConfigurationError`` if a copy would end at once, or leave out what the user does not see.

    ``conditions`` are the tables of ``snapshot_where``: all rows of a table that is misspelt there would be copied.
    """
    wants = TableFilter([pattern for pattern in patterns if pattern != "*"])
    for identity in found:
        wants(*identity)
    if unmatched := [repr(pattern) for pattern in wants.seen.unmatched]:
        raise ConfigurationError(
            f"tables: no table matches {first_names(unmatched)}, or the user lacks SELECT on it: a copy cannot begin "
            "-- correct the name, or GRANT SELECT on it"
        )
    names = {table_text(*table) for table in found}
    for table in conditions:
        if table not in names:
            raise ConfigurationError(
                f"snapshot_where: {table!r} is not among the tables that are copied (upper and lower case differ)"
            )
    if not found and not await _may_select(session):
        raise ConfigurationError(
            "the user lacks SELECT, and a copy cannot begin: GRANT SELECT on the tables, such as shop.*"
        )


async def check_conditions(
    session: Session, tables: Iterable[TableId], conditions: Mapping[str, str]
) -> None:
    """Raise ``ConfigurationError`` for a condition of ``snapshot_where`` that the source refuses."""
    for schema, name in tables:
        condition = conditions.get(table_text(schema, name))
        # Alone, too: one that ends the brackets would select rows of other chunks.
        for text in () if condition is None else (f"({condition})", condition):
            try:
                await session.query(
                    f"SELECT 1 FROM {identifier(schema)}.{identifier(name)} WHERE {text}\nLIMIT 0"
                )
            except ServerError as error:
                if is_passing_refusal(error) or error.code in NO_TABLE:
                    break
                why = " ".join(error.message.split())
                raise ConfigurationError(
                    f"snapshot_where: {schema}.{name}: the source refuses {condition!r}: {why}"
                ) from error


async def _may_select(session: Session) -> bool:
    """Whether the user has SELECT on anything; True where a role may have it, whose privileges are not listed."""
    grants = [
        text.partition(" ON ") for (text,) in await session.query("SHOW GRANTS", 1) if isinstance(text, str)
    ]
    return any(not scope or re.search(r"\b(SELECT|ALL PRIVILEGES)\b", what) for what, _, scope in grants)


async def read_plans(
    session: Session, source: Source, tables: Iterable[TableId], options: Options, suffix: str = ""
) -> dict[TableId, ReadPlan]:
    """How to read each of these tables as it is now; a table that does not exist is left out.

    Of a table in ``options.columns`` only these columns are read, as only they come from the log. Raises
    ``ConfigurationError`` if they lack a column of the key.
    """
    shapes = await read_shapes(session, [TableName(*table) for table in tables])
    return {
        name: ReadPlan(
            *name,
            _with_columns(str(name), shape, options.columns.get(table_text(*name))),
            is_mariadb=source.is_mariadb,
            where=options.snapshot_where.get(table_text(*name), ""),
            suffix=suffix,
            log_cells=options.cells,
        )
        for name, shape in shapes.items()
    }


async def check_keys(
    session: Session, source: Source, plans: Iterable[ReadPlan], options: Options, *, knows_gtids: bool
) -> None:
    """Raise ``ConfigurationError`` for tables without a key that cannot be read at one exact place of the log.

    ``knows_gtids``: the stream knows the GTID set of its place.
    """
    keyless = [str(plan.table) for plan in plans if not plan.key_names]
    if not keyless or options.snapshot_locking == "rows":
        return
    where = "without GTIDs, on MySQL 5.6 and on MariaDB"
    if await has_exact_gtids(session, source):
        if knows_gtids:
            return
        where = "in a stream that was started at a file and a position"
    raise ConfigurationError(
        f"{first_names(keyless)}: there is no key to copy by: {where} set snapshot_locking='rows', add a "
        "primary key, or leave the table out with exclude_tables="
    )


async def read_plan(session: Session, source: Source, table: TableId, options: Options) -> ReadPlan | None:
    """How to read one table as it is now; None if it does not exist, or the user may not see it.

    Raises what ``read_plans`` and ``name_tables`` raise.
    """
    plan = (await read_plans(session, source, [table], options)).get(TableName(*table))
    if plan is not None:
        await name_tables(session, [table], options)
    return plan


async def name_tables(session: Session, tables: Sequence[TableId], options: Options) -> None:
    """Name tables in a statement: no DDL of them comes between an open transaction and their rows from here on.

    Raises ``PrivilegeError`` for a column that the user may not read: information_schema does not show it, and the
    copy of the others would pass for a copy of the table. A statement for several tables reads none of them.
    """
    names = [f"{identifier(schema)}.{identifier(name)} AS t{at}" for at, (schema, name) in enumerate(tables)]
    columns = ["1" if table_text(*one) in options.columns else f"t{at}.*" for at, one in enumerate(tables)]
    try:
        await session.query(f"SELECT {', '.join(columns)} FROM {', '.join(names)} LIMIT 0")
    except ServerError as error:
        if error.code not in DENIED or len(tables) > 1:
            raise
        raise denied(error, tables[0]) from None


def denied(error: ServerError, table: TableId) -> PrivilegeError:
    """The error for a table that the user may not read, or not in all of its columns."""
    name = table_text(*table)
    remedy = f"GRANT SELECT ON {name}, name the readable columns in columns=, or leave the table out"
    return PrivilegeError(error.code, error.sqlstate, error.message, remedy)


async def check_gone(session: Session, table: TableId, options: Options) -> None:
    """Raise ``PrivilegeError`` for a table that information_schema does not show, if it is hidden and not gone."""
    try:
        await name_tables(session, [table], options)
    except ServerError as error:
        if error.code not in NO_TABLE:
            raise


def _with_columns(table: str, shape: Shape, names: Sequence[str] | None) -> Shape:
    if names is None:
        return shape
    key = key_of(shape)
    missing = [name for name, _ in (key.parts if key is not None else ()) if name not in names]
    if missing:
        raise ConfigurationError(
            f"columns: {table} is copied by its key, so name its columns, too: {', '.join(missing)}"
        )
    return replace(shape, columns=tuple(column for column in shape.columns if column.name in names))


def key_columns_of(plan: ReadPlan) -> KeyColumns:
    """The key of a plan, for following the table in the log."""
    names = plan.table.column_names
    ordinals = tuple(names.index(name) for name in plan.key_names)
    if not ordinals:
        return KeyColumns((), ())
    columns = [plan.shape.columns[index] for index in ordinals]
    text = ",".join(f"{column.name} {column.column_type} {column.charset}" for column in columns)
    end = next((column.name for column in plan.shape.columns if column.role == "end"), None)
    ordinal = -1 if end is None else names.index(end)
    # MySQL logs those that have changed.
    generated = [column.name for column in plan.shape.columns if column.generated and plan.is_mariadb]
    return KeyColumns(
        plan.key_names, ordinals, end, ordinal, f"{crc32(utf8_bytes(text)):08x}", tuple(generated)
    )
