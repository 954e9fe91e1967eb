"""A mirror whose executors see nothing of the driver: rows wait, and leaves lie, on a shared disk or in S3."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa
from deltalake import DeltaTable

from replica.demo import recorded_log
from replica.spark.jobs import mirror
from replica.spark.jobs.kept_table import table_path
from replica.spool.storage import file_system, is_uri
from tests.server.support.clusters import BUCKET, run_driver
from tests.spark.support.cluster import Cluster
from tests.spark.support.shop_log import plain, shop_at_the_end


def test_the_shop(cluster: Cluster, store: dict[str, str], tmp_path: Path) -> None:
    targets = [f"{cluster.shared}/{tmp_path.name}", f"s3://{BUCKET}/{tmp_path.name}"]
    with recorded_log() as path:
        options = {"path": str(path), "includeTables": "shop.*"}
        reads = [{"options": dict(options), "mirror": target} for target in targets]
        reads[1]["options"] |= {"storageOptions": json.dumps(store)}  # type: ignore[operator]
        run_driver(cluster, tmp_path, *reads)
    expected = shop_at_the_end()
    for target in targets:
        storage = store if is_uri(target) else {}
        for name, rows in expected.items():
            table = DeltaTable(table_path(target, name), storage_options=storage)
            assert plain(table.to_pyarrow_table().to_pylist()) == plain(rows)
            files = pa.table(table.get_add_actions())["path"].to_pylist()
            assert all(file.startswith("rows-") for file in files)
        assert {row["state"] for row in mirror.progress(target, storage).to_pylist()} == {"kept"}
        system, root = file_system(target if is_uri(target) else f"file://{target}", storage)
        assert system.get_file_info(f"{root}/_state/tables").type.name == "Directory"
