"""The notebook in `tests/examples` runs from its first cell to its last, and its chart shows the log's orders."""

from __future__ import annotations

import runpy
import sys
from collections import Counter
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

pytest.importorskip("pyspark")

import replica
from replica.demo import recorded_log
from tests.support.places import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK = ROOT / "tests" / "examples" / "orders_per_minute.py"
SVG = "{http://www.w3.org/2000/svg}"


def orders_per_minute() -> dict[str, int]:
    found: Counter[str] = Counter()
    with recorded_log() as path, replica.open_binlog(path, tables="shop.orders") as log:
        for transaction in log.transactions():
            orders = sum(change.op == "insert" for change in transaction)
            if orders:
                assert transaction.commit_time is not None
                found[transaction.commit_time.astimezone(UTC).strftime("%Y-%m-%d %H:%M")] += orders
    return dict(found)


def test_orders_per_minute(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "orders.svg"
    monkeypatch.setattr(sys, "argv", [str(NOTEBOOK), str(path)])
    variables = runpy.run_path(str(NOTEBOOK))
    expected = orders_per_minute()
    assert sum(expected.values()) > 50
    assert {row["minute"]: row["orders"] for row in variables["rows"]} == expected
    assert all(row["total"] > 0 for row in variables["rows"])
    bars = [rect.findtext(f"{SVG}title") for rect in ElementTree.parse(path).iter(f"{SVG}rect")]
    assert bars == [f"{minute}: {count}" for minute, count in sorted(expected.items())]
