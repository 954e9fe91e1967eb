"""Rows of Python values as Parquet files, with the column types of ``batch_schema``: for exports.

A prepared row is a list of the values that its Arrow arrays are made of. Zero and partial dates become null, as in
other batches, and a JSON document is the text that SELECT gives.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from protocol.constants import ColumnType
from protocol.rows.column import Column
from protocol.rows.compiler import Row
from protocol.rows.table import Table
from protocol.values.jsonb_text import render_json
from protocol.values.plain_values import plain_value, value_of_plain

from .schema import batch_schema
from .strings import valid_text

# Rows and bytes of a row group.
_GROUP_ROWS: Final = 100_000
_GROUP_BYTES: Final = 16 << 20


class Parquet:
    """The format of Parquet files."""

    suffix: Final = "parquet"

    def prepare(self, table: Table, columns: Sequence[int], rows: Iterable[Row]) -> list[list[Any]]:
        """The values for the columns' arrays, row by row."""
        converters = [(index, _converter(table.columns[index])) for index in columns]
        if all(convert is None for _, convert in converters):
            return [[row[index] for index in columns] for row in rows]
        return [
            [
                row[index] if convert is None or row[index] is None else convert(row[index])
                for index, convert in converters
            ]
            for row in rows
        ]

    def to_bytes(self, prepared: list[Any]) -> bytes:
        """A prepared row as JSON."""
        return json.dumps([plain_value(value) for value in prepared]).encode()

    def of_bytes(self, data: bytes) -> list[Any]:
        """The reverse of ``to_bytes``."""
        return [value_of_plain(plain) for plain in json.loads(data)]

    def create(self, path: str, table: Table, columns: Sequence[int]) -> "ParquetFile":
        """A new file for these columns."""
        names = [table.columns[index].name for index in columns]
        return ParquetFile(path, batch_schema(table, columns=names, metadata=()))

    def create_like(self, path: str, other: str) -> "ParquetFile":
        """A new file with the columns of another one."""
        return ParquetFile(path, pq.read_schema(other))

    def filter(self, source: str, path: str, keep: Sequence[bool]) -> None:
        """Write a file again, with the rows for which ``keep`` is true."""
        with pq.ParquetFile(source) as rows, pq.ParquetWriter(path, rows.schema_arrow) as target:
            begin = 0
            for number in range(rows.num_row_groups):
                group = rows.read_row_group(number)
                end = begin + group.num_rows
                target.write_table(group.filter(pa.array(keep[begin:end], pa.bool_())))
                begin = end


class ParquetFile:
    """A Parquet file that is being written."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema)
        self._batches: list[pa.RecordBatch] = []

    def write(self, prepared: Sequence[list[Any]]) -> None:
        """Append prepared rows."""
        if not prepared:
            return
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(zip(*prepared, strict=True), self._schema, strict=True)
        ]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        rows = sum(batch.num_rows for batch in self._batches)
        if rows >= _GROUP_ROWS or sum(batch.nbytes for batch in self._batches) >= _GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        """Write the rest and the file's footer."""
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._batches:
            # Cleared first, so that nothing is written again after an error, which has closed the file.
            batches, self._batches = self._batches, []
            self._writer.write_table(pa.Table.from_batches(batches))


Convert = Callable[[Any], Any]


def _converter(column: Column) -> Convert | None:
    """The function that makes a value for ``pyarrow.array``; None if ``pyarrow.array`` takes the value as it is."""
    return _CONVERTERS.get(column.type)


def _text(value: object) -> object:
    return valid_text(value) if isinstance(value, str) else value


def _label(value: object) -> str:
    return valid_text(str(value))


def _instant(value: object) -> object:
    return value if isinstance(value, date | datetime) else None


_CONVERTERS: Final[Mapping[ColumnType, Convert]] = MappingProxyType(
    {
        ColumnType.JSON: lambda document: valid_text(render_json(document.value)),
        ColumnType.ENUM: _label,
        ColumnType.SET: _label,
        **dict.fromkeys((ColumnType.STRING, ColumnType.VARCHAR, ColumnType.BLOB), _text),
        **dict.fromkeys((ColumnType.DATE, ColumnType.DATETIME2, ColumnType.TIMESTAMP2), _instant),
    }
)
