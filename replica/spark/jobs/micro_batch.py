"""One micro-batch -> steps of kept tables, in the order of the log, for ``mirror`` and ``history``.

    packed rows -> files of parts -> by table -> merges    without rolled back rows; prepared rows at XA COMMIT
    statements  -> ddl -> steps of single tables           all rows before them are merged first

One stream has the rows of all tables, typed on the executors and packed (``replica.spark.packed``). JSON would lose
types, and a stream for each table would read the log once for each. A micro-batch is one range of the log, with which
each table advances in steps. A step is a commit in Delta with the number of the micro-batch, and is skipped if the
table has it. The steps depend on the log alone, so a micro-batch that is run again takes the same ones; only which
tables are merged at its end may differ. The state for later micro-batches is written last (``keeper``).

The driver holds statements, and where the rows of each table are; executors write the rows (``staging``) and merge
them (``merges``).
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from protocol.errors import ConfigurationError, LostEventsError, ReplicaError, SchemaMismatchError
from protocol.position import file_number
from protocol.records import replace
from protocol.rows.table import table_text

from ...config.table_names import split_text
from ...sql import ddl
from ...sql.xa import statement_xid
from ..gather import place_number
from ..packed_items import PackedItem
from .coverage import SYSTEM_SCHEMAS
from .job_state import JobState, PreparedRows, TableState, Waiting, check_newest
from .kept_table import CONSISTENT, KeptTable, Step, check_name
from .redefinitions import known_columns, noted_kind, redefine, refused, set_charset
from .staging import Part, Staged, StagedRows
from .table_merges import Merger, TableMerge
from .target import Target

if TYPE_CHECKING:
    from .settled_copy import Settled

_LOGGER: Final = logging.getLogger(__name__)
# The steps of a merge: the table gets the columns of the rows, then the rows.
_STEPS_OF_A_MERGE: Final = 2


class Batch:
    """One micro-batch: ``run`` it once."""

    def __init__(
        self, target: Target, state: JobState, query: str, number: int, *, first_step: int = 1
    ) -> None:
        self._target = target
        self._state = state
        self._query = query
        self._number = number
        self._first_step = first_step
        self._tables: dict[str, KeptTable] = {}
        self._steps: dict[str, int] = {}

    def run(self, items: Iterable[Staged]) -> None:
        """Process all items, in the order of the log."""
        for staged in items:
            item = staged.item
            if staged.rows is not None:
                self._rows(item, staged.rows)
            elif item.op == "gap":
                self._gap(item)
            elif item.op == "ddl":
                self._statement(item)
            else:
                self._xa_end(item)

    def _gap(self, item: PackedItem) -> None:
        """Part of the log is lost: no table can be kept from here on."""
        lost = LostEventsError(f"{item.sql}: the tables of {self._target.path} would lack these changes")
        if not self._target.is_live:
            raise lost
        for name in self._state.tables:
            self.trouble(name, lost)

    def merge(self, *names: str) -> None:
        """Merge all waiting rows of these tables."""
        self._flush(*names)

    def has_merged(self, name: str) -> bool:
        """Whether an earlier run of this micro-batch merged the table as its next step, and ended after that."""
        number = self._steps.get(name, self._first_step - 1) + _STEPS_OF_A_MERGE
        return self._table(name).is_taken(Step(self._query, self._number, number))

    def has_merged_since(self, name: str) -> bool:
        """Whether rows that waited after this micro-batch were merged since, also by a killed next micro-batch."""
        table, following = self._table(name), Step(self._query, self._number + 1, _STEPS_OF_A_MERGE)
        if table.is_taken(replace(following, number=1)):
            # After the first step the table has the columns, but not yet the rows.
            return table.is_taken(following)
        return self.has_merged(name)

    def tables(self) -> Iterable[KeptTable]:
        """The tables that the batch has looked at."""
        return self._tables.values()

    def publish(self, name: str, since: int) -> None:
        """Set the property of a table that says since when it is consistent."""
        self._table(name).set_property(CONSISTENT, datetime.fromtimestamp(since, UTC).isoformat())

    # Tables that are copied anew.

    def release(self, name: str) -> None:
        """Let the changes of a table wait no longer for its copy. A copy that is made already is of no use then."""
        state = self._state
        if state.holds.pop(name, None) is not None and (name not in state.tables or name in state.parked):
            # The changes before the waiting ones are not known.
            state.waiting.pop(name, None)

    def take_over(self, name: str, settled: "Settled", step: Step) -> None:
        """Replace a table, whose changes have waited since before the copy, by its copy."""
        state, kept, source = self._state, self._table(name), settled.target.table(name)
        place, known = settled.offset, settled.state.tables[name]
        begin = place_number(state.epoch, file_number(place.file), place.position)
        kept.check_columns(source.fields())
        if source.table is not None:
            kept.take_over(source, step, (settled.moment, begin), known.key)
        elif kept.table is not None:
            kept.clear(settled.moment, step, begin)
        known.size, known.merged_at, known.merged_batch = kept.size, int(time.time()), self._number
        known.since = 0
        state.tables[name] = known
        state.begins[name] = f"{place.file}:{place.position}"
        for unknown in (state.parked, state.again):
            unknown.pop(name, None)
        state.absent.discard(name)
        del state.holds[name]
        state.forget(name, begin)

    # Rows.

    def _rows(self, item: PackedItem, rows: StagedRows) -> None:
        name = table_text(item.schema or "", item.table or "")
        if item.schema in SYSTEM_SCHEMAS:
            # The server's own tables, such as those that loading time zones writes.
            return
        state = self._state
        if name in state.parked and name not in state.holds:
            return
        for number in (part.span[1] for part in rows.parts if part.span is not None):
            state.see(number)
        if state.is_before(name, item.file, item.pos):
            begin = state.begin_of(name)
            assert begin is not None
            rows = rows.behind(begin)
            if not rows.parts:
                return
        try:
            self._check(name, rows, item)
        except (ConfigurationError, SchemaMismatchError) as error:
            self.trouble(name, error)
            return
        if "open" in rows.outcomes:
            _LOGGER.warning("%s: the log ends within a transaction at %s:%d", name, item.file, item.pos)
        for xa, part in rows.prepared.items():
            prepared = PreparedRows(name, rows.key, rows.schema, part)
            self._state.prepared.setdefault(xa, []).append(prepared)
        if rows.committed is not None:
            self.add(name, rows.key, rows.schema, rows.committed)

    def _check(self, name: str, rows: StagedRows, item: PackedItem) -> None:
        check_name(name)
        place = f"{item.file}:{item.pos}"
        is_changelog = self._target.kind.is_changelog
        if is_changelog:
            self._state.tables.setdefault(name, TableState())
        if name not in self._state.tables and name not in self._state.holds:
            raise ConfigurationError(
                f"{name} has changes at {place}, but the log does not reach back to its CREATE TABLE"
            )
        if not rows.has_names:
            raise ConfigurationError(
                f"{name} has changes at {place} without column names: grant SELECT, or a later statement took them"
            )
        if not rows.key and not is_changelog:
            raise ConfigurationError(
                f"{name} has no primary key at {place}, so its rows cannot be told apart: exclude the table, or add "
                "a primary key"
            )

    def add(self, name: str, key: tuple[str, ...], schema: pa.Schema, part: Part) -> None:
        """Let rows wait, after all rows that wait already."""
        waiting = self._state.waiting.get(name)
        if waiting is not None and (waiting.key, waiting.schema) != (key, schema):
            self._flush(name)
            waiting = None
        if waiting is None:
            waiting = self._state.waiting[name] = Waiting(key, schema, int(time.time()))
        waiting.parts.append(part)
        self._state.note_moves(name, key, part)

    def _flush(self, *names: str) -> None:
        """Merge the waiting rows of these tables."""
        found, target = self._state.waiting, self._target
        for name in names:
            self.release(name)
        merges = [
            TableMerge(
                self._table(name),
                found.pop(name),
                self._state.tables[name],
                self._step(name),
                self._step(name),
            )
            for name in names
            if name in found
        ]
        # A table that an earlier run has merged has no parts, but has counted its steps (``keeper.forget_merged``).
        merges = [one for one in merges if one.waiting.parts]
        check = partial(check_newest, target.path, self._state, target.storage)
        Merger(target.path, target.storage, target.spark, self.trouble, check).run(merges)

    def trouble(self, name: str, error: ReplicaError) -> None:
        """Park a table: its waiting rows are merged, later changes are ignored. Other tables go on."""
        if not self._target.parks:
            raise error
        reason = f"{error} -- {self._target.remedy(name)}"
        _LOGGER.error("%s is kept no longer: %s", name, reason)
        self._state.parked[name] = reason

    def _table(self, name: str) -> KeptTable:
        if name not in self._tables:
            self._tables[name] = self._target.table(name)
        return self._tables[name]

    def _step(self, name: str) -> Step:
        """The next step of a table. A step counts even if it turns out not to be needed."""
        number = self._steps[name] = self._steps.get(name, self._first_step - 1) + 1
        return Step(self._query, self._number, number)

    # XA transactions.

    def _xa_end(self, item: PackedItem) -> None:
        xid = statement_xid(item.sql or "")
        assert xid is not None
        parts = self._state.prepared.pop(str(xid), [])
        if item.op == "xa_commit":
            for rows in [rows for rows in parts if rows.table not in self._state.parked]:
                self.add(rows.table, rows.key, rows.schema, replace(rows.part, moment=item.ts))

    # Statements.

    def _statement(self, item: PackedItem) -> None:
        actions = ddl.table_actions(
            item.sql or "",
            item.schema or "",
            folds=self._state.folds_names,
            explicit_timestamps=bool(item.explicit_timestamps),
            sql_mode=item.sql_mode or 0,
        )
        if actions and isinstance(actions[0], ddl.Unreadable):
            actions = [ddl.Unreadable(actions[0].what, name) for name in self._state.tables]
        handlers = _LOGGED_ACTIONS if self._target.kind.is_changelog else _ACTIONS
        self._state.see(int(item.seq or 0))
        for action in actions:
            named = [getattr(action, field, None) for field in ("table", "new_table", "schema")]
            copied = [one for one in named if one and self._state.is_before(one, item.file, item.pos)]
            if isinstance(action, ddl.RenameTable) and copied == [action.new_table]:
                # The copy has the renamed table, under the new name only.
                action, copied = ddl.DropTable(action.table), []
            if copied:
                continue
            for held in [one for one in self._state.holds if {one, split_text(one)[0]} & {*named}]:
                self.release(held)
            if _table_of(action) in self._state.parked and not isinstance(action, _ENDING):
                continue
            try:
                act = handlers.get(type(action))
                if act is not None:
                    act(self, action, item)
            except SchemaMismatchError as error:
                where = f"{item.file}:{item.pos}: {(item.sql or '')[:200]}"
                told = SchemaMismatchError(f"{error} ({where})")
                name = _table_of(action)
                if name is None:
                    raise told from error
                names = (name, action.new_table) if isinstance(action, ddl.RenameTable) else (name,)
                for one in filter(self._target.wants, names):
                    self.trouble(one, told)

    def _create(self, action: ddl.CreateTable, item: PackedItem) -> None:
        name, state = action.table, self._state
        if name not in state.tables:
            # An earlier table of this name was parked.
            state.parked.pop(name, None)
        if not self._target.wants(name) or name in state.tables:
            # CREATE TABLE IF NOT EXISTS of a table that exists.
            return
        check_name(name)
        is_new = name in state.absent or split_text(name)[0] in state.schemas or state.is_birth
        if action.is_conditional and not is_new:
            return
        state.absent.discard(name)
        if self._target.kind.stamps:
            # The dropped table of this name has left its deleted rows.
            self._table(name).clear_out(self._step(name))
        defaults, kinds = known_columns(action)
        state.tables[name] = TableState(defaults, kinds=kinds, since=item.ts // 1_000_000)

    def _drop(self, action: ddl.DropTable, item: PackedItem) -> None:
        name = action.table
        if not self._target.wants(name):
            return
        self._state.parked.pop(name, None)
        self._clear(name, item)
        self._state.tables.pop(name, None)
        self._state.miss(name)

    def _truncate(self, action: ddl.TruncateTable, item: PackedItem) -> None:
        if action.table in self._state.tables:
            self._clear(action.table, item)

    def _clear(self, name: str, item: PackedItem) -> None:
        self._flush(name)
        self._state.again.pop(name, None)
        self._table(name).clear(item.ts, self._step(name), int(item.seq or 0))

    def _truncate_logged(self, action: ddl.TruncateTable, item: PackedItem) -> None:
        """TRUNCATE for a changelog, which may begin with this statement."""
        if self._target.wants(action.table):
            self._state.tables.setdefault(action.table, TableState())
            self._table(action.table).begin()
            self._clear(action.table, item)

    def _rename(self, action: ddl.RenameTable, item: PackedItem) -> None:
        name, new = action.table, action.new_table
        state, wants = self._state, self._target.wants
        if name in state.parked:
            self._flush(name)
            if wants(new):
                state.parked[new] = state.parked[name]
            del state.parked[name]
            state.tables.pop(name, None)
            state.miss(name)
            return
        if not wants(new):
            self._drop(ddl.DropTable(name), item)
            return
        known = state.tables.get(name)
        if known is None:
            if wants(name) or name in state.absent:
                raise refused(action.new_table, f"it was renamed from {name}, whose rows are not known")
            # As online schema changes end: they fill another table, which then gets the name.
            self._target.ask_for_copy(new)
            raise refused(
                new, f"it was renamed from {name}, which is not kept: select both names (includeTables)"
            )
        self._flush(name, new)
        self._move(name, new)
        state.rename(name, new)

    def _move(self, name: str, new: str) -> None:
        table, target = self._table(name), self._table(new)
        filling, emptying = self._step(new), self._step(name)
        if table.table is None or table.is_taken(emptying):
            # The table has no rows; or the rows have moved already, and a later table has this name.
            return
        if not target.is_taken(filling):
            if not target.drops_columns and not target.is_empty():
                raise refused(
                    new, f"{name} is renamed to it, and the target has a history of that name already"
                )
            target.rewrite(target.conversion(), filling, table)
        table.clear_out(emptying)

    def _create_schema(self, action: ddl.CreateSchema, item: PackedItem) -> None:
        if not action.is_conditional or self._state.is_birth:
            self._state.schemas.add(action.schema)

    def _drop_schema(self, action: ddl.DropSchema, item: PackedItem) -> None:
        for name in [name for name in self._state.tables if split_text(name)[0] == action.schema]:
            if not self._state.is_before(name, item.file, item.pos):
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
            raise refused(
                name, f"its rows have values in the new column {column.name} that are not in the log"
            )
        known.kinds[column.name] = noted_kind(column)
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
        # Always count both steps: when the micro-batch is run again, the table may have columns of later steps
        # already.
        redefining, renaming = self._step(action.table), self._step(action.table)
        if action.column is not None:
            redefine(table, known, name, action.column, redefining, item.sql_mode or 0)
        if name == new:
            return
        known.rename_column(name, new)
        if name in table.fields():
            table.rename_column(name, new, renaming)

    def _drop_column(self, action: ddl.DropColumn, item: PackedItem) -> None:
        known = self._state.tables.get(action.table)
        if known is None:
            return
        self._flush(action.table)
        table = self._table(action.table)
        name = known.spelled(action.name, table.fields())
        known.drop_column(name)
        step = self._step(action.table)
        if name in table.fields():
            table.drop_column(name, step)

    def _set_default(self, action: ddl.SetDefault, item: PackedItem) -> None:
        known = self._state.tables.get(action.table)
        if known is not None:
            self._flush(action.table)
            fields = self._table(action.table).fields()
            known.set_default(known.spelled(action.column.name, fields), action.column, fields)

    def _set_charset(self, action: ddl.SetCharset, item: PackedItem) -> None:
        known = self._state.tables.get(action.table)
        if known is not None:
            self._flush(action.table)
            table, step = self._table(action.table), self._step(action.table)
            set_charset(table, known, action, step, item.sql_mode or 0)

    def _refuse(self, action: ddl.Refused | ddl.Unreadable, item: PackedItem) -> None:
        is_new = isinstance(action, ddl.Refused) and action.is_new and self._target.wants(action.table)
        if is_new or action.table in self._state.tables:
            raise refused(action.table, f"{action.what} changes values that the log does not show")


def _table_of(action: ddl.Action) -> str | None:
    """The table that an action is about; None for a schema."""
    return getattr(action, "table", None)


# The actions by which a parked table ends, or gets another name.
_ENDING: Final = (ddl.CreateTable, ddl.DropTable, ddl.RenameTable)
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
        ddl.SetCharset: Batch._set_charset,
        ddl.DropColumn: Batch._drop_column,
        ddl.Refused: Batch._refuse,
        ddl.Unreadable: Batch._refuse,
    }
)
# For a changelog: its columns follow from its rows, and the changes of a renamed table stay under the old name.
_LOGGED_ACTIONS: Final[Mapping[type[ddl.Action], Callable[[Batch, Any, PackedItem], None]]] = (
    MappingProxyType(
        {
            ddl.CreateTable: Batch._create,
            ddl.DropTable: Batch._drop,
            ddl.TruncateTable: Batch._truncate_logged,
            ddl.DropSchema: Batch._drop_schema,
            ddl.Unreadable: Batch._refuse,
        }
    )
)
