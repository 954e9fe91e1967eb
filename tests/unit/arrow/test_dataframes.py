"""What `log.arrow()` and `stream.arrow()` give in a notebook: DuckDB, Polars and pandas take it as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import replica.sync
from replica.demo import DemoSource, recorded_log

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def customers() -> Iterator[Any]:
    """The changes of the demo's customers as an Arrow table."""
    with recorded_log() as path, replica.open_binlog(path) as log:
        yield pa.Table.from_batches(log.arrow(table="shop.customers"))


def expected(customers: Any) -> dict[str, int]:
    operations = customers.column("_op").to_pylist()
    return {name: operations.count(name) for name in set(operations)}


def test_duckdb(customers: Any) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    with duckdb.connect() as connection:
        connection.register("customers", customers)
        found = connection.execute("SELECT _op, count(*) FROM customers GROUP BY _op").fetchall()
    assert dict(found) == expected(customers)


def test_polars(customers: Any) -> None:
    polars = pytest.importorskip("polars", reason="Polars is not installed")
    found = polars.from_arrow(customers).group_by("_op").len()
    assert dict(found.iter_rows()) == expected(customers)


def test_pandas(customers: Any) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    found = customers.to_pandas().groupby("_op").size()
    assert {name: int(number) for name, number in found.items()} == expected(customers)


@pytest.fixture
def live(customers: Any) -> Iterator[Any]:
    """The same changes live: the object that `stream.arrow()` of `replica.sync` gives, up to the log's end."""
    with (
        DemoSource(tls=False) as source,
        replica.sync.connect(source.dsn, start="earliest", stop="now") as stream,
    ):
        yield stream.arrow(table="shop.customers")


def test_a_live_stream_in_duckdb(live: Any, customers: Any) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    with duckdb.connect() as connection:
        connection.register("customers", live)
        found = connection.execute("SELECT _op, count(*) FROM customers GROUP BY _op").fetchall()
    assert dict(found) == expected(customers)


def test_a_live_stream_in_polars(live: Any, customers: Any) -> None:
    polars = pytest.importorskip("polars", reason="Polars is not installed")
    found = polars.DataFrame(live).group_by("_op").len()
    assert dict(found.iter_rows()) == expected(customers)


def test_a_live_stream_in_pandas(live: Any, customers: Any) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    found = pa.table(live).to_pandas().groupby("_op").size()
    assert {name: int(number) for name, number in found.items()} == expected(customers)
