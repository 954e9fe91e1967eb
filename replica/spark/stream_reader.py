"""The stream reader of ``mysql-binlog``: offsets, partitions and rows of a live source's micro-batches.

One ``BinlogStreamReader`` lives in Spark's source process as long as the query; Spark's tasks have pickled copies,
which only ``read``. The first ``latestOffset`` of a query returns the start offset itself: Spark logs it before any
row is read. Otherwise a query that crashes before its first commit would resolve "latest" anew, and lose the rows
between.
This module receives no events itself: ``replica.spool.live_log`` does.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from protocol.errors import ConfigurationError, SchemaMismatchError
from protocol.rows.table import Table

from ..config.selection import named, parse_time
from ..spool.live_log import LiveLog
from ..spool.offsets import Offset, parse_offset
from ..spool.storage import is_uri
from .initial_copy import CopyPartition, copy_partitions, read_copy
from .packed_items import own_columns
from .partition import LogPartition
from .piece_sender import PieceSender, schemas_copy, spool_folder
from .read_task import ReadPlan, read_piece
from .source_options import SourceOptions
from .stream_connection import connection_options, named_for_spark
from .table_mode import schema_difference, table_schema

# While no event arrives, Spark asks for the latest offset some 95 times a second; so wait a little before answering.
_IDLE_SECONDS: Final = 0.2
# The JSON key that the offset before a copy has, and the offset after it has not.
_COPY: Final = "snapshot"

Json = dict[str, str | int | None]


class BinlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets, partitions and rows of one streaming query."""

    def __init__(
        self,
        options: SourceOptions,
        plan: ReadPlan,
        *,
        shares_folders: bool = False,
        given: Mapping[str, str] | None = None,
    ) -> None:
        """``given``: the options as text, without a password; executors log in with them (``snapshot=initial``)."""
        if options.spool_dir is None:
            raise ConfigurationError(
                "spoolDir: a stream needs a folder to keep events in until Spark has committed them: give one"
            )
        self._options = options
        self._plan = plan
        self._given = given
        objects = options.spool_dir if is_uri(options.spool_dir) else None
        self._sender = PieceSender(options, shares_folders=shares_folders, objects=objects)
        self._live: LiveLog | None = None
        self._initial: Offset | None = None
        self._is_pinned = False
        self._target: Offset | None = None
        self._has_matched = False

    def __getstate__(self) -> dict[str, object]:
        # Spark pickles readers for its tasks, which read pieces only: no connection and no password goes along.
        return {"_plan": self._plan, "_given": self._given}

    # Offsets.

    @named_for_spark()
    def initialOffset(self) -> Json:
        """The offset at which a new query begins."""
        if self._initial is None:
            self._initial = self._find_start()
        found = self._initial.to_dict()
        return found | {_COPY: "initial"} if self._given is not None else found

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of a micro-batch from ``maxRowsPerTrigger`` or ``maxBytesPerTrigger``."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    @named_for_spark()
    def latestOffset(self, start: Mapping[str, object], limit: ReadLimit) -> Json:
        """The offset at which the next micro-batch ends; ``start`` itself if no transaction has arrived since."""
        begin, _ = _parsed(start)
        is_new = begin == self._initial and not self._is_pinned
        live = self._following(begin, is_new)
        if is_new:
            self._is_pinned = True
            return begin.to_dict()
        if self._target is not None and live.is_behind(begin, self._target):
            # Trigger.AvailableNow: changes that came since the query began are not read.
            return begin.to_dict()
        is_limited = not isinstance(limit, ReadAllAvailable)
        max_rows = self._options.max_rows if is_limited else None
        max_bytes = self._options.max_bytes if is_limited else None
        if (most := self._sender.batch_bytes) is not None:
            max_bytes = min(most, max_bytes or most)
        offset = self._take(live, begin, max_rows, max_bytes)
        return offset.to_dict() if offset.key > begin.key else begin.to_dict()

    @named_for_spark()
    def prepareForTriggerAvailableNow(self) -> None:
        """With ``Trigger.AvailableNow`` the query ends where the log ends now."""
        self._target = self._log().end()

    def reportLatestOffset(self) -> Json | None:
        """For the query's progress: the last offset received, how far the query lags behind, and the spool's size.

        None before the stream has connected.
        """
        if self._live is None:
            return None
        return self._live.report() | {"stored_bytes": self._sender.stored_bytes}

    # Pieces and rows.

    @named_for_spark()
    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> Sequence[InputPartition]:
        """The pieces of the log between two offsets. What the spool lacks is fetched from the source again."""
        (first, is_copied), last = _parsed(start), Offset.from_dict(end)
        if is_copied:
            self._is_pinned = True
            return copy_partitions(self._options, last)
        if first == self._initial and not self._is_pinned:
            # Spark repeats the first micro-batch, which was empty: the start offset is the same again.
            self._is_pinned = True
            return []
        if first == last:
            return []
        live = self._following(first, False)
        live.wait_until(last)
        pieces = live.pieces(first, last, self._sender.max_bytes)
        return [LogPartition(piece) for piece in self._sender.send(pieces)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One piece's rows, or those of one task of the copy."""
        if isinstance(partition, CopyPartition):
            assert self._given is not None
            return read_copy(partition.value, self._given, self._plan)
        if not isinstance(partition, LogPartition):
            # There are no rows to copy: Spark makes a partition of its own.
            return iter(())
        return read_piece(partition.value, self._plan)

    def commit(self, end: Mapping[str, object]) -> None:
        """Spark has committed everything before ``end``: the spool may delete it."""
        if self._live is not None:
            offset = Offset.from_dict(end)
            self._live.commit(offset)
            self._sender.commit(offset.key)

    def stop(self) -> None:
        """The query has ended: close the connection."""
        if self._live is not None:
            self._live.close()

    # The live log.

    def _log(self) -> LiveLog:
        if self._live is None:
            options = self._options
            self._live = LiveLog(
                connection_options(options),
                spool_folder(options),
                max_rows=options.max_rows,
                max_bytes=options.max_bytes or self._sender.batch_bytes,
                fail_on_data_loss=options.fail_on_data_loss,
                on_table=self._check_table if self._is_watching else None,
                spool_bytes=options.max_spool_bytes,
                schemas_copy=schemas_copy(options),
            )
        return self._live

    def _following(self, start: Offset, is_new: bool) -> LiveLog:
        live = self._log()
        live.follow(start, is_new=is_new)
        # Not before the spool is locked: another query may use the objects of the same ``spoolDir``.
        self._sender.prepare()
        return live

    def _take(self, live: LiveLog, begin: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        while True:
            offset = live.take(max_rows, max_bytes, _IDLE_SECONDS)
            # With Trigger.AvailableNow, wait for everything that the log held when the query began. After a batch
            # that is repeated after a crash, the first offset taken is where that batch ends.
            if offset.key > begin.key or self._target is None or live.is_drained(self._target):
                return offset

    def _find_start(self) -> Offset:
        return find_start(self._log(), self._options)

    # Table mode.

    @property
    def _is_watching(self) -> bool:
        plan = self._plan
        return plan.mode == "table" and plan.on_schema_change == "fail" and plan.is_exact

    def _check_table(self, table: Table) -> None:
        wanted = {field.name: field.type for field in own_columns(self._plan.schema)}
        found = {field.name: field.type for field in own_columns(table_schema(table, self._options.images))}
        if found == wanted:
            self._has_matched = True
            return
        difference = schema_difference(wanted, found)
        if self._has_matched:
            raise SchemaMismatchError(
                f"the columns of {table} change here: {difference} -- all earlier changes are processed; restart the "
                "query to go on with the new columns"
            )
        raise SchemaMismatchError(
            f"the columns of {table} in the log are not those it has now: {difference} -- the table was altered "
            "after the offset at which this query continues: read up to the ALTER with the old columns in "
            ".schema(...), or set onSchemaChange=null"
        )


def _parsed(start: Mapping[str, object]) -> tuple[Offset, bool]:
    """An offset, and whether the tables are copied before what follows it."""
    plain = {name: value for name, value in start.items() if name != _COPY}
    return Offset.from_dict(plain), len(plain) < len(start)


def find_start(live: LiveLog, options: SourceOptions) -> Offset:
    """The offset at which a new query begins, from the options."""
    starting = options.starting
    if options.snapshot == "initial":
        return live.find("snapshot")
    if "startingTimestamp" in starting:
        return live.find(named("startingTimestamp", parse_time, starting["startingTimestamp"]).isoformat())
    if "startingGtidSet" in starting:
        return live.find(starting["startingGtidSet"])
    text = starting.get("startingOffsets", "latest").strip()
    return parse_offset("startingOffsets", text) or live.find(text)
