"""Five tables with keys of every kind are copied under eight writers that chase the copy, through kills and cuts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.support.chased_copy import ChasedCopy, Copied
from tests.server.support.semi_sync_sources import acknowledged_slowly, waiting
from tests.support.servers import Server

SEED = 7
ROWS, CHUNK, KILLS = 40_000, 500, 20
NO_GTIDS = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--transaction-isolation=READ-COMMITTED")
#: Server, its arguments, whether a table without a key can be copied, and options of the stream.
CASES: dict[str, tuple[str, tuple[str, ...], bool, dict[str, Any]]] = {
    "mysql-9.7": ("mysql:9.7", (), True, {}),
    "mysql-9.7 without GTIDs, READ COMMITTED": ("mysql:9.7", NO_GTIDS, False, {}),
    "mysql-5.6": ("mysql:5.6", (), False, {}),
    "mariadb-11.8": ("mariadb:11.8", (), False, {}),
    "mariadb-10.11": ("mariadb:10.11", (), False, {}),
    "mysql-9.7 with locks": ("mysql:9.7", (), True, {"snapshot_locking": "rows"}),
    "mysql-5.6 with locks": ("mysql:5.6", (), False, {"snapshot_locking": "rows"}),
    "mysql-9.7 four connections": ("mysql:9.7", (), True, {"snapshot_connections": 4}),
    "mariadb-11.8 four connections": ("mariadb:11.8", (), False, {"snapshot_connections": 4}),
    "mysql-9.7 commits in any order": ("mysql:9.7", ("--binlog-order-commits=OFF",), False, {}),
    "mysql-9.7 minimal images": ("mysql:9.7", ("--binlog-row-image=MINIMAL",), False, {}),
}


def check(copied: Copied, kills: int) -> None:
    print(
        f"{copied.rows} rows, {copied.transactions} transactions, {copied.kills} kills, {copied.cuts} cuts, "
        f"{copied.corrected} of {copied.chunks} chunks corrected, checkpoints up to {copied.largest_checkpoint} bytes"
    )
    assert copied.violations == []
    assert copied.differences == []
    assert copied.kills == kills
    assert copied.largest_checkpoint < 4096


def test_copy_through_a_kill_and_a_cut(server: Server, schema: str, tmp_path: Path) -> None:
    keyless = server.name == "mysql:9.7"
    copy = ChasedCopy(
        server, schema, tmp_path / "kept.db", rows=60, seed=SEED, keyless=keyless, writers=3, pause=0.02
    )
    check(copy.run(kills=1, chunk_rows=10), 1)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_copy_through_kills_and_cuts(extra_server: Callable[..., Server], tmp_path: Path, case: str) -> None:
    name, arguments, keyless, options = CASES[case]
    copy_chased(extra_server(name, *arguments), tmp_path, keyless=keyless, options=options)


@pytest.mark.long
def test_copy_from_a_source_that_waits_for_acknowledgements(
    extra_server: Callable[..., Server], tmp_path: Path
) -> None:
    """Streams have each transaction 20 ms before tables show it."""
    server = extra_server("mysql:9.7")
    with waiting(server), acknowledged_slowly(server):
        copy_chased(server, tmp_path, keyless=True, options={})
        [(_, waited)] = server.query("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_source_yes_tx'")
        print(f"{waited} transactions waited for their acknowledgement")
        assert int(waited) > ROWS // 100


def copy_chased(server: Server, path: Path, *, keyless: bool, options: dict[str, Any]) -> None:
    with server.fresh_schema() as schema:
        copy = ChasedCopy(
            server, schema, path / "kept.db", rows=ROWS, seed=SEED, keyless=keyless, options=options
        )
        copied = copy.run(KILLS, CHUNK)
        check(copied, KILLS)
        # Three writers that pause, as in the short form, may miss every window; eight that do not, do not.
        assert copied.corrected * 10 >= copied.chunks
