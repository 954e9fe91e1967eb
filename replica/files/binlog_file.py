"""Binlog files as a stream of the same events that a server sends: ``open_binlog`` and ``BinlogFile``.

It is about what users ask for; ``log_events`` reads. It knows files and no connection.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Self

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import Event
from protocol.binlog.keys import LogKeys, parse_key_file, parse_keyring
from protocol.binlog.raw_reader import TornTail
from protocol.errors import ConfigurationError
from protocol.gtid import GtidSet, MariadbGtidSet
from protocol.position import BinlogPosition, Checkpoint
from protocol.records import record
from protocol.rows.cells import CellTable
from protocol.rows.counting import row_compiler
from protocol.rows.description import ColumnDescription

from ..config.selection import SchemaMismatch, Selection, Start, Stop
from ..config.table_filter import table_filter
from .log_events import LogEvents, OnError, RawEvent, Skipped
from .log_files import LogFile, LogSource, find_log_files, read_whole
from .log_range import LogRange

if TYPE_CHECKING:
    from ..arrow import BatchReader, Images
    from ..transactions.transaction import FileTransactions


@record(slots=True, frozen=True)
class KeyFile:
    """A key file of MariaDB's file_key_management, where it is encrypted.

    ``path`` is the file's, ``secret`` file_key_management_filekey, ``iterations`` file_key_management_use_pbkdf2 (0:
    not used).
    """

    path: str | os.PathLike[str]
    secret: str = ""
    iterations: int = 0


class BinlogFile:
    """The events of binlog files, in order; made by ``replica.open_binlog``.

        with replica.open_binlog("binlog.000042") as log:
            for event in log:
                ...

    Leaving the loop and iterating again goes on with the next event. Iterating raises ``DecodeError`` (with file,
    position and event type), ``SchemaMismatchError``, and ``ConfigurationError`` for keys that are missing or wrong
    and a ``start`` that is no place of the log; an error is the end, and is raised again.
    """

    def __init__(
        self,
        files: Sequence[LogFile],
        selection: Selection,
        *,
        start: Start | int | None = None,
        stop: Stop | int | None = None,
        on_error: OnError = "raise",
        torn: TornTail = "stop",
        schema: Mapping[str, Sequence[ColumnDescription]] | None = None,
        keys: LogKeys | None = None,
        cells: CellTable | None = None,
    ) -> None:
        sizes = [file.size for file in files]
        self.bytes_total = None if None in sizes else sum(size for size in sizes if size is not None)
        self._wants_table = table_filter(selection.tables, selection.exclude_tables)
        self._make_decoder = partial(
            EventDecoder,
            verify_checksum=selection.verify_checksum,
            columns=selection.columns,
            on_schema_mismatch=selection.on_schema_mismatch,
            cells=cells,
            row_compiler=row_compiler(selection.row_values),
        )
        self._events = LogEvents(
            files,
            LogRange(files, start, stop),
            self._make_decoder(wants_table=self._wants_table),
            wanted=selection.events,
            schema=schema or {},
            columns=selection.columns,
            on_error=on_error,
            torn=torn,
            keys=keys or LogKeys(),
        )
        self._iterator = self._events.iterator
        self._transactions: FileTransactions | None = None

    def __repr__(self) -> str:
        return f"<BinlogFile {self.file}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        # The same one each time, and no method of ours for each event.
        return self._iterator

    def __next__(self) -> Event:
        return next(self._iterator)

    @property
    def file(self) -> str:
        """The name of the file that is being read, or is the first to be read."""
        return self._events.file

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, of ``bytes_total`` (None if that is not known), as they are stored."""
        return self._events.bytes_read

    @property
    def skipped(self) -> Skipped:
        """What ``on_error="skip"`` has passed over so far."""
        return self._events.skipped

    @property
    def torn_bytes(self) -> int:
        """Bytes so far of events that were cut short at the end of their file, and of zeros there."""
        return self._events.torn_bytes

    def raw_events(self) -> Iterator[RawEvent]:
        """Each event with its bytes, decrypted, header and checksum included, and its offset in the file.

        Unlike iterating it leaves nothing out. An event of a compressed transaction, which follows the one that holds
        it, has no bytes of its own: ``b""``. It goes on where iterating was, and the other way round.
        """
        while (found := self._events.next_raw()) is not None:
            yield found

    def transactions(self) -> "FileTransactions":
        """The log's transactions as units, from begin to commit, each iterated change by change.

        It goes on where iterating was. ``ConfigurationError`` for a log with ``events`` or ``on_error="skip"``:
        transactions are whole.
        """
        if Event not in self._events.wanted or self._events.on_error == "skip":
            raise ConfigurationError("transactions() needs all events: leave out events= and on_error='skip'")
        if self._transactions is None:
            from ..transactions.transaction import FileTransactions

            self._transactions = FileTransactions(self._events.next_raw)
        return self._transactions

    def arrow(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        images: "Images" = "after",
        metadata: Sequence[str] | None = None,
        batch_rows: int = 16_384,
    ) -> "BatchReader":
        """One table's row changes as Arrow RecordBatches, in order; the types are those of ``replica.arrow.schema``.

        ``table`` is ``"schema.table"``. A row is a row change: what an insert or update leaves, or what was deleted.
        A column that an update's after image leaves out has not changed, and is the before image's. With
        ``images="both"`` the struct ``_before`` is the row before an update (null for other changes), and
        ``_before_absent`` names the columns that it lacks.
        ``columns`` are the only ones wanted, in the table's order. ``metadata`` are those wanted of ``_op``
        (``insert``, ``update``, ``delete``), ``_ts`` (the event's time), ``_gtid``, ``_file``, ``_pos`` (the event's
        start), ``_row`` (number in the event) and ``_absent`` (names of the columns that no image holds, null if
        there are none); None: all. Batches have about ``batch_rows`` rows, fewer if those are long; where the table's
        columns change, a batch ends and the next one has another schema.

        Null is also what Arrow cannot hold: a zero, partial or impossible date. Characters that are none of their set
        are U+FFFD. ``BatchReader.losses`` counts both.

        Raises ``MissingExtraError`` without the extra ``[arrow]``, and ``ConfigurationError`` for unknown names, here
        or when the table is met, and once events have been read: open the log again. Batches raise as events do.
        """
        from ..arrow import METADATA_COLUMNS, SURROUNDING_EVENTS, BatchReader, RawRowCompiler

        events = self._events
        if events.has_begun:
            raise ConfigurationError("arrow() comes before all reading: open the log again")
        wants_table = self._wants_table

        def is_wanted(schema: str, name: str) -> bool:
            return f"{schema}.{name}" == table and (wants_table is None or wants_table(schema, name))

        reader = BatchReader(
            self._iterator,
            table,
            columns=columns,
            images=images,
            metadata=METADATA_COLUMNS if metadata is None else metadata,
            batch_rows=batch_rows,
            on_damage=events.count_skipped if events.on_error == "skip" else None,
        )
        events.decoder = self._make_decoder(wants_table=is_wanted, row_compiler=RawRowCompiler())
        events.wanted += SURROUNDING_EVENTS
        return reader

    def close(self) -> None:
        """Close the files; the iteration ends."""
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
    schema: Mapping[str, Sequence[ColumnDescription]] | None = None,
    keyring: str | os.PathLike[str] | bytes | Mapping[str, bytes] | None = None,
    key_file: str | os.PathLike[str] | KeyFile | Mapping[int, bytes] | None = None,
    cells: CellTable | None = None,
) -> BinlogFile:
    """The events of binlog or relay log files of MySQL 5.0 and later and of MariaDB, without a server.

    ``source`` is a path, the path of an ``.index`` file, a pattern (``"binlog.[0-9]*"``), ``"-"`` for standard input,
    a file object read as bytes, or a list of these. Files may be gzip'd, still being written, and later parts of a
    log.

    Where:
        start: None: the first event; an offset in the first file; a position (``"binlog.000003:154"``); a GTID set of
            what you already have; a ``Checkpoint``; an aware time: the first transaction that began in that
            second, or later. Format descriptions come in any case.
        stop: None: the end; an offset in the last file; a position; a GTID set: when all of it has come; an aware
            time: before the first transaction that began then or later. The open transaction is finished first.
        torn: what to do where a file ends inside of an event: ``"stop"`` there (``BinlogFile.torn_bytes`` counts
            what was left), or ``"raise"`` ``TruncatedError``.
    What:
        tables, exclude_tables, events, columns, row_values: as for ``replica.connect``.
        schema: ``{"shop.orders": [ColumnDescription(...), ...]}`` gives names, signs and character sets to tables
            whose log has none. ``on_schema_mismatch``: ``"error"`` (default), or ``"positional"``: names ``@1``,
            ``@2``... where count or types do not fit.
    How:
        on_error: ``"raise"`` (default) at damage; or ``"skip"`` it, up to the next event that can be found. What was
            skipped is logged as a warning and counted by ``BinlogFile.skipped``.
        verify_checksum: check each event's CRC32 (default).
        keyring: for MySQL's encrypted files the path of the server's keyring file (``component_keyring_file`` or
            ``keyring_file``), its keys by id, or the 32 bytes of the replication key.
        key_file: for MariaDB's the path of the key file of ``file_key_management`` (a ``KeyFile`` if it is
            encrypted), or its keys by number.
        cells: what values become instead of the documented Python values: for renderers, which bring their own.

    Raises ``ConfigurationError``, which names the option, for what cannot be used; what the files hold shows when
    they are read.
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
    }
    selection = Selection.read(given)
    for name, value, choices in (
        ("on_error", on_error, ("raise", "skip")),
        ("torn", torn, ("stop", "raise")),
    ):
        if value not in choices:
            raise ConfigurationError(f"{name}: one of {', '.join(choices)}, not {value!r}")
    return BinlogFile(
        files,
        selection,
        start=start if type(start) is int else None if start is None else selection.start,
        stop=stop if type(stop) is int else selection.stop,
        on_error=on_error,
        torn=torn,
        schema=schema,
        keys=_keys(keyring, key_file),
        cells=cells,
    )


def _keys(
    keyring: str | os.PathLike[str] | bytes | Mapping[str, bytes] | None,
    key_file: str | os.PathLike[str] | KeyFile | Mapping[int, bytes] | None,
) -> LogKeys:
    if isinstance(keyring, str | os.PathLike):
        keyring = parse_keyring(read_whole(os.fspath(keyring)))
    if isinstance(key_file, str | os.PathLike):
        key_file = KeyFile(key_file)
    if isinstance(key_file, KeyFile):
        data = read_whole(os.fspath(key_file.path))
        key_file = parse_key_file(data, key_file.secret.encode(), key_file.iterations)
    if isinstance(keyring, bytes):
        return LogKeys({}, key_file or {}, keyring)
    return LogKeys(keyring or {}, key_file or {})
