"""The kind of a target folder, found from its content. A job of another kind must not begin there.

Readers of a Delta table would find files of other jobs below it, and jobs share the folder ``_state``.
"""

import contextlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from pyarrow.fs import FileSelector

from protocol.errors import ConfigurationError

from ...spool.storage import system_of
from .spark_session import local_path

Kind = Literal["parquet", "delta", "tables"]

#: The folder of the commits of Spark's file sink, within the target.
SINK_LOG: Final = "_spark_metadata"
#: The folder of the state of a job with kept tables, within the target.
TABLES_STATE: Final = "_state/tables"
# A folder of the layout ``shared`` (``changelog_layout``).
_DAY: Final = re.compile(r"day=(\d{4}-\d\d-\d\d|__HIVE_DEFAULT_PARTITION__)")
_SAID: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        "parquet": "the files of a changelog in Parquet -- give another folder, or --format parquet for a changelog",
        "delta": "a Delta table -- give another folder, or --format delta for a changelog",
        "tables": "the tables of a mirror, a history or a typed changelog -- give another folder",
    }
)


def check_kind(target: str, wanted: Kind, storage: Mapping[str, str]) -> None:
    """Raises ``ConfigurationError`` if the target is of another kind."""
    for kind in kinds_of(target, storage):
        if kind != wanted:
            raise ConfigurationError(f"target: {target} has {_SAID[kind]}")


def kinds_of(target: str, storage: Mapping[str, str]) -> list[Kind]:
    """The kinds found in a folder; none in a new folder, or in one that only Spark can read."""
    found: list[Kind] = []
    names = _names(target, storage)
    if "_delta_log" in names:
        found.append("delta")
    elif SINK_LOG in names or _is_partitioned(target, names, storage):
        found.append("parquet")
    if "_delta_log" in _names(f"{target}/{TABLES_STATE}", storage):
        found.append("tables")
    return found


def has_partitions(target: str, storage: Mapping[str, str]) -> bool:
    """Whether a folder has files in Parquet, committed or not."""
    return _is_partitioned(target, _names(target, storage), storage)


def _is_partitioned(target: str, names: set[str], storage: Mapping[str, str]) -> bool:
    # A mirror's folder of the schema day$1 or schema$1 begins so, too: "=" and digits stand for other characters.
    return any(map(_DAY.fullmatch, names)) or any(
        inner.startswith("table=")
        for name in names
        if name.startswith("schema=")
        for inner in _names(f"{target}/{name}", storage)
    )


def _names(folder: str, storage: Mapping[str, str]) -> set[str]:
    with contextlib.suppress(ConfigurationError, OSError):
        system, path = system_of(local_path(folder) or folder, storage)
        found = system.get_file_info(FileSelector(path, allow_not_found=True))
        return {info.base_name for info in found}
    return set()
