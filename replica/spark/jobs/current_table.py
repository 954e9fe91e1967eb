"""A table of ``mirror`` in Delta: the source's rows as they are now. ``kept_table`` has the common part.

Its rows may have ``stamps``: the sequence number and the time of their last change, and whether they are deleted.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from .kept_table import KeptTable, Step
from .stamps import ALL_FIELDS, SEQ_FIELDS, unstamped


class CurrentTable(KeptTable):
    """A kept table with the present rows only. See ``KeptTable``."""

    def clear(self, micros: int, step: Step, seq: int = 0) -> None:
        """Delete all rows."""
        self.clear_out(step)


class StampedTable(CurrentTable):
    """A table whose rows have the sequence number and the time of their last change."""

    own_fields: tuple[pa.Field, ...] = SEQ_FIELDS
    stamps: tuple[str, ...] = tuple(field.name for field in SEQ_FIELDS)
    # The first copy writes rows without stamps, so it is made elsewhere and taken over.
    begins_exactly = True

    def seeded(self, rows: pa.Table) -> pa.Table:
        """The rows of a seed, which have had no change in the log."""
        return unstamped(rows, self.stamps)

    def take_over(self, source: KeptTable, step: Step, begin: tuple[int, int] | None = None) -> None:
        """Get the rows of another table, which have no stamps."""
        self.rewrite(replace(self.conversion(), stamps=self.stamps), step, source)


class SoftTable(StampedTable):
    """A table that keeps deleted rows, with a mark."""

    own_fields = ALL_FIELDS
    stamps = tuple(field.name for field in ALL_FIELDS)

    def clear(self, micros: int, step: Step, seq: int = 0) -> None:
        """Mark all rows as deleted."""
        if self.table is not None:
            self.rewrite(replace(self.conversion(), deleted=(micros, seq)), step)


#: The kinds by their stamps.
CURRENT_TABLES: Final[Mapping[tuple[str, ...], type[CurrentTable]]] = MappingProxyType(
    {kind.stamps: kind for kind in (CurrentTable, StampedTable, SoftTable)}
)
