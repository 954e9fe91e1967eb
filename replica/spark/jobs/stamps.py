"""The columns that a mirror adds to rows if it is asked to (``keep_seq``, ``soft_deletes``).

_seq       the sequence number of the row's last change; null for rows of a copy or a seed
_ts        the commit time of that change
_deleted   whether the source has deleted the row: it stays here as it was last
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...arrow.temporal import TIMESTAMP
from ..gather import SEQ_TYPE

SEQ_FIELDS: Final = (pa.field("_seq", SEQ_TYPE), pa.field("_ts", TIMESTAMP))
DELETED: Final = "_deleted"
ALL_FIELDS: Final = (*SEQ_FIELDS, pa.field(DELETED, pa.bool_()))

Numbers = npt.NDArray[np.int64]


def unstamped(rows: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """Rows of a copy or a seed with these columns."""
    for field in ALL_FIELDS:
        if field.name in names and field.name not in rows.schema.names:
            value = pa.scalar(False if field.name == DELETED else None, field.type)
            rows = rows.append_column(field, pa.repeat(value, rows.num_rows))
    return rows


def stamped(rows: pa.Table, changes: pa.Table, names: tuple[str, ...], *, is_deleted: bool) -> pa.Table:
    """Rows after these changes, one for each."""
    for name in names:
        place = rows.schema.get_field_index(name)
        field = rows.schema.field(place)
        values = (
            pa.repeat(pa.scalar(is_deleted), rows.num_rows)
            if name == DELETED
            else changes[name].cast(field.type)
        )
        rows = rows.set_column(place, field, values)
    return rows


def all_deleted(rows: pa.Table, micros: int, seq: int) -> pa.Table:
    """The rows after a statement that deletes them all; those that were deleted before stay as they are."""
    was_deleted = rows[DELETED]
    values = (pa.scalar(seq, SEQ_TYPE), pa.scalar(micros, pa.int64()).cast(TIMESTAMP), pa.scalar(True))
    for field, value in zip(ALL_FIELDS, values, strict=True):
        place = rows.schema.get_field_index(field.name)
        column = pc.if_else(was_deleted, rows[field.name], value)
        rows = rows.set_column(place, rows.schema.field(place), column)
    return rows
