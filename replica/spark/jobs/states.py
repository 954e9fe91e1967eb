"""The columns that a history adds to the states of a row: their interval, and their order.

valid_from   commit time of the change that made this state; null: it was there before the history began
valid_to     commit time of the change that ended it; null for the present state
is_current   whether this is the present state
_seq         the sequence number of the change that made it: orders states that begin at the same time
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...arrow.temporal import TIMESTAMP
from ..gather import SEQ_TYPE

OWN_FIELDS: Final = (
    pa.field("valid_from", TIMESTAMP),
    pa.field("valid_to", TIMESTAMP),
    pa.field("is_current", pa.bool_()),
    pa.field("_seq", SEQ_TYPE),
)


def present(rows: pa.Table, begin: int | None = None, seq: int = 0) -> pa.Table:
    """Rows of a source as present states, which began at this time, in microseconds since 1970."""
    moment = pa.scalar(begin, pa.int64()).cast(TIMESTAMP)
    for own, value in zip(OWN_FIELDS, (moment, None, True, seq), strict=True):
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, own.type)
        rows = rows.append_column(own, pa.repeat(scalar, rows.num_rows))
    return rows


def ended(rows: pa.Table, end: int) -> pa.Table:
    """The states, after all present ones have ended at this time, in microseconds since 1970."""
    moment = pa.scalar(end, pa.int64()).cast(TIMESTAMP)
    values = {
        "valid_to": pc.if_else(rows["is_current"], moment, rows["valid_to"]),
        "is_current": pa.repeat(pa.scalar(False), rows.num_rows),
    }
    for name, column in values.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), column)
    return rows
