"""Rows of information_schema for very many tables."""

from __future__ import annotations

from collections.abc import Iterator

from replica.schemas.baseline import Row

COLUMNS = 12


def rows_of(tables: int) -> tuple[list[Row], list[Row], list[Row], list[Row]]:
    """What ``BaselineQueries`` finds: each table has other columns."""
    schemas: list[Row] = [("shop", "utf8mb4")]
    listed: list[Row] = [
        ("shop", f"t{number}", "BASE TABLE", "InnoDB", "utf8mb4_bin") for number in range(tables)
    ]
    keys: list[Row] = [
        ("shop", f"t{number}", "PRIMARY", "1", f"column_{number * 7 % 997}", None, "0", "BTREE")
        for number in range(tables)
    ]
    return schemas, listed, list(_columns(tables)), keys


def _columns(tables: int) -> Iterator[Row]:
    for number in range(tables):
        for place in range(COLUMNS):
            name = f"column_{(number * 7 + place) % 997}"
            kind, column_type, charset = (
                ("varchar", "varchar(20)", "utf8mb4") if place % 2 else ("int", "int unsigned", None)
            )
            key = "" if place else "PRI"
            yield (
                *("shop", f"t{number}", str(place + 1), name, kind, column_type),
                *("NO", charset, key, "", ""),
            )
