"""Descriptions of tables that the user or a relay supplies: columns for every place, or a history by place.

The modules that read a schema file and follow a history are only imported when a log needs them: they read DDL, and
take 13 ms of the 60 ms that importing the package would take.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from protocol.records import record
from protocol.rows.description import ColumnDescription

from ..config.selection import wrong_value
from .log_files import LogFile

if TYPE_CHECKING:
    from ..schemas.timeline import SchemaHistory


#: The schema store that a relay writes beside its files.
RELAY_STORE: Final = "relay.schemas"


class SchemaLines(Protocol):
    """The part of a schema store that files need."""

    def load(self) -> object:
        """The lines of the history; None if there are none."""


@record(frozen=True, slots=True)
class SchemaFile:
    """A schema file by table: ``columns`` for every place, and the names of ``generated`` columns.

    ``history`` has the tables by place, if the file names places; then ``columns`` is empty. ``is_found``: the user
    did not name the file, it was found beside the binlog files. ``tells_changes``: users get a ``SchemaChangeEvent``
    after each statement that changes a table.
    """

    columns: Mapping[str, Sequence[ColumnDescription]]
    generated: Mapping[str, frozenset[str]]
    history: "SchemaHistory | None" = None
    is_found: bool = False
    tells_changes: bool = False


def check_descriptions(schema: object) -> None:
    """Raise ``ConfigurationError`` for a ``schema`` that describes no tables."""
    expected = "the path of a schema file, or {'shop.orders': [ColumnDescription(...), ...]}"
    if not isinstance(schema, Mapping):
        raise wrong_value("schema", schema, expected)
    for table, columns in schema.items():
        are_columns = isinstance(columns, Sequence) and all(
            isinstance(one, ColumnDescription) for one in columns
        )
        if not (isinstance(table, str) and are_columns):
            raise wrong_value("schema", {table: columns}, expected)


def relay_store_of(files: Sequence[LogFile]) -> str | None:
    """The path of the schema store that a relay has written beside these files; None if there is none."""
    folders = {os.path.dirname(file.path) for file in files if file.path is not None}
    path = os.path.join(*folders, RELAY_STORE) if len(folders) == 1 else ""
    return path if os.path.isfile(path) else None
