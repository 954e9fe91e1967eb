"""The HTML report is well-formed, loads nothing from the network, escapes names from the log, and has the counts."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from protocol.binlog.events import WriteRowsEvent
from protocol.rows.table import Table
from replica.statistics.collect import LogStatistics
from replica.statistics.page import statistics_page
from replica.statistics.page_charts import Chart, Series
from replica.statistics.page_style import STYLE
from tests.support.grouped_events import (
    AT,
    BEGIN,
    TABLE,
    TABLE_MAP,
    XID,
    deletes,
    description,
    gtid,
    query,
    rows,
    updates,
)

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><b>",
    "' onmouseover='alert(1)",
    "a\u202egnp.exe",
    "a\0b\nc",
    "&lt;",
    "\udcff",
)
_VOID = {"meta", "br", "rect", "line"}


class Reader(HTMLParser):
    """The elements of a page with their attributes, and its text. Fails if elements are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def example(name: str = "orders", sql: str = "ALTER TABLE t ADD b INT") -> LogStatistics:
    table = Table("shop", name, TABLE.columns)
    begin = gtid(3)
    begin.original_commit_timestamp, begin.immediate_commit_timestamp = (
        1_700_000_000_000_000,
        1_700_000_007_000_000,
    )
    statistics = LogStatistics()
    statistics.add_all(
        [
            *(
                description(),
                gtid(1),
                BEGIN,
                TABLE_MAP,
                WriteRowsEvent(*AT, 7, table, 1, b"", [()] * 1234),
                XID,
            ),
            *(gtid(2), BEGIN, TABLE_MAP, updates(1), deletes(1), XID),
            *(begin, BEGIN, TABLE_MAP, rows(1), XID),
            *(gtid(4), query(sql)),
        ]
    )
    return statistics


def test_what_was_counted_is_there() -> None:
    page = Reader(statistics_page(example()))
    for words in ("1,237", "3 with rows", "ALTER TABLE", "7 s", "9.7.4", "binlog.000001", "1,001 to 10,000"):
        assert words in page.text
    assert {"svg", "table", "figure", "details"} <= {tag for tag, _ in page.elements}


def test_nothing_is_fetched_and_nothing_runs() -> None:
    page = statistics_page(example())
    assert not re.search(
        r"https?:|//|url\(|@import|<script|\bon\w+=", page.replace(STYLE, STYLE.replace("//", ""))
    )
    policy = next(given for tag, given in Reader(page).elements if given.get("http-equiv"))
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert "</" not in STYLE
    assert "url(" not in STYLE


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_the_log_stay_text(name: str) -> None:
    plain = Reader(statistics_page(example()))
    statistics = example(name, sql=f"DROP TABLE {name}")
    statistics.files.append(name)
    statistics.versions.append(name)
    page = statistics_page(statistics)
    read = Reader(page)
    assert {tag for tag, _ in read.elements} == {tag for tag, _ in plain.elements}
    assert {key for _, given in read.elements for key in given} == {
        key for _, given in plain.elements for key in given
    }
    assert not re.search("[\0\u202e\ud800-\udfff]", page)
    if name.isprintable():
        assert name in read.text


def test_a_log_without_anything() -> None:
    assert "Nothing was read." in Reader(statistics_page(LogStatistics())).text


def test_warnings() -> None:
    statistics = LogStatistics()
    statistics.add_all([gtid(1), BEGIN, TABLE_MAP, rows(1), gtid(2), BEGIN])
    text = Reader(statistics_page(statistics)).text
    assert "1 transaction without an end" in text
    assert "The last transaction does not end" in text


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (0, ["0"]),
        (1, ["0", "0.25", "0.5", "0.75", "1"]),
        (7, ["0", "2", "4", "6", "8"]),
        (100, ["0", "25", "50", "75", "100"]),
        (101, ["0", "50", "100", "150"]),
        (0.003, ["0", "0.001", "0.002", "0.003"]),
    ],
)
def test_axes_end_in_round_numbers(most: float, ticks: list[str]) -> None:
    chart = Chart("t", "a", ["s"], [(0, "s")], [Series("", "plain", [most])], "{:g}".format, "{:g}".format)
    html = "\n".join(chart.html())
    assert re.findall(r'<span style="bottom:[\d.]+%">([^<]*)</span>', html) == ticks


def test_a_value_that_is_not_known_has_no_column() -> None:
    series = [Series("", "plain", [1, None, 3])]
    html = "\n".join(Chart("t", "a", ["x", "y", "z"], [], series, str, str).html())
    assert html.count("<g>") == 2
    assert "<title>y" not in html
