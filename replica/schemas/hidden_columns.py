"""Columns that MariaDB logs behind those that it lists: the period of a versioned table, hashes of unique keys.

Their order is that of the log: row_start, row_end, then a hash for each such key (MariaDB 10.11 and 11.8).
"""

from collections.abc import Sequence

from .shape import ColumnShape, Key, Role


def hidden_period() -> list[ColumnShape]:
    """Of a table WITH SYSTEM VERSIONING that names no columns for it."""
    return [_period_column("row_start", "start"), _period_column("row_end", "end")]


def _period_column(name: str, role: Role) -> ColumnShape:
    return ColumnShape(name, "timestamp", (6,), nullable=False, role=role, is_hidden=True)


def hash_columns(columns: Sequence[ColumnShape], keys: Sequence[Key]) -> list[ColumnShape]:
    """One for each unique key over a hash; it may be NULL if a column of the key may."""
    by_name = {column.name: column for column in columns}
    taken = {name.lower() for name in by_name}
    made: list[ColumnShape] = []
    number = 0
    for key in keys:
        if not key.is_hash:
            continue
        number += 1
        while f"db_row_hash_{number}" in taken:
            number += 1
        nullable = any(by_name[name].nullable is not False for name, _ in key.parts if name in by_name)
        made.append(
            ColumnShape(
                f"DB_ROW_HASH_{number}",
                "bigint",
                unsigned=True,
                nullable=nullable,
                role="hash",
                is_hidden=True,
            )
        )
    return made
