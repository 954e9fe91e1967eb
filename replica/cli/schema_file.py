"""Reads a schema file: column names and types that a log lacks, and which columns are generated.

The file is a JSON object. Its keys are tables; each value is the list of the table's columns, in order:

    {"shop.orders": [{"name": "id", "type": "int unsigned", "primary": true},
                     {"name": "status", "type": "enum('new','paid')", "charset": "utf8mb4"},
                     {"name": "total", "type": "decimal(10,2)", "generated": true}]}

``type`` is COLUMN_TYPE of information_schema.COLUMNS. If columns have a ``position``, they are sorted by it.
``SCHEMA_QUERY`` makes a server print such a file.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from protocol.errors import ConfigurationError
from protocol.records import record
from protocol.rows.description import ColumnDescription

#: Its result is one value, the content of a schema file for the schema ``{schema}``; NULL if it has no tables.
SCHEMA_QUERY: Final = """\
SELECT JSON_OBJECTAGG(name, columns) FROM (
  SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) AS name, JSON_ARRAYAGG(JSON_OBJECT(
    'position', ORDINAL_POSITION, 'name', COLUMN_NAME, 'type', COLUMN_TYPE,
    'charset', CHARACTER_SET_NAME, 'primary', COLUMN_KEY = 'PRI',
    'generated', COALESCE(GENERATION_EXPRESSION, '') <> '')) AS columns
  FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{schema}' GROUP BY name) AS tables"""

_KEYS: Final = frozenset({"name", "type", "position", "charset", "nullable", "primary", "generated"})
_DATA_TYPE: Final = re.compile(r"\w+")


@record(frozen=True, slots=True)
class SchemaFile:
    """A schema file by table: ``columns`` for ``open_binlog(schema=...)``, and the names of ``generated`` columns."""

    columns: Mapping[str, list[ColumnDescription]]
    generated: Mapping[str, frozenset[str]]


def read_schema_file(path: str) -> SchemaFile:
    """Read a schema file. Raises ``ConfigurationError``, which names the faulty table or column."""
    try:
        tables = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise ConfigurationError(f"schema: {path}: {error.strerror or error}") from error
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
