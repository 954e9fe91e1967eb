"""The barrier of a copy is broken on purpose, part by part, on a source that holds commits back: each break is seen.

The source waits with each commit for an acknowledgement that takes 20 ms, between the log and the engine
(AFTER_SYNC): streams have its transactions that long before tables show them. Each test prints by how many rows the
copy failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import replica
from protocol.binlog.events import XaPrepareEvent
from replica.snapshot import copier, transaction_touches
from replica.snapshot.marks import LowMark, Place, PositionMark
from replica.snapshot.source_marks import high_mark
from replica.snapshot.table_copy import TableProgress
from replica.snapshot.touches import Segments
from replica.snapshot.transaction_touches import Touching, TransactionTouches
from replica.sql.xa import Xid
from tests.server.support.copied_tables import Kept, Writers, make_table
from tests.server.support.semi_sync_sources import acknowledged_slowly, waiting
from tests.server.support.streams import SECONDS, stream_of
from tests.support.servers import Server, ServerPool

pytestmark = pytest.mark.long
ROWS = 4000
SEED = 3
# So many transactions a slow consumer is slow for. If it fell behind for ever, each window would last longer than the
# one before, and the copy would not end.
SLOW = 2000
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def source(server_pool: ServerPool) -> Iterator[Server]:
    """A source whose commits wait for a replica."""
    server = server_pool.start("mysql:9.7")
    with waiting(server):
        yield server
    server_pool.stop(server.container)


def position_is_low(patch: Patch) -> None:
    class Everything:
        """The first place has no position yet."""

        def holds(self, place: Place) -> bool:
            return not place.file

    async def low_mark(session: Any, source: Any, *, knows_gtids: bool) -> LowMark:
        return PositionMark(await high_mark(session, source), Everything())

    patch.setattr(copier, "low_mark", low_mark)


def no_high_mark(patch: Patch) -> None:
    async def no_mark(session: Any, source: Any) -> Place:
        return Place((await high_mark(session, source)).file, 4)

    patch.setattr(copier, "high_mark", no_mark)


def stream_is_not_waited_for(patch: Patch) -> None:
    patch.setattr(Segments, "covering", lambda self, low: self.newest)


def xa_counts_at_prepare(patch: Patch) -> None:
    def prepare(self: TransactionTouches, event: XaPrepareEvent) -> None:
        self.prepared[Xid(event.format_id, event.gtrid, event.bqual)] = Touching()
        self._end()

    patch.setattr(transaction_touches, "_STEPS", {**transaction_touches._STEPS, XaPrepareEvent: prepare})


def rows_are_not_read_again(patch: Patch) -> None:
    patch.setattr(TableProgress, "with_again", lambda self, keys: self)


def nothing(patch: Patch) -> None:
    """The barrier as it is."""


@pytest.mark.parametrize(
    ("broken", "image", "holds"),
    [
        (position_is_low, "FULL", True),
        (no_high_mark, "FULL", False),
        (stream_is_not_waited_for, "FULL", True),
        (xa_counts_at_prepare, "FULL", True),
        (rows_are_not_read_again, "MINIMAL", True),
    ],
)
async def test_a_broken_barrier_is_found(
    source: Server, monkeypatch: Patch, broken: Callable[[Patch], None], image: str, holds: bool
) -> None:
    broken(monkeypatch)
    failed = 0
    # The first attempt finds it, as a rule; how many rows fail depends on where the writers are.
    for attempt in range(5):
        violations, differences = await copied(source, image, holds, SEED + attempt)
        print(f"{broken.__name__}: {violations} violations on the way, {differences} rows differ at the end")
        failed += violations + differences
        if failed:
            break
    assert failed


@pytest.mark.parametrize(("image", "holds"), [("FULL", True), ("FULL", False), ("MINIMAL", True)])
async def test_the_barrier_holds_where_its_breaks_are_found(source: Server, image: str, holds: bool) -> None:
    for attempt in range(2):
        assert await copied(source, image, holds, SEED + attempt) == (0, 0)


async def copied(source: Server, image: str, holds: bool, seed: int) -> tuple[int, int]:
    """Copy a table under writers; the numbers of violations and of rows that differ at the end.

    ``holds``: the source holds its commits back. Else the consumer pauses, and tables are ahead of the stream.
    """
    source.query(f"SET GLOBAL binlog_row_image = '{image}'")
    kept = Kept({"t": ("id",)}, defaults={"b": "none"})
    source.query(f"SET GLOBAL rpl_semi_sync_source_enabled = {int(holds)}")
    with acknowledged_slowly(source), source.fresh_schema() as schema:
        make_table(source, schema, "t", ROWS)
        writers = Writers(source, f"{schema}.t", 2 * ROWS)
        options: dict[str, Any] = {"tables": f"{schema}.t", "snapshot_chunk_rows": 100}
        with writers.run(8, seed):
            checkpoint = await _consume(source, kept, writers, options, is_slow=not holds)
        async with (
            asyncio.timeout(SECONDS),
            stream_of(source, start=checkpoint, stop="now", tables=f"{schema}.t") as stream,
        ):
            async for tx in stream.transactions():
                await kept.take(tx)
        return len(kept.violations), len(kept.differences(source, schema, "t"))


async def _consume(
    source: Server, kept: Kept, writers: Writers, options: dict[str, Any], *, is_slow: bool
) -> replica.Checkpoint:
    count = 0
    async with asyncio.timeout(5 * SECONDS), stream_of(source, start="snapshot", **options) as stream:
        async for tx in stream.transactions():
            count += 1
            if is_slow and count < SLOW and not count % 50:
                await asyncio.sleep(0.2)
            for change in await kept.take(tx):
                if change.op == "read":
                    writers.front = change.after["id"]
            status = stream.status.snapshot
            if status is not None and status.complete:
                return tx.checkpoint
    raise AssertionError("the stream has ended")
