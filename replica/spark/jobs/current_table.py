"""A table of ``mirror``: the source's rows as they are now. One MERGE a micro-batch: last change per key."""

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

# No table that is kept has a column of that name.
_IS_DELETED: Final = "_op"


class CurrentTable(KeptTable):
    """See ``KeptTable``."""

    def apply(
        self, rows: pa.Table, key: Sequence[str], defaults: Mapping[str, str | None], step: Step
    ) -> None:
        """One MERGE."""
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
                    # Otherwise the range of the keys in the source leaves out files of the target.
                    streamed_exec=has_wide_decimals(rows.schema.field(name).type for name in key),
                    commit_properties=step.properties(),
                )
                .when_matched_delete(f"source.{_IS_DELETED}")
                .when_matched_update_all(except_cols=[_IS_DELETED])
                .when_not_matched_insert_all(predicate=f"NOT source.{_IS_DELETED}", except_cols=[_IS_DELETED])
                .execute()
            )

    def clear(self, micros: int, step: Step) -> None:
        """No rows."""
        self.clear_out(step)


def merge_source(rows: pa.Table, events: KeyEvents) -> pa.Table:
    """The row that each event leaves; of deletions only the key."""
    names = column_names(rows)
    taken = rows.select(names).take(pa.array(events.rows))
    columns = [events.keys[name] if name in events.keys.schema.names else taken[name] for name in names]
    fields = [rows.schema.field(name) for name in names]
    return pa.Table.from_arrays(
        [*columns, pa.array(events.is_deletion)],
        schema=pa.schema([*fields, pa.field(_IS_DELETED, pa.bool_(), nullable=False)]),
    )
