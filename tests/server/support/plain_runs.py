"""Jobs that keep tables, on a live server without Spark: its log in micro-batches, read as tasks of Spark would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from replica.config.options import Options
from replica.config.table_filter import table_filter
from replica.spark.jobs.job_state import JobState
from replica.spark.jobs.kept_table import KeptTable
from replica.spark.jobs.target import Target
from replica.spark.packed import PACKED_SCHEMA
from replica.spark.packed_items import PackedItem
from replica.spark.read_task import ReadPlan, read_piece
from replica.spool.live_log import LiveLog
from replica.spool.offsets import Offset
from replica.spool.pieces import LogPiece, ReadSettings
from tests.support.one_batch import run_batch
from tests.support.servers import Server


class PlainRun:
    """Keeps tables of one server in a folder; what it is to begin with is as with ``Keeper``."""

    def __init__(
        self,
        server: Server,
        folder: Path,
        kind: type[KeptTable],
        tables: str,
        *,
        begin: JobState | None = None,
    ) -> None:
        self.path = folder / "tables"
        self._server, self._folder, self._patterns = server, folder, (tables,)
        self._begin = begin or JobState()
        fits = table_filter(self._patterns)
        assert fits is not None
        self._target = Target(str(self.path), kind, lambda name: fits(*name.split(".", 1)))
        self._offset: Offset | None = None
        self._number = 0

    @property
    def offset(self) -> Offset | None:
        """Where the next micro-batch begins."""
        return self._offset

    def run(self, start: str = "earliest", max_rows: int | None = None, max_bytes: int = 1 << 14) -> int:
        """Everything that is there now; returns how many micro-batches that took."""
        options = Options.build(self._server.dsn(), {"heartbeat": 1, "tables": self._patterns})
        batches = 0
        with closing(LiveLog(options, str(self._folder / "spool"), max_rows=max_rows)) as log:
            end = log.end()
            offset = self._offset or log.find(start)
            log.follow(offset, is_new=self._offset is None)
            log.wait_until(end)
            while not log.has_reached(end) or offset.key[1:] < end.key[1:]:
                following = log.take(max_rows, None, 0.2)
                if following.key > offset.key:
                    pieces = log.pieces(offset, following, max_bytes)
                    self.apply(list(items(pieces, self._patterns)))
                    log.commit(following)
                    batches += 1
                offset = self._offset = following
        return batches

    def apply(self, rows: list[PackedItem]) -> None:
        """The next micro-batch."""
        run_batch(self._target, self._begin, "query", self._number, lambda: rows)
        self._number += 1


def items(pieces: list[LogPiece], patterns: tuple[str, ...]) -> Iterator[PackedItem]:
    """The rows that Spark would have of these."""
    plan = ReadPlan(ReadSettings(tables=patterns), PACKED_SCHEMA, mode="packed", include_ddl=True)
    for piece in pieces:
        for batch in read_piece(piece, plan):
            for row in batch.to_pylist():
                yield PackedItem(**row)
