"""A table of ``mirror`` in Delta: the source's rows as they are now. ``kept_table`` has the common part.

Its rows may have ``stamps``: the sequence number and the time of their last change, and whether they are deleted.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from protocol.errors import CheckpointError, SchemaMismatchError
from protocol.records import replace

from .conversions import Conversion
from .convert_tasks import Converting
from .deleted_rows import Copied, overlapping
from .kept_table import ATTEMPTS, OTHERS, KeptTable, Step, add_action, spellings
from .leaves import LeafFile, tag
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

    def take_over(
        self,
        source: KeptTable,
        step: Step,
        begin: tuple[int, int] | None = None,
        key: Sequence[str] = (),
    ) -> None:
        """Get the rows of another table, which have no stamps."""
        self.rewrite(self.stamping(), step, source)

    def stamping(self) -> Conversion:
        """The conversion of the rows of a copy."""
        return replace(self.conversion(), stamps=self.stamps)


class SoftTable(StampedTable):
    """A table that keeps deleted rows, with a mark."""

    own_fields = ALL_FIELDS
    stamps = tuple(field.name for field in ALL_FIELDS)

    def clear(self, micros: int, step: Step, seq: int = 0) -> None:
        """Mark all rows as deleted."""
        if self.table is not None:
            self.rewrite(replace(self.conversion(), deleted=(micros, seq)), step)

    def take_over(
        self,
        source: KeptTable,
        step: Step,
        begin: tuple[int, int] | None = None,
        key: Sequence[str] = (),
    ) -> None:
        """Get the rows of ``source``. Present rows that ``source`` lacks stay, marked as deleted.

        These get the columns of ``source``: columns that they lack are null, and so are values that its types cannot
        hold.
        """
        if begin is None or self.table is None:
            super().take_over(source, step, begin, key)
            return
        for _ in range(ATTEMPTS):
            if self.is_taken(step):
                return
            coming = source.converting(self.stamping(), self.path)
            self._allow(coming.new_schema)
            added = self._converted(coming, source.files(()))
            added += self._converted(*self._lacking(source, begin, key))
            if self._commit(list(map(add_action, added)), added, step, coming.new_schema):
                return
        raise CheckpointError(f"{self.path}: {OTHERS}")

    def _lacking(
        self, source: KeptTable, begin: tuple[int, int], key: Sequence[str]
    ) -> tuple[Converting, list[LeafFile]]:
        """The conversion of the present rows that ``source`` lacks, and the files that may have such rows."""
        found, wanted = self.fields(), source.fields()
        spelled = spellings(found, wanted)
        names = {new: old for old, new in spelled.items()}
        lost = [name for name in key if names.get(name, name) not in found]
        if lost or (not key and not source.is_empty()):
            raise SchemaMismatchError(
                f"{self.name}: a copy cannot tell which rows are deleted, as the table has another key now "
                f"({', '.join(key)}), which they lack: keep the table in another target"
            )
        conversion = replace(
            self.conversion(),
            spelled=spelled,
            wanted=pa.schema(list(wanted.items())),
            deleted=begin,
            is_lenient=True,
        )
        new = [pa.field(name, wanted[name]) for name in key]
        old = [pa.field(names.get(name, name), found[names.get(name, name)]) for name in key]
        files, copied = self.files(old), source.files(new)
        is_comparable = bool(key) and tag(old) == tag(new)
        about = Copied(source.path, pa.schema(new), overlapping(files, copied, is_comparable=is_comparable))
        return replace(self.converting(conversion, self.path), copied=about), files


#: The kinds by their stamps.
CURRENT_TABLES: Final[Mapping[tuple[str, ...], type[CurrentTable]]] = MappingProxyType(
    {kind.stamps: kind for kind in (CurrentTable, StampedTable, SoftTable)}
)
