"""Names, signs, character sets and labels from the texts of information_schema."""

from __future__ import annotations

import pytest

from protocol.constants import ColumnType
from protocol.errors import SchemaMismatchError
from protocol.rows.column import Column
from protocol.rows.description import ColumnDescription, describe_table
from protocol.rows.table import Table


def described(column: Column, data_type: str, column_type: str, charset: str | None = None) -> Column:
    description = ColumnDescription("name", data_type, column_type, charset=charset)
    table = describe_table(Table("shop", "orders", (column,)), [description])
    assert table.names_from == "information_schema"
    assert table.column_names == ("name",)
    return table.columns[0]


@pytest.mark.parametrize("kind", [ColumnType.ENUM, ColumnType.SET])
def test_labels_are_unescaped(kind: ColumnType) -> None:
    """As MySQL 9.7 and 5.6 and MariaDB 10.11 and 11.8 print them, whatever the sql_mode."""
    printed = r"""('a\nb','c\\d','e''f','g\rh','i\0j','''','','\\n','"(','x,y')"""
    column = described(Column("@1", kind, 1, True), kind.name.lower(), kind.name.lower() + printed, "utf8mb4")
    assert column.labels == ("a\nb", "c\\d", "e'f", "g\rh", "i\0j", "'", "", "\\n", '"(', "x,y")


def test_a_logged_sign_of_year_is_no_mismatch() -> None:
    for unsigned in (True, False, None):
        column = Column("@1", ColumnType.YEAR, 0, True, unsigned=unsigned)
        assert described(column, "year", "year(4)").unsigned is unsigned


@pytest.mark.parametrize(
    ("column_type", "unsigned"),
    [("int", False), ("int(10) unsigned", True), ("int(5) zerofill", True)],
)
def test_signs(column_type: str, unsigned: bool) -> None:
    assert described(Column("@1", ColumnType.LONG, 0, True), "int", column_type).unsigned is unsigned
    agreeing = Column("@1", ColumnType.LONG, 0, True, unsigned=unsigned)
    assert described(agreeing, "int", column_type).unsigned is unsigned
    with pytest.raises(SchemaMismatchError):
        described(Column("@1", ColumnType.LONG, 0, True, unsigned=not unsigned), "int", column_type)
