"""What a lookup of columns remembers has a limit: a log can name any number of tables."""

from __future__ import annotations

import pytest

from protocol.rows.table import Table
from replica.config.options import Options
from replica.source import column_lookup
from replica.source.column_lookup import ColumnLookup


def test_tables_without_names_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_lookup, "TABLES_KEPT", 10)
    lookup = ColumnLookup(Options.build("mysql://repl@127.0.0.1", {}))
    tables = [Table("shop", f"t{number}", ()) for number in range(1000)]
    for table in tables:
        assert lookup.is_needed(table)
        lookup.settle(table)
        assert not lookup.is_needed(table)
    assert sum(not lookup.is_needed(table) for table in tables) == 10
