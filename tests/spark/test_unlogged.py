"""Which columns of an update are unknown, and which are unchanged, by what its images lack. No Spark."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from protocol.constants import ColumnType
from protocol.rows.column import Column
from protocol.rows.table import Table
from replica.spark.unlogged import with_unknown

TYPES = {
    "id": ColumnType.LONG,
    "a": ColumnType.LONG,
    "s": ColumnType.LONG,
    "v": ColumnType.VARCHAR,
    "b": ColumnType.BLOB,
    "c": ColumnType.BLOB,
}
TABLE = Table("shop", "t", tuple(Column(name, kind, 0, True) for name, kind in TYPES.items()), ("id",), "log")
NAMES = pa.list_(pa.string())


@pytest.mark.parametrize(
    ("absent", "before", "left"),
    [
        # FULL images, all of them there; and without generated columns, of any type.
        (None, None, None),
        (["s", "v"], ["s", "v"], None),
        (["s", "v", "c"], ["s", "v", "c"], None),
        # NOBLOB: no blob before; an updated one after. With generated columns, too.
        (["b", "c"], ["b", "c"], ["b", "c"]),
        (["c"], ["b", "c"], ["c"]),
        (["s", "c"], ["s", "b", "c"], ["c"]),
        # MINIMAL: nothing but the key before.
        (["s", "v", "b", "c"], ["a", "s", "v", "b", "c"], ["s", "v", "b", "c"]),
    ],
)
def test_what_images_tell(absent: list[str] | None, before: list[str] | None, left: list[str] | None) -> None:
    columns = {
        "_op": pa.array(["insert", "update", "delete"]),
        "_absent": pa.array([absent] * 3, NAMES),
        "_before_absent": pa.array([before] * 3, NAMES),
    }
    rows = pa.RecordBatch.from_pydict(columns)
    found = with_unknown(rows, TABLE, ("id",)).column("_absent").to_pylist()
    # Inserts have all columns of FULL images; of deletes the key is enough.
    assert found == [absent, left, absent]
