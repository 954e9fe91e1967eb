"""Table filters: the same as fnmatchcase on schema and table; None if every table is wanted."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.config.table_filter import nearest_name, table_filter

CASES = [
    (["shop.*"], [], "shop", "orders", True),
    (["shop.*"], [], "shopping", "orders", False),
    (["shop*.*"], [], "shopping", "orders", True),
    (["shop.order?"], [], "shop", "orders", True),
    (["shop.order?"], [], "shop", "order", False),
    (["Shop.orders"], [], "shop", "orders", False),
    (["*.orders"], [], "anything", "orders", True),
    (["a.x", "b.y"], [], "b", "y", True),
    (["a.x", "b.y"], [], "a", "y", False),
    (["*"], ["shop.log"], "shop", "log", False),
    (["*"], ["shop.log"], "shop", "orders", True),
    (["shop.*"], ["*.tmp_*"], "shop", "tmp_1", False),
    (["shop.log"], ["shop.log"], "shop", "log", False),
    (["shop.*"], ["*"], "shop", "orders", False),
    (["shop.a.b"], [], "shop", "a.b", True),
    (["shop.[ab]"], [], "shop", "b", True),
    (["shop.*"], [], "shop", "with\nnewline", True),
    (["shop.orders"], [], "shop", "orders\n", False),
    ([], [], "shop", "orders", False),
]


@pytest.mark.parametrize(("tables", "exclude", "schema", "table", "wanted"), CASES)
def test_cases(tables: list[str], exclude: list[str], schema: str, table: str, wanted: bool) -> None:
    wants_table = table_filter(tables, exclude)
    assert wants_table is not None
    assert wants_table(schema, table) is wanted


def test_no_filter_is_no_predicate() -> None:
    assert table_filter(["*"]) is None
    assert table_filter(["shop.*", "*"]) is None


names = st.text("ab*?[]!.", min_size=1, max_size=5)


@given(names.filter(lambda text: "." not in text), names, names, names)
def test_it_is_fnmatchcase(schema_pattern: str, table_pattern: str, schema: str, table: str) -> None:
    wants_table = table_filter([f"{schema_pattern}.{table_pattern}"])
    assert wants_table is not None
    expected = fnmatchcase(schema, schema_pattern) and fnmatchcase(table, table_pattern)
    assert wants_table(schema, table) is expected


def test_patterns_that_matched_nothing() -> None:
    wants_table = table_filter(["shop.orders", "shop.user", "crm.*"], ["shop.orders"])
    assert wants_table is not None
    for table in ("orders", "users", "items"):
        wants_table("shop", table)
    assert wants_table.unmatched() == [("shop.user", "shop.users"), ("crm.*", None)]
    wants_table("crm", "x")
    assert wants_table.unmatched() == [("shop.user", "shop.users")]


@pytest.mark.parametrize(
    ("pattern", "nearest"),
    [
        ("Shop.*", "shop.orders"),
        ("SHOP.ORD*", "shop.orders"),
        ("shp.*", "shop.orders"),
        ("shop.item", "shop.items"),
        ("billing.*", None),
    ],
)
def test_the_nearest_name(pattern: str, nearest: str | None) -> None:
    assert nearest_name(pattern, ("crm.contacts", "shop.orders", "shop.items")) == nearest


def test_schemas_of_patterns() -> None:
    wants_table = table_filter(["shop_*.orders", "crm.*"])
    assert wants_table is not None
    assert [wants_table.may_want_tables_of(name) for name in ("shop_1", "crm", "shop", "x")] == [
        *(True, True),
        *(False, False),
    ]
