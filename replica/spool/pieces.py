"""A piece of a log, which one task reads; and reading its events, with undecoded rows.

A piece is a range of a plain file that begins and ends between transactions, or a part of one large transaction. Or
it is a whole file that must be read from its beginning: encrypted, gzip'd, on an object store, or not a binlog file
in some place. It is made of plain values, so that it can be pickled. ``planner`` and ``spool`` make pieces;
``shipping`` gives them the bytes, for machines that do not see the file.
"""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final

from protocol.binlog.checksum import CRC32_ALGORITHM, algorithm_of
from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import Event, TableMapEvent, TransactionPayloadEvent
from protocol.binlog.keys import LogKeys, parse_key_file, parse_keyring
from protocol.binlog.raw_reader import RawEventReader
from protocol.constants import BINLOG_MAGIC, MAX_EVENT_SIZE
from protocol.errors import CheckpointError, ConfigurationError, TruncatedError
from protocol.records import field, record
from protocol.rows.bounded_cache import BoundedCache
from protocol.rows.compiler import Image, Row, RowCompiler, RowReader, reader_size
from protocol.wire import HeaderFields, ReadBytes

from ..arrow import RawRowCompiler
from ..arrow.rawrows import RawRows, RowsLayout
from ..config.table_filter import table_filter
from ..files.log_files import LogFile, OpenLogFile, Readable, behind, read_whole, unreadable
from .offsets import Key
from .placed_shapes import PlacedShapes, named
from .storage import is_uri, open_input
from .transaction_part import TransactionPart

_CHUNK_SIZE: Final = 1 << 17
# Behind the end of any file.
_END: Final = 1 << 63


@record(frozen=True, slots=True)
class LogPiece:
    """``size`` bytes of the file at ``path``, from ``start`` on; with ``is_whole`` the whole file.

    ``file`` and ``position`` say where the piece begins in the source's log. ``number`` orders the files of the log,
    ``epoch`` the logs of several servers. ``description`` is the FORMAT_DESCRIPTION that holds at the beginning
    (empty: the piece contains it). With ``gap`` the piece stands for a part of the log that is missing before this
    place, and ``gap`` has the reason. ``may_be_torn``: the piece ends where the file ends, maybe within an event.

    The bytes are in the file at ``path``, which may be a URI if ``is_whole``. Or the piece brings them along in
    ``data``; or the object at ``uri`` has these bytes and no others. ``part``: the piece is a part of a transaction.
    """

    path: str
    file: str
    number: int
    start: int = 0
    size: int = 0
    position: int = 0
    description: bytes = b""
    is_whole: bool = False
    epoch: int = 0
    server_uuid: str | None = None
    gap: str = ""
    may_be_torn: bool = False
    shapes: PlacedShapes = field(default_factory=dict, repr=False, hash=False)
    data: bytes | None = field(default=None, repr=False, hash=False)
    uri: str = ""
    part: TransactionPart | None = field(default=None, repr=False, hash=False)

    @property
    def places(self) -> tuple[Key, Key]:
        """Where the piece begins and ends in the log."""
        end = _END if self.is_whole else self.position + self.size
        return (self.epoch, self.number, self.position), (self.epoch, self.number, end)


@record(frozen=True, slots=True)
class ReadSettings:
    """How pieces are decoded. The repr shows no secret.

    ``storage`` has the ``storageOptions``; a larger event than ``max_event_bytes`` is a ``DecodeError``.
    """

    tables: tuple[str, ...] = ("*",)
    exclude_tables: tuple[str, ...] = ()
    verify_checksum: bool = True
    max_event_bytes: int = MAX_EVENT_SIZE
    keyring: str | None = None
    key_file: str | None = None
    key_file_secret: str = field(default="", repr=False)
    key_file_iterations: int = 0
    storage: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def keys(self) -> LogKeys:
        """The keys in the key files. Raises ``ConfigurationError`` for malformed files."""
        mysql = parse_keyring(read_whole(self.keyring)) if self.keyring else {}
        mariadb = {}
        if self.key_file:
            secret = self.key_file_secret.encode()
            mariadb = parse_key_file(read_whole(self.key_file), secret, self.key_file_iterations)
        return LogKeys(mysql, mariadb)


# Memory for compiled row readers.
_COMPILED_BYTES: Final = 16 << 20

# An event, the position after it in the log, and its offset within a compressed transaction (0 outside of one).
PlacedEvent = tuple[Event, int, int]


class RowLayouts(RawRowCompiler):
    """Leaves rows undecoded, and can decode them later, for values that a column's Arrow type cannot hold."""

    def __init__(self) -> None:
        super().__init__()
        self._images: dict[RowsLayout, tuple[Image, ...]] = {}
        self._compiler = RowCompiler()
        self._compiled: BoundedCache[RowsLayout, RowReader] = BoundedCache(_COMPILED_BYTES)

    def reader(self, *images: Image) -> RowReader:
        """The reader that puts ``RawRows`` into events."""
        read = super().reader(*images)
        layout = read(b"", 0, 0)[0].layout
        self._images[layout] = images
        return read

    def tuples(self, rows: RawRows) -> list[tuple[Row | None, Row | None]]:
        """The before and after image of each row; for inserts and deletes both are the one image."""
        read = self._compiled.get(rows.layout)
        if read is None:
            images = self._images[rows.layout]
            read = self._compiler.reader(*images)
            columns = sum(len(image.present) for image in images)
            self._compiled.keep(rows.layout, read, reader_size(read, columns))
        found = read(rows.data, rows.start, rows.end)
        return [row if len(rows.layout.images) > 1 else (row, row) for row in found]


class PieceReader:
    """The events of a piece, with rows left undecoded (``RawRows``) for the columnar readers.

    Iterate it once. ``rows`` can decode the rows later. Raises the errors of iterating a ``BinlogFile``.
    """

    def __init__(self, piece: LogPiece, settings: ReadSettings) -> None:
        self._piece = piece
        self.rows = RowLayouts()
        self._decoder = EventDecoder(
            file=piece.file,
            position=piece.position,
            verify_checksum=settings.verify_checksum,
            wants_table=table_filter(settings.tables, settings.exclude_tables),
            row_compiler=self.rows,
            max_event_bytes=settings.max_event_bytes,
        )
        self._settings = settings

    def __iter__(self) -> Iterator[PlacedEvent]:
        if self._piece.is_whole:
            return self._whole()
        return self._range()

    def _whole(self) -> Iterator[PlacedEvent]:
        piece, keys = self._piece, self._settings.keys()
        stream = self._shipped()
        file = LogFile(piece.file, piece.path) if stream is None else LogFile(piece.file, stream=stream)
        with closing(OpenLogFile(file, "stop")) as opened:
            limit = self._settings.max_event_bytes
            reader = RawEventReader(opened.read, file=piece.file, keys=keys, max_event_bytes=limit)
            yield from self._events(reader)

    def _shipped(self) -> Readable | None:
        """The bytes that are not in a file of this machine."""
        piece = self._piece
        if piece.data is not None:
            return io.BytesIO(piece.data)
        uri = piece.uri or piece.path
        if not is_uri(uri):
            return None
        try:
            found: Readable = open_input(uri, self._settings.storage)
        except ConfigurationError as error:
            if not piece.uri:
                raise
            raise CheckpointError(
                f"spoolDir: {error} -- this machine does not see the folder, or another query has the same spoolDir: "
                "give each query one of its own, which all machines see"
            ) from error
        return found

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Callable[[int], bytes]]:
        stream = self._shipped()
        if stream is not None:
            yield stream.read
            return
        try:
            file = open(self._piece.path, "rb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise unreadable(self._piece.path, error) from error
        with file:
            file.seek(self._piece.start)
            yield file.read

    def _range(self) -> Iterator[PlacedEvent]:
        piece = self._piece
        has_magic = piece.start == 0
        with self._opened() as read_bytes:
            read = limited(read_bytes, piece.size)
            if not has_magic:
                read = behind(BINLOG_MAGIC, read)
            base = piece.position - (0 if has_magic else len(BINLOG_MAGIC))
            reader = RawEventReader(
                read,
                file=piece.file,
                base=base,
                torn="stop" if piece.may_be_torn else "raise",
                max_event_bytes=self._settings.max_event_bytes,
            )
            if piece.description:
                self._decoder.decode(piece.description, len(BINLOG_MAGIC))
                reader.has_checksums = algorithm_of(piece.description) == CRC32_ALGORITHM
                self._decoder.checksum_enabled = reader.has_checksums
            if piece.part is not None:
                yield from self._prelude(piece.part)
            yield from self._events(reader)

    def _prelude(self, part: TransactionPart) -> Iterator[PlacedEvent]:
        for position, raw in part.prelude:
            event = self._decoder.decode(raw, position)
            if event is None:
                continue
            if isinstance(event, TableMapEvent):
                self._describe(event)
            yield event, position + len(raw), 0

    def _events(self, reader: RawEventReader) -> Iterator[PlacedEvent]:
        decoder, decode, file = self._decoder, self._decoder.decode, self._piece.file
        while batch := _next_batch(reader):
            decoder.checksum_enabled = reader.has_checksums is True
            # ROTATE events in a relay log name files of its source, not the next relay log.
            decoder.file = file
            for raw, position, header in batch:
                event = decode(raw, position, header)
                if event is None:
                    continue
                kind = type(event)
                if kind is TransactionPayloadEvent:
                    yield from self._inside(event, position + len(raw))  # type: ignore[arg-type]
                    continue
                if kind is TableMapEvent:
                    self._describe(event)  # type: ignore[arg-type]
                yield event, position + len(raw), 0

    def _inside(self, payload: TransactionPayloadEvent, end: int) -> Iterator[PlacedEvent]:
        decoder = self._decoder
        for event in decoder.payload_events(payload):
            if type(event) is TableMapEvent:
                self._describe(event)
            yield event, end, decoder.payload_offset

    def _describe(self, event: TableMapEvent) -> None:
        """Give a table whose table map has no column names the names of its place."""
        if event.table.names_from is not None or not self._piece.shapes:
            return
        place = self._piece.epoch, self._piece.number, event.position
        table = named(event.table, self._piece.shapes, place)
        if table is not None:
            event.table = self._decoder.name_table(event.table_id, table)


def _next_batch(reader: RawEventReader) -> Sequence[tuple[bytes, int, HeaderFields | None]]:
    """The next events; empty at the end. Plain events come in batches, which takes a fifth of the time."""
    batch = reader.read_batch()
    if batch:
        return batch
    raw = reader.read_event()
    return () if raw is None else ((raw, reader.event_position, None),)


def limited(read: Callable[[int], bytes], size: int) -> ReadBytes:
    """A ``read`` that ends after ``size`` bytes: bytes appended to the file meanwhile are not part of the piece.

    Raises ``TruncatedError`` if the file has become shorter.
    """
    left = size

    def read_some(count: int) -> bytes:
        nonlocal left
        data = read(min(count, left, _CHUNK_SIZE)) if left else b""
        if left and not data:
            raise TruncatedError(f"the file has lost its last {left} bytes since the query was planned")
        left -= len(data)
        return data

    return read_some
