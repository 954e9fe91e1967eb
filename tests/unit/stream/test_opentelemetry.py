"""The example for OpenTelemetry: what its meter has is what the status of the stream says."""

from __future__ import annotations

from pathlib import Path

import pytest

import replica
from replica import FileCheckpointStore
from replica.demo import DemoSource

pytest.importorskip("opentelemetry.sdk.metrics", reason="opentelemetry-sdk is not installed")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.examples.opentelemetry_metrics import COUNTERS, GAUGES, observe


def measured(reader: InMemoryMetricReader) -> dict[str, tuple[float, str]]:
    """The value of each metric that has one, with its source."""
    data = reader.get_metrics_data()
    assert data is not None
    [resource] = data.resource_metrics
    [scope] = resource.scope_metrics
    found = {}
    for metric in scope.metrics:
        for point in metric.data.data_points:
            assert point.attributes is not None
            found[metric.name] = point.value, str(point.attributes["server.address"])  # type: ignore[union-attr]
    return found


async def test_metrics_are_those_of_the_status(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    hook = observe(MeterProvider([reader]).get_meter("test"))
    store = FileCheckpointStore(tmp_path / "ckpt")
    async with DemoSource() as source:
        options = {"start": "earliest", "stop": "now", "checkpoints": store, "on_status": hook}
        async with replica.connect(source.dsn, **options) as stream:  # type: ignore[arg-type]
            async for _ in stream:
                pass
        status = stream.status
    found = measured(reader)
    assert {address for _, address in found.values()} == {status.address}
    values = {name: value for name, (value, _) in found.items()}
    for name, (_, value_of) in COUNTERS.items():
        assert values[name] == value_of(status)
    assert status.rows > 100
    # There was no first copy.
    assert values.keys() == COUNTERS.keys() | GAUGES.keys() - {"mysql.replica.snapshot.rows"}
    assert 0 <= values["mysql.replica.checkpoint.age"] < 60
