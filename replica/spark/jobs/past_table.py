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

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from protocol.errors import SchemaMismatchError

from ...arrow.temporal import TIMESTAMP
from ..gather import SEQ_TYPE
from .kept_table import KeptTable, Step

OWN_FIELDS: Final = (
    pa.field("valid_from", TIMESTAMP),
    pa.field("valid_to", TIMESTAMP),
    pa.field("is_current", pa.bool_()),
    pa.field("_seq", SEQ_TYPE),
)
_ARROW_TIMESTAMP: Final = 'Timestamp(Microsecond, Some("UTC"))'


class PastTable(KeptTable):
    """A kept table with all states of its rows. See ``KeptTable``."""

    own_fields = OWN_FIELDS
    drops_columns = False

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
