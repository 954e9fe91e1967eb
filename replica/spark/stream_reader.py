"""Micro-batches of a live source, as PySpark's streaming runner asks for them.

One ``BinlogStreamReader`` lives in Spark's source process as long as the query; the others that Spark makes only
``read``. The first ``latestOffset`` of a query gives the start itself, so that Spark's log has it before any row is
read: else a crash before the first commit would look for "latest" anew, and rows would be lost between.
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
from replica.config.options import Options

from ..spool.live_log import LiveLog
from ..spool.offsets import Offset, parse_offset, parse_time
from .partition import LogPartition
from .read_task import ReadPlan, read_piece
from .source_options import SourceOptions
from .table_mode import own_columns, schema_difference, table_schema

# Spark asks some 95 times a second while nothing comes; waiting here costs nobody anything.
_IDLE_SECONDS: Final = 0.2

Json = dict[str, str | int | None]


class BinlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets, pieces and rows of one query."""

    def __init__(self, options: SourceOptions, plan: ReadPlan) -> None:
        if options.spool_dir is None:
            raise ConfigurationError("spoolDir: a stream needs a folder for what Spark has not committed yet")
        self._options = options
        self._plan = plan
        self._live: LiveLog | None = None
        self._initial: Offset | None = None
        self._is_pinned = False
        self._target: Offset | None = None
        self._has_matched = False

    def __getstate__(self) -> dict[str, object]:
        # Spark pickles the readers that only read; the connection stays where it is, and so does its password.
        return {"_plan": self._plan}

    # Offsets.

    def initialOffset(self) -> Json:
        """Where a new query begins."""
        if self._initial is None:
            self._initial = self._find_start()
        return self._initial.to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: Mapping[str, object], limit: ReadLimit) -> Json:
        """Where the next micro-batch ends; ``start`` itself while nothing has come."""
        begin = Offset.from_dict(start)
        is_new = begin == self._initial and not self._is_pinned
        live = self._following(begin, is_new)
        if is_new:
            self._is_pinned = True
            return begin.to_dict()
        is_limited = not isinstance(limit, ReadAllAvailable)
        max_rows = self._options.max_rows if is_limited else None
        max_bytes = self._options.max_bytes if is_limited else None
        offset = self._take(live, begin, max_rows, max_bytes)
        return offset.to_dict() if offset.key > begin.key else begin.to_dict()

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends where the log ends now."""
        self._target = self._log().end()

    def reportLatestOffset(self) -> Json | None:
        """For the query's progress: how far the log has come here, and how far the query is behind it."""
        if self._live is None:
            return None
        return self._live.report()

    # Pieces and rows.

    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> Sequence[InputPartition]:
        """What lies between two offsets, from the spool; what is missing there is fetched from the source again."""
        first, last = Offset.from_dict(start), Offset.from_dict(end)
        if first == self._initial and not self._is_pinned:
            # The first micro-batch is run again: it was empty, whatever the start means by now.
            self._is_pinned = True
            return []
        if first == last:
            return []
        live = self._following(first, False)
        live.wait_until(last)
        return [LogPartition(piece) for piece in live.pieces(first, last, self._options.max_partition_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One piece's rows."""
        assert isinstance(partition, LogPartition)
        return read_piece(partition.value, self._plan)

    def commit(self, end: Mapping[str, object]) -> None:
        """What lies before is not asked for again."""
        if self._live is not None:
            self._live.commit(Offset.from_dict(end))

    def stop(self) -> None:
        """The query has ended."""
        if self._live is not None:
            self._live.close()

    # The live log.

    def _log(self) -> LiveLog:
        if self._live is None:
            options = self._options
            assert options.spool_dir is not None
            self._live = LiveLog(
                connection_options(options),
                options.spool_dir,
                max_rows=options.max_rows,
                max_bytes=options.max_bytes,
                fail_on_data_loss=options.fail_on_data_loss,
                on_table=self._check_table if self._is_watching else None,
                table=options.table,
            )
        return self._live

    def _following(self, start: Offset, is_new: bool) -> LiveLog:
        live = self._log()
        live.follow(start, is_new=is_new)
        return live

    def _take(self, live: LiveLog, begin: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        while True:
            offset = live.take(max_rows, max_bytes, _IDLE_SECONDS)
            # All that was there when the query began is to come, however long that takes.
            if offset.key > begin.key or self._target is None or live.has_reached(self._target):
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
                f"{table} has other columns from here on: {difference} -- everything before is done; start the query "
                "again to read on with the new ones"
            )
        raise SchemaMismatchError(
            f"{table} has other columns in the log than now: {difference} -- it was changed behind the place where "
            "this query goes on: read up to there with .schema(...) of that time, or onSchemaChange=null"
        )


def find_start(live: LiveLog, options: SourceOptions) -> Offset:
    """Where the options say that a new query begins."""
    starting = options.starting
    if "startingTimestamp" in starting:
        return live.find(parse_time("startingTimestamp", starting["startingTimestamp"]))
    if "startingGtidSet" in starting:
        return live.find(starting["startingGtidSet"])
    text = starting.get("startingOffsets", "latest").strip()
    return parse_offset("startingOffsets", text) or live.find(text)


def connection_options(options: SourceOptions) -> Options:
    """How to connect. Raises ``ConfigurationError``, which names the option."""
    settings = options.settings
    given: dict[str, object] = dict(options.connection)
    given |= {
        "tables": settings.tables,
        "exclude_tables": settings.exclude_tables or None,
        "verify_checksum": settings.verify_checksum,
    }
    connection = Options.build(None, given)
    connection.check_one_host("the jobs of a query read the log of one server")
    return connection
