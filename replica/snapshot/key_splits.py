"""Splits a table into ranges of its key, which readers can read at the same time. The bounds come from the server.

A single key column that is an integer is split by its numbers: two queries, whatever the table's size. Any other key
is split by counting: the server walks its index once. Ranges of numbers with gaps hold different counts of rows, so
they are many and small. Rows that come behind the largest key of now are in no range: they are in the log.
"""

from typing import Final

from protocol.rows.column import INTEGER_TYPES

from ..source.session import Session
from .chunk_reader import ChunkReader
from .read_plan import ReadPlan
from .row_keys import KeyBytes, KeyRange

# Ranges for each reader: one that got full ranges does not keep the others waiting for long.
_RANGES_EACH: Final = 8


async def split_by_key(session: Session, plan: ReadPlan, readers: int, estimate: int) -> list[list[KeyRange]]:
    """Ranges for so many readers, at most; together they hold all rows of now. A table without a key is one range.

    ``estimate`` is about the number of rows. ``session`` is prepared by ``prepare_session``. Raises what
    ``ChunkReader`` raises.
    """
    ranges = await key_ranges(session, plan, readers * _RANGES_EACH, estimate)
    found = [ranges[number::readers] for number in range(readers)]
    return [one for one in found if one]


async def key_ranges(session: Session, plan: ReadPlan, count: int, estimate: int) -> list[KeyRange]:
    """About so many ranges, in the order of the key; none for an empty table. See ``split_by_key``."""
    if not plan.key_names:
        return [KeyRange()]
    reader = ChunkReader(session, plan)
    largest = await reader.largest_key()
    if largest is None:
        return []
    column = plan.table.columns[plan.select.key[0]]
    if len(plan.key_names) == 1 and column.type in INTEGER_TYPES:
        smallest = await reader.smallest_key() or largest
        bounds = _numbers(int(smallest[0]), int(largest[0]), count)
    elif count == 1:
        bounds = []
    else:
        bounds = await _counted(reader, largest, max(estimate // count, 1000))
    return [KeyRange(*pair) for pair in zip([None, *bounds], [*bounds, largest], strict=True)]


def _numbers(smallest: int, largest: int, count: int) -> list[KeyBytes]:
    """Bounds between two numbers, about equally far apart."""
    values = {smallest + (largest - smallest) * number // count for number in range(1, count)}
    return [(str(value).encode(),) for value in sorted(values) if value < largest]


async def _counted(reader: ChunkReader, largest: KeyBytes, rows: int) -> list[KeyBytes]:
    """Each bound so many rows behind the one before."""
    bounds: list[KeyBytes] = []
    after: KeyBytes | None = None
    while (found := await reader.key_behind(KeyRange(after, largest), rows)) is not None and found != largest:
        bounds.append(found)
        after = found
    return bounds
