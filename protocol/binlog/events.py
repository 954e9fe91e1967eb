"""The event dataclasses: what users see of the binary log. They hold values and no parsing.

Every event has ``header``, ``file`` (binlog file name, empty if not known) and ``position`` (byte offset of its
start in that file). Events are slotted but not frozen: freezing triples the cost of making one.
"""

from collections.abc import Iterator
from dataclasses import field
from decimal import Decimal
from typing import Any, Literal

from ..gtid import Gtid, GtidSet, MariadbGtid, new_gtid
from ..records import record
from ..rows.column import ABSENT
from ..rows.compiler import Row
from ..rows.table import Table
from .event import Event as Event
from .event import EventHeader as EventHeader
from .event import new_header as new_header


@record(slots=True)
class UnknownEvent(Event):
    """An event that this library does not know and the source flagged as ignorable. ``body`` is undecoded."""

    body: bytes


@record(slots=True)
class FormatDescriptionEvent(Event):
    """First event of each file: who wrote it and how.

    ``binlog_version`` is 4 since MySQL 5.0; ``server_version`` the text of ``SELECT VERSION()``; ``created`` seconds
    since 1970, 0 unless the server was started with this file. ``header_size`` (19) and ``post_header_sizes`` (a byte
    per event type) say how events are laid out; ``checksum_algorithm`` is 0 (off), 1 (CRC32) or None (a server before
    checksums).
    """

    binlog_version: int
    server_version: str
    created: int
    header_size: int
    post_header_sizes: bytes
    checksum_algorithm: int | None


@record(slots=True)
class RotateEvent(Event):
    """The log goes on at ``next_position`` of ``next_file``."""

    next_file: str
    next_position: int


@record(slots=True)
class StopEvent(Event):
    """The source was shut down in order."""


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
    """A number for the next statement: ``variable`` says what its ``value`` is: 1 LAST_INSERT_ID, 2 INSERT_ID."""

    variable: int
    value: int


@record(slots=True)
class RandEvent(Event):
    """The two seeds of RAND() for the next statement, ``seed1`` and ``seed2``."""

    seed1: int
    seed2: int


@record(slots=True)
class UserVarEvent(Event):
    """A user variable for the next statement, whose name behind the ``@`` is ``name``.

    ``value`` is None, bytes (a string in ``collation``), float, int or Decimal; ``value_type`` is the server's
    Item_result: 0 string, 1 real, 2 integer, 4 decimal. ``raw_value`` are the bytes as logged; ``var_flags`` bit 0
    says that an integer is unsigned.
    """

    name: str
    value: bytes | float | int | Decimal | None
    value_type: int = 0
    collation: int = 0
    raw_value: bytes = b""
    var_flags: int = 0


@record(slots=True)
class LoadEvent(Event):
    """LOAD DATA of servers before 5.0.3 (types 6 and 12): how the file is read, and into what.

    ``file_name`` is read into ``fields`` (all columns if empty) of ``table_name`` in ``schema``, without its first
    ``skip_lines`` lines. ``separators`` are fields-terminated-by, enclosed-by, lines-terminated-by, lines-starting-by
    and escaped-by; ``option_flags`` those of sql_ex. ``thread_id`` and ``exec_time`` (seconds) as for ``QueryEvent``.
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
    """LOAD DATA before 5.0.3 with the first ``block`` of its file, which further events call ``file_id``."""

    file_id: int
    block: bytes


@record(slots=True)
class AppendBlockEvent(Event):
    """The next ``block`` of a LOAD DATA file, which ``file_id`` names."""

    file_id: int
    block: bytes


@record(slots=True)
class BeginLoadQueryEvent(AppendBlockEvent):
    """The first block of a LOAD DATA file (5.0.3 and later)."""


@record(slots=True)
class ExecuteLoadEvent(Event):
    """The file of a LOAD DATA before 5.0.3, which ``file_id`` names, is complete."""

    file_id: int


@record(slots=True)
class DeleteFileEvent(Event):
    """The file of a LOAD DATA, which ``file_id`` names, is not needed any more: the statement failed."""

    file_id: int


@record(slots=True)
class ExecuteLoadQueryEvent(QueryEvent):
    """LOAD DATA as a statement; the file's name stands from ``name_start`` to ``name_end`` of its bytes.

    The file is that of ``file_id``; ``duplicates`` is 0 (error), 1 (IGNORE) or 2 (REPLACE).
    """

    file_id: int
    name_start: int
    name_end: int
    duplicates: int


@record(slots=True)
class IncidentEvent(Event):
    """Something was lost on the source: ``incident`` 1 says that events are missing from the log.

    ``message`` are the server's own words (may be empty).
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

    ``gtid_flags`` bit 0 says that the transaction may hold statements. ``last_committed`` and ``sequence_number`` are
    the logical clock by which replicas apply in parallel. ``original_commit_timestamp`` is when the transaction was
    committed on the server where it came into being, ``immediate_commit_timestamp`` on the one whose log this is:
    microseconds since 1970, None before 8.0.1. ``transaction_length`` is its size in the log, in bytes with this
    event, None before 8.0.2; ``original_server_version`` and ``immediate_server_version`` are as in 80036, None
    before 8.0.14; ``commit_group_ticket`` is of group commit, None where it is not logged.
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
    """The GTID as it was unpacked, until somebody looks at it: making it takes 0.3 us a transaction."""

    __slots__ = ("gtid_fields",)
    # The source's UUID in bytes and the sequence, or the Gtid made of them.
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
    """XA PREPARE, or XA COMMIT ... ONE PHASE (``one_phase``): the end of a group whose rows stand before it.

    The xid is (``format_id``, ``gtrid``, ``bqual``); whether a prepared one is committed is a later statement.
    """

    one_phase: bool
    format_id: int
    gtrid: bytes
    bqual: bytes


@record(slots=True)
class TransactionContextEvent(Event):
    """Group replication's certification data of the transaction before it.

    ``server_uuid`` and ``thread_id`` are where it came into being; ``gtid_specified`` whether the session had set its
    GTID. ``snapshot_version`` (an encoded GTID set), ``write_set`` and ``read_set`` (hashes) are as logged.
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
    """A whole transaction, compressed; streams and files give out the events inside instead.

    ``compression_type`` is 0 (zstd) or 255 (none), ``payload`` the bytes as logged, ``uncompressed_size`` in bytes.
    """

    compression_type: int
    uncompressed_size: int
    payload: bytes


@record(slots=True)
class PreviousGtidsEvent(Event):
    """All GTIDs in the log files before this one: ``gtid_set``."""

    gtid_set: GtidSet


@record(slots=True)
class HeartbeatEvent(Event):
    """The source is alive and has sent everything up to ``source_position`` of ``source_file``."""

    source_file: str
    source_position: int


@record(slots=True)
class RowsQueryEvent(Event):
    """The statement behind the following rows, ``sql`` (with binlog_rows_query_log_events)."""

    sql: str


@record(slots=True)
class MariadbGtidEvent(Event):
    """Begin of an event group on MariaDB, ``gtid``.

    ``gtid_flags`` as in MariaDB's ``Gtid_log_event``: 1 standalone, 2 group commit id, 4 transactional, 8 allow
    parallel, 16 waited, 32 DDL, 64 prepared XA, 128 completed XA. ``commit_id`` is None without flag 2; ``xid`` is
    (format id, gtrid, bqual) for XA. ``extra_flags`` are those of 10.8 and later, with ``alter_sequence`` the
    GTID's sequence of the START ALTER that a COMMIT or ROLLBACK ALTER belongs to, and ``extra_engines`` how many more
    engines took part; ``thread_id`` is the session's, where it is logged. None where there is no such value.
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
        """A group of one event without a commit (DDL)."""
        return bool(self.gtid_flags & 1)


@record(slots=True)
class MariadbGtidListEvent(Event):
    """The last GTID of each domain and server in the log files before this one: ``gtids``.

    ``list_flags`` are the upper four bits of the number of them (MariaDB's ``Gtid_list_log_event``).
    """

    gtids: tuple[MariadbGtid, ...]
    list_flags: int


@record(slots=True)
class AnnotateRowsEvent(Event):
    """MariaDB: the statement behind the following rows, ``sql`` (with binlog_annotate_row_events)."""

    sql: str


@record(slots=True)
class BinlogCheckpointEvent(Event):
    """MariaDB: ``checkpoint_file`` is the oldest file that crash recovery still needs."""

    checkpoint_file: str


@record(slots=True)
class StartEncryptionEvent(Event):
    """MariaDB: what follows in this file is encrypted.

    ``scheme`` is 1, ``key_version`` that of the key, ``nonce`` 12 bytes from which the others' are made.
    """

    scheme: int
    key_version: int
    nonce: bytes


@record(slots=True)
class PartialRowDataEvent(Event):
    """MariaDB 12.3: a fragment of a rows event that was too large for a packet, but not the last one.

    It is ``number`` (from 1 on) of ``fragments``, and holds ``data``. The decoder joins them, and returns the rows
    event itself in place of the last.
    """

    fragments: int
    number: int
    data: bytes


@record(slots=True)
class TableMapEvent(Event):
    """Describes the ``table`` of the rows events behind it that name ``table_id``; ``table_map_flags`` as logged."""

    table_id: int
    table_map_flags: int
    table: Table


Operation = Literal["insert", "update", "delete"]


@record(slots=True)
class Change:
    """One row's change.

    ``op`` is ``"insert"``, ``"update"`` or ``"delete"``, ``table`` the ``Table``. ``before`` and ``after`` are dicts
    by column name, without the columns that the image lacks; None where there is no such image.
    """

    op: Operation
    table: Table
    before: dict[str, object] | None
    after: dict[str, object] | None


def _image(table: Table, row: Row) -> dict[str, object]:
    names = table.column_names
    if ABSENT in row:
        return {name: value for name, value in zip(names, row, strict=True) if value is not ABSENT}
    return dict(zip(names, row, strict=True))


@record(slots=True)
class RowsEvent(Event):
    """Base of the rows events: what they have in common (``rows_event.h``: Rows_event).

    ``table`` is the ``Table`` that they change, and ``table_id`` its number in the log. ``rows_flags`` bit 0 marks
    the last rows event of a statement. ``extra`` is the undecoded extra row info.
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
    """Rows of the 5.1 development trees before 5.1.18, undecoded: their table maps lack what reading them takes.

    ``table_id`` and ``rows_flags`` as for ``RowsEvent``; ``body`` is what stands behind them.
    """

    table_id: int
    rows_flags: int
    body: bytes


@record(slots=True)
class WriteRowsEvent(RowsEvent):
    """Inserted rows: ``rows`` are tuples of values in column order, as ``Table.columns`` has them."""

    rows: list[Row] = field(default_factory=list)

    def changes(self) -> Iterator[Change]:
        """The rows as inserts: ``before`` is None."""
        for row in self.rows:
            yield Change("insert", self.table, None, _image(self.table, row))


@record(slots=True)
class UpdateRowsEvent(RowsEvent):
    """Updated rows: ``rows`` are pairs of tuples, before and after, each in column order."""

    rows: list[tuple[Row, Row]] = field(default_factory=list)

    def changes(self) -> Iterator[Change]:
        """The rows as updates, with both images."""
        for before, after in self.rows:
            yield Change("update", self.table, _image(self.table, before), _image(self.table, after))


@record(slots=True)
class DeleteRowsEvent(RowsEvent):
    """Deleted rows: ``rows`` are tuples of values in column order, as ``Table.columns`` has them."""

    rows: list[Row] = field(default_factory=list)

    def changes(self) -> Iterator[Change]:
        """The rows as deletes: ``after`` is None."""
        for row in self.rows:
            yield Change("delete", self.table, _image(self.table, row), None)
