"""Table filters: the same as fnmatchcase on schema and table; None if every table is wanted."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.binlog.decoder import WantsTable
from protocol.errors import ConfigurationError
from protocol.rows.table import table_text
from replica.config import table_filter as table_filter_module
from replica.config.options import Options
from replica.config.selection import read_table, table_patterns
from replica.config.table_filter import TableFilter, exact_pattern, nearest_name, table_filter

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
    (["`a.b`.c"], [], "a.b", "c", True),
    (["`a.b`.c"], [], "a", "b.c", False),
    (["a.b.c"], [], "a", "b.c", True),
    (["a.b.c"], [], "a.b", "c", False),
    (["`a.b`.*"], [], "a.b", "c", True),
    (["`a``b`.`c`"], [], "a`b", "c", True),
    (["`a`.`*`"], [], "a", "b", False),
    (["`a`.`*`"], [], "a", "*", True),
    (["`[a]?`.t*"], [], "[a]?", "t1", True),
    (["*.*"], ["`a.b`.c"], "a.b", "c", False),
    (["a`b.c`d"], [], "a`b", "c`d", True),
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


tables = st.tuples(st.text("a.`,*[ ]\n", min_size=1), st.text("b.`,*?\n ", min_size=1))


@given(tables, tables)
def test_any_table_can_be_selected_exactly(table: tuple[str, str], other: tuple[str, str]) -> None:
    patterns = table_patterns("tables", f"{exact_pattern(*table)},x.y")
    wants_table = table_filter(patterns)
    assert wants_table is not None
    assert len(patterns) == 2
    assert wants_table(*table)
    assert wants_table(*other) is (other == table)
    assert read_table("table", table_text(*table)) == table


@pytest.mark.parametrize("pattern", ["`a.b.c", "`a`.`b", "`a`b.c", "a.``", "``.a", "a.`b`c", "`shop.orders`"])
def test_backticks_that_do_not_fit(pattern: str) -> None:
    """A pattern that selects nothing would not be told before a table of a similar name comes."""
    for name, value in (
        ("tables", [pattern]),
        ("columns", {pattern: ["id"]}),
        ("snapshot_where", {pattern: "1"}),
    ):
        with pytest.raises(ConfigurationError, match=f"{name}: (a name in backticks|schema and table)"):
            Options.build("mysql://x@y", {name: value})


@pytest.mark.parametrize("option", ["tables", "exclude_tables"])
def test_two_dots(option: str) -> None:
    """They selected, or excluded, a table called ``.orders``: nothing, as there is none."""
    with pytest.raises(
        ConfigurationError, match=rf"{option}: one dot, .* in backticks, not 'shop\.\.orders'"
    ):
        Options.build("mysql://x@y", {option: "a.b,shop..orders"})
    found = TableFilter(["*"], table_patterns(option, "shop.`.orders`"))
    assert not found("shop", ".orders")


def test_names_in_backticks_are_names_of_columns_and_conditions() -> None:
    options = Options.build(
        "mysql://x@y", {"columns": {"`a`.b": ["id"], "`a.b`.`c`": ["id"]}, "snapshot_where": {"`s`.t": "1"}}
    )
    assert [*options.columns] == ["a.b", "`a.b`.c"]
    assert [*options.snapshot_where] == ["s.t"]


def test_the_nearest_name_is_a_pattern() -> None:
    wants_table = table_filter(["`a.b`.orders"])
    assert wants_table is not None
    wants_table("a.b", "order")
    assert wants_table.unmatched() == [("`a.b`.orders", "`a.b`.order")]


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


def test_thousands_of_names_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table was compared with each pattern: 4,000 tables and 4,000 names took 1.4 s, and as much at each DDL."""
    compared = 0
    compile_pattern = table_filter_module._compile

    def counted(pattern: str) -> WantsTable:
        fits = compile_pattern(pattern)

        def count(schema: str, table: str) -> bool:
            nonlocal compared
            compared += 1
            return fits(schema, table)

        return count

    monkeypatch.setattr(table_filter_module, "_compile", counted)
    counts = []
    for size in (10, 1000):
        names = [f"tenant_{number}.orders" for number in range(size)]
        wants_table = TableFilter(
            [*names, *(f"tenant_{number}.log_*" for number in range(size)), "*.users"], names[:1]
        )
        compared = 0
        found = [
            [wants_table(f"tenant_{number}", table) for number in range(2, 10)]
            for table in ("orders", "log_1", "users", "x")
        ]
        assert found == [[True] * 8, [True] * 8, [True] * 8, [False] * 8]
        assert not wants_table("tenant_0", "orders")
        assert len(wants_table.seen.unmatched) == 2 * (size - 8) - 1
        counts.append(compared)
    assert counts[0] == counts[1]


def test_the_nearest_names_of_few_patterns_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes 15 ms: 4,000 patterns without a table kept the event loop for a minute."""
    searched: list[str] = []
    monkeypatch.setattr(table_filter_module, "nearest_name", lambda pattern, names: searched.append(pattern))
    wants_table = TableFilter([f"shop.t{number}" for number in range(1000)])
    assert len(wants_table.unmatched()) == 1000
    assert len(searched) == 20
