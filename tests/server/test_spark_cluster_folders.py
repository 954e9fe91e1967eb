"""A target that is a folder of the driver alone: Spark's own sink would spread the files over the workers' disks."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.server.support.clusters import run_driver
from tests.spark.support.cluster import Cluster
from tests.support.log_builder import LogBuilder


@pytest.mark.parametrize("is_shared", [True, False])
def test_the_driver_sees_what_tasks_write(cluster: Cluster, tmp_path: Path, is_shared: bool) -> None:
    path = tmp_path / "bin.000001"
    log = LogBuilder()
    log.transaction([1])
    path.write_bytes(log.data)
    target = (cluster.shared if is_shared else tmp_path) / "lake" / "changes"
    read = {"options": {"path": str(path)}, "changelog": "parquet", "target": str(target)}
    if is_shared:
        run_driver(cluster, tmp_path, read)
        assert len(list(target.rglob("*.parquet"))) == 1
        return
    with pytest.raises(AssertionError, match=f"ConfigurationError: target: executors do not see {target}"):
        run_driver(cluster, tmp_path, read)
    assert not target.parent.exists()
