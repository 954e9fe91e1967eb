"""Column names for tables whose log has none, by the places in the log from which they hold.

A table may have several descriptions, one after another. A statement (which may be DDL) ends them all, until the
table is looked up again. The spool keeps the descriptions, and the pieces carry them to the tasks: so a micro-batch
that is read again has the same names as before. This module asks no server: ``name_lookup`` does.
"""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Final

from protocol.constants import ColumnType
from protocol.errors import SchemaMismatchError
from protocol.rows.column import Column
from protocol.rows.description import BLOB_SIZES, GEOMETRY_NAMES, ColumnDescription, describe_table
from protocol.rows.table import Table

from .offsets import Key

Descriptions = tuple[ColumnDescription, ...]
# Table -> its descriptions, the newest first. The key _STATEMENTS has the places of statements that may be DDL.
Names = Mapping[str, tuple[tuple[Key, Descriptions], ...]]

NO_NAMES: Final[Names] = MappingProxyType({})
_STATEMENTS: Final = ""
_TYPES: Final[Mapping[str, ColumnType]] = MappingProxyType(
    {
        "tinyint": ColumnType.TINY,
        "smallint": ColumnType.SHORT,
        "mediumint": ColumnType.INT24,
        "int": ColumnType.LONG,
        "bigint": ColumnType.LONGLONG,
        "decimal": ColumnType.NEWDECIMAL,
        "float": ColumnType.FLOAT,
        "double": ColumnType.DOUBLE,
        "bit": ColumnType.BIT,
        "date": ColumnType.DATE,
        "datetime": ColumnType.DATETIME2,
        "timestamp": ColumnType.TIMESTAMP2,
        "time": ColumnType.TIME2,
        "year": ColumnType.YEAR,
        "char": ColumnType.STRING,
        "binary": ColumnType.STRING,
        "enum": ColumnType.ENUM,
        "set": ColumnType.SET,
        "json": ColumnType.JSON,
        "vector": ColumnType.VECTOR,
        **dict.fromkeys(BLOB_SIZES, ColumnType.BLOB),
        **dict.fromkeys(GEOMETRY_NAMES, ColumnType.GEOMETRY),
    }
)


def described(table: Table, names: Names, place: Key) -> Descriptions | None:
    """The description of a table at that place in the log, or None.

    It is the newest one before the place, unless a statement came in between or it does not fit the table map.
    """
    statements = names.get(_STATEMENTS, ())
    last = next((begin for begin, _ in statements if begin <= place), None)
    for begin, descriptions in names.get(str(table), ()):
        if begin > place:
            continue
        if last is not None and begin < last:
            return None
        with contextlib.suppress(SchemaMismatchError):
            describe_table(table, descriptions)
            return descriptions
    return None


def with_description(
    names: Names, table: Table, descriptions: Sequence[ColumnDescription], place: Key
) -> Names:
    """The names, with one more description that holds from that place on."""
    return _with(names, str(table), place, tuple(descriptions))


def with_statement(names: Names, place: Key) -> Names:
    """The names, with a statement at that place, after which no description holds."""
    return _with(names, _STATEMENTS, place, ())


def since(names: Names, place: Key) -> Names:
    """The names without the descriptions that are not needed from that place on."""
    kept = {}
    for table, known in names.items():
        older = next((number for number, (begin, _) in enumerate(known, 1) if begin <= place), len(known))
        kept[table] = known[:older]
    return kept


def _with(names: Names, table: str, place: Key, descriptions: Descriptions) -> Names:
    others = [known for known in names.get(table, ()) if known[0] != place]
    return {
        **names,
        table: tuple(sorted([(place, descriptions), *others], key=lambda one: one[0], reverse=True)),
    }


def dump_names(names: Names) -> bytes:
    """The names as JSON, for ``load_names``."""
    return json.dumps(
        {
            table: [[place, [asdict(one) for one in known]] for place, known in several]
            for table, several in names.items()
        }
    ).encode()


def load_names(data: bytes) -> Names:
    """The reverse of ``dump_names``."""
    return {
        table: tuple(
            (tuple(place), tuple(ColumnDescription(**one) for one in known)) for place, known in several
        )
        for table, several in json.loads(data).items()
    }


def table_of(name: str, descriptions: Sequence[ColumnDescription]) -> Table:
    """The table that a table map would describe, from its columns in information_schema."""
    schema, _, table_name = name.partition(".")
    columns = tuple(_column(index, one) for index, one in enumerate(descriptions, 1))
    return describe_table(Table(schema, table_name, columns), descriptions)


def _column(index: int, description: ColumnDescription) -> Column:
    # Types that are not listed are strings in the log: VARCHAR, VARBINARY, MariaDB's own types.
    kind = _TYPES.get(description.data_type, ColumnType.VARCHAR)
    inside = re.search(r"\(([\d, ]+)\)", description.column_type)
    numbers = [int(number) for number in inside[1].split(",")] if inside else []
    metadata = numbers[0] if numbers else 0
    if kind is ColumnType.NEWDECIMAL:
        metadata = metadata << 8 | (numbers[1] if len(numbers) > 1 else 0)
    elif kind is ColumnType.BIT:
        metadata = metadata or 1
    elif kind is ColumnType.BLOB:
        metadata = BLOB_SIZES[description.data_type]
    return Column(f"@{index}", kind, metadata, description.nullable)
