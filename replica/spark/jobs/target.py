"""The target of a job: where its tables are, which kind they are, and which tables of the source it keeps."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from pyarrow.fs import FileSelector, FileSystem, FileType

from protocol.errors import ConfigurationError
from protocol.records import field, record

from ...spool.storage import NO_STORAGE, system_of
from .copy_requests import Requests
from .kept_table import PLANTED, KeptTable, table_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TableKind = type[KeptTable]


@record(frozen=True, slots=True)
class Target:
    """The target of a job: its path, the kind of its tables, and whether it keeps (``wants``) a ``schema.table``.

    ``storage`` has the storage options of the path. Without ``spark`` all is done in this process. ``parks``: an
    error of one table stops that table only, else the job. ``is_live``: the job follows a source.
    """

    path: str
    kind: TableKind
    wants: Callable[[str], bool]
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    spark: "SparkSession | None" = field(default=None, repr=False)
    parks: bool = False
    is_live: bool = False

    def remedy(self, name: str) -> str:
        """The remedy for a table that is kept no longer, as text."""
        if not self.is_live:
            return "give the state of the table at a checkpoint (seed=), or exclude it"
        if self.kind.is_changelog:
            return "begin a changelog of it in another folder; the changes so far stay in this one"
        words = ("mysql-replica", "spark", "resync", "--target", self.path, "--table", name)
        return f"copy it anew: {shlex.join(words)}"

    def ask_for_copy(self, name: str) -> None:
        """Have the job copy a table anew without a ``resync``, if it can."""
        if self.is_live and self.parks and not self.kind.is_changelog:
            Requests(self.path, self.storage).add(name)

    def table(self, name: str) -> KeptTable:
        """A table of the target."""
        found = self.kind(name, table_path(self.path, name), self.storage)
        found.spark = self.spark
        return found


def check_free(target: str, storage: Mapping[str, str] = NO_STORAGE) -> None:
    """Raises ``ConfigurationError`` if a new job would write into tables that are not its own.

    Tables written from a seed are allowed: a job that was killed after writing its seed begins again.
    """
    for table in _tables(target, storage):
        if DeltaTable(table, storage_options=dict(storage)).transaction_version(PLANTED) is None:
            raise ConfigurationError(
                f"target: {table} is a Delta table already -- give a folder without tables"
            )


def _tables(target: str, storage: Mapping[str, str]) -> Iterator[str]:
    """The Delta tables that lie in the target as a job's do: schema/table."""
    system, root = system_of(target, storage)
    for schema in _folders(system, root):
        if schema.startswith("_"):
            continue
        for table in _folders(system, f"{root}/{schema}"):
            if "_delta_log" in _folders(system, f"{root}/{schema}/{table}"):
                yield f"{target}/{schema}/{table}"


def _folders(system: FileSystem, path: str) -> list[str]:
    found = system.get_file_info(FileSelector(path, allow_not_found=True))
    return sorted(info.base_name for info in found if info.type == FileType.Directory)
