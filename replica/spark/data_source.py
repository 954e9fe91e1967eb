"""The data source ``mysql-binlog``: PySpark's Python Data Source API for binlog files and live sources.

    options -> schema (driver) -> pieces (driver) -> RecordBatches (executors)

Spark creates a ``BinlogDataSource`` on the driver, pickles it and asks it for a reader. Spark calls the reader's
``partitions`` and ``read`` in other processes; only the options survive between these calls. This module plans and
connects the others: it decodes no rows (``read_task``) and follows no stream (``stream_reader``).
"""

import os
import re
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from protocol.errors import ConfigurationError, SourceChangedError
from protocol.records import replace
from protocol.rows.table import Table

from ..config.private_files import make_folder
from ..config.table_filter import table_filter
from ..files.binlog_file import relayed_histories
from ..files.log_files import LogFile, find_log_files
from ..spool.live_log import LiveLog
from ..spool.offsets import Offset, parse_offset
from ..spool.pieces import LogPiece
from ..spool.placed_shapes import PlacedShapes, SharedShapes, between, shapes_of
from ..spool.planner import plan_files, shown_progress
from ..spool.storage import find_stored_logs, is_uri
from .envelope import envelope_schema
from .packed import PACKED_SCHEMA
from .packed_items import BATCHES_SCHEMA
from .partition import LogPartition
from .piece_sender import PieceSender
from .read_task import SOURCE_NAMES, ReadPlan, Sink, read_piece
from .source_options import SourceOptions, parse_options
from .stream_connection import connection_options, named_for_spark
from .stream_reader import BinlogStreamReader, find_start
from .table_maps import first_table, warn_of_unmatched
from .table_mode import spark_ddl, table_schema
from .table_reader import TableReader, schema_of_rows

NAME = "mysql-binlog"
_PACKED: Final[Mapping[str, pa.Schema]] = MappingProxyType(
    {"packed": PACKED_SCHEMA, "packed_envelope": BATCHES_SCHEMA}
)


class BinlogDataSource(DataSource):
    """``spark.read.format("mysql-binlog")``; the options are described at ``SourceOptions``.

    ``shares_folders``: executors see the files of the driver, unless the option ``sharedFolders`` says otherwise.
    """

    shares_folders: ClassVar[bool] = False
    _is_exact = False

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    @named_for_spark()
    def schema(self) -> str:
        """The schema of the rows, which Spark asks for unless the user gives one.

        In table mode it is the table's first description in the log, or the table as a live source has it now.
        """
        self._is_exact = True
        options = parse_options(self.options)
        return spark_ddl(schema_of_rows(options) if options.snapshot == "only" else arrow_schema(options))

    def reader(self, schema: StructType) -> "BinlogReader | TableReader":
        """The reader of a batch query."""
        options = parse_options(self.options)
        if options.snapshot == "only":
            return TableReader(self.options, schema)
        if options.snapshot is not None:
            raise ConfigurationError("snapshot: initial begins a stream: a batch has only, or reads the log")
        plan = self._plan(options, schema)
        return BinlogReader(options, plan, shares_folders=self.shares_folders)

    def streamReader(self, schema: StructType) -> BinlogStreamReader:
        """The reader of a streaming query."""
        options = parse_options(self.options)
        if options.snapshot == "only":
            raise ConfigurationError(
                "snapshot: only reads a table once, with spark.read: a stream has initial, and then the log"
            )
        if not options.is_live:
            raise ConfigurationError(
                "path: binlog files cannot be read as a stream: use spark.read, or give a live source (host, user)"
            )
        if options.ending != "latest":
            raise ConfigurationError(
                "endingOffsets: a stream has no end offset: use Trigger.AvailableNow to end it where the log ends now"
            )
        plan = self._plan(options, schema)
        given = dict(self.options) if options.snapshot is not None else None
        return BinlogStreamReader(options, plan, shares_folders=self.shares_folders, given=given)

    def sink(self) -> Sink | None:
        """The function to which tasks give their batches; None: batches are the rows of the query."""
        return None

    def _plan(self, options: SourceOptions, schema: StructType) -> ReadPlan:
        return replace(read_plan(options, schema, self._is_exact), sink=self.sink())


class LocalBinlogDataSource(BinlogDataSource):
    """The same where executors run in the driver's process (a local master)."""

    shares_folders = True


class BinlogReader(DataSourceReader):
    """Plans on the driver, reads on executors."""

    def __init__(self, options: SourceOptions, plan: ReadPlan, *, shares_folders: bool = False) -> None:
        self._options = options
        self._plan = plan
        spool = options.spool_dir
        # A folder for this batch alone: ``spoolDir`` may also hold folders of streams and other batches.
        objects = f"{spool.rstrip('/')}/{_batch_name()}" if spool is not None and is_uri(spool) else None
        self._sender = PieceSender(options, shares_folders=shares_folders, objects=objects)

    def __getstate__(self) -> dict[str, object]:
        # Tasks need the plan only, so no password is pickled.
        return {"_plan": self._plan}

    @named_for_spark()
    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each piece of the files, or of the live source's log, as they are now."""
        options, sender = self._options, self._sender
        if options.is_live:
            pieces = _live_pieces(options, sender)
        else:
            warn_of_unmatched(options, log_files(options))
            with shown_progress(sys.stderr):
                pieces = sender.send(file_pieces(options, sender.max_bytes))
        return [LogPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One piece's rows."""
        # Without pieces Spark calls this with a partition of its own.
        return read_piece(partition.value, self._plan) if isinstance(partition, LogPartition) else iter(())


def read_plan(options: SourceOptions, schema: StructType, is_exact: bool) -> ReadPlan:
    """How a query reads its pieces of the log.

    ``schema`` is what Spark expects: the source's own if ``is_exact``, else what the user gave to ``.schema(...)``.
    """
    expected = to_arrow_schema(schema, timezone="UTC")
    if options.mode != "table" and expected != arrow_schema(options):
        raise ConfigurationError(
            f"schemaMode: the schema of mode {options.mode} is fixed: leave out .schema(...)"
        )
    return ReadPlan(
        options.settings,
        expected,
        mode=options.mode,
        row_format=options.row_format,
        include_ddl=options.include_ddl or options.mode == "packed",
        on_schema_change=options.on_schema_change,
        on_statement=options.on_statement,
        is_exact=is_exact,
        source_name=options.source_name,
    )


def arrow_schema(options: SourceOptions) -> pa.Schema:
    """The schema of the rows; in table mode from the first table map in the files, or from the live source."""
    if options.mode in _PACKED:
        return _PACKED[options.mode]
    if options.mode == "envelope":
        schema, name = envelope_schema(options.row_format), SOURCE_NAMES[0]
    else:
        schema, name = table_schema(_table(options), options.images), SOURCE_NAMES[1]
    return schema if options.source_name is None else schema.append(pa.field(name, pa.string()))


def file_pieces(options: SourceOptions, max_bytes: int) -> list[LogPiece]:
    """The pieces of binlog files; if a relay wrote the files, with the column names from its schema history."""
    files, settings = log_files(options), options.settings
    pieces = plan_files(files, max_bytes)
    paths = [file.path for file in files if file.path is not None and not is_uri(file.path)]
    histories = relayed_histories(paths, settings.keys()) if paths else []
    shapes = shapes_of(histories, table_filter(settings.tables, settings.exclude_tables))
    if not shapes:
        return pieces
    placed: list[LogPiece] = []
    shared: PlacedShapes = {}
    for piece in pieces:
        found = between(shapes, *piece.places)
        if found != shared:
            shared = SharedShapes(found)
        placed.append(replace(piece, shapes=shared))
    return placed


def _live_pieces(options: SourceOptions, sender: PieceSender) -> list[LogPiece]:
    """Fetch a live source's log between two offsets into a new folder.

    Executors that see the folder read it there, so it stays until somebody deletes it.
    """
    place = None if options.spool_dir is None or is_uri(options.spool_dir) else options.spool_dir
    if place is not None:
        make_folder(place)
    # A new folder: ``spoolDir`` itself may be the spool of a stream.
    folder = os.path.join(place or tempfile.gettempdir(), _batch_name())
    os.mkdir(folder, 0o700)
    pieces: list[LogPiece] = []
    try:
        pieces = _fetched(options, sender, folder)
    finally:
        if not (pieces and sender.shares_folders):
            shutil.rmtree(folder)
    return pieces


def _fetched(options: SourceOptions, sender: PieceSender, folder: str) -> list[LogPiece]:
    live = LiveLog(
        connection_options(options), folder, fail_on_data_loss=options.fail_on_data_loss, spool_bytes=1 << 62
    )
    with closing(live):
        here = live.end()
        start = find_start(live, options)
        end = _batch_end(options, start, here)
        if start.key >= end.key or (start.is_sought_by_gtid(end) and start.has_all_of(end)):
            return []
        live.follow(start, is_new=True)
        return sender.send(live.pieces(start, live.reach(end), sender.max_bytes))


def _batch_name() -> str:
    return f"mysql-binlog-{uuid.uuid4().hex}"


def _batch_end(options: SourceOptions, start: Offset, here: Offset) -> Offset:
    """The offset at which a batch ends, in the epochs of the stream that begins at ``start``.

    ``here`` is where the log ends now.
    """
    end = parse_offset("endingOffsets", options.ending) or here
    place = f"endingOffsets: {end.file}:{end.position}"
    if not end.is_of_log(here):
        raise SourceChangedError(
            f"{place} is a position in the log of server {end.server_uuid or end.server_id}, but server "
            f"{here.server_uuid or here.server_id} answers: connect to the server of the offset"
        )
    if not end.file or end.key[1:] > here.key[1:]:
        raise ConfigurationError(f"{place} is not in the log, which ends at {here.file}:{here.position}")
    return replace(end, epoch=start.epoch if start.is_of_log(end) else start.epoch + 1)


def log_files(options: SourceOptions) -> list[LogFile]:
    """The binlog files to read, in the order of the log."""
    assert options.path is not None
    path = re.sub(r"^file:(//(?=/))?", "", options.path)
    if is_uri(path):
        return find_stored_logs(path, options.settings.storage)
    if os.path.isdir(path):
        path = os.path.join(path, "*.[0-9]*")
    return find_log_files(path)


def _table(options: SourceOptions) -> Table:
    """The table as a live source has it now, or as the first table map in the files describes it."""
    if options.is_live:
        assert options.table is not None
        with closing(LiveLog(connection_options(options), "")) as live:
            return live.table(options.table)
    return first_table(options, log_files(options))
