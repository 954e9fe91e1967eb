"""A table of the target in Delta: steps that are taken once, and columns that follow those of the source.

Every commit carries two application transactions: the query's id with the number of the micro-batch, and
``ID/step`` with the number of the step that it is of this table within that. A step that is taken again is passed
over, so a micro-batch may be killed between any two commits.
"""

import contextlib
import glob
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from protocol.errors import ConfigurationError, SchemaMismatchError

from ...sql.quoting import quoted
from ..json_text import decimal_texts
from .changes_per_key import column_names

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SPECIAL: Final = re.compile(r"[^A-Za-z0-9_.-]|^[_.-]")
#: The application transaction of a seed.
PLANTED: Final = "seed"
_CHUNK_ROWS: Final = 1 << 16
_DIGITS_OF_DOUBLE: Final = 15

Convert = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class Step:
    """One change of one table."""

    query: str
    batch: int
    number: int

    def is_taken(self, table: DeltaTable) -> bool:
        """Whether the table is the result of it, or of a later one."""
        batch = table.transaction_version(self.query)
        if batch is None or batch < self.batch:
            return False
        return batch > self.batch or (table.transaction_version(f"{self.query}/step") or 0) >= self.number

    def properties(self) -> CommitProperties:
        """For the commit."""
        return CommitProperties(
            app_transactions=[
                Transaction(self.query, self.batch),
                Transaction(f"{self.query}/step", self.number),
            ]
        )


class KeptTable(ABC):
    """``name`` is ``schema.table``; ``table`` is None as long as there is none in the target."""

    #: Columns beside the source's own.
    own_fields: tuple[pa.Field, ...] = ()
    #: Whether columns that the source has no more go here, too.
    drops_columns = True

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self.table: DeltaTable | None = None
        with contextlib.suppress(TableNotFoundError):
            self.table = DeltaTable(path)

    # What the kinds of tables do differently.

    @abstractmethod
    def apply(
        self, rows: pa.Table, key: Sequence[str], defaults: Mapping[str, str | None], step: Step
    ) -> None:
        """Changes, in the order of the log; ``conform`` has been called for their columns."""

    @abstractmethod
    def clear(self, micros: int, step: Step) -> None:
        """The source's table has no rows any more, since then: microseconds since 1970."""

    # What they share.

    def is_taken(self, step: Step) -> bool:
        """Whether nothing is to be done."""
        return self.table is not None and step.is_taken(self.table)

    @contextlib.contextmanager
    def taking(self, step: Step) -> Iterator[None]:
        """Around a step's commit. A process that has outlived its killed driver may have made it meanwhile."""
        try:
            yield
        except CommitFailedError:
            self.table = DeltaTable(self.path)
            if not self.is_taken(step):
                raise

    def open(self) -> DeltaTable:
        """The table, which is there."""
        assert self.table is not None
        return self.table

    def fields(self) -> dict[str, pa.DataType]:
        """The source's columns as the target has them."""
        if self.table is None:
            return {}
        schema = pa.schema(self.table.schema().to_arrow())
        added = {field.name for field in self.own_fields}
        return {field.name: field.type for field in schema if field.name not in added}

    def is_empty(self) -> bool:
        """Whether there are no rows; costs a look at the table's log."""
        return self.table is None or self.table.count() == 0

    def values(self, name: str) -> Iterator[pa.Array]:
        """Those of a column in the rows as they are now, in parts."""
        current = None if self.drops_columns else pc.field("is_current")
        dataset = self.open().to_pyarrow_dataset()
        for batch in dataset.to_batches(columns={name: pc.field(name)}, filter=current):
            yield batch.column(0)

    def conform(self, rows: pa.Table, fills: Mapping[str, str | None], step: Step) -> None:
        """Have the columns of the source's rows; ``fills`` are what new ones hold in the rows that are there."""
        wanted = {name: rows.schema.field(name).type for name in column_names(rows)}
        self._check_names(wanted)
        found = self.fields()
        if self.table is None:
            self._create(wanted)
            return
        # Names that differ in nothing but capitals are of one column, to the server and to Delta.
        spelled = _spelled(found, wanted)
        found = {spelled.get(name, name): kind for name, kind in found.items()}
        new = [name for name in wanted if name not in found]
        filled = {name: fills[name] for name in wanted if name in fills}
        gone = [name for name in found if name not in wanted] if self.drops_columns else []
        other = [name for name in wanted if name in found and found[name] != wanted[name]]
        if filled or gone or other or spelled:
            self.rewrite(lambda table: self._converted(_respelled(table, spelled), wanted, filled), step)
        elif new:
            schema = Schema.from_arrow(pa.schema([(name, wanted[name]) for name in new]))
            self.open().alter.add_columns(list(schema.fields))

    def rewrite(self, convert: Convert, step: Step, source: "KeptTable | None" = None) -> None:
        """All rows anew, of this table or of another one, in parts of some thousand."""
        if self.is_taken(step):
            return
        dataset = (source or self).open().to_pyarrow_dataset()
        empty = convert(dataset.schema.empty_table())
        failures: list[SchemaMismatchError] = []

        def batches() -> Iterator[pa.RecordBatch]:
            for part in dataset.to_batches(batch_size=_CHUNK_ROWS):
                try:
                    yield from convert(pa.Table.from_batches([part])).to_batches()
                except SchemaMismatchError as error:
                    # Only its text would come through deltalake.
                    failures.append(error)
                    raise

        try:
            with self.taking(step):
                write_deltalake(
                    self.path,
                    pa.RecordBatchReader.from_batches(empty.schema, batches()),
                    mode="overwrite",
                    schema_mode="overwrite",
                    commit_properties=step.properties(),
                )
        except DeltaError:
            if failures:
                raise failures[0] from None
            raise
        self.table = DeltaTable(self.path)

    def rename_column(self, name: str, new_name: str, step: Step) -> None:
        """Another name for a column. One that has it already is of an earlier life of the table."""
        self.rewrite(lambda rows: self.renamed(rows, name, new_name), step)

    def renamed(self, rows: pa.Table, name: str, new_name: str) -> pa.Table:
        """The rows with another name for a column."""
        if new_name in rows.schema.names:
            rows = rows.drop_columns([new_name])
        return rows.rename_columns([new_name if found == name else found for found in rows.schema.names])

    def clear_out(self, step: Step) -> None:
        """No rows, and none of the past."""
        if self.table is not None and not self.is_taken(step):
            with self.taking(step):
                self.table.delete(commit_properties=step.properties())

    def drop_column(self, name: str, step: Step) -> None:
        """A column less, if the target is to have only what the source has."""
        if self.drops_columns:
            self.rewrite(lambda table: table.drop_columns([name]), step)

    def seeded(self, rows: pa.Table) -> pa.Table:
        """Rows of a seed as they are to be here."""
        return rows

    def read_rows(self, keys: pa.Table, *, is_current: bool = False) -> pa.Table:
        """The rows with these keys; of a history only the current ones."""
        names = keys.schema.names
        first = keys[names[0]].combine_chunks()
        dataset = self.open().to_pyarrow_dataset()
        # Files are left out by the range of their keys: pyarrow can compare no other types with those in Delta's log.
        chosen = pc.field(names[0]).isin(first) if pa.types.is_integer(first.type) else None
        parts = []
        for batch in dataset.to_batches(filter=chosen):
            part = pa.Table.from_batches([batch])
            part = part.filter(pc.is_in(part[names[0]], first))
            parts.append(part.filter(part["is_current"]) if is_current else part)
        found = pa.concat_tables(parts) if parts else dataset.schema.empty_table()
        if len(names) == 1:
            return found
        found = found.append_column("_n", pa.array(range(found.num_rows), pa.int64()))
        kept = found.select([*names, "_n"]).join(keys, names, join_type="left semi")
        return found.take(kept["_n"].combine_chunks()).drop_columns(["_n"])

    def _create(self, wanted: Mapping[str, pa.DataType]) -> None:
        schema = pa.schema([*wanted.items(), *self.own_fields])
        try:
            self.table = DeltaTable.create(
                self.path, Schema.from_arrow(schema), mode="ignore", configuration=_statistics(schema)
            )
        except Exception as error:
            raise SchemaMismatchError(f"{self.name}: Delta cannot hold such a table: {error}") from error

    def _converted(
        self, table: pa.Table, wanted: Mapping[str, pa.DataType], filled: Mapping[str, str | None]
    ) -> pa.Table:
        """With the columns of the source, and those of ours."""
        kept = [field.name for field in self.own_fields]
        if not self.drops_columns:
            kept = [name for name in table.schema.names if name not in wanted]
        columns, fields = [], []
        for name, kind in wanted.items():
            column = self._column(table, name, kind)
            if name in filled:
                column = self.fill(table, column, constant(self.name, name, filled[name], kind))
            columns.append(column)
            fields.append(pa.field(name, kind))
        for name in kept:
            columns.append(table[name])
            fields.append(table.schema.field(name))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def fill(
        self, rows: pa.Table, column: pa.Array | pa.ChunkedArray, value: pa.Scalar
    ) -> pa.Array | pa.ChunkedArray:
        """A column that the source has filled with a value when it was added."""
        return pa.repeat(value, rows.num_rows)

    def _column(self, table: pa.Table, name: str, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
        if name not in table.schema.names:
            return pa.nulls(table.num_rows, kind)
        column = table[name]
        if column.type == kind:
            return column
        if not table.num_rows:
            return pa.array([], kind)
        if not _may_become(column.type, kind):
            raise self._mismatch(name, column.type, kind)
        try:
            if pa.types.is_decimal(column.type) and pa.types.is_string(kind):
                return pa.chunked_array([decimal_texts(chunk) for chunk in column.chunks], kind)
            return column.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._mismatch(name, column.type, kind) from error

    def _mismatch(self, name: str, found: pa.DataType, wanted: pa.DataType) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"{self.name}: column {name} was {found} and is {wanted} now, and there is no saying what the source has "
            "made of its values: seed the table anew, or exclude it"
        )

    def _check_names(self, names: Mapping[str, pa.DataType]) -> None:
        taken = {field.name for field in self.own_fields} & set(names)
        odd = [name for name in names if "`" in name]
        if taken or odd:
            raise SchemaMismatchError(
                f"{self.name}: no column of a table that is kept may be called {', '.join([*taken, *odd])}: exclude "
                "it"
            )


def table_path(target: str, name: str) -> str:
    """Where a table is within the target: ``target/schema/table``, other characters than letters as ``=20``."""
    schema, _, table = name.partition(".")
    return f"{target}/{_folder(schema)}/{_folder(table)}"


def check_free(target: str) -> None:
    """Raises ``ConfigurationError`` where a job that begins would write into somebody's tables.

    Those of a seed count as ours: whoever was killed behind planting it begins again. It looks at folders of this
    machine only.
    """
    for path in sorted(glob.glob(f"{glob.escape(target)}/*/*/_delta_log")):
        table = os.path.dirname(path)
        is_state = os.path.relpath(table, target).startswith("_")
        if not is_state and DeltaTable(table).transaction_version(PLANTED) is None:
            raise ConfigurationError(
                f"target: {table} is a Delta table already -- give a folder without tables"
            )


def has_wide_decimals(kinds: Iterable[pa.DataType]) -> bool:
    """Whether there are decimals of more digits than a double, as which Delta's log has their range in each file.

    MERGE, and who queries the table, would leave out the file of a row such as 18446744073709551615 (a BIGINT
    UNSIGNED), and the row would be there twice. So new tables with such columns get no ranges, and a MERGE by such
    keys uses none: a seed and rows that are written anew may have them.
    """
    return any(pa.types.is_decimal(kind) and kind.precision > _DIGITS_OF_DOUBLE for kind in kinds)


def _statistics(schema: pa.Schema) -> dict[str, str]:
    return {"delta.dataSkippingNumIndexedCols": "0"} if has_wide_decimals(schema.types) else {}


def same_key(key: Iterable[str]) -> str:
    """The predicate of a MERGE by these columns."""
    return " AND ".join(f"target.{name} = source.{name}" for name in (quoted(name, '"') for name in key))


def constant(table: str, column: str, text: str | None, kind: pa.DataType) -> pa.Scalar:
    """A default as it is written in SQL, as a value. Raises ``SchemaMismatchError`` for what is none."""
    if text is None:
        return pa.scalar(None, kind)
    try:
        if pa.types.is_boolean(kind) or pa.types.is_list(kind):
            raise pa.ArrowInvalid("no literal")
        return pa.array([text], pa.string()).cast(kind)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatchError(
            f"{table}: the default {text!r} of column {column} cannot be read as {kind}: seed the table anew"
        ) from error


def constants(table: str, schema: pa.Schema, texts: Mapping[str, str | None]) -> dict[str, pa.Scalar]:
    """The defaults of columns as values; those that cannot be read are left out."""
    found = {}
    for name, text in texts.items():
        if name in schema.names:
            with contextlib.suppress(SchemaMismatchError):
                found[name] = constant(table, name, text, schema.field(name).type)
    return found


def _may_become(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the source makes the same of values as a cast does: not of texts, nor of times in some zone."""
    numbers = [pa.types.is_integer(kind) or pa.types.is_decimal(kind) for kind in (found, wanted)]
    if all(numbers):
        return True
    if pa.types.is_string(wanted):
        return bool(numbers[0])
    return bool(pa.types.is_floating(wanted) and (pa.types.is_floating(found) or pa.types.is_integer(found)))


def _spelled(found: Iterable[str], wanted: Iterable[str]) -> dict[str, str]:
    """Columns that are wanted by names with other capitals."""
    names = {name.lower(): name for name in wanted}
    return {name: new for name in found if (new := names.get(name.lower(), name)) != name}


def _respelled(rows: pa.Table, spelled: Mapping[str, str]) -> pa.Table:
    return rows.rename_columns([spelled.get(name, name) for name in rows.schema.names])


def _folder(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else _SPECIAL.sub(_escaped, name)


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"={byte:02x}" for byte in found[0].encode())
