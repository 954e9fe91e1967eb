"""A table of the typed changelog in Delta: each change of a row of one source table, in the order of the log.

    the source's columns    in the types of ``mirror``: the row after an insert or update, or the deleted row
    _op                     insert, update, delete; truncate: the table lost all rows (TRUNCATE, DROP)
    _seq                    orders all changes of the source, over its transactions, log files and fail-overs
    _ts                     time of the commit
    _deleted                whether the row is gone: ``_op`` is delete or truncate
    _absent                 names of the columns that the log lacks (binlog_row_image), which are null then

``_seq`` is one number of a fixed type (DECIMAL(38, 0)) for all tables, so it is what AUTO CDC of Databricks takes for
``sequence_by``, and Hudi as its ordering field. A text of the same order is ``lpad(_seq, 38, '0')``. Rows of an XA
transaction have the number of their change, not of the XA COMMIT; no other change of these rows is in between.

An update that changes the primary key is two rows with the same ``_seq``: a delete with the old key (other columns
are absent), then an insert. In a table without a primary key every update is two such rows, and the delete has all
columns of the row before.

Columns are only added. A column that the source has dropped, or renamed, is null in later rows; the new name is a
new column. If a type becomes wider (INT to BIGINT, a number to VARCHAR), the files are written again in the new type;
if it becomes narrower, the table keeps the wide one. For types of other kinds (VARCHAR to DATE) the table is parked.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from protocol.errors import CheckpointError
from protocol.records import replace

from ...arrow.temporal import TIMESTAMP
from ..gather import SEQ_TYPE
from .append_tasks import new_file
from .changes_per_key import column_names
from .kept_table import ATTEMPTS, OTHERS, KeptTable, Step, add_action
from .merges import Merge
from .staging import Part

OWN_FIELDS: Final = (
    pa.field("_op", pa.string()),
    pa.field("_seq", SEQ_TYPE),
    pa.field("_ts", TIMESTAMP),
    pa.field("_deleted", pa.bool_()),
    pa.field("_absent", pa.list_(pa.field("element", pa.string()))),
)
# The digits of whole numbers by their bits.
_DIGITS: Final = MappingProxyType({8: 3, 16: 5, 32: 10, 64: 19})


class ChangesTable(KeptTable):
    """A table with the changes of a source's table. See ``KeptTable``."""

    own_fields = OWN_FIELDS
    drops_columns = False
    is_changelog = True
    due_bytes = 32 << 20

    def clear(self, micros: int, step: Step, seq: int = 0) -> None:
        """Append a row with the op ``truncate``."""
        if self.table is None or self.is_taken(step):
            return
        row = {"_op": "truncate", "_seq": seq, "_ts": micros, "_deleted": True, "_absent": None}
        values = [pa.array([row[field.name]], field.type) for field in OWN_FIELDS]
        rows = pa.Table.from_arrays(values, schema=pa.schema(OWN_FIELDS))
        for _ in range(ATTEMPTS):
            file = new_file(self.leaf_table((), {}), [rows], self.storage)
            if self._commit([add_action(file)], [file], step):
                return
        raise CheckpointError(f"{self.path}: {OTHERS}")

    def conform(self, rows: pa.Table, fills: Mapping[str, str | None], step: Step) -> None:
        """Give the table the columns that ``rows`` have and it lacks, and types that hold the values of both."""
        wanted = {name: rows.schema.field(name).type for name in column_names(rows)}
        self.check_columns(wanted)
        if self.table is None:
            self._create(wanted)
            return
        found = self.fields()
        spelled = {name.lower(): name for name in found}
        kinds = {spelled.get(name.lower(), name): kind for name, kind in wanted.items()}
        wider = {name: kind for name, kind in kinds.items() if name in found and not holds(found[name], kind)}
        if wider:
            columns = {**found, **kinds, **{name: found[name] for name in found if name not in wider}}
            conversion = replace(self.conversion(), wanted=pa.schema(list(columns.items())))
            self.rewrite(conversion, step)
            return
        if new := {name: kind for name, kind in kinds.items() if name not in found}:
            self.add_columns(new)

    def planned(self, key: Sequence[str], defaults: Mapping[str, str | None], parts: Iterable[Part]) -> Merge:
        """The changes to append."""
        return Merge(self.leaf_table(key, defaults), (), tuple(parts))


def holds(wide: pa.DataType, kind: pa.DataType) -> bool:
    """Whether every value of a type is a value of another type, or a text of it."""
    if wide == kind:
        return True
    is_whole = bool(pa.types.is_integer(kind))
    if pa.types.is_string(wide):
        return bool(is_whole or pa.types.is_decimal(kind))
    if pa.types.is_floating(wide):
        return bool(pa.types.is_floating(kind) and wide.bit_width >= kind.bit_width)
    if pa.types.is_integer(wide):
        return is_whole and bool(wide.bit_width >= kind.bit_width)
    if not pa.types.is_decimal(wide) or not (is_whole or pa.types.is_decimal(kind)):
        return False
    scale = 0 if is_whole else kind.scale
    digits = _DIGITS[kind.bit_width] if is_whole else kind.precision - scale
    return bool(wide.scale >= scale and wide.precision - wide.scale >= digits)
