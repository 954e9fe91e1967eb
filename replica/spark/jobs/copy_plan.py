"""The plan of a first copy: where the log goes on, and which ranges of which tables are read. No Spark.

    make_plan     asks the source: tables, keys, the place to follow the log from
    changed_since asks its log whether a statement has changed a planned table
    CopyPlan      target/_state/copy.json, so that a killed copy goes on with the same plan

Rows are read at different moments, each after ``offset``; the log from there on has every change that they lack. A
statement about a table lets all transactions before it finish. So the log of a table counts from the last statement
about it before the plan (``begins``). Earlier changes are in the rows already, and may have had other columns.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from protocol.errors import CheckpointError, ConfigurationError, PrivilegeError, SchemaMismatchError
from protocol.gtid import GtidSet
from protocol.position import BinlogPosition
from protocol.records import field, record, replace
from protocol.rows.table import Table, table_text

from ...arrow import batch_schema
from ...config.options import Options
from ...config.table_names import split_text
from ...schemas.reading import TableReader
from ...schemas.touched import last_touches, touched_by
from ...snapshot.chunk_reader import prepare_session
from ...snapshot.key_splits import key_ranges
from ...snapshot.range_reader import open_behind
from ...snapshot.read_plan import ReadPlan
from ...snapshot.row_keys import KeyRange
from ...snapshot.table_list import Listed, check_found, list_tables, name_tables, read_plans
from ...source.log_scan import LogScan
from ...source.resolve_start import log_end
from ...source.server_facts import Source
from ...source.session import Session
from ...source.statement_answers import read_value
from ...spool.offsets import Offset
from ...spool.start_offset import find_offset
from ...sql import ddl
from ...sql.quoting import identifier
from ...sql.token_reader import TableName
from ..packed import without_durations
from ..table_mode import spark_type
from .job_state import TableState
from .kept_table import check_columns, check_name
from .leaves import HIGHEST, LEAF_BYTES, LOWEST, Range
from .redefinitions import known_columns
from .staging import schema_from_text, schema_to_text

# Version 3 had no sizes, and refused all tables if one could not be kept.
_VERSION: Final = 4
#: A range is about so many bytes of the source's table; Parquet takes about a third. The job of a range costs Spark
#: 0.2 s of processor, its task 0.6 s.
_RANGE_BYTES: Final = 128 << 20
#: A larger table has at least one range for each connection.
_PARTED_BYTES: Final = 8 << 20
_COMPRESSION: Final = 3
_SIZES: Final = "SELECT TABLE_SCHEMA, TABLE_NAME, DATA_LENGTH FROM information_schema.TABLES"


@record(slots=True, frozen=True)
class CopiedTable:
    """How one table is copied: ``schema`` in the types of kept tables, ranges of its key, ranges of its leaves.

    ``size`` is the source's table in bytes. ``defaults`` and ``kinds``: see ``TableState``.
    """

    schema: pa.Schema
    key: tuple[str, ...]
    ranges: tuple[KeyRange, ...]
    leaves: tuple[Range, ...]
    size: int
    defaults: Mapping[str, str | None] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)

    def state(self) -> TableState:
        """The state of the table when it has been copied."""
        return TableState(
            dict(self.defaults),
            is_seeded=True,
            kinds=dict(self.kinds),
            is_settling=True,
            key=list(self.key),
        )


@record(slots=True, frozen=True)
class CopyPlan:
    """``read_at``: where the log ended when the tables' columns were read, ``FILE:POSITION``.

    ``begins``: table -> the place from which its log counts; "" stands for all tables that are not in ``tables``.
    ``refused``: table -> why it cannot be kept.
    """

    offset: str
    read_at: str
    begins: Mapping[str, str]
    tables: Mapping[str, CopiedTable] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """The plan as JSON."""
        tables = {
            name: {
                "schema": schema_to_text(table.schema),
                "key": table.key,
                "ranges": [range_to_json(keys) for keys in table.ranges],
                "leaves": table.leaves,
                "size": table.size,
                "defaults": dict(table.defaults),
                "kinds": dict(table.kinds),
            }
            for name, table in self.tables.items()
        }
        said = {
            "version": _VERSION,
            "offset": self.offset,
            "read_at": self.read_at,
            "begins": dict(self.begins),
            "refused": dict(self.refused),
        }
        return json.dumps({**said, "tables": tables}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "CopyPlan":
        """The reverse of ``to_json``. Raises ``CheckpointError`` for a plan of another version."""
        found: dict[str, Any] = json.loads(data)
        if found.get("version") != _VERSION:
            raise CheckpointError("copy.json is a plan of another version: give an empty target")
        tables = {
            name: CopiedTable(
                schema_from_text(table["schema"]),
                tuple(table["key"]),
                tuple(map(range_from_json, table["ranges"])),
                tuple((low, high) for low, high in table["leaves"]),
                table["size"],
                table["defaults"],
                table["kinds"],
            )
            for name, table in found["tables"].items()
        }
        return cls(found["offset"], found["read_at"], found["begins"], tables, found["refused"])


def range_to_json(keys: KeyRange) -> list[list[str] | None]:
    """A range as JSON: the bytes of its bounds as digits."""
    return [None if bound is None else [part.hex() for part in bound] for bound in (keys.after, keys.upto)]


def range_from_json(data: list[list[str] | None]) -> KeyRange:
    """The reverse of ``range_to_json``."""
    after, upto = (None if bound is None else tuple(bytes.fromhex(part) for part in bound) for bound in data)
    return KeyRange(after, upto)


async def make_plan(options: Options, wants: Callable[[str], bool], least: int) -> CopyPlan:
    """The plan for all wanted tables as they are now; a table of many rows has at least ``least`` ranges.

    Raises ``ConfigurationError`` if no table can be kept, or there is none.
    """
    offset = await find_offset(options, "snapshot")
    session, source = await _open_again(options, offset)
    try:
        reader = TableReader(session, source)
        reading = await reader.read()
        await prepare_session(session)
        listed = await list_tables(session, lambda schema, name: wants(table_text(schema, name)))
        await check_found(session, options.tables, [one.identity for one in listed])
        plans = await read_plans(session, source, [one.identity for one in listed], options)
        refused = _refused(listed, plans)
        listed = [one for one in listed if table_text(*one.identity) not in refused]
        sizes = {
            (str(schema), str(name)): read_value(int, size or "0", _SIZES)
            for schema, name, size in await session.query(_SIZES, 3)
        }
        tables = dict[str, CopiedTable]()
        for one in listed:
            name, size = table_text(*one.identity), sizes.get(one.identity, 0)
            try:
                await name_tables(session, [one.identity], options)
                tables[name] = await _table(session, plans[one.identity], size, one.estimate, least)
            except PrivilegeError as error:
                refused[name] = f"{name}: {error.message}: GRANT SELECT ON {name}, or exclude the table"
        if refused and not tables:
            raise ConfigurationError("; ".join(refused.values()))
        found = await reader.statements(_place(offset), reading.place)
        last = last_touches(
            ((logged.statement, logged.end) for logged in found), (TableName(*one.identity) for one in listed)
        )
        begins = {table_text(*table): str(end) for table, end in last.items()}
        begins[""] = str(reading.place)
    finally:
        await session.aclose()
    return CopyPlan(json.dumps(offset.to_dict()), str(reading.place), begins, tables, refused)


async def changed_since(options: Options, plan: CopyPlan) -> tuple[list[str], BinlogPosition]:
    """The planned tables that a statement has changed since the plan was made, and where the log ends."""
    session, source = await _open_again(options, Offset.from_dict(json.loads(plan.offset)))
    try:
        reader = TableReader(session, source)
        end = await log_end(session, source, LogScan(session.options, source))
        found = await reader.statements(BinlogPosition.parse(plan.read_at), end)
    finally:
        await session.aclose()
    touched = touched_by(logged.statement for logged in found)
    return [name for name in plan.tables if TableName(*split_text(name)) in touched], end


async def _open_again(options: Options, offset: Offset) -> tuple[Session, Source]:
    """A connection to the server of the offset, as positions of its log are compared."""
    return await open_behind(options, replace(offset, gtid_set=None))


def _refused(listed: list[Listed], plans: Mapping[tuple[str, str], ReadPlan]) -> dict[str, str]:
    """The tables that cannot be kept, and why."""
    refused = dict[str, str]()
    for one in listed:
        name = table_text(*one.identity)
        try:
            check_name(name)
            one.check()
            check_columns(name, (column.name for column in plans[one.identity].table.columns))
        except (ConfigurationError, SchemaMismatchError) as error:
            refused[name] = str(error)
        else:
            if plans[one.identity].shape.primary is None:
                refused[name] = (
                    f"{name}: no primary key, so its rows cannot be told apart: exclude the table, or add one"
                )
    return refused


async def _table(session: Session, plan: ReadPlan, size: int, estimate: int, least: int) -> CopiedTable:
    kept = kept_schema(plan.table)
    count = least if size > _PARTED_BYTES else 1
    ranges = await key_ranges(session, plan, max(count, -(-size // _RANGE_BYTES)), estimate)
    assert plan.shape.primary is not None
    key = tuple(name for name, _ in plan.shape.primary.parts)
    leaves = leaf_ranges(kept.field(key[0]), ranges, -(-size // (LEAF_BYTES * _COMPRESSION)))
    return CopiedTable(kept, key, tuple(ranges), leaves, size, *await _definitions(session, plan.table))


def kept_schema(table: Table) -> pa.Schema:
    """The columns of a table in the types of kept tables."""
    fields = [pa.field(one.name, spark_type(one.type)) for one in batch_schema(table, metadata=())]
    return without_durations(pa.RecordBatch.from_pylist([], schema=pa.schema(fields))).schema


async def _definitions(session: Session, table: Table) -> tuple[dict[str, str | None], dict[str, str]]:
    """The defaults and the types of a table's columns, as its CREATE TABLE in the log would give them."""
    rows = await session.query(f"SHOW CREATE TABLE {identifier(table.schema)}.{identifier(table.name)}", 2)
    sql = rows[0][1] if rows else ""
    text = sql.decode("utf-8", "replace") if isinstance(sql, bytes) else sql or ""
    for action in ddl.table_actions(text, table.schema):
        if isinstance(action, ddl.CreateTable):
            return known_columns(action)
    return {}, {}


def leaf_ranges(first: pa.Field, ranges: list[KeyRange], count: int) -> tuple[Range, ...]:
    """The ranges of about so many leaves: between the bounds of ranges, or of equal parts of all hashes."""
    if pa.types.is_integer(first.type) or pa.types.is_decimal(first.type):
        bounds = [int(keys.upto[0].split(b".")[0]) for keys in ranges[:-1] if keys.upto is not None]
        each = max(1, -(-len(ranges) // max(count, 1)))
        lows = sorted({bound + 1 for bound in bounds[each - 1 :: each]})
        lows = [low for low in lows if LOWEST < low <= HIGHEST]
    else:
        lows = [LOWEST + (HIGHEST - LOWEST) // count * number for number in range(1, count)]
    lows = [LOWEST, *lows]
    return tuple(zip(lows, [*(low - 1 for low in lows[1:]), HIGHEST], strict=True))


def _place(offset: Offset) -> BinlogPosition | GtidSet:
    if offset.file:
        return BinlogPosition(offset.file, offset.position)
    gtids = offset.gtids
    assert isinstance(gtids, GtidSet)
    return gtids
