"""``open_binlog`` and ``BinlogFile``: binlog files as a stream of the same events that a server sends.

This is the public interface; ``log_events`` does the reading. No connection to a server.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Self

from protocol.binlog.batch_decoder import BatchDecoder
from protocol.binlog.events import Event, FormatDescriptionEvent, QueryEvent
from protocol.binlog.keys import LogKeys
from protocol.binlog.raw_reader import TornTail
from protocol.errors import ConfigurationError
from protocol.gtid import GtidSet, MariadbGtidSet
from protocol.position import BinlogPosition, Checkpoint
from protocol.records import replace
from protocol.rows.cells import CellTable
from protocol.rows.counting import row_compiler
from protocol.rows.description import ColumnDescription
from protocol.rows.table import table_text

from ..config.one_process import OneProcess
from ..config.selection import SchemaMismatch, Selection, Start, Stop, wrong_value
from ..config.table_filter import SeenTables, table_filter
from .file_keys import KeyFile as KeyFile
from .file_keys import read_keys
from .log_events import LogEvents, OnError, RawEvent, Skipped
from .log_files import LogFile, LogSource, find_log_files
from .log_range import LogRange
from .table_descriptions import SchemaFile, SchemaLines, check_descriptions, relay_store_of

if TYPE_CHECKING:
    from ..arrow import BatchReader, Images
    from ..schemas.timeline import SchemaHistory
    from ..transactions.transaction import FileTransactions
    from .log_shapes import LogShapes
    from .sections import SectionWork, SharedReading


class BinlogFile(OneProcess):
    """The events of binlog files, in order; made by ``replica.open_binlog``.

        with replica.open_binlog("binlog.000042") as log:
            for event in log:
                ...

    After leaving the loop, iterating again continues with the next event. Iterating raises ``DecodeError`` (with
    file, position and event type), ``SchemaMismatchError``, and ``ConfigurationError`` for missing or wrong keys and
    for a ``start`` outside the log. An error ends the iteration; iterating again raises it again.
    """

    _instead = "each process opens the log itself; events and changes can be pickled"

    def __init__(
        self,
        files: Sequence[LogFile],
        selection: Selection,
        *,
        start: Start | int | None = None,
        stop: Stop | int | None = None,
        on_error: OnError = "raise",
        torn: TornTail = "stop",
        schema: SchemaFile | None = None,
        keys: LogKeys | None = None,
        cells: CellTable | None = None,
        is_section: bool = False,
    ) -> None:
        schema = schema or SchemaFile({}, {})
        keys = keys or LogKeys()
        sizes = [file.size for file in files]
        self.bytes_total = None if None in sizes else sum(size for size in sizes if size is not None)
        self._wants_table = table_filter(selection.tables, selection.exclude_tables)
        self._make_decoder = partial(
            BatchDecoder,
            verify_checksum=selection.verify_checksum,
            columns=selection.columns,
            on_schema_mismatch=selection.on_schema_mismatch,
            cells=cells,
            row_compiler=row_compiler(selection.row_values),
            max_event_bytes=selection.max_event_bytes,
        )
        self._events = LogEvents(
            files,
            LogRange(files, start, stop),
            self._make_decoder(wants_table=self._wants_table),
            wanted=selection.events,
            schema=schema.columns,
            columns=selection.columns,
            on_error=on_error,
            torn=torn,
            keys=keys,
            max_event_bytes=selection.max_event_bytes,
            # A process sees some sections only, so it cannot know which patterns match no table of the log.
            wants_table=None if is_section else self._wants_table,
            shapes=_shapes(schema, keys, selection),
        )
        # Other logs depend on what was read before.
        self._is_sequential = on_error == "skip" or not (start is stop is None) or schema.history is not None
        self._files, self._selection, self._torn, self._keys = files, selection, torn, keys
        self._schema_columns = schema.columns
        self._shared: SharedReading | None = None
        self._iterator = self._events.iterator
        self._transactions: FileTransactions | None = None

    def __repr__(self) -> str:
        return f"<BinlogFile {self.file}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        # One iterator for all loops; a method of this class would cost time at each event.
        return self._iterator

    def __next__(self) -> Event:
        return next(self._iterator)

    @property
    def file(self) -> str:
        """The name of the file being read; before reading, that of the first file."""
        return self._events.file

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, as stored (compressed, encrypted), of ``bytes_total`` (None if unknown)."""
        return self._events.bytes_read

    @property
    def skipped(self) -> Skipped:
        """Number and bytes of the damaged places that ``on_error="skip"`` has skipped so far."""
        return self._events.skipped

    @property
    def torn_bytes(self) -> int:
        """Bytes so far of incomplete events, and of zeros, at the ends of files."""
        return self._events.torn_bytes

    def name_by_statements(self) -> None:
        """Take column names that the log lacks from CREATE TABLE statements in the same files.

        Without effect if the user has given names, or if the files are not part of one log, in order. Call it before
        reading.
        """
        from .log_shapes import LogShapes, empty_history

        history = None if self._schema_columns or self._events.shapes else empty_history(self._files)
        if history is not None:
            scan = partial(_statements, self._keys, self._selection)
            self._events.shapes = LogShapes(history, scan, "positional", is_partial=True)
            self._is_sequential = True
        if self._events.shapes is not None:
            self._events.shapes.learns_all = True

    @property
    def shapes(self) -> "LogShapes | None":
        """The schema history, which grows with the statements read; None without one."""
        return self._events.shapes

    def go_on_with(self, section: LogFile) -> Iterator[Event]:
        """Read another section of the log, with what the decoder knows of tables."""
        self._events.go_on_with(section)
        self._iterator = self._events.iterator
        return self._iterator

    def raw_events(self) -> Iterator[RawEvent]:
        """All events as ``(bytes, offset, event)``: the decrypted bytes with header and checksum, the offset in the
        file.

        Unlike iterating this leaves no event out. Events of a compressed transaction follow its
        ``TransactionPayloadEvent`` and have no bytes of their own: ``b""``. This iterator and that of the
        ``BinlogFile`` share one place in the log.
        """
        while (found := self._events.next_raw()) is not None:
            yield found

    @property
    def seen_tables(self) -> SeenTables | None:
        """What the filter of tables has seen so far; None if all tables are wanted."""
        return None if self._wants_table is None else self._wants_table.seen

    def share(
        self, workers: int, work: "SectionWork", setting: object, *, takes_part: bool = False
    ) -> "SharedReading | None":
        """Let ``workers`` processes read the log; None if only one process can read it.

        ``takes_part``: this process is one of them.

        Only one can with ``start``, ``stop``, ``on_error="skip"`` and a schema store, and for relay logs, standard
        input and file objects. Raises ``ConfigurationError`` if events have already been read.
        """
        from ..workers.pool import check_workers
        from .sections import ReadRecipe, SharedReading, can_be_shared

        check_workers(workers)
        if self._events.has_begun or self._shared is not None:
            raise ConfigurationError("workers: no event may have been read before: open the log again")
        if workers == 1 or self._is_sequential or not can_be_shared(self._files):
            return None
        schema = {name: list(columns) for name, columns in self._schema_columns.items()}
        recipe = ReadRecipe(BinlogFile, self._selection, self._torn, schema, self._keys)
        self._shared = SharedReading(
            self._files, self._events, recipe, workers, work, setting, takes_part=takes_part
        )
        return self._shared

    def transactions(self) -> "FileTransactions":
        """The log's transactions, from begin to commit, each iterated change by change.

        It continues where iterating stopped. Raises ``ConfigurationError`` for a log opened with ``events`` or
        ``on_error="skip"``, because a transaction needs all its events.
        """
        if Event not in self._events.wanted or self._events.on_error == "skip":
            raise ConfigurationError("transactions() needs all events: leave out events= and on_error='skip'")
        if self._transactions is None:
            from ..transactions.transaction import FileTransactions

            self._transactions = FileTransactions(self._events.next_sized)
        return self._transactions

    def arrow(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        images: "Images" = "after",
        metadata: Sequence[str] | None = None,
        batch_rows: int = 16_384,
        workers: int = 1,
    ) -> "BatchReader":
        """The row changes of one table as Arrow RecordBatches, in order; ``replica.arrow.schema`` maps the types.

        ``table`` is ``"schema.table"``. Each row of a batch is a row change: the row after an insert or update, or
        the deleted row. A column that is missing from an update's after image has not changed, and is taken from the
        before image. With ``images="both"`` the struct ``_before`` is the row before an update (null for other
        changes), and ``_before_absent`` names the columns that are missing from it.

        ``columns`` are the columns to read, in the table's order (None: all). ``metadata`` are the metadata columns
        to add (None: all): ``_op`` (``insert``, ``update``, ``delete``), ``_ts`` (the event's time), ``_gtid``,
        ``_file``, ``_pos`` (the event's start), ``_row`` (number of the row in the event), ``_absent`` (names of the
        columns that no image holds, null if there are none). Batches have about ``batch_rows`` rows, fewer if rows
        are long. If the table's columns change, a batch ends and the next batch has another schema. Consumers of
        Arrow streams (``pyarrow.table``, ``polars.DataFrame``, DuckDB) accept the reader itself, for one schema.

        With ``workers`` above 1 so many processes, this one among them, read sections of the log, each from one
        transaction to another, and the batches come in the same order. A batch ends where a section ends, and memory
        holds a few sections. One process reads logs that cannot be cut into sections: with ``start``, ``stop``,
        ``on_error="skip"`` and a schema store, compressed and encrypted files, relay logs, standard input and file
        objects.

        Dates that ``date`` cannot hold (zero, partial, of the year 0) become null, characters outside the column's
        character set U+FFFD. ``BatchReader.losses`` counts both.

        Raises ``MissingExtraError`` without the extra ``[arrow]``, and ``ConfigurationError`` for unknown names
        (here, or at the first event of the table) and if events have already been read: open the log again. Reading
        batches raises the errors of iterating events, and ``WorkerError`` if one of ``workers`` was killed.
        """
        from ..arrow import METADATA_COLUMNS, SURROUNDING_EVENTS, BatchReader, RawRowCompiler, layout_cells

        events = self._events
        if events.has_begun:
            raise ConfigurationError("arrow() must be called before any event is read: open the log again")
        wants_table = self._wants_table

        def is_wanted(schema: str, name: str) -> bool:
            return table_text(schema, name) == reader.table and (
                wants_table is None or wants_table(schema, name)
            )

        reader = BatchReader(
            self._iterator,
            table,
            columns=columns,
            images=images,
            metadata=METADATA_COLUMNS if metadata is None else metadata,
            batch_rows=batch_rows,
            on_damage=events.count_skipped if events.on_error == "skip" else None,
        )
        if workers != 1:
            # Import both before processes are forked, which then need not import them.
            from ..arrow import streams  # noqa: F401
            from .arrow_sections import ColumnSetting, SectionColumns, read_columns, shared_batches

            section_columns = SectionColumns(ColumnSetting(table, columns, images, metadata, batch_rows))
            shared = self.share(workers, read_columns, section_columns, takes_part=True)
            if shared is not None:
                reader.take(shared_batches(shared, section_columns, reader))
                return reader
        decoder = self._make_decoder(
            wants_table=is_wanted, row_compiler=RawRowCompiler(), cells=layout_cells()
        )
        events.leave_rows_undecoded(decoder, SURROUNDING_EVENTS)
        return reader

    def close(self) -> None:
        """Close the files; the iteration ends."""
        if self._shared is not None:
            self._shared.pool.close()
        self._events.close()


def open_binlog(
    source: LogSource | Iterable[LogSource],
    /,
    *,
    start: str | int | BinlogPosition | GtidSet | MariadbGtidSet | Checkpoint | datetime | None = None,
    stop: str | int | BinlogPosition | GtidSet | MariadbGtidSet | datetime | None = None,
    tables: str | Iterable[str] | None = None,
    exclude_tables: str | Iterable[str] | None = None,
    events: type[Event] | Iterable[type[Event]] | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    row_values: bool = True,
    on_error: OnError = "raise",
    torn: TornTail = "stop",
    verify_checksum: bool = True,
    on_schema_mismatch: SchemaMismatch = "error",
    max_event_bytes: int | None = None,
    schema: Mapping[str, Sequence[ColumnDescription]] | str | os.PathLike[str] | None = None,
    schemas: SchemaLines | None = None,
    keyring: str | os.PathLike[str] | bytes | Mapping[str, bytes] | None = None,
    key_file: str | os.PathLike[str] | KeyFile | Mapping[int, bytes] | None = None,
    cells: CellTable | None = None,
) -> BinlogFile:
    """Open binlog or relay log files of MySQL 5.0 and later or of MariaDB. No server is needed.

    ``source`` is a path, an ``.index`` file, a relay's folder, a pattern (``"binlog.[0-9]*"``), ``"-"`` for standard
    input, a file object that reads bytes, or a list of these. Files may be compressed with gzip, still being written,
    or begin in the middle of a log.

    A log without full table metadata (binlog_row_metadata=FULL) has no column names (``@1``, ``@2``...), and ENUM and
    SET values are numbers. A log without any metadata (MySQL 5.6 and 5.7, MariaDB's default) also lacks signs and
    character sets: then BIGINT UNSIGNED arrives signed, and text as bytes. ``schema`` and ``schemas`` supply all of
    these, and so does the store that a relay writes beside its files.

    Where:
        start: None (the first event); an offset in the first file; a position (``"binlog.000003:154"``); a GTID set:
            the transactions you already have; a ``Checkpoint``; an aware ``datetime``: the first transaction that
            began in that second or later. Format descriptions are always yielded.
        stop: None (the end); an offset in the last file; a position; a GTID set: when all its transactions have
            arrived; an aware ``datetime``: before the first transaction that began then or later. An open transaction
            is finished first.
        torn: what to do if a file ends inside an event: ``"stop"`` (default) ends the file there, and
            ``BinlogFile.torn_bytes`` counts the bytes left; ``"raise"`` raises ``TruncatedError``.
    What:
        tables, exclude_tables, events, columns, row_values: as for ``replica.connect``.
        schema: names, signs, character sets and labels of tables whose log has no column names. A dict
            (``{"shop.orders": [ColumnDescription(...), ...]}``) or a schema file (``mysql-replica decode --help``)
            describes tables for every place. ``"shop.json@binlog.000042:157"`` describes them at this place: the
            statements of the files between this place and the rows are applied, forward and backward.
        schemas: a schema store, such as ``FileSchemaStore("shop.schemas")``: the columns of tables at each place. The
            statements of the files continue it from its end.
            A ``SchemaChangeEvent`` comes after each statement that changes a table, from where the store begins.
            With neither, files written by a relay get names from the relay's store beside them (``relay.schemas``);
            columns that this store does not know are ``@1``, ``@2``... ``schema={}`` switches that store off.
        on_schema_mismatch: what to do if columns are not known, or count or types do not fit the log: ``"error"``
            (default), or ``"positional"``: name these columns ``@1``, ``@2``...
    How:
        on_error: at damage ``"raise"`` (default), or ``"skip"`` to the next event that can be found. Skipped bytes
            are logged as a warning and counted by ``BinlogFile.skipped``.
        verify_checksum, max_event_bytes: as for ``replica.connect``.
        keyring: keys of MySQL's encrypted files: the path of the server's keyring file (``component_keyring_file`` or
            ``keyring_file``), its keys by id, or the 32 bytes of the replication key.
        key_file: keys of MariaDB's encrypted files: the path of the key file of ``file_key_management`` (a
            ``KeyFile`` if that file is encrypted), or its keys by number.
        cells: a renderer's own value converters, used instead of the documented Python values.

    Raises ``ConfigurationError``, naming the option, for a value that cannot be used. Errors in the files' content
    are raised when the files are read.
    """
    files = find_log_files(source)
    given: dict[str, object] = {
        "start": None if type(start) is int else start,
        "stop": None if type(stop) is int else stop,
        "tables": tables,
        "exclude_tables": exclude_tables,
        "events": events,
        "columns": columns,
        "row_values": row_values,
        "verify_checksum": verify_checksum,
        "on_schema_mismatch": on_schema_mismatch,
        "max_event_bytes": max_event_bytes,
    }
    selection = Selection.read(given)
    for name, value, choices in (
        ("on_error", on_error, ("raise", "skip")),
        ("torn", torn, ("stop", "raise")),
    ):
        if value not in choices:
            raise wrong_value(name, value, f"one of {', '.join(choices)}")
    if not isinstance(cells, CellTable | None):
        raise wrong_value("cells", cells, "a CellTable")
    return BinlogFile(
        files,
        selection,
        start=start if type(start) is int else None if start is None else selection.start,
        stop=stop if type(stop) is int else selection.stop,
        on_error=on_error,
        torn=torn,
        schema=_schema(schema, schemas, files),
        keys=read_keys(keyring, key_file),
        cells=cells,
    )


def _schema(
    schema: Mapping[str, Sequence[ColumnDescription]] | str | os.PathLike[str] | None,
    schemas: SchemaLines | None,
    files: Sequence[LogFile],
) -> SchemaFile:
    if schemas is None:
        if isinstance(schema, str | os.PathLike):
            from .schema_file import read_schema_file

            return read_schema_file(os.fspath(schema))
        if schema is not None:
            check_descriptions(schema)
            return SchemaFile(schema, {})
        path = relay_store_of(files)
        if path is None:
            return SchemaFile({}, {})
        from .schema_file import schema_of_relay

        return schema_of_relay(path, files)
    if schema is not None:
        raise ConfigurationError("schemas: give either schema= or schemas=")
    if not callable(getattr(schemas, "load", None)):
        raise ConfigurationError(f"schemas: a store with the method load(), not {schemas!r}")
    lines = schemas.load()
    if lines is not None and not isinstance(lines, Iterable):
        raise ConfigurationError(
            "schemas: load() of this store is a coroutine; files need one that returns lines"
        )
    if lines is None:
        raise ConfigurationError(f"schemas: {schemas!r} is empty: a stream with schemas= writes it")
    from ..schemas.timeline import SchemaHistory

    return SchemaFile({}, {}, SchemaHistory.from_lines(lines), tells_changes=True)


def _shapes(schema: SchemaFile, keys: LogKeys, selection: Selection) -> "LogShapes | None":
    """The names of tables by place; None without a history."""
    if schema.history is None:
        return None
    from .log_shapes import LogShapes

    return LogShapes(
        schema.history,
        partial(_statements, keys, selection),
        "positional" if schema.is_found else selection.on_schema_mismatch,
        looks_beside=schema.is_found,
        tells_changes=schema.tells_changes,
    )


def relayed_histories(source: LogSource | Iterable[LogSource], keys: LogKeys) -> "list[SchemaHistory]":
    """The schema histories of files that a relay has written, the later one last; none without the relay's store.

    The first covers the time before the store begins, from the statements of the files. Raises ``ConfigurationError``
    for a damaged store, and the errors of reading the files.
    """
    files = find_log_files(source)
    shapes = _shapes(_schema(None, None, files), keys, Selection.read({}))
    return [] if shapes is None else shapes.read_whole(files)


def _statements(keys: LogKeys, selection: Selection, files: Sequence[LogFile]) -> Iterator[Event]:
    """The statements of files, and the events needed to understand them. Rows are not decoded."""
    wanted = (QueryEvent, FormatDescriptionEvent)
    selected = replace(selection, events=wanted, tables=(), exclude_tables=(), columns={})
    with BinlogFile(files, selected, keys=keys) as log:
        yield from log
