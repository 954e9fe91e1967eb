"""Rows of a kept table's files: reading the old ones in parts, and writing new leaves. No Spark; executors do this.

A file is not read as a whole: ``read`` gives some ten thousand rows at a time, and ``LeafWriter`` holds a few row
groups. So the memory of a task depends on the changes of its leaf, not on the size of its files.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, SubTreeFileSystem

from protocol.errors import CheckpointError
from protocol.records import record

from ...spool.storage import system_of
from .leaves import Range, file_name, places, tag

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.dataset import Dataset

_READ_ROWS: Final = 1 << 16
#: The bytes of rows that a writer holds before it writes them as row groups.
_HELD_BYTES: Final = 48 << 20
_SAMPLE_ROWS: Final = 8192
#: The number of columns with statistics in Delta's log.
INDEXED: Final = 32


@record(frozen=True, slots=True)
class NewFile:
    """A file that no commit names yet. ``stats`` is the JSON text for the table's log."""

    path: str
    size: int
    rows: int
    stats: str


def folder(path: str, storage: Mapping[str, str]) -> FileSystem:
    """The file system whose root is this folder, which need not be there."""
    system, root = system_of(path, storage)
    return SubTreeFileSystem(root, system)


def dataset(table: "DeltaTable", path: str, storage: Mapping[str, str]) -> "Dataset":
    """The rows of the Delta table at this path.

    Without a file system of Arrow's own, deltalake gives Arrow one of Python objects. Arrow's threads let go of these
    when the rows have been read already, and a process that ends just then is aborted ("terminate called without an
    active exception", delta-io/delta-rs#2184): a thread that asks for Python's lock too late is ended, within C++.
    """
    return table.to_pyarrow_dataset(filesystem=folder(path, storage))


def read(
    system: FileSystem, paths: Iterable[str], schema: pa.Schema, names: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of files in parts, with these columns of the schema; columns that a file lacks are null."""
    wanted = schema if names is None else pa.schema([schema.field(name) for name in names])
    for path in paths:
        try:
            with system.open_input_file(path) as source, pq.ParquetFile(source) as file:
                found = [name for name in wanted.names if name in file.schema_arrow.names]
                for batch in file.iter_batches(_READ_ROWS, columns=found):
                    yield aligned(pa.Table.from_batches([batch]), wanted)
        except pa.ArrowInvalid as error:
            raise CheckpointError(f"the file {path} is damaged: {error}") from error


def aligned(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the columns of the schema, in its types; what they lack is null."""
    columns = []
    for field in schema:
        if field.name not in rows.schema.names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows[field.name]
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


class FileWriter:
    """Writes one file; ``add`` holds some rows, which become a row group."""

    def __init__(self, system: FileSystem, path: str, schema: pa.Schema, indexed: int = INDEXED) -> None:
        """The first ``indexed`` columns get statistics."""
        self._system = system
        self._path = path
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._statistics = _Statistics(
            [field.name for field in list(schema)[:indexed] if is_indexed(field.type)]
        )
        self._parts: list[pa.Table] = []
        self._held = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows with the columns of the schema."""
        self.hold(rows)
        if self._held > _HELD_BYTES:
            self.write()

    def hold(self, rows: pa.Table) -> None:
        """Hold rows until ``write`` is called."""
        self._parts.append(rows)
        self._held += rows.nbytes

    def write(self) -> None:
        """Write what is held."""
        if self._parts:
            rows = pa.concat_tables(self._parts).combine_chunks()
            self._parts.clear()
            self._held = 0
            self._statistics.add(rows)
            self._opened(rows).write_table(rows)

    def finish(self) -> NewFile:
        """Write the remaining rows, and close the file."""
        self.write()
        self._opened(self._schema.empty_table()).close()
        size = self._system.get_file_info(self._path).size
        return NewFile(self._path, size, self._statistics.rows, self._statistics.text())

    def _opened(self, rows: pa.Table) -> pq.ParquetWriter:
        """The writer of the file, which is opened for the first ``rows``."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path,
                self._schema,
                filesystem=self._system,
                compression="zstd",
                compression_level=1,
                use_dictionary=_repeated(rows.slice(0, _SAMPLE_ROWS)) or False,
            )
        return self._writer


def _repeated(rows: pa.Table) -> list[str]:
    """The columns with repeated values, for which a dictionary saves bytes.

    A dictionary of values that are all different saves none. Until it reached Parquet's largest size, it took a sixth
    of the time of writing.
    """
    return [
        field.name
        for field in rows.schema
        if not pa.types.is_nested(field.type)
        and 2 * pc.count_distinct(rows[field.name]).as_py() < rows.num_rows
    ]


class LeafWriter:
    """Writes rows of any order to files, one for each of the ``ranges`` of places that has rows."""

    def __init__(
        self,
        system: FileSystem,
        schema: pa.Schema,
        key: Sequence[str],
        *,
        kind: str,
        ranges: Sequence[Range],
        indexed: int = INDEXED,
    ) -> None:
        """The first ``indexed`` columns get statistics."""
        self._system = system
        self._schema = schema
        self._key = list(key)
        self._kind = kind
        self._tag = tag([schema.field(name) for name in key])
        self._ranges = ranges
        self._lows = np.array([low for low, _ in ranges], np.int64)
        self._indexed = indexed
        self._open: dict[int, FileWriter] = {}
        self._held = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows with the columns of the schema."""
        if not rows.num_rows:
            return
        if len(self._ranges) == 1:
            self._file(0).hold(rows)
        else:
            ranks = np.searchsorted(self._lows, places(rows.select(self._key)), side="right") - 1
            for number in np.unique(ranks).tolist():
                chosen = np.flatnonzero(ranks == number)
                self._file(number).hold(rows if len(chosen) == len(ranks) else rows.take(pa.array(chosen)))
        self._held += rows.nbytes
        if self._held > _HELD_BYTES:
            self._held = 0
            for file in self._open.values():
                file.write()

    def finish(self) -> list[NewFile]:
        """Write the remaining rows. Returns all files."""
        return [file.finish() for file in self._open.values()]

    def _file(self, number: int) -> FileWriter:
        file = self._open.get(number)
        if file is None:
            path = file_name(self._kind, self._tag, self._ranges[number])
            file = self._open[number] = FileWriter(self._system, path, self._schema, self._indexed)
        return file


class _Statistics:
    """The statistics by which readers skip a file: the number of rows, and the least and largest value of columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self.rows = 0
        self._nulls = dict.fromkeys(names, 0)
        self._ends: dict[str, tuple[Any, Any]] = {}

    def add(self, rows: pa.Table) -> None:
        """Count these rows."""
        self.rows += rows.num_rows
        for name in self._nulls:
            column = rows[name]
            self._nulls[name] += column.null_count
            if column.null_count < len(column):
                found = pc.min_max(column)
                low, high = found["min"].as_py(), found["max"].as_py()
                known = self._ends.get(name, (low, high))
                self._ends[name] = min(known[0], low), max(known[1], high)

    def text(self) -> str:
        """The statistics as JSON for the table's log."""
        lows, highs = {}, {}
        for name, (low, high) in self._ends.items():
            # The last possible millisecond has no next one, to which the largest value would be rounded up.
            with contextlib.suppress(OverflowError):
                lows[name], highs[name] = _said(low), _said(high, is_high=True)
        found = {"numRecords": self.rows, "minValues": lows, "maxValues": highs, "nullCount": self._nulls}
        return json.dumps(found)


def is_indexed(kind: pa.DataType) -> bool:
    """Whether columns of this type have statistics."""
    # Readers parse other numbers as floats, and texts may be cut.
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _said(value: int | date, *, is_high: bool = False) -> int | str:
    """A value in Delta's statistics, where times have milliseconds."""
    if not isinstance(value, datetime):
        return value.isoformat() if isinstance(value, date) else value
    if is_high:
        value += timedelta(microseconds=-value.microsecond % 1000)
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if value.tzinfo is None else f"{text}Z"
