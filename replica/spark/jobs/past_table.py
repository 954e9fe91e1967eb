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

from ...arrow.temporal import TIMESTAMP
from ..gather import SEQ_TYPE
from .kept_table import KeptTable, Step

OWN_FIELDS: Final = (
    pa.field("valid_from", TIMESTAMP),
    pa.field("valid_to", TIMESTAMP),
    pa.field("is_current", pa.bool_()),
    pa.field("_seq", SEQ_TYPE),
)


class PastTable(KeptTable):
    """A kept table with all states of its rows. See ``KeptTable``."""

    own_fields = OWN_FIELDS
    drops_columns = False

    def clear(self, micros: int, step: Step) -> None:
        """End all states."""
        self.end_all(micros, step)

    def seeded(self, rows: pa.Table) -> pa.Table:
        """The rows of a seed as present states, which began before the log."""
        values = (None, None, True, 0)
        for own, value in zip(OWN_FIELDS, values, strict=True):
            rows = rows.append_column(own, pa.repeat(pa.scalar(value, own.type), rows.num_rows))
        return rows
