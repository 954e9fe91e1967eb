"""The files of one table while it is copied: parts of its rows, and beside each part the keys of these rows.

A key is a text: the JSON of its values; of a table without a key, a digest of the whole row. Part and keys have the
same order, so that rows can be left out of a part by their keys.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

from protocol.constants import ColumnType
from protocol.errors import SchemaMismatchError, SourceConfigurationError
from protocol.rows.column import ABSENT
from protocol.rows.compiler import Row
from protocol.rows.result_cells import selected_document
from protocol.rows.table import Table
from protocol.values.plain_values import plain_value

from ..render.json_values import JsonDocument
from .row_formats import RowFile, RowFormat

# MariaDB's hidden columns of unique keys over long values: they are in the log, and cannot be selected.
_HASH: Final = "DB_ROW_HASH_"
#: The file with the keys of a part has the part's name with this suffix.
KEYS_SUFFIX: Final = ".keys"


def exported_columns(table: Table) -> list[int]:
    """The indexes of the columns that are exported: all but MariaDB's hidden hashes."""
    return [index for index, column in enumerate(table.columns) if not column.name.startswith(_HASH)]


class TableRows:
    """How rows of one table become prepared rows and keys; ``key`` has the names of the key's columns, if any."""

    def __init__(self, table: Table, key: Sequence[str], form: RowFormat) -> None:
        missing = [name for name in key if name not in table.column_names]
        if missing:
            raise SchemaMismatchError(
                f"{table} is copied by its key ({', '.join(key)}), and its rows in the log have no such columns"
            )
        self.table = table
        self.columns = exported_columns(table)
        self._key = [table.column_names.index(name) for name in key]
        self._form = form
        self._documents = [index for index in self.columns if table.columns[index].type is ColumnType.JSON]

    def prepare(self, rows: Sequence[Row]) -> list[Any]:
        """The prepared rows. ``SourceConfigurationError`` for a row that the log does not have whole."""
        for row in rows:
            if ABSENT in row and any(row[index] is ABSENT for index in self.columns):
                raise SourceConfigurationError(
                    f"rows of {self.table} were changed during the copy, and the log does not have them whole: SET "
                    "GLOBAL binlog_row_image=FULL on the source, reconnect its sessions, FLUSH BINARY LOGS, and copy "
                    "again"
                )
        if self._documents:
            rows = [self._with_selected(row) for row in rows]
        return self._form.prepare(self.table, self.columns, rows)

    def _with_selected(self, row: Row) -> Row:
        """The row with documents as a SELECT gives them: the log can tell more, and equal rows must be equal here."""
        values: list[Any] = list(row)
        for index in self._documents:
            if values[index] is not None:
                values[index] = JsonDocument(selected_document(values[index].value))
        return tuple(values)

    def keys(self, rows: Sequence[Row], prepared: Sequence[Any]) -> list[str]:
        """The keys of rows."""
        if not self._key:
            return [hashlib.blake2b(self._form.to_bytes(one), digest_size=16).hexdigest() for one in prepared]
        if len(self._key) == 1:
            [index] = self._key
            return [
                f"[{row[index]}]" if type(row[index]) is int else json.dumps([plain_value(row[index])])
                for row in rows
            ]
        return [json.dumps([plain_value(row[index]) for index in self._key]) for row in rows]


class Part:
    """A part of a table's rows that is being written, in the order in which the rows came."""

    def __init__(self, path: str, file: RowFile) -> None:
        self.path = path
        self.rows = 0
        self._file = file
        self._keys = open(path + KEYS_SUFFIX, "w", encoding="ascii")  # noqa: SIM115

    def write(self, prepared: Sequence[Any], keys: Sequence[str]) -> None:
        """Append prepared rows and their keys."""
        self.rows += len(prepared)
        self._file.write(prepared)
        self._keys.write(json.dumps(keys) + "\n")

    def close(self) -> None:
        """Close both files; ``sync`` brings them to the disk."""
        self._file.close()
        self._keys.close()

    def sync(self) -> None:
        """Bring both files to the disk."""
        for path in (self.path, self.path + KEYS_SUFFIX):
            sync_file(path)

    def abandon(self) -> None:
        """Close both files. They are removed, now or by the next run: what a full disk does not take is no loss."""
        for file in (self._file, self._keys):
            with contextlib.suppress(OSError):
                file.close()


def remove_part(path: str) -> None:
    """Remove a part and its keys, as far as they are there."""
    for one in (path, path + KEYS_SUFFIX):
        if os.path.exists(one):
            os.unlink(one)


def sync_file(path: str) -> None:
    """Bring a file to the disk."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def without_rows(path: str, target: str, form: RowFormat, drops: dict[str, int]) -> list[str]:
    """Write a part again as ``target``, without rows of these keys: of each key at most so many as its number.

    Returns the keys of the rows left out; without any, nothing is written.
    """
    keep: list[bool] = []
    dropped: list[str] = []
    with open(path + KEYS_SUFFIX, encoding="ascii") as lines:
        for keys in map(json.loads, lines):
            # The chunks of which no row was changed are most of them.
            if drops.keys().isdisjoint(keys):
                keep += [True] * len(keys)
                continue
            for key in keys:
                left = drops.get(key, 0)
                keep.append(not left)
                if left:
                    drops[key] = left - 1
                    dropped.append(key)
    if not dropped:
        return dropped
    form.filter(path, target, keep)
    _write_keys(path, target, keep)
    for one in (target, target + KEYS_SUFFIX):
        sync_file(one)
    return dropped


def _write_keys(path: str, target: str, keep: Sequence[bool]) -> None:
    kept: Iterator[bool] = iter(keep)
    with (
        open(path + KEYS_SUFFIX, encoding="ascii") as lines,
        open(target + KEYS_SUFFIX, "w", encoding="ascii") as file,
    ):
        for keys in map(json.loads, lines):
            file.write(json.dumps([key for key in keys if next(kept)]) + "\n")
