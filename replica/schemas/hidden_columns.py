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


def hash_columns(columns: Sequence[ColumnShape], nullable: Sequence[bool | None]) -> list[ColumnShape]:
    """Of unique keys over a hash; ``nullable`` says of each whether it may be NULL."""
    taken = {column.name.lower() for column in columns}
    made: list[ColumnShape] = []
    number = 0
    for value in nullable:
        number += 1
        while f"db_row_hash_{number}" in taken:
            number += 1
        made.append(
            ColumnShape(
                f"DB_ROW_HASH_{number}", "bigint", unsigned=True, nullable=value, role="hash", is_hidden=True
            )
        )
    return made
