"""The layout of a changelog's files: which rows share a file, and the folders.

    shared    folders by day; tables share files, with the rows of a table next to each other. A micro-batch makes a
              file for each task, however many tables it has. Readers of one table skip most row groups by their
              statistics, and in Delta whole files by the table's log.
    tables    folders by schema, table and day: a file for each table and task

A target keeps the layout with which it began: its folders show the layout, and ``_state/layout.json`` does until it
has rows. Version 0.1.0 had only ``tables`` at first.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem

from protocol.errors import CheckpointError, ConfigurationError

from ...spool.storage import file_system, write_whole
from .spark_session import local_path

Layout = Literal["shared", "tables"]

#: Layout -> the columns whose values name its folders.
PARTITIONS: Final[Mapping[Layout, tuple[str, ...]]] = MappingProxyType(
    {"shared": ("day",), "tables": ("schema", "table", "day")}
)


_FILE: Final = "_state/layout.json"


def partitions_of(
    target: str, format: Literal["parquet", "delta"], wanted: Layout | None, storage: Mapping[str, str]
) -> tuple[str, ...]:
    """The columns whose values name the folders of a target; without a ``wanted`` layout, those that it has.

    Raises ``ConfigurationError`` if the target has another layout.
    """
    found = _delta(target, storage) if format == "delta" else _parquet(target, storage)
    found = found or _noted(target, storage)
    if found is not None and wanted is not None and found != PARTITIONS[wanted]:
        raise ConfigurationError(
            f"layout: {target} has another layout than {wanted} -- leave the option out, or give another folder"
        )
    return found or PARTITIONS[wanted or "shared"]


def note_layout(target: str, partitions: tuple[str, ...], storage: Mapping[str, str]) -> None:
    """Note the layout of a target that may have no rows yet."""
    if _noted(target, storage) is None:
        system, path = _system(target, storage)
        said = json.dumps({"partitions": partitions}).encode()
        write_whole(system, f"{path}/{_FILE}", lambda file: file.write(said))


def _noted(target: str, storage: Mapping[str, str]) -> tuple[str, ...] | None:
    system, path = _system(target, storage)
    try:
        with system.open_input_stream(f"{path}/{_FILE}") as file:
            return tuple(json.loads(file.read())["partitions"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{target}/{_FILE}: {error} -- the file is damaged: delete it") from error


def _system(target: str, storage: Mapping[str, str]) -> tuple[FileSystem, str]:
    local = local_path(target)
    return file_system(target, storage) if local is None else (LocalFileSystem(), local)


def _delta(target: str, storage: Mapping[str, str]) -> tuple[str, ...] | None:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return tuple(DeltaTable(target, storage_options=dict(storage)).metadata().partition_columns)
    except TableNotFoundError:
        return None


def _parquet(target: str, storage: Mapping[str, str]) -> tuple[str, ...] | None:
    system, path = _system(target, storage)
    names = {
        info.base_name.partition("=")[0]
        for info in system.get_file_info(FileSelector(path, allow_not_found=True))
    }
    return next((columns for columns in PARTITIONS.values() if columns[0] in names), None)
