"""The event classes that users receive, one for each kind of binlog event. They hold values; parsing is elsewhere.

Every event has ``header``, ``file`` (binlog file name, empty if not known) and ``position`` (byte offset of its
start in that file). Events have slots but are not frozen: a frozen class triples the cost of a new event.
"""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import repeat
from typing import Any

from ..gtid import Gtid, GtidSet, MariadbGtid, new_gtid
from ..records import field, record
from ..rows.compiler import Row
from ..rows.row_types import AsType, row_as
from ..rows.table import Table
from .event import Event as Event
from .event import EventHeader as EventHeader
from .event import new_header as new_header
from .row_changes import Change, Delete, Image, Insert, Update, images_of


@record(slots=True)
class UnknownEvent(Event):
    """An unknown event that the source flagged as ignorable. ``body`` is undecoded."""

    body: bytes


@record(slots=True)
class FormatDescriptionEvent(Event):
    """First event of each file: the server that wrote the file, and the layout of events.

    ``binlog_version`` is 4 since MySQL 5.0; ``server_version`` is the text of ``SELECT VERSION()``; ``created`` is in
    seconds since 1970, and 0 unless the server's start created this file. ``header_size`` (19) and
    ``post_header_sizes`` (a byte per event type) give the layout of events; ``checksum_algorithm`` is 0 (off), 1
    (CRC32) or None (a server before checksums).
    """

    binlog_version: int
    server_version: str
    created: int
    header_size: int
    post_header_sizes: bytes
    checksum_algorithm: int | None


@record(slots=True)
class RotateEvent(Event):
    """The log continues at ``next_position`` of ``next_file``."""

    next_file: str
    next_position: int


@record(slots=True)
class StopEvent(Event):
    """The source was shut down normally."""


@record(slots=True)
class QueryEvent(Event):
    """A statement: DDL, BEGIN, COMMIT, XA, or DML of a source that logs statements.

    ``sql`` is its text, ``schema`` the session's default schema (may be empty), ``thread_id`` the session's id on its
    server, ``exec_time`` in seconds, ``error_code`` 0 for success. ``status_variables`` is undecoded;
    ``protocol.binlog.query_status.parse_status_variables`` reads it.
    """

    thread_id: int
    exec_time: int
    error_code: int
    schema: str
    sql: str
    status_variables: bytes


@record(slots=True)
class IntvarEvent(Event):
    """A number for the next statement: ``value`` is LAST_INSERT_ID (``variable`` 1) or INSERT_ID (``variable`` 2)."""

    variable: int
    value: int


@record(slots=True)
class RandEvent(Event):
    """The seeds of RAND() in the next statement: ``seed1`` and ``seed2``."""

    seed1: int
    seed2: int


@record(slots=True)
class UserVarEvent(Event):
    """A user variable of the next statement; ``name`` is its name without the ``@``.

    ``value`` is None, bytes (a string in ``collation``), float, int or Decimal; ``value_type`` is the server's
    Item_result: 0 string, 1 real, 2 integer, 4 decimal. ``raw_value`` has the logged bytes; bit 0 of ``var_flags``
    marks an unsigned integer.
    """

    name: str
    value: bytes | float | int | Decimal | None
    value_type: int = 0
    collation: int = 0
    raw_value: bytes = b""
    var_flags: int = 0


@record(slots=True)
class LoadEvent(Event):
    """LOAD DATA of servers before 5.0.3 (types 6 and 12): the file, its format and the target table.

    ``file_name`` is loaded into ``fields`` (all columns if empty) of ``table_name`` in ``schema``, without the first
    ``skip_lines`` lines. ``separators`` are fields-terminated-by, enclosed-by, lines-terminated-by, lines-starting-by
    and escaped-by; ``option_flags`` are the flags of sql_ex. ``thread_id`` and ``exec_time`` (seconds) are as in
    ``QueryEvent``.
    """

    thread_id: int
    exec_time: int
    skip_lines: int
    schema: str
    table_name: str
    fields: tuple[str, ...]
    separators: tuple[bytes, ...]
    option_flags: int
    file_name: str


@record(slots=True)
class CreateFileEvent(LoadEvent):
    """LOAD DATA before 5.0.3 with the first ``block`` of its file; later events refer to the file by ``file_id``."""

    file_id: int
    block: bytes


@record(slots=True)
class AppendBlockEvent(Event):
    """The next ``block`` of the LOAD DATA file ``file_id``."""

    file_id: int
    block: bytes


@record(slots=True)
class BeginLoadQueryEvent(AppendBlockEvent):
    """The first block of a LOAD DATA file (5.0.3 and later)."""


@record(slots=True)
class ExecuteLoadEvent(Event):
    """The file ``file_id`` of a LOAD DATA before 5.0.3 is complete."""

    file_id: int


@record(slots=True)
class DeleteFileEvent(Event):
    """The LOAD DATA file ``file_id`` is no longer needed: the statement failed."""

    file_id: int


@record(slots=True)
class ExecuteLoadQueryEvent(QueryEvent):
    """LOAD DATA as a statement; its bytes ``name_start`` to ``name_end`` are the file's name.

    ``file_id`` is the file; ``duplicates`` is 0 (error), 1 (IGNORE) or 2 (REPLACE).
    """

    file_id: int
    name_start: int
    name_end: int
    duplicates: int


@record(slots=True)
class IncidentEvent(Event):
    """The source lost something: ``incident`` 1 means that events are missing from its log.

    ``message`` is the server's own text (may be empty).
    """

    incident: int
    message: str


@record(slots=True)
class XidEvent(Event):
    """Commit of a transaction in a transactional engine; ``xid`` is the engine's own number for it."""

    xid: int


@record(slots=True)
class AnonymousGtidEvent(Event):
    """Begin of a transaction without GTID; base of ``GtidEvent`` (``control_events.h``: Gtid_event).

    Bit 0 of ``gtid_flags`` says that the transaction may hold statements. ``last_committed`` and ``sequence_number``
    are the logical clock by which replicas apply in parallel. ``original_commit_timestamp`` is the time of the commit
    on the server that committed first, ``immediate_commit_timestamp`` on the server that wrote this log: microseconds
    since 1970, None before 8.0.1. ``transaction_length`` is the size of the transaction in the log, in bytes with
    this event, None before 8.0.2. ``original_server_version`` and ``immediate_server_version`` are numbers like
    80036, None before 8.0.14. ``commit_group_ticket`` belongs to group commit, None where it is not logged.
    """

    gtid_flags: int
    last_committed: int | None = None
    sequence_number: int | None = None
    immediate_commit_timestamp: int | None = None
    original_commit_timestamp: int | None = None
    transaction_length: int | None = None
    immediate_server_version: int | None = None
    original_server_version: int | None = None
    commit_group_ticket: int | None = None


class _LazyGtid(AnonymousGtidEvent):
    """Keeps the unpacked GTID fields and makes the ``Gtid`` at first use, which saves 0.3 us a transaction."""

    __slots__ = ("gtid_fields",)
    # The source's UUID in bytes and the sequence until ``gtid`` is first read, then the Gtid.
    gtid_fields: Any

    @property
    def gtid(self) -> Gtid:
        gtid = self.gtid_fields
        if type(gtid) is Gtid:
            return gtid
        made = self.gtid_fields = new_gtid(*gtid)
        return made

    @gtid.setter
    def gtid(self, gtid: Gtid) -> None:
        self.gtid_fields = gtid


@record(slots=True, kw_only=True)
class GtidEvent(_LazyGtid):
    """Begin of a transaction whose GTID is ``gtid``."""

    gtid: Gtid


@record(slots=True)
class XaPrepareEvent(Event):
    """XA PREPARE, or XA COMMIT ... ONE PHASE (``one_phase``): the end of the transaction whose rows precede it.

    The xid is (``format_id``, ``gtrid``, ``bqual``); a later statement commits or rolls back a prepared transaction.
    """

    one_phase: bool
    format_id: int
    gtrid: bytes
    bqual: bytes


@record(slots=True)
class TransactionContextEvent(Event):
    """Group replication's certification data of the preceding transaction.

    ``server_uuid`` and ``thread_id`` name the server and session of the transaction; ``gtid_specified`` says whether
    the session had set its GTID. ``snapshot_version`` (an encoded GTID set), ``write_set`` and ``read_set`` (hashes)
    are as logged.
    """

    server_uuid: str
    thread_id: int
    gtid_specified: bool
    snapshot_version: bytes
    write_set: tuple[bytes, ...]
    read_set: tuple[bytes, ...]


@record(slots=True)
class ViewChangeEvent(Event):
    """Group replication: the group's membership changed to ``view_id``.

    ``sequence_number`` is the group's; ``certification_info`` maps write sets to encoded GTID sets.
    """

    view_id: str
    sequence_number: int
    certification_info: dict[bytes, bytes]


@record(slots=True)
class TransactionPayloadEvent(Event):
    """A whole compressed transaction; streams and files return the events inside instead.

    ``compression_type`` is 0 (zstd) or 255 (none), ``payload`` the bytes as logged, ``uncompressed_size`` in bytes.
    """

    compression_type: int
    uncompressed_size: int
    payload: bytes


@record(slots=True)
class PreviousGtidsEvent(Event):
    """``gtid_set`` has all GTIDs of the log files before this file."""

    gtid_set: GtidSet


@record(slots=True)
class HeartbeatEvent(Event):
    """The source is alive and has sent everything up to ``source_position`` of ``source_file``."""

    source_file: str
    source_position: int


@record(slots=True)
class RowsQueryEvent(Event):
    """``sql`` is the statement that changed the following rows (with binlog_rows_query_log_events)."""

    sql: str


@record(slots=True)
class MariadbGtidEvent(Event):
    """Begin of the MariaDB event group ``gtid``.

    ``gtid_flags`` as in MariaDB's ``Gtid_log_event``: 1 standalone, 2 group commit id, 4 transactional, 8 allow
    parallel, 16 waited, 32 DDL, 64 prepared XA, 128 completed XA. ``commit_id`` is None without flag 2; ``xid`` is
    (format id, gtrid, bqual) for XA. ``extra_flags`` exist since 10.8. ``alter_sequence`` is the GTID sequence of the
    START ALTER that a COMMIT or ROLLBACK ALTER belongs to; ``extra_engines`` is the number of further engines in the
    transaction; ``thread_id`` is the session's id. Values that are not logged are None.
    """

    gtid: MariadbGtid
    gtid_flags: int
    commit_id: int | None = None
    xid: tuple[int, bytes, bytes] | None = None
    extra_flags: int = 0
    alter_sequence: int | None = None
    extra_engines: int | None = None
    thread_id: int | None = None

    @property
    def is_standalone(self) -> bool:
        """Whether the group is a single event without a commit (DDL)."""
        return bool(self.gtid_flags & 1)


@record(slots=True)
class MariadbGtidListEvent(Event):
    """``gtids`` has the last GTID of each domain and server in the log files before this file.

    ``list_flags`` are the upper four bits of the logged count (MariaDB's ``Gtid_list_log_event``).
    """

    gtids: tuple[MariadbGtid, ...]
    list_flags: int


@record(slots=True)
class AnnotateRowsEvent(Event):
    """MariaDB: ``sql`` is the statement that changed the following rows (with binlog_annotate_row_events)."""

    sql: str


@record(slots=True)
class BinlogCheckpointEvent(Event):
    """MariaDB: ``checkpoint_file`` is the oldest file that crash recovery still needs."""

    checkpoint_file: str


@record(slots=True)
class StartEncryptionEvent(Event):
    """MariaDB: the rest of this file is encrypted.

    ``scheme`` is 1, ``key_version`` the key's version, ``nonce`` the 12 bytes that begin the IV of each event.
    """

    scheme: int
    key_version: int
    nonce: bytes


@record(slots=True)
class PartialRowDataEvent(Event):
    """MariaDB 12.3: a fragment, but not the last, of a rows event that was too large for a packet.

    ``data`` is fragment ``number`` (from 1 on) of ``fragments``. The decoder joins the fragments and returns the rows
    event in the place of the last fragment.
    """

    fragments: int
    number: int
    data: bytes


@record(slots=True)
class TableMapEvent(Event):
    """Describes the ``table`` of the following rows events with this ``table_id``; ``table_map_flags`` as logged."""

    table_id: int
    table_map_flags: int
    table: Table


@record(slots=True)
class RowsEvent(Event):
    """Base of the rows events (``rows_event.h``: Rows_event).

    ``table`` is the changed ``Table``, ``table_id`` its number in the log. Bit 0 of ``rows_flags`` marks the last
    rows event of a statement. ``extra`` is the undecoded extra row information (the partition, for example). Rows of
    a MERGE table have the MERGE table's name, and MariaDB logs a SEQUENCE's new state as an insert.
    """

    table_id: int
    table: Table
    rows_flags: int
    extra: bytes

    def changes(self) -> Iterator[Change]:
        """The rows as ``Change`` objects, in order."""
        raise NotImplementedError


@record(slots=True)
class PreGaRowsEvent(Event):
    """Undecoded rows of the 5.1 development trees before 5.1.18, whose table maps lack the metadata for decoding.

    ``table_id`` and ``rows_flags`` as in ``RowsEvent``; ``body`` is the rest of the event.
    """

    table_id: int
    rows_flags: int
    body: bytes


@record(slots=True)
class WriteRowsEvent(RowsEvent):
    """Inserted rows: ``rows`` are tuples of values in the order of ``table.columns``."""

    rows: list[Row] = field(default_factory=list)

    def changes(self) -> Iterator[Insert]:
        """The rows as inserts: ``before`` is None."""
        return map(Insert, repeat(self.table), images_of(self.table, self.rows))

    def rows_as(self, kind: type[AsType]) -> Iterator[AsType]:
        """The rows as objects of the type ``kind``: see ``Update.after_as``."""
        return (row_as(kind, image, self.table) for image in images_of(self.table, self.rows))


@record(slots=True)
class UpdateRowsEvent(RowsEvent):
    """Updated rows: ``rows`` are pairs of tuples, before and after, each in column order.

    A partial update of a JSON column (binlog_row_value_options=PARTIAL_JSON) is applied to the document in the before
    image. If that image lacks the column (binlog_row_image=MINIMAL), the value is a list of ``JsonDiff`` instead of a
    document (``protocol.values.jsonb_diff``).
    """

    rows: list[tuple[Row, Row]] = field(default_factory=list)

    def changes(self) -> Iterator[Update]:
        """The rows as updates, with both images."""
        return map(Update, repeat(self.table), *self._images())

    def rows_as(self, kind: type[AsType]) -> Iterator[tuple[AsType, AsType]]:
        """The rows as pairs, before and after, of objects of the type ``kind``: see ``Update.after_as``."""
        table = self.table
        return (
            (row_as(kind, before, table), row_as(kind, after, table))
            for before, after in zip(*self._images(), strict=True)
        )

    def _images(self) -> tuple[Iterable[Image], Iterable[Image]]:
        rows, table = self.rows, self.table
        return images_of(table, [row for row, _ in rows]), images_of(table, [row for _, row in rows])


@record(slots=True)
class DeleteRowsEvent(RowsEvent):
    """Deleted rows: ``rows`` are tuples of values in the order of ``table.columns``."""

    rows: list[Row] = field(default_factory=list)

    def changes(self) -> Iterator[Delete]:
        """The rows as deletes: ``after`` is None."""
        return map(Delete, repeat(self.table), images_of(self.table, self.rows))

    def rows_as(self, kind: type[AsType]) -> Iterator[AsType]:
        """The rows as objects of the type ``kind``: see ``Update.after_as``."""
        return (row_as(kind, image, self.table) for image in images_of(self.table, self.rows))
