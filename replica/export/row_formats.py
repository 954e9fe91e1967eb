"""Rows as JSON lines and as CSV, and what an export needs of any format.

Rows are first *prepared*: what a format writes for one row. Prepared rows can be kept elsewhere as bytes, and files
can be written again without some of their rows. Parquet is in ``replica.arrow.parquet_rows``.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import compress
from types import MappingProxyType
from typing import Any, Final, Protocol

from protocol.constants import ColumnType
from protocol.errors import ConfigurationError, MissingExtraError
from protocol.rows.compiler import Row
from protocol.rows.table import Table
from protocol.values.jsonb_text import render_json

from ..render.json_lines import json_line, plain

_QUOTE: Final = b'"'
_NUMBERS: Final = (int, float, Decimal)


class RowFile(Protocol):
    """A file that is being written."""

    def write(self, prepared: Sequence[Any]) -> None:
        """Append prepared rows."""

    def close(self) -> None:
        """Write the rest, and close the file."""


class RowFormat(Protocol):
    """A format of files."""

    @property
    def suffix(self) -> str:
        """The end of the files' names."""

    def prepare(self, table: Table, columns: Sequence[int], rows: Iterable[Row]) -> list[Any]:
        """The rows in the form in which they are written: the columns with these indexes.

        JSON columns have values of ``render.json_values``.
        """

    def to_bytes(self, prepared: Any) -> bytes:
        """A prepared row as bytes; equal rows have equal bytes."""

    def of_bytes(self, data: bytes) -> Any:
        """The reverse of ``to_bytes``."""

    def create(self, path: str, table: Table, columns: Sequence[int]) -> RowFile:
        """A new file."""

    def create_like(self, path: str, other: str) -> RowFile:
        """A new file with the columns of another one."""

    def filter(self, source: str, path: str, keep: Sequence[bool]) -> None:
        """Write a file again, with the rows for which ``keep`` is true."""


class _TextFile:
    """A file of lines."""

    def __init__(self, path: str, head: bytes) -> None:
        self._file = open(path, "wb")  # noqa: SIM115
        self._file.write(head)

    def write(self, prepared: Sequence[bytes]) -> None:
        self._file.writelines(prepared)

    def close(self) -> None:
        self._file.close()


class _Lines:
    """The base of JSON lines and CSV: a prepared row is its bytes in the file."""

    def to_bytes(self, prepared: bytes) -> bytes:
        return prepared

    def of_bytes(self, data: bytes) -> bytes:
        return data

    def create(self, path: str, table: Table, columns: Sequence[int]) -> _TextFile:
        return _TextFile(path, self.head([table.columns[index].name for index in columns]))

    def create_like(self, path: str, other: str) -> _TextFile:
        with open(other, "rb") as file:
            return _TextFile(path, self.head_of(self.records(file)))

    def filter(self, source: str, path: str, keep: Sequence[bool]) -> None:
        with open(source, "rb") as file:
            records = self.records(file)
            target = _TextFile(path, self.head_of(records))
            target.write(compress(records, keep))  # type: ignore[arg-type]
            target.close()

    def head(self, names: Sequence[str]) -> bytes:
        return b""

    def head_of(self, records: Iterator[bytes]) -> bytes:
        return b""

    def records(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        return iter(lines)


class JsonLines(_Lines):
    """One object per row, by column name; values as ``mysql-replica tail --format json`` writes those of a copy."""

    suffix: Final = "jsonl"

    def prepare(self, table: Table, columns: Sequence[int], rows: Iterable[Row]) -> list[bytes]:
        names = [table.columns[index].name for index in columns]
        return [json_line(dict(zip(names, [row[index] for index in columns], strict=True))) for row in rows]


class Csv(_Lines):
    """RFC 4180 in UTF-8 with the columns' names in the first line.

    NULL is an empty field; every text is in quotation marks, an empty one too. Bytes are hexadecimal digits, and an
    empty text if there are none; all other values as in JSON lines; a JSON document is its text.
    """

    suffix: Final = "csv"

    def prepare(self, table: Table, columns: Sequence[int], rows: Iterable[Row]) -> list[bytes]:
        fields = [
            (index, _csv_document if table.columns[index].type is ColumnType.JSON else _csv_field)
            for index in columns
        ]
        return [
            ",".join([field(row[index]) for index, field in fields]).encode("utf-8", "replace") + b"\n"
            for row in rows
        ]

    def head(self, names: Sequence[str]) -> bytes:
        return ",".join(map(_csv_field, names)).encode("utf-8", "replace") + b"\n"

    def head_of(self, records: Iterator[bytes]) -> bytes:
        return next(records, b"")

    def records(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """The records: a line end inside of quotation marks belongs to its field."""
        record, quotes = b"", 0
        for line in lines:
            record += line
            quotes += line.count(_QUOTE)
            if not quotes & 1:
                yield record
                record, quotes = b"", 0


def _csv_field(value: object) -> str:
    if value is None:
        return ""
    if type(value) in (int, Decimal):
        return f"{value:f}" if type(value) is Decimal else str(value)
    if isinstance(value, bytes):
        return value.hex() or '""'
    rendered = plain(value)
    return str(rendered) if isinstance(rendered, _NUMBERS) else _quoted(str(rendered))


def _csv_document(value: Any) -> str:
    return "" if value is None else _quoted(render_json(value.value))


def _quoted(text: str) -> str:
    return '"' + re.sub('"', '""', text) + '"'


def _parquet() -> RowFormat:
    try:
        from ..arrow.parquet_rows import Parquet
    except MissingExtraError as error:
        raise MissingExtraError("the format parquet", error.extra) from None
    return Parquet()


FORMATS: Final[Mapping[str, Callable[[], RowFormat]]] = MappingProxyType(
    {"parquet": _parquet, "jsonl": JsonLines, "csv": Csv}
)


def row_format(name: str) -> RowFormat:
    """The format of this name. Raises ``ConfigurationError`` for another, ``MissingExtraError`` without pyarrow."""
    if name not in FORMATS:
        raise ConfigurationError(f"format: {name!r} is none of {', '.join(FORMATS)}")
    return FORMATS[name]()
