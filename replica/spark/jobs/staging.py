"""The rows of micro-batches that wait for a merge, in files of the target, in the form in which merges take them.

    target/_state/changes/UUID.arrow    Arrow IPC streams, one after another; a ``Part`` names one

Executors write such files from packed rows; the driver only gets a description of the rows (``Staged``). A part has
rows of one table and one outcome, in the columns that a merge needs: the table's, ``_op``, ``_seq``, ``_ts``,
``_absent``, and the key's columns of ``_before`` (without a key all, and ``_before_absent``). The state of the job
(``job_state``) says which files are still needed.
"""

import base64
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSelector, FileSystem, FileType

from protocol.errors import CheckpointError
from protocol.records import field, record, replace

from ...spool.storage import make_folder
from ..packed_items import PackedItem, unpack
from .changes_per_key import KEPT_FACTS, Numbers, column_names, moved
from .leaf_files import folder
from .leaves import places

FOLDER: Final = "_state/changes"
#: How rows are written. A part is small: threads cost more than they save.
COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_NOWHERE: Final = np.zeros(0, np.int64)
#: The most moves that a part names; see ``Part``.
_MOVES: Final = 64


@record(frozen=True, slots=True)
class Part:
    """Rows of one table in a file. Their places lie from ``low`` to ``high``.

    ``moves`` has the places before and after of keys that moved in an update that lacks columns; None: many of them.
    ``moment`` is the time of the commit, if it came later than the rows (XA COMMIT), in microseconds since 1970.
    ``span`` has the least and the largest sequence number; None: not known. Rows before ``after`` are left out.
    ``length`` is in bytes of compressed rows, ``size`` in memory (0: not known, from an older version).
    """

    path: str
    offset: int
    length: int
    rows: int
    low: int
    high: int
    moves: tuple[tuple[int, int], ...] | None = ()
    moment: int | None = None
    span: tuple[int, int] | None = None
    after: int | None = None
    size: int = 0

    def behind(self, begin: int) -> "Part | None":
        """The rows of the part with sequence numbers from ``begin`` on; None if it has none."""
        if self.span is None or self.span[0] >= begin:
            return self
        return None if self.span[1] < begin else replace(self, after=begin)


@record(frozen=True, slots=True)
class StagedRows:
    """The parts of one packed item with its facts; ``outcomes`` are those of all rows, ``prepared`` is by XA id."""

    key: tuple[str, ...]
    has_names: bool
    schema: pa.Schema
    outcomes: tuple[str, ...]
    committed: Part | None = None
    prepared: dict[str, Part] = field(default_factory=dict)

    @property
    def parts(self) -> list[Part]:
        """All parts."""
        found = [] if self.committed is None else [self.committed]
        return [*found, *self.prepared.values()]

    def behind(self, begin: int) -> "StagedRows":
        """The rows with sequence numbers from ``begin`` on."""
        committed = self.committed and self.committed.behind(begin)
        prepared = {xa: part for xa, part in self.prepared.items() if part.behind(begin) is not None}
        return replace(self, committed=committed, prepared=prepared)


@record(frozen=True, slots=True)
class Staged:
    """An item of packed mode without its rows, which are in files."""

    item: PackedItem
    rows: StagedRows | None = None

    @property
    def parts(self) -> list[Part]:
        """All parts of the item."""
        return [] if self.rows is None else self.rows.parts


class StagingFile:
    """A file of parts, which is written by one task."""

    def __init__(self, target: str, storage: Mapping[str, str], *, is_changelog: bool = False) -> None:
        """``is_changelog``: tables need no primary key, and the places of keys are left out."""
        self._system = folder(target, storage)
        self._is_changelog = is_changelog
        self.path = f"{FOLDER}/{uuid.uuid4()}.arrow"
        self._sink: pa.NativeFile | None = None

    def stage(self, item: PackedItem) -> Staged:
        """The item, after its rows have been written."""
        if item.rows is None:
            return Staged(item)
        packed = unpack(item.rows)
        rows = pa.Table.from_batches([packed.rows])
        outcomes = rows["_outcome"]
        found = tuple(pc.unique(outcomes).to_pylist())
        pruned = _pruned(rows, packed.key)
        committed, prepared = None, {}
        # A table without a key, or without column names, is refused at its first row, so its rows are not needed.
        if (packed.key or self._is_changelog) and packed.has_names:
            if "commit" in found:
                chosen = pruned if found == ("commit",) else pruned.filter(pc.equal(outcomes, "commit"))
                committed = self.write(chosen, packed.key)
            if "prepared" in found:
                for xa in pc.unique(rows["_xa"].filter(pc.equal(outcomes, "prepared"))).to_pylist():
                    chosen = pc.and_(pc.equal(outcomes, "prepared"), pc.equal(rows["_xa"], xa))
                    prepared[xa] = self.write(pruned.filter(chosen), packed.key)
        about = StagedRows(packed.key, packed.has_names, pruned.schema, found, committed, prepared)
        return Staged(replace(item, rows=None), about)

    def close(self) -> None:
        """Finish the file, if any item had rows."""
        if self._sink is not None:
            self._sink.close()

    def write(self, rows: pa.Table, key: Sequence[str]) -> Part:
        """Write these rows, which have exactly the columns of a part, and return the part."""
        if self._sink is None:
            make_folder(self._system, FOLDER)
            self._sink = self._system.open_output_stream(self.path)
        offset = self._sink.tell()
        with pa.ipc.new_stream(self._sink, rows.schema, options=COMPRESSED) as writer:
            writer.write_table(rows.combine_chunks())
        where, moves = (_NOWHERE, ()) if self._is_changelog else _moves(rows, key)
        low, high = (int(where.min()), int(where.max())) if len(where) else (0, 0)
        found = pc.min_max(rows["_seq"])
        span = (int(found["min"].as_py()), int(found["max"].as_py())) if rows.num_rows else None
        length = self._sink.tell() - offset
        return Part(self.path, offset, length, rows.num_rows, low, high, moves, span=span, size=rows.nbytes)


def read_part(system: FileSystem, part: Part) -> pa.Table:
    """The rows of a part; ``system`` is the target's file system."""
    with system.open_input_file(part.path) as file:
        file.seek(part.offset)
        data = file.read_buffer(part.length)
    try:
        if data.size < part.length:
            raise pa.ArrowInvalid("it is cut off")
        with pa.ipc.open_stream(data) as reader:
            rows = reader.read_all()
    except pa.ArrowInvalid as error:
        raise CheckpointError(f"the file {part.path} of waiting changes is damaged: {error}") from error
    if part.after is not None:
        rows = rows.filter(pc.greater_equal(rows["_seq"], pa.scalar(part.after, rows["_seq"].type)))
    if part.moment is None:
        return rows
    place = rows.schema.get_field_index("_ts")
    moment = pa.scalar(part.moment, pa.int64()).cast(rows.schema.field(place).type)
    return rows.set_column(place, rows.schema.field(place), pa.repeat(moment, rows.num_rows))


def delete_files(target: str, storage: Mapping[str, str], keep: Iterable[str], seconds: float = 0) -> None:
    """Delete the files of parts, except those to ``keep``, and those not older than so many seconds."""
    system, kept = folder(target, storage), set(keep)
    before = time.time() - seconds
    for info in system.get_file_info(FileSelector(FOLDER, allow_not_found=True)):
        if info.type != FileType.File or info.path in kept:
            continue
        if not seconds or info.mtime_ns is None or info.mtime_ns < before * 1e9:
            system.delete_file(info.path)


def _moves(rows: pa.Table, key: Sequence[str]) -> tuple[Numbers, tuple[tuple[int, int], ...] | None]:
    """The places of all rows, before and after, and the ``moves`` of a part. Rows with unknown keys are left out."""
    rows = rows.filter(_all_valid([rows[name] for name in key]))
    where = places(rows.select(list(key)))
    moving = rows.take(pa.array(moved(rows, key)))
    before = moving["_before"].combine_chunks()
    is_known = _all_valid([pc.struct_field(before, name) for name in key])
    moving, before = moving.filter(is_known), before.filter(is_known)
    olds = pa.Table.from_arrays([pc.struct_field(before, name) for name in key], names=list(key))
    pairs = np.stack([places(olds), places(moving.select(list(key)))], axis=1)
    where = np.concatenate([where, pairs[:, 0]])
    lacking = pairs[moving["_absent"].is_valid().to_numpy()]
    if len(lacking) > _MOVES:
        return where, None
    return where, tuple((before, after) for before, after in lacking.tolist())


def _all_valid(columns: Iterable[pa.Array | pa.ChunkedArray]) -> pa.Array | pa.ChunkedArray:
    first, *others = (column.is_valid() for column in columns)
    return reduce(pc.and_, others, first)


def _pruned(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows with the columns that a merge needs. Of the rows before, it needs only the key, if there is one."""
    names = [*column_names(rows), *KEPT_FACTS]
    if not key:
        return rows.select([*names, "_before", "_before_absent"])
    before = rows["_before"].combine_chunks()
    columns = [pc.struct_field(before, name) for name in key]
    fields = [rows.schema.field(name) for name in key]
    nulls = before.is_null() if before.null_count else None
    before = pa.StructArray.from_arrays(columns, fields=fields, mask=nulls)
    return rows.select(names).append_column("_before", before)


# As JSON, from executors to the driver, and in the job's state.


def part_to_json(part: Part) -> list[Any]:
    """A part as JSON."""
    return list(asdict(part).values())


def part_from_json(data: Sequence[Any]) -> Part:
    """The reverse of ``part_to_json``."""
    path, offset, length, rows, low, high, moves, moment, span, *more = data
    pairs = None if moves is None else tuple((old, new) for old, new in moves)
    return Part(path, offset, length, rows, low, high, pairs, moment, span and (span[0], span[1]), *more)


def schema_to_text(schema: pa.Schema) -> str:
    """A schema as text."""
    return base64.b64encode(schema.serialize()).decode()


def schema_from_text(text: str) -> pa.Schema:
    """The reverse of ``schema_to_text``."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def staged_to_json(staged: Staged) -> list[Any]:
    """A staged item as JSON."""
    rows = staged.rows
    about = rows and [
        rows.key,
        rows.has_names,
        schema_to_text(rows.schema),
        rows.outcomes,
        rows.committed and part_to_json(rows.committed),
        {xa: part_to_json(part) for xa, part in rows.prepared.items()},
    ]
    return [list(asdict(staged.item).values()), about]


def staged_from_json(data: Sequence[Any]) -> Staged:
    """The reverse of ``staged_to_json``."""
    item, about = data
    if about is None:
        return Staged(PackedItem(*item))
    key, has_names, schema, outcomes, committed, prepared = about
    rows = StagedRows(
        tuple(key),
        has_names,
        schema_from_text(schema),
        tuple(outcomes),
        committed and part_from_json(committed),
        {xa: part_from_json(part) for xa, part in prepared.items()},
    )
    return Staged(PackedItem(*item), rows)
