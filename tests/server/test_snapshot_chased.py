"""Five tables with keys of every kind are copied under eight writers that chase the copy, through kills and cuts."""

from __future__ import annotations

from pathlib import Path

from tests.server.support.chased_copy import ChasedCopy, Copied
from tests.support.servers import Server

SEED = 7


def check(copied: Copied, kills: int) -> None:
    print(
        f"{copied.rows} rows, {copied.transactions} transactions, {copied.kills} kills, {copied.cuts} cuts, "
        f"{copied.corrected} of {copied.chunks} chunks corrected, checkpoints up to {copied.largest_checkpoint} bytes"
    )
    assert copied.violations == []
    assert copied.differences == []
    assert copied.kills == kills
    assert copied.corrected * 10 >= copied.chunks
    assert copied.largest_checkpoint < 4096


def test_copy_through_kills_and_cuts(server: Server, schema: str, tmp_path: Path) -> None:
    keyless = server.name == "mysql:9.7"
    copy = ChasedCopy(server, schema, tmp_path / "kept.db", rows=1000, seed=SEED, keyless=keyless)
    check(copy.run(kills=2, chunk_rows=100), 2)
