"""In which files ``changelog`` puts the rows of its tables.

    shared    folders by day; tables share files, with the rows of a table next to each other. A micro-batch makes a
              file for each task, however many tables it has. Readers of one table skip most row groups by their
              statistics, and in Delta whole files by the table's log.
    tables    folders by schema, table and day: a file for each table and task

A target keeps the layout with which it began; version 0.1.0 had ``tables`` only at first.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from pyarrow.fs import FileSelector, LocalFileSystem

from protocol.errors import ConfigurationError

from ...spool.storage import file_system
from .spark_session import local_path

Layout = Literal["shared", "tables"]

#: The columns by which the files of a layout are in folders.
PARTITIONS: Final[Mapping[Layout, tuple[str, ...]]] = MappingProxyType(
    {"shared": ("day",), "tables": ("schema", "table", "day")}
)


def partitions_of(
    target: str, format: Literal["parquet", "delta"], wanted: Layout | None, storage: Mapping[str, str]
) -> tuple[str, ...]:
    """The columns by which the files of a target are in folders; without a ``wanted`` layout those that it has.

    Raises ``ConfigurationError`` if the target has another layout.
    """
    found = _delta(target, storage) if format == "delta" else _parquet(target, storage)
    if found is not None and wanted is not None and found != PARTITIONS[wanted]:
        raise ConfigurationError(
            f"layout: {target} has another layout than {wanted} -- leave the option out, or give another folder"
        )
    return found or PARTITIONS[wanted or "shared"]


def _delta(target: str, storage: Mapping[str, str]) -> tuple[str, ...] | None:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return tuple(DeltaTable(target, storage_options=dict(storage)).metadata().partition_columns)
    except TableNotFoundError:
        return None


def _parquet(target: str, storage: Mapping[str, str]) -> tuple[str, ...] | None:
    local = local_path(target)
    system, path = file_system(target, storage) if local is None else (LocalFileSystem(), local)
    names = {
        info.base_name.partition("=")[0]
        for info in system.get_file_info(FileSelector(path, allow_not_found=True))
    }
    return next((columns for columns in PARTITIONS.values() if columns[0] in names), None)
