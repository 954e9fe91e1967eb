"""A table of ``history`` in Delta: each state of each row with its interval (slowly changing dimension, type 2).

It has the source's columns, and those of ``states``. Columns that the source has dropped stay, and are null in later
states. A state that lasted only within one transaction is there, too, with the same ``valid_from`` and ``valid_to``.
``kept_table`` has the common part of kept tables.
"""

from collections.abc import Sequence

import pyarrow as pa

from protocol.records import replace

from .kept_table import KeptTable, Step
from .states import OWN_FIELDS, present


class PastTable(KeptTable):
    """A kept table with all states of its rows. See ``KeptTable``."""

    own_fields = OWN_FIELDS
    drops_columns = False
    begins_exactly = True

    def clear(self, micros: int, step: Step, seq: int = 0) -> None:
        """End all states."""
        self.end_all(micros, step)

    def seeded(self, rows: pa.Table) -> pa.Table:
        """The rows of a seed as present states, which began before the log."""
        return present(rows)

    def take_over(
        self,
        source: KeptTable,
        step: Step,
        begin: tuple[int, int] | None = None,
        key: Sequence[str] = (),
    ) -> None:
        """End all present states, and begin one for each row of ``source``."""
        planting = replace(self.conversion(), begun=begin or (None, 0))
        if begin is None or self.table is None:
            self.rewrite(planting, step, source)
            return
        columns = pa.schema(source.open().schema().to_arrow())
        self.conform(columns.empty_table(), {}, step)
        self.end_all(begin[0], replace(step, number=step.number + 1), (planting, source))
