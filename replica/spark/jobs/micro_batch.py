"""One micro-batch -> steps of kept tables, in the order of the log, for ``mirror`` and ``history``.

    packed rows -> by table -> KeptTable.apply        without rolled back rows; prepared rows at their XA COMMIT
    statements  -> ddl -> steps of single tables      all rows before them are written first

One stream has the rows of all tables, typed on the executors and packed (``replica.spark.packed``). JSON would lose
types, and a stream for each table would read the log once for each. A micro-batch is one range of the log, with which
each table advances in steps. A step is a commit in Delta with the number of the micro-batch, and is skipped if the
table has it. The steps depend on the log alone, so a micro-batch that is run again takes the same ones. The state for
later micro-batches is written last (``job_state``).

The driver holds a micro-batch: ``maxBytesPerTrigger`` (default 64m), or one larger transaction.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from protocol.errors import ConfigurationError, LostEventsError, SchemaMismatchError
from protocol.records import record

from ...sql import ddl
from ...sql.xa import statement_xid
from ..packed import PackedItem, PackedRows, repack, unpack
from . import job_state
from .changed_values import changes_values
from .changes_per_key import column_names
from .coverage import SYSTEM_SCHEMAS
from .job_state import JobState, TableState
from .kept_table import KeptTable, Step, table_path

_LOGGER: Final = logging.getLogger(__name__)
# deltalake releases Python's lock; more threads are not faster.
_THREADS: Final = 4

TableKind = Callable[[str, str, Mapping[str, str]], KeptTable]


@record(frozen=True, slots=True)
class Target:
    """The target of a job: its path, the kind of its tables, and whether it keeps (``wants``) a ``schema.table``.

    ``storage`` has the storage options of the path.
    """

    path: str
    kind: TableKind
    wants: Callable[[str], bool]
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def table(self, name: str) -> KeptTable:
        """A table of the target."""
        return self.kind(name, table_path(self.path, name), self.storage)


@record(slots=True)
class _Waiting:
    """Rows of one table that wait to be written."""

    key: tuple[str, ...]
    schema: pa.Schema
    batches: list[pa.RecordBatch] = field(default_factory=list)


class Batch:
    """One micro-batch: ``run`` it once."""

    def __init__(self, target: Target, state: JobState, query: str, number: int) -> None:
        self._target = target
        self._state = state
        self._query = query
        self._number = number
        self._waiting: dict[str, _Waiting] = {}
        self._tables: dict[str, KeptTable] = {}
        self._steps: dict[str, int] = {}

    def run(self, items: Iterable[PackedItem]) -> None:
        """Process all items, in the order of the log."""
        for item in items:
            if item.op == "rows":
                self._rows(item)
            elif item.op == "gap":
                raise LostEventsError(
                    f"{item.sql}: the tables of {self._target.path} would lack these changes: seed them anew"
                )
            elif item.op == "ddl":
                self._statement(item)
            else:
                self._xa_end(item)
        self._flush()

    # Rows.

    def _rows(self, item: PackedItem) -> None:
        name = f"{item.schema}.{item.table}"
        if item.schema in SYSTEM_SCHEMAS:
            # The server's own tables, such as those that loading time zones writes.
            return
        assert item.rows is not None
        packed = unpack(item.rows)
        self._check(name, packed, item)
        outcomes = packed.rows.column("_outcome")
        found = pc.unique(outcomes).to_pylist()
        if found == ["commit"]:
            self._add(name, packed.key, packed.rows)
            return
        if "open" in found:
            _LOGGER.warning("%s: the log ends within a transaction at %s:%d", name, item.file, item.pos)
        if "prepared" in found:
            self._prepare(name, packed, packed.rows.filter(pc.equal(outcomes, "prepared")))
        self._add(name, packed.key, packed.rows.filter(pc.equal(outcomes, "commit")))

    def _check(self, name: str, packed: PackedRows, item: PackedItem) -> None:
        place = f"{item.file}:{item.pos}"
        if name not in self._state.tables:
            raise ConfigurationError(
                f"{name} has changes at {place}, but the log does not reach back to its CREATE TABLE: give the state "
                "of the table at a checkpoint (--seed), or exclude it"
            )
        if not packed.has_names:
            raise ConfigurationError(
                f"{name} has changes at {place} without the names of its columns: grant the user SELECT on the table "
                "and begin anew, or exclude it"
            )
        if not packed.key:
            raise ConfigurationError(
                f"{name} has no primary key at {place}, so its rows cannot be told apart: exclude the table, or add "
                "a primary key and seed the table anew"
            )

    def _add(self, name: str, key: tuple[str, ...], rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        waiting = self._waiting.get(name)
        if waiting is not None and (waiting.key, waiting.schema) != (key, rows.schema):
            self._flush(name)
            waiting = None
        if waiting is None:
            waiting = self._waiting[name] = _Waiting(key, rows.schema)
        waiting.batches.append(rows)

    def _flush(self, *names: str) -> None:
        """Write the waiting rows of these tables, or of all."""
        waiting = {
            name: self._waiting.pop(name) for name in names or list(self._waiting) if name in self._waiting
        }
        if len(waiting) < 2:
            for name, rows in waiting.items():
                self._write(name, rows)
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            for done in [pool.submit(self._write, name, rows) for name, rows in waiting.items()]:
                done.result()

    def _write(self, name: str, waiting: _Waiting) -> None:
        rows = pa.Table.from_batches(waiting.batches)
        known, table = self._state.tables[name], self._table(name)
        conforming, applying = self._step(name), self._step(name)
        if not table.is_taken(applying):
            _check_seed(name, known, set(column_names(rows)) - table.fields().keys())
            table.conform(rows, known.fills, conforming)
            table.apply(rows, waiting.key, known.defaults, applying)
        for column in column_names(rows):
            known.fills.pop(column, None)

    def _table(self, name: str) -> KeptTable:
        found = self._tables.get(name)
        if found is None:
            found = self._tables[name] = self._target.table(name)
        return found

    def _step(self, name: str) -> Step:
        """The next step of a table. A step counts even if it turns out not to be needed."""
        number = self._steps[name] = self._steps.get(name, 0) + 1
        return Step(self._query, self._number, number)

    # XA transactions.

    def _prepare(self, name: str, packed: PackedRows, rows: pa.RecordBatch) -> None:
        for xa in pc.unique(rows.column("_xa")).to_pylist():
            part = rows.filter(pc.equal(rows.column("_xa"), xa))
            self._state.prepared.setdefault(xa, []).append((name, repack(packed, part)))

    def _xa_end(self, item: PackedItem) -> None:
        xid = statement_xid(item.sql or "")
        assert xid is not None
        parts = self._state.prepared.pop(str(xid), [])
        if item.op != "xa_commit":
            return
        for name, data in parts:
            packed = unpack(data)
            rows = packed.rows
            place = rows.schema.get_field_index("_ts")
            field_ = rows.schema.field(place)
            moments = pa.repeat(pa.scalar(item.ts, field_.type), rows.num_rows)
            self._add(name, packed.key, rows.set_column(place, field_, moments))

    # Statements.

    def _statement(self, item: PackedItem) -> None:
        actions = ddl.table_actions(
            item.sql or "",
            item.schema or "",
            folds=self._state.folds_names,
            explicit_timestamps=bool(item.explicit_timestamps),
        )
        for action in actions:
            try:
                _ACTIONS[type(action)](self, action, item)
            except SchemaMismatchError as error:
                raise SchemaMismatchError(
                    f"{error} ({item.file}:{item.pos}: {(item.sql or '')[:200]})"
                ) from error

    def _create(self, action: ddl.CreateTable, item: PackedItem) -> None:
        name, state = action.table, self._state
        if not self._target.wants(name) or name in state.tables:
            # CREATE TABLE IF NOT EXISTS of a table that exists.
            return
        is_new = name in state.absent or name.partition(".")[0] in state.schemas or state.is_birth
        if action.is_conditional and not is_new:
            return
        state.absent.discard(name)
        defaults = {column.name: column.default for column in action.columns or () if not column.is_filled}
        kinds = {column.name: column.kind for column in action.columns or ()}
        state.tables[name] = TableState(defaults, kinds=kinds)

    def _drop(self, action: ddl.DropTable, item: PackedItem) -> None:
        name = action.table
        if not self._target.wants(name):
            return
        self._clear(name, item)
        self._state.tables.pop(name, None)
        self._state.absent.add(name)

    def _truncate(self, action: ddl.TruncateTable, item: PackedItem) -> None:
        if action.table in self._state.tables:
            self._clear(action.table, item)

    def _clear(self, name: str, item: PackedItem) -> None:
        self._flush(name)
        self._table(name).clear(item.ts, self._step(name))

    def _rename(self, action: ddl.RenameTable, item: PackedItem) -> None:
        name, new = action.table, action.new_table
        state, wants = self._state, self._target.wants
        if not wants(new):
            self._drop(ddl.DropTable(name), item)
            return
        known = state.tables.get(name)
        if known is None:
            if wants(name) or name in state.absent:
                raise _refused(action.new_table, f"it was renamed from {name}, whose rows are not known")
            raise _refused(
                action.new_table,
                f"it was renamed from {name}, which is not kept: give both names to --tables",
            )
        self._flush(name, new)
        self._move(name, new)
        del state.tables[name]
        state.tables[new] = known
        state.absent.add(name)
        state.absent.discard(new)

    def _move(self, name: str, new: str) -> None:
        table, target = self._table(name), self._table(new)
        filling, emptying = self._step(new), self._step(name)
        if table.table is None or table.is_taken(emptying):
            # The table had no rows; or its rows belong to a later table of this name.
            return
        if not target.is_taken(filling):
            if not target.drops_columns and not target.is_empty():
                raise _refused(
                    new, f"{name} is renamed to it, and the target has a history of that name already"
                )
            target.rewrite(lambda rows: rows, filling, table)
        table.clear_out(emptying)

    def _create_schema(self, action: ddl.CreateSchema, item: PackedItem) -> None:
        if not action.is_conditional or self._state.is_birth:
            self._state.schemas.add(action.schema)

    def _drop_schema(self, action: ddl.DropSchema, item: PackedItem) -> None:
        prefix = f"{action.schema}."
        for name in [name for name in self._state.tables if name.startswith(prefix)]:
            if "." in name.removeprefix(prefix):
                raise _refused(
                    name,
                    f"it may be of {action.schema}, which is dropped, or of a schema with a dot in its name",
                )
            self._drop(ddl.DropTable(name), item)
        self._state.schemas.add(action.schema)

    # Columns.

    def _add_column(self, action: ddl.AddColumn, item: PackedItem) -> None:
        name, column = action.table, action.column
        known = self._state.tables.get(name)
        if known is None or known.spelled(column.name) in {*known.defaults, *known.kinds}:
            # ADD COLUMN IF NOT EXISTS of a column that exists.
            return
        self._flush(name)
        table, step = self._table(name), self._step(name)
        if column.is_filled and not table.is_taken(step) and not table.is_empty():
            raise _refused(
                name, f"its rows have values in the new column {column.name} that are not in the log"
            )
        known.kinds[column.name] = column.kind
        if column.is_filled:
            return
        known.defaults[column.name] = column.default
        # A history keeps dropped columns.
        is_there = column.name in table.fields()
        if not table.drops_columns if is_there else column.default is not None:
            known.fills[column.name] = column.default

    def _change_column(self, action: ddl.ChangeColumn, item: PackedItem) -> None:
        known = self._state.tables.get(action.table)
        if known is None:
            return
        self._flush(action.table)
        table, new = self._table(action.table), action.new_name
        name = known.spelled(action.name, table.fields())
        # Count both steps always: when they are run again, the table may have columns of later steps already.
        redefining, renaming = self._step(action.table), self._step(action.table)
        if action.column is not None:
            _redefine(table, known, name, action.column, redefining)
        if name == new:
            return
        for values in (known.defaults, known.fills, known.kinds):
            if name in values:
                values[new] = values.pop(name)  # type: ignore[assignment]
        if name in table.fields():
            table.rename_column(name, new, renaming)

    def _drop_column(self, action: ddl.DropColumn, item: PackedItem) -> None:
        known = self._state.tables.get(action.table)
        if known is None:
            return
        self._flush(action.table)
        table = self._table(action.table)
        name = known.spelled(action.name, table.fields())
        for values in (known.defaults, known.fills, known.kinds):
            values.pop(name, None)
        step = self._step(action.table)
        if name in table.fields():
            table.drop_column(name, step)

    def _set_default(self, action: ddl.SetDefault, item: PackedItem) -> None:
        known = self._state.tables.get(action.table)
        if known is not None:
            self._flush(action.table)
            fields = self._table(action.table).fields()
            _set_default(known, known.spelled(action.column.name, fields), action.column, fields)

    def _refuse(self, action: ddl.Refused, item: PackedItem) -> None:
        if action.table in self._state.tables:
            raise _refused(action.table, f"{action.what} changes values that the log does not show")


def _check_seed(name: str, known: TableState, new: set[str]) -> None:
    """Raises ``SchemaMismatchError`` for columns from neither the seed nor a statement: they would be null."""
    lacking = new - known.defaults.keys() - known.kinds.keys()
    if known.is_seeded and lacking:
        raise SchemaMismatchError(
            f"{name}: its seed lacks {', '.join(sorted(lacking))}: seed the table with all columns"
        )


def _redefine(
    table: KeptTable, known: TableState, name: str, column: ddl.ColumnDefinition, step: Step
) -> None:
    def is_changed(values: pa.Array) -> bool:
        if column.kind == "JSON" and known.kinds.get(name, "JSON") != "JSON":
            # The server normalizes the text of a JSON column; the new text is not known here.
            return int(values.null_count) < len(values)
        return changes_values(column.kind, values, is_nullable=column.is_nullable)

    if name in table.fields() and not table.is_taken(step) and any(map(is_changed, table.values(name))):
        raise _refused(table.name, f"the server changes values of {name} in the new type {column.kind}")
    if _set_default(known, name, column, table.fields()):
        known.kinds[name] = column.kind


def _set_default(known: TableState, name: str, column: ddl.ColumnDefinition, fields: Iterable[str]) -> bool:
    """Set a column's default. Returns False for a column that is not known, as the seed lacks it."""
    if known.is_seeded and name not in {*fields, *known.defaults, *known.kinds}:
        return False
    known.defaults.pop(name, None)
    if not column.is_filled:
        known.defaults[name] = column.default
    return True


def _refused(table: str, why: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"{table} cannot be kept any longer: {why} -- seed the table anew, or exclude it"
    )


_ACTIONS: Final[Mapping[type[ddl.Action], Callable[[Batch, Any, PackedItem], None]]] = MappingProxyType(
    {
        ddl.CreateTable: Batch._create,
        ddl.DropTable: Batch._drop,
        ddl.TruncateTable: Batch._truncate,
        ddl.RenameTable: Batch._rename,
        ddl.CreateSchema: Batch._create_schema,
        ddl.DropSchema: Batch._drop_schema,
        ddl.AddColumn: Batch._add_column,
        ddl.ChangeColumn: Batch._change_column,
        ddl.SetDefault: Batch._set_default,
        ddl.DropColumn: Batch._drop_column,
        ddl.Refused: Batch._refuse,
    }
)


def run_batch(
    target: Target, begin: JobState, query: str, number: int, items: Callable[[], Iterable[PackedItem]]
) -> None:
    """Run one micro-batch, unless it is done already; ``begin`` is the state of a new job."""
    found = job_state.load(target.path, query, number, target.storage)
    state, done = found if found is not None else (begin, -1)
    if done >= number:
        return
    before = None if found is None else state.rows()
    Batch(target, state, query, number).run(items())
    if state.rows() != before:
        job_state.save(target.path, state, query, number, target.storage)
