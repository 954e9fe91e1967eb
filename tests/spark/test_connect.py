"""Spark Connect: batches, ``changelog``, ``mirror`` and ``history`` of the demo give what they give otherwise."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable

from replica.demo import recorded_log
from replica.spark.read_task import ReadPlan
from replica.spool.pieces import ReadSettings
from tests.spark.conftest import spark_missing
from tests.spark.support.planned import JSON_PLAN, plan, read_all
from tests.support.places import ROOT

NEEDED = ("grpc", "grpc_status", "google.rpc", "pandas", "zstandard")
SECONDS = 500


def run(folder: Path, form: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.spark.support.connect_driver", str(folder), form]
    done = subprocess.run(["timeout", str(SECONDS), *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            found |= json.loads(line)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("connect")


@pytest.fixture(scope="module")
def found(folder: Path, pytestconfig: pytest.Config) -> dict[str, Any]:
    """What all four gave in one session."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if reason := spark_missing() or (missing and f"pip install 'pyspark[connect]': no {', '.join(missing)}"):
        pytest.skip(reason)
    return run(folder, "long" if pytestconfig.getoption("long") else "short")


@pytest.fixture(scope="module")
def changes() -> list[dict[str, Any]]:
    settings = ReadSettings(tables=("shop.*",))
    with recorded_log() as path:
        rows = read_all(plan(path, 1 << 30), ReadPlan(settings, JSON_PLAN.schema, row_format="json"))
    return sorted(rows, key=lambda row: row["seq"])


def test_batch(found: dict[str, Any], changes: list[dict[str, Any]]) -> None:
    assert found["batch"]["rows"] == len(changes) > 50
    assert found["batch"]["columns"][:3] == ["op", "schema", "table"]


def test_changelog(found: dict[str, Any], folder: Path, changes: list[dict[str, Any]]) -> None:
    assert set(found["changelog"].values()) <= {len(changes)}
    targets = sorted(folder.glob("*-delta"))
    assert targets
    for target in targets:
        rows = DeltaTable(target).to_pyarrow_table(columns=["seq", "after"]).sort_by("seq")
        assert rows["after"].to_pylist() == [row["after"] for row in changes]


def kept(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table, without the order in which Delta has them."""
    return {
        path.name: sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=str)
        for path in (folder / "shop").iterdir()
    }


def check_loaded(folder: Path, name: str) -> None:
    """Files that were loaded, in the long form, give what the stream gave."""
    if (folder / f"{name}-load").exists():
        assert kept(folder / f"{name}-load") == kept(folder / name)


def test_mirror(found: dict[str, Any], folder: Path, changes: list[dict[str, Any]]) -> None:
    followed = kept(folder / "mirror")
    assert followed.keys() == {"customers", "orders", "order_items"}
    check_loaded(folder, "mirror")
    alive: set[int] = set()
    for row in changes:
        if row["table"] == "orders":
            alive -= {json.loads(row["before"])["id"]} if row["before"] else set()
            alive |= {json.loads(row["after"])["id"]} if row["after"] else set()
    assert {row["id"] for row in followed["orders"]} == alive


def test_history(found: dict[str, Any], folder: Path, changes: list[dict[str, Any]]) -> None:
    followed = kept(folder / "history")
    check_loaded(folder, "history")
    begun = sum(row["table"] == "orders" and row["after"] is not None for row in changes)
    assert 0 < len(followed["orders"]) <= begun
    current = [row for row in followed["orders"] if row["is_current"]]
    assert len(current) == len(kept(folder / "mirror")["orders"])
