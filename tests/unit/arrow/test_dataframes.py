"""What `log.arrow()` gives in a notebook: DuckDB, Polars and pandas take it as it is, and count the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import replica
from replica.demo import recorded_log

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
