"""A kept table in Delta: steps that are applied once, and columns that follow those of the source's table.

Every commit has two application transactions: the query's id with the number of the micro-batch, and ``ID/step`` with
the number of the table's step within the micro-batch. A step that the table has is skipped, so a micro-batch may be
killed between any two commits. The two kinds of kept tables are in ``current_table`` and ``past_table``.
"""

import contextlib
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, TableFeatures, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from protocol.errors import CheckpointError, ReplicaError, SchemaMismatchError
from protocol.records import record, replace

from ...config.folder_names import fitting
from ...config.table_names import split_text
from ...spool.storage import NO_STORAGE
from .changes_per_key import column_names
from .conversions import Conversion
from .convert_tasks import Converting, convert
from .delta_statistics import indexed_columns as indexed_columns
from .delta_statistics import statistics
from .leaf_files import INDEXED, NewFile, dataset, folder
from .leaf_merge import LeafTable
from .leaves import Group, LeafFile, groups, is_past, leaf_file, shares, tag, united
from .merges import Merge, Merged
from .spark_session import our_errors
from .staging import Part
from .stamps import DELETED
from .unreadable import opened_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SPECIAL: Final = re.compile(r"[^A-Za-z0-9_.-]|^[_.-]")
#: The property of a copied table that says since when its versions are states that the source had.
CONSISTENT: Final = "mysql-replica.consistentSince"
#: The id of the application transaction of a seed's commit.
PLANTED: Final = "seed"
_PLAIN_TIMES: Final = "timestampNtz"
# So many files of past states, each smaller than so many bytes, become one file.
_SMALL_FILES: Final = 16
_SMALL_BYTES: Final = 16 << 20
#: A write is planned so many times; if other writers win each time, that is an error.
ATTEMPTS: Final = 20
OTHERS: Final = "others change this table all the time, so that a commit never succeeds: stop them"


@record(frozen=True, slots=True)
class Step:
    """One change of one table: its number among the steps of the table in a micro-batch of a query."""

    query: str
    batch: int
    number: int

    def is_taken(self, table: DeltaTable) -> bool:
        """Whether the table has this step, or a later one."""
        batch = table.transaction_version(self.query)
        if batch is None or batch < self.batch:
            return False
        return batch > self.batch or (table.transaction_version(f"{self.query}/step") or 0) >= self.number

    def properties(self, retries: int | None = None) -> CommitProperties:
        """The properties of the step's commit, which is tried again so many times (default: as deltalake does)."""
        return CommitProperties(
            max_commit_retries=retries,
            app_transactions=[
                Transaction(self.query, self.batch),
                Transaction(f"{self.query}/step", self.number),
            ],
        )


class KeptTable(ABC):
    """A table of the target. ``name`` is ``schema.table``; ``table`` is None until the target has it.

    ``storage`` has the storage options of the target.
    """

    #: The columns that are not the source's.
    own_fields: tuple[pa.Field, ...] = ()
    #: Whether a column that the source drops is dropped here, too.
    drops_columns = True
    #: Whether the copied rows must be the rows at the exact place from which the log is followed.
    begins_exactly = False
    #: Whether rows are changes, which are only appended.
    is_changelog = False
    #: The columns of ``stamps`` that rows have.
    stamps: tuple[str, ...] = ()
    #: The table is merged when so many bytes wait; None: when a share of the table waits.
    due_bytes: int | None = None

    def __init__(self, name: str, path: str, storage: Mapping[str, str] = NO_STORAGE) -> None:
        self.name = name
        self.path = path
        self.storage = dict(storage)
        #: Large conversions are tasks of this session, if there is one.
        self.spark: SparkSession | None = None
        self.table: DeltaTable | None = None
        with contextlib.suppress(TableNotFoundError):
            self.table = self._reopened()

    # The differences between the kinds of tables.

    @abstractmethod
    def clear(self, micros: int, step: Step, seq: int = 0) -> None:
        """The source's table has lost all rows at this time (microseconds since 1970), by the statement ``seq``."""

    def take_over(
        self,
        source: "KeptTable",
        step: Step,
        begin: tuple[int, int] | None = None,
        key: Sequence[str] = (),
    ) -> None:
        """Replace the present rows by the rows of ``source``, a copy of the source's table as it is now.

        ``begin``: the time of the copy, in microseconds since 1970, and its sequence number; None if nothing is known
        of the time before. ``key`` has the columns of the key; it is empty for a table that has had no row.
        """
        self.rewrite(self.conversion(), step, source)

    @classmethod
    def facts(cls) -> tuple[bool, bool, list[str]]:
        """The facts by which kinds differ: whether it is a history, whether it is a changelog, and its stamps."""
        return not cls.drops_columns, cls.is_changelog, list(cls.stamps)

    # The common part.

    def begin(self) -> None:
        """Create the table without columns of the source, if it has had no row yet."""
        if self.table is None:
            self._create({})

    def is_taken(self, step: Step) -> bool:
        """Whether the table has the step already."""
        return self.table is not None and step.is_taken(self.table)

    @contextlib.contextmanager
    def taking(self, step: Step) -> Iterator[None]:
        """A context for a step's commit, which may fail because the table has the step meanwhile.

        A process that has outlived its killed driver may have committed it.
        """
        try:
            yield
        except CommitFailedError:
            self.table = self._reopened()
            if not self.is_taken(step):
                raise

    def _reopened(self) -> DeltaTable:
        return opened_table(self.path, self.storage)

    def refresh(self) -> None:
        """Open the table as it is now."""
        self.table = self._reopened()

    def open(self) -> DeltaTable:
        """The Delta table, which must exist."""
        assert self.table is not None
        return self.table

    def fields(self) -> dict[str, pa.DataType]:
        """The source's columns in the target, with their types."""
        if self.table is None:
            return {}
        schema = pa.schema(self.table.schema().to_arrow())
        added = {field.name for field in self.own_fields}
        return {field.name: field.type for field in schema if field.name not in added}

    @property
    def size(self) -> int:
        """The bytes of the table's files."""
        if self.table is None:
            return 0
        return int(pc.sum(pa.table(self.table.get_add_actions())["size_bytes"]).as_py() or 0)

    @property
    def row_count(self) -> int:
        """The number of rows in the table's files, by their statistics."""
        if self.table is None:
            return 0
        return int(pc.sum(pa.table(self.table.get_add_actions())["num_records"]).as_py() or 0)

    def is_empty(self) -> bool:
        """Whether the table has no rows. This reads the table's log."""
        return self.table is None or self.table.count() == 0

    def values(self, name: str) -> Iterator[pa.Array]:
        """The values of a column in the present rows, in parts."""
        current = None if self.drops_columns else pc.field("is_current")
        if DELETED in self.stamps:
            current = pc.invert(pc.field(DELETED))
        rows = dataset(self.open(), self.path, self.storage)
        for batch in rows.to_batches(columns={name: pc.field(name)}, filter=current):
            yield batch.column(0)

    def conform(self, rows: pa.Table, fills: Mapping[str, str | None], step: Step) -> None:
        """Give the table the columns of ``rows``; ``fills`` has the values of new columns in present rows."""
        wanted = {name: rows.schema.field(name).type for name in column_names(rows)}
        self.check_columns(wanted)
        found = self.fields()
        if self.table is None:
            self._create(wanted)
            return
        # Names that differ in letter case only mean one column, both to the server and to Delta.
        spelled = spellings(found, wanted)
        found = {spelled.get(name, name): kind for name, kind in found.items()}
        new = [name for name in wanted if name not in found]
        filled = {name: fills[name] for name in wanted if name in fills}
        gone = [name for name in found if name not in wanted] if self.drops_columns else []
        other = [name for name in wanted if name in found and found[name] != wanted[name]]
        if filled or gone or other or spelled:
            conversion = replace(
                self.conversion(), spelled=spelled, wanted=pa.schema(list(wanted.items())), filled=filled
            )
            self.rewrite(conversion, step)
        elif new:
            self.add_columns({name: wanted[name] for name in new})

    def add_columns(self, new: Mapping[str, pa.DataType]) -> None:
        """Add columns, which are null in the rows so far."""
        schema = pa.schema(list(new.items()))
        self._allow(schema)
        self.open().alter.add_columns(list(Schema.from_arrow(schema).fields))

    def conversion(self) -> Conversion:
        """A conversion of this table's rows that changes nothing."""
        own = tuple(field.name for field in self.own_fields)
        return Conversion(self.name, own, is_history=not self.drops_columns)

    def rewrite(self, conversion: Conversion, step: Step, source: "KeptTable | None" = None) -> None:
        """Replace all rows by the converted rows of this table, or of ``source``."""
        origin = source or self
        for _ in range(ATTEMPTS):
            if self.is_taken(step):
                return
            converting = origin.converting(conversion, self.path)
            schema = converting.new_schema
            if self.table is None:
                own = {field.name for field in self.own_fields}
                self._create({field.name: field.type for field in schema if field.name not in own})
            self._allow(schema)
            added = self._converted(converting, origin.files(()))
            if self._commit(list(map(add_action, added)), added, step, schema):
                return
        raise CheckpointError(f"{self.path}: {OTHERS}")

    def _allow(self, schema: pa.Schema) -> None:
        """Allow times without a zone if ``schema`` has any; Delta allows them by itself in new tables only."""
        table = self.open()
        has_plain = any(pa.types.is_timestamp(kind) and kind.tz is None for kind in schema.types)
        if has_plain and _PLAIN_TIMES not in (table.protocol().reader_features or ()):
            table.alter.add_feature(
                TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True
            )
            self.table = self._reopened()

    def end_all(
        self, micros: int, step: Step, following: "tuple[Conversion, KeptTable] | None" = None
    ) -> None:
        """End all present states of a history at this time (microseconds since 1970).

        ``following``: a conversion and a table, whose converted rows become the present states.
        """
        for _ in range(ATTEMPTS):
            if self.table is None or self.is_taken(step):
                return
            files = [file for file in self.files(()) if not is_past(file.path)]
            ending = replace(self.conversion(), ended=micros)
            added = self._converted(self.converting(ending, self.path), files)
            if following is not None:
                conversion, source = following
                added += self._converted(source.converting(conversion, self.path), source.files(()))
            if self.replace_files(Merged(files, added), step):
                return
        raise CheckpointError(f"{self.path}: {OTHERS}")

    def converting(self, conversion: Conversion, target: str) -> Converting:
        """A conversion of this table's files to files in the folder ``target``."""
        schema = pa.schema(self.open().schema().to_arrow())
        return Converting(conversion, self.path, target, schema, indexed_columns(self.open()))

    def _converted(self, converting: Converting, files: Sequence[LeafFile]) -> list[NewFile]:
        try:
            with our_errors():
                return convert(self.spark, converting, files, self.storage)
        except SchemaMismatchError:
            raise
        except ReplicaError as error:
            # Spark passes an error of a task on as text.
            raise SchemaMismatchError(str(error)) from error

    # Leaves.

    def planned(self, key: Sequence[str], defaults: Mapping[str, str | None], parts: Iterable[Part]) -> Merge:
        """The merge of these changes into the table as it is now; ``conform`` must have been called for them."""
        table = self.leaf_table(key, defaults)
        files = self.files([table.schema.field(name) for name in key])
        parts = tuple(parts)
        past = [file for file in files if is_past(file.path) and file.size < _SMALL_BYTES]
        joins = (Group((), tuple(past)),) if len(past) >= _SMALL_FILES else ()
        return Merge(table, tuple(leaf_groups(files, parts)), parts, joins)

    def leaf_table(
        self, key: Sequence[str], defaults: Mapping[str, str | None], changes: pa.Schema | None = None
    ) -> LeafTable:
        """The table as tasks get it. ``changes`` has the columns, if there is no table yet."""
        indexed = INDEXED
        if self.table is not None:
            schema = pa.schema(self.table.schema().to_arrow())
            indexed = indexed_columns(self.table)
        else:
            assert changes is not None
            columns = [changes.field(name) for name in column_names(changes.empty_table())]
            schema = pa.schema([*columns, *self.own_fields])
        return LeafTable(
            self.name,
            self.path,
            tuple(key),
            schema,
            is_history=not self.drops_columns,
            defaults=defaults,
            indexed=indexed,
            stamps=self.stamps,
        )

    def files(self, key: Sequence[pa.Field]) -> list[LeafFile]:
        """The files of the table; without a key any file may have any row."""
        return [] if self.table is None else list(self._files(key))

    def _files(self, key: Sequence[pa.Field]) -> Iterator[LeafFile]:
        """The files of the table."""
        said = tag(key) if key else ""
        # Delta's statistics of other types are not exact.
        first = key[0].name if key and pa.types.is_integer(key[0].type) else None
        found = pa.table(self.open().get_add_actions(flatten=True))
        names = ["path", "size_bytes", "num_records", f"min.{first}", f"max.{first}"]
        columns = [found[name].to_pylist() if name in found.column_names else None for name in names]
        nothing = [None] * found.num_rows
        for path, size, rows, low, high in zip(*(column or nothing for column in columns), strict=True):
            is_bounded = first is not None and low is not None and high is not None
            yield leaf_file(path, size, rows or 0, said, (low, high) if is_bounded else None)

    def replace_files(self, merged: Merged, step: Step) -> bool:
        """Commit the outcome of ``planned``. Returns False if the table has changed since: plan anew."""
        now = int(time.time() * 1000)
        removed = {file.path: file for file in merged.removed}
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(file.path, True, now, file.size, {}) for file in removed.values()
        ]
        return self._commit([*actions, *map(add_action, merged.added)], merged.added, step)

    def _commit(
        self,
        actions: list[AddAction | RemoveAction],
        added: Iterable[NewFile],
        step: Step,
        schema: pa.Schema | None = None,
    ) -> bool:
        """Commit actions; with a ``schema`` they take the place of all files. Returns False if that is refused."""
        table = self.open()
        # No retries: a retried commit would be accepted after another commit that has replaced the same files.
        retries = None if self.is_changelog and schema is None else 0
        mode = "append" if schema is None else "overwrite"
        columns = table.schema() if schema is None else Schema.from_arrow(schema)
        try:
            table.create_write_transaction(
                actions, mode, columns, [], commit_properties=step.properties(retries=retries)
            )
        except CommitFailedError:
            self.table = self._reopened()
            if self.is_taken(step):
                # This commit itself may have succeeded: if its answer was lost, it was sent again. Its files stay.
                return True
            system = folder(self.path, self.storage)
            for file in added:
                with contextlib.suppress(OSError):
                    system.delete_file(file.path)
            return False
        self.table = self._reopened()
        return True

    def set_property(self, name: str, value: str) -> None:
        """Set a property of the table, if there is one."""
        if self.table is not None:
            self.table.alter.set_table_properties({name: value}, raise_if_not_exists=False)

    def vacuum(self, hours: int) -> None:
        """Delete files that no version of the last so many hours has."""
        if self.table is not None:
            self.table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)

    def rename_column(self, name: str, new_name: str, step: Step) -> None:
        """Rename a column. A column that has the new name already is replaced: it was dropped earlier."""
        self.rewrite(replace(self.conversion(), renamed=(name, new_name)), step)

    def clear_out(self, step: Step) -> None:
        """Delete all rows, also past states."""
        if self.table is not None and not self.is_taken(step):
            with self.taking(step):
                self.table.delete(commit_properties=step.properties())

    def drop_column(self, name: str, step: Step) -> None:
        """Drop a column, unless this kind of table keeps dropped columns."""
        if self.drops_columns:
            self.rewrite(replace(self.conversion(), dropped=name), step)

    def seeded(self, rows: pa.Table) -> pa.Table:
        """The rows of a seed in the form of this kind of table."""
        return rows

    def _create(self, wanted: Mapping[str, pa.DataType]) -> None:
        schema = pa.schema([*wanted.items(), *self.own_fields])
        try:
            self.table = DeltaTable.create(
                self.path,
                Schema.from_arrow(schema),
                mode="ignore",
                configuration=statistics(schema),
                storage_options=self.storage,
            )
        except Exception as error:
            raise SchemaMismatchError(f"{self.name}: Delta cannot hold such a table: {error}") from error

    def check_columns(self, names: Iterable[str]) -> None:
        """Raises ``SchemaMismatchError`` for columns of the source that the table cannot have."""
        check_columns(self.name, names, [field.name for field in self.own_fields])


def check_name(name: str) -> None:
    """Raises ``SchemaMismatchError`` for a ``table_text`` whose path could be that of another table."""
    schema, table = split_text(name)
    if "." in schema:
        raise SchemaMismatchError(
            f"{name}: no table of a schema with a dot in its name can be kept: exclude it, with ? for that dot "
            f"({schema.replace('.', '?')}.{table})"
        )


def check_columns(table: str, names: Iterable[str], own: Sequence[str] = ()) -> None:
    """Raises ``SchemaMismatchError`` for column names that no kept table can have, or that it adds (``own``)."""
    # To Delta and to Spark, names that differ in letter case are the same.
    taken = {name.lower() for name in own}
    odd = [name for name in names if "`" in name or name.lower() in taken]
    if odd:
        raise SchemaMismatchError(
            f"{table}: no column of a kept table may be called {', '.join(odd)}: exclude the table"
        )


def leaf_groups(files: Iterable[LeafFile], parts: Sequence[Part]) -> list[Group]:
    """The groups of leaves into which these changes are merged."""
    found = groups(file for file in files if not is_past(file.path))
    moves = [move for part in parts for move in part.moves or ()]
    if any(part.moves is None for part in parts):
        return united(found, None)
    # No shares if rows move: a row that moves from one share of the files to another would be needed in both.
    return (
        united(found, moves)
        if moves
        else shares(found, [(part.length, part.low, part.high) for part in parts])
    )


def table_path(target: str, name: str) -> str:
    """The path of a table: ``target/schema/table``, special characters as ``=20``, cut if they are many."""
    schema, _, table = name.partition(".")
    return f"{target}/{_folder(schema)}/{_folder(table)}"


def spellings(found: Iterable[str], wanted: Iterable[str]) -> dict[str, str]:
    """New names for the columns whose wanted name differs in letter case only."""
    names = {name.lower(): name for name in wanted}
    return {name: new for name in found if (new := names.get(name.lower(), name)) != name}


def add_action(file: NewFile) -> AddAction:
    """The action by which a commit adds a file."""
    return AddAction(file.path, file.size, {}, int(time.time() * 1000), True, file.stats)


def _folder(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else fitting(_SPECIAL.sub(_escaped, name))


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"={byte:02x}" for byte in found[0].encode())
