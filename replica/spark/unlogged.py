"""Generated columns that a log leaves out of updates, though it has whole rows: their values are not known.

MariaDB 11.8.9 (MDEV-40057) logs no generated columns of updates and deletes, also with binlog_row_image=FULL. In code
that completes rows of MINIMAL images, such a column would look unchanged. The before image shows the difference: if
it has columns outside of the key, it lacks only generated columns; or it is a NOBLOB image, which lacks only BLOB and
TEXT (not MySQL's JSON, nor GEOMETRY). With MINIMAL images a generated column that is not logged keeps its value.
"""

from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from protocol.constants import ColumnType
from protocol.rows.column import BLOB_TYPES
from protocol.rows.table import Table

from ..arrow.strings import valid_text

#: The types that a NOBLOB image leaves out: MYSQL_TYPE_BLOB (sql/table.cc, mark_columns_per_binlog_row_image).
_LEFT_OUT: Final = frozenset({*BLOB_TYPES, ColumnType.MARIADB_BLOB_COMPRESSED})


def with_unknown(rows: pa.RecordBatch, table: Table, key: Collection[str]) -> pa.RecordBatch:
    """Set generated columns that an update's image lacks to null, instead of taking the values from before."""
    absent = rows.column("_absent")
    if absent.null_count == len(absent):
        return rows
    names = [valid_text(column.name) for column in table.columns]
    length = pc.fill_null(pc.list_value_length(rows.column("_before_absent")), 0)
    # The image before the change has more than the key.
    is_whole = pc.less(length, len(names) - len(set(key)))
    is_update = pc.equal(rows.column("_op"), "update")
    numbers = np.flatnonzero(pc.and_(pc.and_(is_update, absent.is_valid()), is_whole).to_numpy(False))
    if not len(numbers):
        return rows
    blobs = {
        name for name, column in zip(names, table.columns, strict=True) if column.type in _LEFT_OUT
    } - set(key)
    lists, before = absent.to_pylist(), rows.column("_before_absent").to_pylist()
    for number in numbers.tolist():
        # A NOBLOB image has no BLOB or TEXT column.
        is_noblob = blobs <= set(before[number])
        lists[number] = [name for name in lists[number] if is_noblob and name in blobs] or None
    place = rows.schema.get_field_index("_absent")
    return rows.set_column(place, rows.schema.field(place), pa.array(lists, absent.type))
