"""``replica.spark.read_current``: a kept table with the changes that still wait for a merge, as a DataFrame.

    the job's state -> changes that wait for the table    both at one place of the log: the steps in the table show
    the table in Delta -> its leaves                      whether it has been merged since

A task merges waiting changes into one group of leaves, as a merge would, and returns the rows instead of writing
them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from protocol.errors import ConfigurationError
from protocol.records import replace

from ...spool.storage import NO_STORAGE
from ..table_mode import spark_ddl
from . import job_state
from .changes_per_key import column_names
from .current_table import CURRENT_TABLES
from .job_state import Waiting
from .keeper import forget_merged
from .kept_table import KeptTable, leaf_groups
from .leaf_files import folder
from .leaf_merge import LeafTable, merged_rows, route_to
from .leaves import Group, is_past
from .merges import group_from_json, group_to_json, table_from_json, table_to_json
from .past_table import PastTable
from .spark_session import absolute
from .staging import Part, part_from_json, part_to_json, read_part
from .target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME: Final = "mysql-replica-current"


Plan = tuple[LeafTable, list[Group], tuple[Part, ...]]


def read_current(
    spark: "SparkSession", target: str, table: str, storage: Mapping[str, str] = NO_STORAGE
) -> "DataFrame":
    """The rows of a kept table as they are after the last micro-batch; see ``replica.spark.read_current``."""
    target = absolute(target)
    about, groups, parts = _planned(target, table, dict(storage))
    listed = [part_to_json(part) for part in parts]
    plan = [
        [group_to_json(group), listed if group.ranges else []]
        for group in groups
        if group.files or (group.ranges and parts)
    ]
    spark.dataSource.register(CurrentRows)
    options = {
        "schema": spark_ddl(about.schema),
        "target": target,
        "storage": json.dumps(dict(storage)),
        "table": json.dumps(table_to_json(about)),
        "plan": json.dumps(plan),
    }
    return spark.read.format(_NAME).options(**options).load()


def _planned(target: str, name: str, storage: dict[str, str]) -> Plan:
    """A table, its groups of leaves, and the changes that wait for them."""
    found = job_state.peek(target, storage)
    if found is None:
        raise ConfigurationError(f"target: {target} has no tables of a mirror or a history")
    state, query, number = found
    if name not in state.tables:
        raise ConfigurationError(f"{name} is not a table of {target}")
    if state.is_changelog:
        raise ConfigurationError(f"target: {target} has changes: {name} as it is now is not among them")
    kind: type[KeptTable] = PastTable if state.is_history else CURRENT_TABLES[tuple(state.stamps)]
    kept = Target(target, kind, lambda _: True, storage)
    forget_merged(kept, query, number, state)
    table, waiting = kept.table(name), state.waiting.get(name)
    if table.table is None and waiting is None:
        raise ConfigurationError(f"{name} has had no row yet, so its columns are not known")
    if waiting is None or not waiting.parts or not _fits(table, waiting):
        # New columns come with the next merge; until then the table is as the last one left it.
        about = table.leaf_table((), {})
        return about, [Group((), (file,)) for file in table.files(())], ()
    known = state.tables[name]
    about = table.leaf_table(waiting.key, known.defaults, waiting.schema)
    about = replace(about, is_settling=known.is_settling)
    files = table.files([about.schema.field(column) for column in waiting.key])
    past = [Group((), (file,)) for file in files if is_past(file.path)]
    return about, [*leaf_groups(files, waiting.parts), *past], tuple(waiting.parts)


def _fits(table: KeptTable, waiting: Waiting) -> bool:
    found = {name: waiting.schema.field(name).type for name in column_names(waiting.schema.empty_table())}
    return table.table is None or table.fields() == found


class CurrentRows(DataSource):
    """The data source behind ``read_current``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return _NAME

    def schema(self) -> str:
        """The columns of the table."""
        return self.options["schema"]

    def reader(self, schema: StructType) -> "CurrentRowsReader":
        """The reader of one table."""
        return CurrentRowsReader(self.options)


class CurrentRowsReader(DataSourceReader):
    """Reads groups of leaves, with the changes that wait for them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._target = options["target"]
        self._storage: dict[str, str] = json.loads(options["storage"])
        self._table = options["table"]
        self._plan = options["plan"]

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for each group."""
        return [InputPartition(group) for group in json.loads(self._plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one group."""
        about, parts = partition.value
        table, group = table_from_json(json.loads(self._table)), group_from_json(about)
        system = folder(self._target, self._storage)
        own = [route_to(table, read_part(system, part_from_json(part)), group) for part in parts]
        changes = pa.concat_tables(own) if own else None
        for rows in merged_rows(table, group, changes, self._storage):
            yield from rows.to_batches()
