"""An object store behind a gateway that loses answers to commits, and refuses to tell of the bucket.

Each commit is made once, its files stay, and rights below a prefix are enough.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa
from deltalake import DeltaTable

from protocol.errors import ConfigurationError
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.delta_append import DeltaWriter, Place, open_table
from replica.spark.jobs.job_state import JobState
from replica.spark.jobs.keeper import Keeper, stage_here
from replica.spark.jobs.kept_table import table_path
from replica.spark.jobs.leaf_files import dataset
from replica.spark.jobs.target import Target
from replica.spool.pieces import LogPiece
from replica.spool.shipping import ObjectFolder
from replica.spool.storage import open_input
from tests.server.support.clusters import BUCKET
from tests.server.support.losing_store import losing
from tests.spark.support.kept_log import RandomLog, packed

BATCHES = 8
QUERY = "query"


@pytest.fixture
def losing_store(store: dict[str, str]) -> Iterator[dict[str, str]]:
    with losing(store) as found:
        yield found


def test_appended_rows(losing_store: dict[str, str], tmp_path: Path) -> None:
    target = f"s3://{BUCKET}/{tmp_path.name}"
    schema = pa.schema([("number", pa.int64()), ("day", pa.string())])
    open_table(target, schema, ["day"], losing_store)
    for number in range(BATCHES):
        place = Place(QUERY, number, "source", str(tmp_path / "checkpoint"))
        writer = DeltaWriter(target, ("day",), schema, place, losing_store)
        rows = pa.RecordBatch.from_pydict({"number": [number], "day": ["a"]}, schema=schema)
        writer.commit([writer.write(iter([rows]))])
    table = DeltaTable(target, storage_options=losing_store)
    assert sorted(table.to_pyarrow_table()["number"].to_pylist()) == list(range(BATCHES))


def test_pieces_of_the_log(losing_store: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"piece of a log")
    folder = ObjectFolder(f"s3://{BUCKET}/{tmp_path.name}", losing_store)
    piece = folder.put(LogPiece(str(path), "bin.000001", 1, start=9, size=5, position=4))
    assert open_input(piece.uri, losing_store).read() == b"a log"
    # As of a killed run.
    assert ObjectFolder(folder.uri, losing_store).size == 0
    with pytest.raises(ConfigurationError):
        open_input(piece.uri, losing_store)


def test_kept_tables(seed: int, losing_store: dict[str, str], tmp_path: Path) -> None:
    """A mirror of a random log, which no lost answer ends."""
    rng, path = random.Random(seed), f"s3://{BUCKET}/{tmp_path.name}"
    log = RandomLog(rng)
    log.create("orders")
    for _ in range(BATCHES):
        log.transaction(rng.randint(1, 8))
    target = Target(path, CurrentTable, lambda _: True, losing_store)
    keeper = Keeper(target, JobState())
    for number, transaction in enumerate(log.transactions):
        rows = list(packed(rng, [transaction]))
        keeper.run(QUERY, number, partial(stage_here, target, rows))
    place = table_path(path, "shop.orders")
    found = dataset(DeltaTable(place, storage_options=losing_store), place, losing_store).to_table()
    assert {(row["id"], row["k"]): row for row in found.to_pylist()} == log.tables["shop.orders"].rows
