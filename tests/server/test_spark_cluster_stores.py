"""All ways to read a log on a cluster, a large transaction included: each row comes once, wherever the spool is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow.fs import FileSelector, FileSystem

from replica.relay import BinlogRelay
from replica.spark.jobs import changelog
from replica.spool.storage import NO_STORAGE, file_system
from tests.server.support.clusters import BUCKET, run_driver
from tests.server.support.spark_sources import insert, insert_at_once, now, options_of, two_tables
from tests.spark.support.cluster import Cluster
from tests.spark.support.sink_files import sink_files
from tests.support.servers import Server

_TEXT_BYTES = 4000
#: So many rows are a transaction of 400 MB; the short form's is more than what travels with tasks.
_LARGE, _LESS = 100_000, 5_000
_SMALL = 2_000
_COLUMNS = ["op", "after", "seq"]


@dataclass
class Store:
    """Where target and spool are, and what the source needs to get there."""

    uri: str
    options: dict[str, str]

    def spooled(self) -> list[str]:
        """The names of the objects that nobody has deleted."""
        system, path = file_system(self.uri, self.options)
        found = system.get_file_info(FileSelector(path, recursive=True))
        return [info.path for info in found if info.base_name.endswith(".piece")]

    def files(self, target: str) -> tuple[FileSystem, list[str]]:
        """The Parquet files of a changelog. Spark itself writes to a disk: a batch of files has no list there."""
        system, path = file_system(target, self.options)
        if self.options:
            return system, [name.removeprefix("s3://") for name in changelog.files(target, self.options)]
        is_stream = (Path(path) / "_spark_metadata").exists()
        return system, sink_files(Path(path)) if is_stream else [
            str(name) for name in Path(path).rglob("*.parquet")
        ]


@pytest.fixture
def place(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Store:
    """A new folder that all machines see: on a disk, or in an object store."""
    if request.param == "disk":
        folder = cluster.shared / tmp_path.name
        folder.mkdir()
        return Store(f"file://{folder}", dict(NO_STORAGE))
    return Store(f"s3://{BUCKET}/{tmp_path.name}", request.getfixturevalue("store"))


@pytest.fixture
def tables(server: Server) -> Iterator[list[str]]:
    with two_tables(server, ("t", "u"), _TEXT_BYTES) as names:
        yield names


@pytest.mark.parametrize(
    ("server", "place"),
    [
        pytest.param("mysql:9.7", "disk", marks=pytest.mark.long),
        pytest.param("mysql:9.7", "s3", marks=pytest.mark.long),
        pytest.param("mariadb:11.8", "disk", marks=pytest.mark.long),
        ("mariadb:11.8", "s3"),
    ],
    indirect=True,
)
def test_every_row_comes_once(
    server: Server,
    place: Store,
    tables: list[str],
    cluster: Cluster,
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> None:
    """Parquet and Delta of ``changelog``, a stream into a sink of Spark, and the same from files of the driver."""
    large = _LARGE if pytestconfig.getoption("long") else _LESS
    live = options_of(server, tables)
    start = now(live)
    insert(server, tables[0], 0, _SMALL)
    insert_at_once(server, tables[1], large, _TEXT_BYTES)
    insert(server, tables[0], _SMALL, _SMALL)
    relay = BinlogRelay(server.dsn(), tmp_path / "logs", start=f"{json.loads(start)['file']}:4", once=True)
    asyncio.run(relay.run())
    common = {"storageOptions": json.dumps(place.options)} if place.options else {}
    live |= common | {"startingOffsets": start, "rowFormat": "json"}
    files = common | {"rowFormat": "json", "path": str(tmp_path / "logs"), "includeTables": ",".join(tables)}
    delta, parquet = f"{place.uri}/delta", f"{place.uri}/parquet"

    def spool(name: str) -> dict[str, str]:
        return {"spoolDir": f"{place.uri}/spools/{name}", "spoolCache": str(tmp_path / "spools" / name)}

    shared_state = f"{cluster.shared}/{tmp_path.name}-state"
    reads: list[dict[str, Any]] = [
        {"options": live | spool("delta"), "changelog": "delta", "target": delta.removeprefix("file://")},
        {"options": live | spool("parquet"), "changelog": "parquet", "target": parquet},
        {"options": live | spool("stream"), "stream": True},
        {"options": files | spool("files")},
        {"options": files, "changelog": "delta", "target": f"{delta.removeprefix('file://')}-files"},
        {"options": files, "changelog": "parquet", "target": f"{parquet}-files"},
    ]
    for read in reads[:2]:
        read["state"] = f"{shared_state}/{read['changelog']}"
    _, _, stream, batch, *_ = run_driver(cluster, tmp_path, *reads)

    rows = sum(server.query(f"SELECT COUNT(*) FROM {name}")[0][0] for name in tables)
    assert rows == 2 * _SMALL + large
    total = sum(range(2 * _SMALL)) + 2 * sum(range(large))
    expected = {"rows": rows + large, "places": rows + large, "total": total}
    assert stream.pop("latest")["lag_bytes"] == 0
    # Nobody knows when a batch of Spark will not be read again, so its objects stay; jobs delete theirs.
    assert [path for path in place.spooled() if "/spools/files/" in path]
    assert not [path for path in place.spooled() if "-files/" in path]
    assert (stream, batch) == (expected, expected)
    for target in (delta, f"{delta}-files"):
        check(DeltaTable(target, storage_options=place.options).to_pyarrow_table(columns=_COLUMNS), large)
    schema = pa.schema([("op", pa.string()), ("after", pa.string()), ("seq", pa.decimal128(38, 0))])
    for target in (parquet, f"{parquet}-files"):
        system, paths = place.files(target)
        check(ds.dataset(paths, schema=schema, format="parquet", filesystem=system).to_table(), large)


def check(rows: pa.Table, large: int) -> None:
    """Each row once, in the order of the log, with the whole of its text."""
    rows = rows.sort_by("seq")
    inserts, updates = (rows.filter(pc.equal(rows["op"], op)) for op in ("insert", "update"))
    assert inserts.num_rows + updates.num_rows == rows.num_rows
    assert ids(inserts) == [*range(_SMALL), *range(large), *range(_SMALL, 2 * _SMALL)]
    assert ids(updates) == list(range(large))
    assert pc.min(pc.utf8_length(updates["after"])).as_py() > _TEXT_BYTES


def ids(rows: pa.Table) -> list[int]:
    found = pc.extract_regex(rows["after"].cast(pa.large_string()), r'"id":\s*(?P<id>[0-9]+)')
    return [int(one) for one in pc.struct_field(found, "id").to_pylist()]
