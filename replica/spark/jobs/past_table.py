"""A table of ``history`` in Delta: each state of each row with its interval (slowly changing dimension, type 2).

    the source's columns
    valid_from   commit time of the change that made this state; null: from a seed, so before the log
    valid_to     commit time of the change that ended it; null for the present state
    is_current   whether this is the present state
    _seq         the sequence number of the change that made it: orders states that begin at the same time

Columns that the source has dropped stay, and are null in later states. A state that lasted only within one
transaction is there, too, with the same ``valid_from`` and ``valid_to``. ``kept_table`` has the common part of kept
tables.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from protocol.errors import SchemaMismatchError

from ...arrow.temporal import TIMESTAMP
from ..gather import SEQ_TYPE
from .changes_per_key import column_names, complete, key_events, lacks_values, versions
from .kept_table import KeptTable, Step, constants, has_wide_decimals, same_key

OWN_FIELDS: Final = (
    pa.field("valid_from", TIMESTAMP),
    pa.field("valid_to", TIMESTAMP),
    pa.field("is_current", pa.bool_()),
    pa.field("_seq", SEQ_TYPE),
)
# A kept table has no column of this name.
_ENDS: Final = "_op"
_ARROW_TIMESTAMP: Final = 'Timestamp(Microsecond, Some("UTC"))'


class PastTable(KeptTable):
    """A kept table with all states of its rows. See ``KeptTable``."""

    own_fields = OWN_FIELDS
    drops_columns = False

    def apply(
        self, rows: pa.Table, key: Sequence[str], defaults: Mapping[str, str | None], step: Step
    ) -> None:
        """Apply changes by one MERGE, which ends present states and adds new ones."""
        if self.is_taken(step):
            return
        if lacks_values(rows):
            values = constants(self.name, rows.schema, defaults)
            rows = complete(self.name, rows, key, self._read_current, values)
        keys = same_key(key)
        with self.taking(step):
            (
                self.open()
                .merge(
                    self._source(rows, key),
                    f"{keys} AND target.is_current AND source.{_ENDS}",
                    source_alias="source",
                    target_alias="target",
                    streamed_exec=has_wide_decimals(rows.schema.field(name).type for name in key),
                    commit_properties=step.properties(),
                )
                .when_matched_update({"valid_to": "source.valid_to", "is_current": "false"})
                .when_not_matched_insert_all(predicate=f"NOT source.{_ENDS}", except_cols=[_ENDS])
                .execute()
            )

    def clear(self, micros: int, step: Step) -> None:
        """End all states."""
        if self.table is None or self.is_taken(step):
            return
        with self.taking(step):
            self.table.update(
                # A datetime in place of this text may lose a microsecond.
                updates={"valid_to": f"arrow_cast({micros}, '{_ARROW_TIMESTAMP}')", "is_current": "false"},
                predicate="is_current",
                commit_properties=step.properties(),
            )

    def seeded(self, rows: pa.Table) -> pa.Table:
        """The rows of a seed as present states, which began before the log."""
        values = (None, None, True, 0)
        for own, value in zip(OWN_FIELDS, values, strict=True):
            rows = rows.append_column(own, pa.repeat(pa.scalar(value, own.type), rows.num_rows))
        return rows

    def fill(
        self, rows: pa.Table, column: pa.Array | pa.ChunkedArray, value: pa.Scalar
    ) -> pa.Array | pa.ChunkedArray:
        """The column with the value in present states only."""
        return pc.if_else(rows["is_current"], value, column)

    def renamed(self, rows: pa.Table, name: str, new_name: str) -> pa.Table:
        """The rows with a column renamed. Past states with a column of the new name keep its values."""
        if new_name in rows.schema.names:
            if rows.schema.field(name).type != rows.schema.field(new_name).type:
                raise SchemaMismatchError(
                    f"{self.name}: column {name} was renamed to {new_name}, and earlier states have a column of that "
                    "name with another type: begin a new history, or exclude the table"
                )
            values = pc.coalesce(rows[name], rows[new_name])
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
        return super().renamed(rows, name, new_name)

    def _read_current(self, keys: pa.Table) -> pa.Table:
        return self.read_rows(keys, is_current=True)

    def _source(self, rows: pa.Table, key: Sequence[str]) -> pa.Table:
        """The source of the MERGE: the new states, and for each key the end of its present state."""
        events = key_events(self.name, rows, key)
        made, ending, firsts = versions(events)
        moments = rows["_ts"].combine_chunks().cast(TIMESTAMP)
        taken = rows.select(column_names(rows)).take(pa.array(events.rows[made]))
        is_last = ending < 0
        ends = moments.take(pa.array(events.rows[np.where(is_last, 0, ending)]))
        states = taken.append_column("valid_from", moments.take(pa.array(events.rows[made])))
        states = states.append_column(
            "valid_to", pc.if_else(pa.array(is_last), pa.scalar(None, TIMESTAMP), ends)
        )
        states = states.append_column("is_current", pa.array(is_last))
        states = states.append_column("_seq", rows["_seq"].take(pa.array(events.rows[made])))
        states = states.append_column(_ENDS, pa.repeat(pa.scalar(False), len(made)))
        endings = events.take(firsts).keys
        endings = endings.append_column("valid_to", moments.take(pa.array(events.rows[firsts])))
        endings = endings.append_column(_ENDS, pa.repeat(pa.scalar(True), len(firsts)))
        both = pa.concat_tables([states, endings], promote_options="default")
        for name, kind in self.fields().items():
            if name not in both.schema.names:
                both = both.append_column(name, pa.nulls(both.num_rows, kind))
        return both
