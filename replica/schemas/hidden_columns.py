"""Columns that MariaDB logs behind those that it lists: the period of a versioned table, hashes of unique keys.

Their order is that of the log: row_start, row_end, then a hash for each such key (MariaDB 10.11 and 11.8).
"""

from collections.abc import Sequence

from .shape import ColumnShape, Role


def hidden_period() -> list[ColumnShape]:
    """Of a table WITH SYSTEM VERSIONING that names no columns for it."""
    return [_period_column("row_start", "start"), _period_column("row_end", "end")]


def _period_column(name: str, role: Role) -> ColumnShape:
    return ColumnShape(name, "timestamp", (6,), nullable=False, role=role, is_hidden=True)


def hash_columns(columns: Sequence[ColumnShape], count: int) -> list[ColumnShape]:
    """Of unique keys over a hash.

    Whether they may be NULL is not said: that is as the key's columns were when the key was made.
    """
    taken = {column.name.lower() for column in columns}
    made: list[ColumnShape] = []
    number = 0
    for _ in range(count):
        number += 1
        while f"db_row_hash_{number}" in taken:
            number += 1
        made.append(
            ColumnShape(
                f"DB_ROW_HASH_{number}", "bigint", unsigned=True, nullable=None, role="hash", is_hidden=True
            )
        )
    return made
