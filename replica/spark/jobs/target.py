"""The target of a job: where its tables are, which kind they are, and which tables of the source it keeps."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from protocol.records import record

from .kept_table import KeptTable, table_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TableKind = type[KeptTable]


@record(frozen=True, slots=True)
class Target:
    """The target of a job: its path, the kind of its tables, and whether it keeps (``wants``) a ``schema.table``.

    ``storage`` has the storage options of the path. Without ``spark`` all is done in this process. ``parks``: what is
    wrong with one table stops that table only, else the job. ``is_live``: the job follows a source.
    """

    path: str
    kind: TableKind
    wants: Callable[[str], bool]
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    spark: "SparkSession | None" = field(default=None, repr=False)
    parks: bool = False
    is_live: bool = False

    def remedy(self, name: str) -> str:
        """What helps a table that is kept no longer."""
        if not self.is_live:
            return "give the state of the table at a checkpoint (--seed), or exclude it"
        words = ("mysql-replica", "spark", "resync", "--target", self.path, "--table", name)
        return f"copy it anew: {shlex.join(words)}"

    def table(self, name: str) -> KeptTable:
        """A table of the target."""
        found = self.kind(name, table_path(self.path, name), self.storage)
        found.spark = self.spark
        return found
