"""``Exporter``: takes a stream that copies tables, and makes a consistent export of it in a folder."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from time import monotonic
from typing import Any, Final

from protocol.binlog.row_changes import Change, Image
from protocol.errors import ConfigurationError
from protocol.records import replace
from protocol.rows.column import ABSENT
from protocol.rows.compiler import Row
from protocol.rows.table import Table, table_text

from ..config.options import Options
from ..config.snapshot_status import SnapshotStatus
from ..render.json_values import document_cells
from ..stream.binlog_stream import BinlogStream
from ..transactions.snapshot_events import SnapshotCompleteEvent, SnapshotRestartedEvent, SnapshotRowsEvent
from ..transactions.transaction import Transaction
from .disk_errors import disk_errors
from .row_formats import row_format
from .work_folder import Operation, WorkFolder

#: Rows of a file; larger tables have several.
FILE_ROWS: Final = 1_000_000
# Seconds between two commits: what a killed export reads again.
_COMMIT_SECONDS: Final = 10.0
# Seconds between two calls of ``show``.
_SHOW_SECONDS: Final = 0.2
_ROWS_AT_ONCE: Final = 10_000


class Exporter:
    """The export of the tables that ``options`` select, into ``folder``, in a format of ``row_formats.FORMATS``.

        exporter = Exporter(options, "/backups/shop", "parquet")
        async with exporter.stream:
            await exporter.copy(show)           # show(status): how far it is, now and then
        for table, rows in exporter.finish(): ...

    An export that was killed goes on with the same arguments. The folder then has the files of each table in a folder
    of its own, named ``schema.table``, and ``checkpoint.json``: the place at which the tables have the state of the
    files. Raises ``ConfigurationError`` for a folder with something else, and the errors of a stream.
    """

    def __init__(self, options: Options, folder: str, format_name: str, file_rows: int = FILE_ROWS) -> None:
        wanted: Mapping[str, Any] = {
            "tables": options.tables,
            "exclude_tables": options.exclude_tables,
            "format": format_name,
        }
        self._path = folder
        self._folder = WorkFolder(folder, row_format(format_name), wanted)
        self._file_rows = file_rows
        self._committed_at = monotonic()
        self._left_out: dict[tuple[str, str], None] = {}
        checkpoint = self._folder.checkpoint
        #: Whether an earlier run has begun it.
        self.is_resumed = checkpoint is not None
        self.stream = BinlogStream(
            replace(
                options,
                start=checkpoint or "snapshot",
                stop=None,
                checkpoints=None,
                schemas=self._folder.schemas,
                cells=document_cells(),
                snapshot_restarts_after_ddl=True,
            )
        )

    @property
    def is_copied(self) -> bool:
        """Whether everything is read, and only ``finish`` is left."""
        return self._folder.is_copied

    @property
    def dropped(self) -> list[str]:
        """Tables that were dropped or renamed meanwhile, and are not in the export."""
        return [f"{table.schema}.{table.name}" for table in self._folder.tables.values() if table.is_dropped]

    @property
    def left_out(self) -> list[str]:
        """Tables with rows of which this run has seen that they were made meanwhile. They are not in the export."""
        return [table_text(*table) for table in self._left_out]

    @property
    def waits_for(self) -> list[str]:
        """The prepared XA transactions that keep an export whose tables are all read from its end."""
        return [] if self._folder.unfinished else self._folder.prepared

    async def copy(self, show: Callable[[SnapshotStatus], None]) -> None:
        """Read everything. Returns early if the stream is closed; then ``is_copied`` is false.

        Raises ``OSError`` when the disk is full; the same export goes on later.
        """
        if self.is_copied:
            return
        with disk_errors(self._path):
            await self._follow(show)

    async def _follow(self, show: Callable[[SnapshotStatus], None]) -> None:
        begun = self.stream.checkpoint
        assert begun is not None
        self._look_at_keys()
        if not self._folder.tables:
            # The stream would wait for tables that are created later.
            raise ConfigurationError(
                "there is nothing to copy: the source has no table that the user sees and that is selected"
            )
        self._folder.commit(begun)
        shown_at = 0.0
        async for tx in self.stream.transactions():
            await self._take(tx)
            if self._folder.is_complete and (tx.outcome == "snapshot" or self._status().complete):
                # The tables' copies are done with: a stream that goes on from here only follows.
                self._folder.commit(replace(tx.checkpoint, snapshot=None), is_copied=True)
                return
            if self._is_commit_due():
                self._folder.commit(tx.checkpoint)
                self._committed_at = monotonic()
            if monotonic() - shown_at >= _SHOW_SECONDS:
                show(self._status())
                shown_at = monotonic()

    def finish(self) -> Iterator[tuple[str, int]]:
        """Make the files those of the export's place. Yields each table with its rows."""
        with disk_errors(self._path):
            yield from self._folder.finish()

    def close(self) -> None:
        """Let go of the folder."""
        self._folder.close()

    def _status(self) -> SnapshotStatus:
        status = self.stream.status.snapshot
        assert status is not None
        return status

    def _is_commit_due(self) -> bool:
        return (
            self._folder.rows_written >= self._file_rows
            or monotonic() - self._committed_at >= _COMMIT_SECONDS
        )

    def _look_at_keys(self) -> None:
        """Learn which tables there are, and by which keys they are copied."""
        for identity, key in self._status().keys.items():
            known = self._folder.tables.get(identity)
            if known is None or (known.key != key and not known.is_whole):
                self._folder.add_table(identity, key)

    async def _take(self, tx: Transaction) -> None:
        if tx.outcome == "snapshot":
            async for event in tx.events():
                self._take_copied(event)
            return
        changes = await tx.collect(prepared=True)
        operations = [operation for change in changes for operation in self._operations(change)]
        xid = None if tx.xid is None else str(tx.xid)
        if tx.outcome == "prepared" and xid is not None:
            if operations:
                self._folder.keep_prepared(xid, operations)
            return
        if xid is not None and not changes:
            waiting = self._folder.take_prepared(xid)
            operations = waiting if tx.outcome == "commit" else []
        if operations:
            self._folder.apply(operations)

    def _take_copied(self, event: object) -> None:
        if isinstance(event, SnapshotRowsEvent):
            identity, rows = (event.table.schema, event.table.name), iter(event.rows)
            # Of a table without a key these are all rows, of which not all are in memory.
            while some := list(islice(rows, _ROWS_AT_ONCE)):
                self._folder.add_rows(identity, event.table, some)
        elif isinstance(event, SnapshotRestartedEvent):
            identity = event.table.schema, event.table.name
            if identity in self._folder.tables:
                self._folder.restart(identity)
            self._folder.add_table(identity, self._status().keys[identity])
        elif isinstance(event, SnapshotCompleteEvent):
            identity = event.table.schema, event.table.name
            self._folder.complete(identity, event.table, is_dropped=event.is_dropped)

    def _operations(self, change: Change) -> list[Operation]:
        table = change.table
        identity = table.schema, table.name
        if identity not in self._folder.tables:
            # A table that was created later, and is not exported.
            self._left_out[identity] = None
            return []
        return self._folder.operations(identity, table, _row(table, change.before), _row(table, change.after))


def _row(table: Table, image: Image | None) -> Row | None:
    return None if image is None else tuple([image.get(name, ABSENT) for name in table.column_names])
