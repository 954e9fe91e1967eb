"""Which columns of a kept table have their ranges in Delta's log, by which readers skip files.

Delta's log has numbers as doubles. By a rounded range, queries would skip the file of a row such as
18446744073709551615 (a BIGINT UNSIGNED). So new tables with such columns list the columns that have ranges.
"""

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from ...sql.quoting import identifier
from .leaf_files import INDEXED, is_indexed

_COUNT: Final = "delta.dataSkippingNumIndexedCols"
_NAMES: Final = "delta.dataSkippingStatsColumns"
_DIGITS_OF_DOUBLE: Final = 15


def indexed_columns(table: DeltaTable) -> int:
    """How many of the first columns have ranges in the table's log, as far as their types allow."""
    found = table.metadata().configuration
    return INDEXED if _NAMES in found else int(found.get(_COUNT, INDEXED))


def statistics(schema: pa.Schema) -> dict[str, str]:
    """The configuration of a new table."""
    if not has_wide_decimals(schema.types):
        return {}
    # For writers that do not know the list of names.
    names = [identifier(field.name) for field in list(schema)[:INDEXED] if is_indexed(field.type)]
    return {_COUNT: "0", **({_NAMES: ",".join(names)} if names else {})}


def has_wide_decimals(kinds: Iterable[pa.DataType]) -> bool:
    """Whether there are decimals with more digits than a double has."""
    return any(pa.types.is_decimal(kind) and kind.precision > _DIGITS_OF_DOUBLE for kind in kinds)
