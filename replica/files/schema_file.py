"""Reads a schema file: column names and types that a log lacks, and which columns are generated.

The file is a JSON object. Its keys are tables; each value is the list of the table's columns, in order:

    {"shop.orders": [{"name": "id", "type": "int unsigned", "primary": true},
                     {"name": "status", "type": "enum('new','paid')", "charset": "utf8mb4"},
                     {"name": "total", "type": "decimal(10,2)", "generated": true}]}

``type`` is COLUMN_TYPE of information_schema.COLUMNS. If columns have a ``position``, they are sorted by it.
``SCHEMA_QUERY`` makes a server print such a file. With a place after its name (``shop.json@binlog.000042:157``) the
file describes the tables at that place; without a place, everywhere. A schema store describes them for each place.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from protocol.errors import ConfigurationError
from protocol.position import BinlogPosition, split_file_name
from protocol.records import replace
from protocol.rows.description import ColumnDescription
from protocol.wire import utf8_text

from ..config.table_names import split_text
from ..schemas.baseline import described_shape
from ..schemas.catalog import Catalog
from ..schemas.timeline import SchemaHistory
from ..sql.token_reader import TableName
from .log_files import LogFile
from .table_descriptions import SchemaFile

#: Its result is one value, the content of a schema file for the schema ``{schema}``; NULL if it has no tables.
SCHEMA_QUERY: Final = """\
SELECT JSON_OBJECTAGG(name, columns) FROM (
  SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) AS name, JSON_ARRAYAGG(JSON_OBJECT(
    'position', ORDINAL_POSITION, 'name', COLUMN_NAME, 'type', COLUMN_TYPE,
    'charset', CHARACTER_SET_NAME, 'primary', COLUMN_KEY = 'PRI',
    'generated', COALESCE(GENERATION_EXPRESSION, '') <> '')) AS columns
  FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{schema}' GROUP BY name) AS tables"""

_KEYS: Final = frozenset({"name", "type", "position", "charset", "nullable", "primary", "generated"})
# How the first line of a schema store begins.
_STORE: Final = b'{"version":'
_DATA_TYPE: Final = re.compile(r"\w+")


def read_schema_file(path: str) -> SchemaFile:
    """Read a schema file or a schema store; ``FILE@PLACE`` names the place of the log that the file describes.

    Raises ``ConfigurationError``, which names the faulty table or column.
    """
    name, at, place = path.rpartition("@")
    if not at or os.path.exists(path):
        return _read(path)
    try:
        position = BinlogPosition.parse(place)
    except ConfigurationError:
        raise ConfigurationError(
            f"schema: there is no file {path}, and {place!r} is not a place such as binlog.000042:157"
        ) from None
    read = _read(name)
    if read.history is not None:
        raise ConfigurationError(
            f"schema: {name} is of a schema store, which knows its places: leave @{place} out"
        )
    tables = {
        TableName(*split_text(table)): described_shape(columns)
        for table, columns in read.columns.items()
        if "." in table
    }
    schemas = {table.schema: None for table in tables}
    return SchemaFile({}, read.generated, SchemaHistory("", position, Catalog(tables, schemas)))


def schema_of_relay(path: str, files: Sequence[LogFile]) -> SchemaFile:
    """The store that a relay has written at ``path``; an empty ``SchemaFile`` if it is not of these files.

    Raises ``ConfigurationError`` for a damaged store.
    """
    found = _read(path)
    bases = {split_file_name(file.name)[0] for file in files}
    is_theirs = found.history is not None and bases == {split_file_name(found.history.head.file)[0]}
    return replace(found, is_found=True) if is_theirs else SchemaFile({}, {})


def _read(path: str) -> SchemaFile:
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"schema: {path}: {getattr(error, 'strerror', None) or error}") from error
    if data.startswith(_STORE):
        # A last line without its line end was not written whole.
        return SchemaFile({}, {}, SchemaHistory.from_lines(utf8_text(data).split("\n")[:-1]))
    try:
        tables = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"schema: {path} is not JSON: {error}") from error
    if not isinstance(tables, dict):
        raise ConfigurationError(
            f'schema: {path} is not a JSON object of tables, such as {{"shop.orders": [...]}}'
        )
    columns: dict[str, list[ColumnDescription]] = {}
    generated: dict[str, frozenset[str]] = {}
    for table, described in tables.items():
        listed = _columns(table, described)
        columns[table] = [_description(table, column) for column in listed]
        generated[table] = frozenset(column["name"] for column in listed if column.get("generated"))
    return SchemaFile(columns, generated)


def _columns(table: str, described: Any) -> list[dict[str, Any]]:
    if isinstance(described, str):
        # MariaDB has no JSON type: JSON_OBJECTAGG quotes the array as a string.
        try:
            described = json.loads(described)
        except ValueError:
            described = None
    if not isinstance(described, list) or not all(isinstance(column, dict) for column in described):
        raise ConfigurationError(f"schema: the value of {table!r} is not a list of columns (JSON objects)")
    unknown = {key for column in described for key in column} - _KEYS
    if unknown:
        raise ConfigurationError(
            f"schema: a column of {table!r} has the unknown key {sorted(unknown)[0]!r}; known keys are "
            f"{', '.join(sorted(_KEYS))}"
        )
    positions = [column.get("position", index) for index, column in enumerate(described)]
    if not all(isinstance(position, int) for position in positions):
        raise ConfigurationError(f"schema: a column of {table!r} has a position that is not a whole number")
    return [column for _, column in sorted(zip(positions, described, strict=True), key=lambda pair: pair[0])]


def _description(table: str, column: dict[str, Any]) -> ColumnDescription:
    name, column_type, charset = column.get("name"), column.get("type"), column.get("charset")
    data_type = _DATA_TYPE.match(column_type) if isinstance(column_type, str) else None
    if not isinstance(name, str) or data_type is None or not isinstance(column_type, str):
        raise ConfigurationError(f"schema: a column of {table!r} has no name or no type: {column!r}")
    if charset is not None and not isinstance(charset, str):
        raise ConfigurationError(
            f"schema: the charset of column {name!r} in {table!r} is not text: {charset!r}"
        )
    return ColumnDescription(
        name=name,
        data_type=data_type[0].lower(),
        column_type=column_type,
        nullable=bool(column.get("nullable", True)),
        charset=charset,
        primary=bool(column.get("primary")),
    )
