"""The packed rows of files -> shares, each of which is one micro-batch of a job that loads them."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Final

from ..packed import PACKED_SCHEMA
from ..packed_items import PackedItem
from .staging import Staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_SHARE_BYTES: Final = 128 << 20


def shares_of(staged: Iterable[Staged]) -> Iterator[list[Staged]]:
    """The items in order, in shares with rows of some bytes each."""
    held: list[Staged] = []
    size = 0
    for item in staged:
        held.append(item)
        size += sum(part.length for part in item.parts)
        if size >= _SHARE_BYTES:
            yield held
            held, size = [], 0
    yield held


def by_partition(frame: "DataFrame") -> Iterator[list[PackedItem]]:
    """The items, partition by partition; Spark reads the next partition meanwhile."""
    from pyspark.sql import functions

    numbered = frame.withColumn("partition", functions.spark_partition_id())
    rows = numbered.toLocalIterator(prefetchPartitions=True)
    for _, items in groupby(rows, key=lambda row: row["partition"]):
        yield _items(items)


def _items(rows: "Iterable[Row]") -> list[PackedItem]:
    return [PackedItem(*(row[name] for name in PACKED_SCHEMA.names)) for row in rows]
