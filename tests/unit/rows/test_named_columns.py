"""The option ``columns`` names columns of a table: an error for one that there is not says what to do."""

from __future__ import annotations

import pytest

from protocol.constants import ColumnType
from protocol.errors import ConfigurationError
from protocol.rows.column import Column
from protocol.rows.table import Table


def test_names_that_nobody_knows() -> None:
    """It said no more than that there is no such column, of a table that has one on the source."""
    table = Table("shop", "orders", (Column("@1", ColumnType.LONG, 0, True),))
    with pytest.raises(ConfigurationError, match=r"no column id: it has @1, @2.* grant SELECT on it"):
        table.check_columns(["id"])


def test_names_that_are_known() -> None:
    table = Table("shop", "orders", (Column("id", ColumnType.LONG, 0, True),), names_from="history")
    table.check_columns(["id"])
    with pytest.raises(ConfigurationError, match=r"columns: shop.orders has no column di$"):
        table.check_columns(["di"])
