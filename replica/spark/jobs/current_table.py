"""A table of ``mirror`` in Delta: the source's rows as they are now.

Each step is one MERGE with the last change of each key. ``kept_table`` has the common part of kept tables.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from .changes_per_key import (
    KeyEvents,
    column_names,
    complete,
    key_events,
    lacks_values,
    last_events,
)
from .kept_table import KeptTable, Step, constants, has_wide_decimals, same_key

# A kept table has no column of this name.
_IS_DELETED: Final = "_op"


class CurrentTable(KeptTable):
    """A kept table with the present rows only. See ``KeptTable``."""

    def apply(
        self, rows: pa.Table, key: Sequence[str], defaults: Mapping[str, str | None], step: Step
    ) -> None:
        """Apply changes by one MERGE."""
        if self.is_taken(step):
            return
        if lacks_values(rows):
            values = constants(self.name, rows.schema, defaults)
            rows = complete(self.name, rows, key, self.read_rows, values)
        events = last_events(key_events(self.name, rows, key))
        source = merge_source(rows, events)
        with self.taking(step):
            (
                self.open()
                .merge(
                    source,
                    same_key(key),
                    source_alias="source",
                    target_alias="target",
                    # Else MERGE skips files of the target by the range of the source's keys; see has_wide_decimals.
                    streamed_exec=has_wide_decimals(rows.schema.field(name).type for name in key),
                    commit_properties=step.properties(),
                )
                .when_matched_delete(f"source.{_IS_DELETED}")
                .when_matched_update_all(except_cols=[_IS_DELETED])
                .when_not_matched_insert_all(predicate=f"NOT source.{_IS_DELETED}", except_cols=[_IS_DELETED])
                .execute()
            )

    def clear(self, micros: int, step: Step) -> None:
        """Delete all rows."""
        self.clear_out(step)


def merge_source(rows: pa.Table, events: KeyEvents) -> pa.Table:
    """The source of a MERGE: the row after each event, and of a deletion only the key."""
    names = column_names(rows)
    taken = rows.select(names).take(pa.array(events.rows))
    columns = [events.keys[name] if name in events.keys.schema.names else taken[name] for name in names]
    fields = [rows.schema.field(name) for name in names]
    return pa.Table.from_arrays(
        [*columns, pa.array(events.is_deletion)],
        schema=pa.schema([*fields, pa.field(_IS_DELETED, pa.bool_(), nullable=False)]),
    )
