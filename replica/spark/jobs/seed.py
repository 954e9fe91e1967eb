"""A seed: the rows of tables at a checkpoint, with which a job begins if the log does not reach back far enough.

    PATH@CHECKPOINT

PATH has ``schema/table`` for each table: a Delta table, a folder of Parquet files, or ``table.parquet``. If the job
keeps one table only, PATH may be that table itself. CHECKPOINT is ``FILE:POSITION``, the GTID set of all transactions
in the state, the JSON of a ``replica.Checkpoint`` or of an offset, or a file with such JSON. For ``mirror`` the state
may have some changes after the checkpoint, too: rows are replaced by their keys. This module writes seeds to the
target; the log after them is applied by ``micro_batch``.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from protocol.errors import ConfigurationError
from protocol.gtid import parse_gtid_set
from protocol.position import BinlogPosition, Checkpoint, file_number
from protocol.records import record, replace
from protocol.rows.table import table_text

from ...config.checked_json import checked
from ...config.options import Options
from ...source.dump import Greeted
from ...source.resolve_start import StartPoint, with_gtids
from ...spool.offsets import Offset
from ...spool.storage import NO_STORAGE
from ..packed import repack, without_durations
from ..packed_items import PackedItem, unpack
from ..table_mode import spark_type
from .blocking import run_aside
from .kept_table import PLANTED, check_name
from .leaf_files import dataset
from .target import Target

_SUFFIX: Final = ".parquet"
_CHUNK_ROWS: Final = 1 << 16
Batches = Iterator[pa.RecordBatch]


@record(frozen=True, slots=True)
class Seed:
    """A seed: ``place`` is a position, a GTID set as text, or an offset; ``tables`` has paths by ``schema.table``."""

    place: BinlogPosition | str | Offset
    tables: dict[str, str]


def read_seed(text: str, wants: Callable[[str], bool], only: str | None) -> Seed:
    """A seed from ``PATH@CHECKPOINT``; ``only`` is the table if the job keeps one. Raises ``ConfigurationError``."""
    path, separator, checkpoint = text.rpartition("@")
    if not separator or not path or not checkpoint:
        raise ConfigurationError(f"seed: must be PATH@CHECKPOINT, not {text!r}")
    tables = {name: found for name, found in _tables(path, only) if wants(name)}
    if not tables:
        raise ConfigurationError(
            f"seed: {path} has none of the wanted tables: it must have them as schema/table, in Parquet or Delta"
        )
    for name in tables:
        check_name(name)
    return Seed(_place(checkpoint), tables)


def start_options(seed: Seed, options: Options) -> dict[str, str]:
    """The options of the source by which the stream begins after the seed."""
    place = seed.place
    if isinstance(place, str):
        return {"startingGtidSet": place}
    if isinstance(place, BinlogPosition):
        place = run_aside(_offset(place, options))
    return {"startingOffsets": json.dumps(place.to_dict())}


def plant(seed: Seed, target: Target) -> None:
    """Write the seed's tables to the target, some thousand rows at a time. Tables there are overwritten."""
    for name, path in seed.tables.items():
        table = target.table(name)
        schema, batches = _read(path)
        empty = table.seeded(_converted(schema.empty_table()))
        parts = (table.seeded(_converted(pa.Table.from_batches([batch]))) for batch in batches)
        write_deltalake(
            table.path,
            pa.RecordBatchReader.from_batches(
                empty.schema, (batch for part in parts for batch in part.to_batches())
            ),
            mode="overwrite",
            schema_mode="overwrite",
            storage_options=dict(target.storage),
            commit_properties=CommitProperties(app_transactions=[Transaction(PLANTED, 0)]),
        )


def behind(seed: Seed, items: Iterable[PackedItem]) -> Iterator[PackedItem]:
    """The items of files from the seed's place on. Raises ``ConfigurationError`` unless the place is a position."""
    place = seed.place
    if isinstance(place, str) or not place.file:
        raise ConfigurationError("seed: for files the checkpoint must be a position, FILE:POSITION")
    begin = file_number(place.file), place.position
    for item in items:
        if item.op != "rows":
            if (file_number(item.file), item.pos) >= begin:
                yield item
            continue
        assert item.rows is not None
        packed = unpack(item.rows)
        is_before = file_number(item.file) < begin[0]
        first = 0 if file_number(item.file) > begin[0] else place.position
        rows = packed.rows.slice(0, 0) if is_before else packed.rows
        rows = rows.filter(pc.greater_equal(rows.column("_pos"), first))
        if rows.num_rows:
            yield replace(item, rows=repack(packed, rows))


# The tables of a seed.


def _tables(path: str, only: str | None) -> Iterator[tuple[str, str]]:
    if only is not None and _is_table(path):
        yield only, path
        return
    with contextlib.suppress(NotADirectoryError, FileNotFoundError):
        for schema in sorted(os.listdir(path)):
            folder = os.path.join(path, schema)
            for table in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                found = os.path.join(folder, table)
                if _is_table(found):
                    yield table_text(schema, table.removesuffix(_SUFFIX)), found


def _is_table(path: str) -> bool:
    if not os.path.isdir(path):
        return path.endswith(_SUFFIX) and os.path.isfile(path)
    return _is_delta(path) or any(name.endswith(_SUFFIX) for name in os.listdir(path))


def _is_delta(path: str) -> bool:
    return os.path.isdir(path) and DeltaTable.is_deltatable(path)


def _read(path: str) -> tuple[pa.Schema, Batches]:
    if _is_delta(path):
        rows = dataset(DeltaTable(path), path, NO_STORAGE)
    else:
        rows = ds.dataset(path, format="parquet")
    return rows.schema, rows.to_batches(batch_size=_CHUNK_ROWS)


def _converted(rows: pa.Table) -> pa.Table:
    """The rows in the types of kept tables."""
    fields = [pa.field(field.name, _kept_type(field.type)) for field in rows.schema]
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(rows.columns, fields, strict=True)
    ]
    [batch] = pa.Table.from_arrays(columns, schema=pa.schema(fields)).combine_chunks().to_batches() or [None]
    if batch is None:
        batch = pa.RecordBatch.from_pylist([], schema=pa.schema(fields))
    return pa.Table.from_batches([without_durations(batch)])


def _kept_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _kept_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        return pa.duration("us")
    return spark_type(kind)


# The checkpoint of a seed.


def _place(text: str) -> BinlogPosition | str | Offset:
    if os.path.isfile(text):
        with open(text) as file:
            text = file.read()
    text = text.strip()
    if text.startswith("{"):
        return _from_json(text)
    with contextlib.suppress(ConfigurationError):
        return str(parse_gtid_set(text))
    return BinlogPosition.parse(text)


def _from_json(text: str) -> Offset:
    try:
        data = checked(json.loads(text))
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"seed: the checkpoint cannot be read: {error}") from None
    if "epoch" in data:
        return Offset.from_dict(data)
    checkpoint = Checkpoint.from_dict(data)
    return Offset(
        checkpoint.file,
        checkpoint.position,
        checkpoint.gtid_set,
        checkpoint.server_uuid,
        checkpoint.server_id,
        file_begun=checkpoint.file_begun,
    )


async def _offset(place: BinlogPosition, options: Options) -> Offset:
    """The offset of a position in the log of the server that answers now."""
    greeted = await Greeted.open(options)
    try:
        point = StartPoint(place.file, place.position)
        if greeted.source.has_gtids:
            point = await with_gtids(point, greeted.source, greeted.scan())
        return Offset.at(greeted.source, point.file, point.position, point.gtid_set)
    finally:
        await greeted.session.aclose()
