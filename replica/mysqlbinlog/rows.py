"""The ``###`` lines of rows events: pseudo-SQL with a comment for each value, as ``print_verbose`` writes them.

Events must be decoded with the cells of ``values``, so that their rows already hold text. Formats:
``Rows_log_event::print_verbose_one_row`` of MySQL's ``log_event.cc`` and MariaDB's ``log_event_client.cc``.
"""

from collections.abc import Iterator

from protocol.binlog.events import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent
from protocol.binlog.extra_row_data import NDB, PARTITION
from protocol.records import record
from protocol.rows.bounded_cache import BoundedCache
from protocol.rows.column import ABSENT
from protocol.rows.compiler import Row
from protocol.rows.table import Table
from protocol.wire import utf8_bytes

from ..sql.quoting import identifier
from .values import Flavor, JsonDiffText, raw_metadata, type_name

_TABLES_BYTES = 32 << 20
# Memory of a column's lines, those of rows with NULLs included.
_COLUMN_SIZE = 2000
# Combinations of NULLs whose lines are kept for a table.
_FORMS_KEPT = 16


def quoted_name(name: str) -> bytes:
    """An identifier in backticks."""
    return utf8_bytes(identifier(name))


@record(frozen=True, slots=True)
class _Line:
    """The text before and after one column's value, and the whole line for NULL."""

    before: bytes
    after: bytes
    null: bytes


class _TableText:
    """The lines of a table, made once for all its rows."""

    def __init__(self, table: Table) -> None:
        self.table = table  # kept alive, because this object is found by the table's id()
        self.name = quoted_name(table.schema) + b"." + quoted_name(table.name)
        self.lines = [_column_line(table, index) for index in range(len(table.columns))]
        self._whole_row = b"".join(line.before + b"%b" + line.after for line in self.lines)
        # The lines of rows with NULLs, by which columns are NULL.
        self._with_nulls: dict[bytes, bytes] = {}

    def image(self, row: Row) -> bytes:
        """The lines of one row image; columns that the image lacks have no line."""
        if ABSENT in row:
            return b"".join(self._each(row))
        try:
            if None not in row:
                return self._whole_row % row
            form = self._form(row)
            if form is not None:
                return form % tuple([value for value in row if value is not None])
        except TypeError:
            pass  # the row holds a partial JSON update
        return b"".join(self._each(row))

    def _form(self, row: Row) -> bytes | None:
        """The lines of a row with these NULLs; None for those that come after many others."""
        nulls = bytes([value is None for value in row])
        form = self._with_nulls.get(nulls)
        if form is None and len(self._with_nulls) < _FORMS_KEPT:
            form = self._with_nulls[nulls] = b"".join(
                line.null if is_null else line.before + b"%b" + line.after
                for line, is_null in zip(self.lines, nulls, strict=True)
            )
        return form

    def _each(self, row: Row) -> Iterator[bytes]:
        for number, (value, line) in enumerate(zip(row, self.lines, strict=True), 1):
            if value is None:
                yield line.null
            elif value is not ABSENT:
                text = value.text(b"@%d" % number) if isinstance(value, JsonDiffText) else value
                assert isinstance(text, bytes)
                yield line.before + text + line.after


def _column_line(table: Table, index: int) -> _Line:
    column = table.columns[index]
    before = f"###   @{index + 1}="
    comment = f" /* {type_name(column)} meta={raw_metadata(column)} nullable={column.nullable:d}"
    return _Line(
        before.encode(),
        f"{comment} is_null=0 */\n".encode(),
        f"{before}NULL{comment} is_null=1 */\n".encode(),
    )


class RowsText:
    """Turns rows events into their ``###`` lines, row by row."""

    def __init__(self, flavor: Flavor) -> None:
        self._extra_lines = _mysql_extra if flavor == "mysql" else _mariadb_extra
        self._tables: BoundedCache[int, _TableText] = BoundedCache(_TABLES_BYTES)

    def lines(self, event: RowsEvent) -> Iterator[bytes]:
        """One piece for each row, after the event's extra row information (NDB, partitions)."""
        if event.extra:
            yield self._extra_lines(event)
        text = self._table(event.table)
        if isinstance(event, WriteRowsEvent):
            yield from _inserts(event, text)
        elif isinstance(event, UpdateRowsEvent):
            yield from _updates(event, text)
        elif isinstance(event, DeleteRowsEvent):
            yield from _deletes(event, text)

    def _table(self, table: Table) -> _TableText:
        text = self._tables.get(id(table))
        if text is None:
            text = _TableText(table)
            self._tables.keep(id(table), text, _COLUMN_SIZE * (1 + len(table.columns)))
        return text


def _inserts(event: WriteRowsEvent, text: _TableText) -> Iterator[bytes]:
    head = b"### INSERT INTO %b\n### SET\n" % text.name
    if not event.rows or all(value is ABSENT for value in event.rows[0]):
        yield b"### INSERT INTO %b VALUES ()\n" % text.name
        return
    for row in event.rows:
        yield head + text.image(row)


def _updates(event: UpdateRowsEvent, text: _TableText) -> Iterator[bytes]:
    head = b"### UPDATE %b\n### WHERE\n" % text.name
    for before, after in event.rows:
        yield b"%b%b### SET\n%b" % (head, text.image(before), text.image(after))


def _deletes(event: DeleteRowsEvent, text: _TableText) -> Iterator[bytes]:
    head = b"### DELETE FROM %b\n### WHERE\n" % text.name
    for row in event.rows:
        yield head + text.image(row)


def _mysql_extra(event: RowsEvent) -> bytes:
    """MySQL's extra row information (``rows_event.h``: Extra_row_info): tagged parts for NDB and for partitions."""
    extra, lines, position = event.extra, [], 0
    while position < len(extra):
        tag, rest = extra[position], extra[position + 1 :]
        if tag == NDB and len(rest) >= 2:
            size = rest[0]
            payload = rest[2:size]
            lines.append(
                b"### Extra row ndb info: data_format: %d, len: %d, data: 0x%b\n"
                % (rest[1], len(payload), payload.hex().upper().encode())
            )
            position += 1 + max(size, 2)
        elif tag == PARTITION:
            partition = int.from_bytes(rest[:2], "little")
            if isinstance(event, UpdateRowsEvent):
                source = int.from_bytes(rest[2:4], "little")
                words = b"source_partition: %d target_partition: %d" % (source, partition)
                position += 5
            else:
                words = b"partition: %d" % partition
                position += 3
            lines.append(b"### Extra row info for partitioning: %b\n" % words)
        else:
            break
    return b"".join(lines)


def _mariadb_extra(event: RowsEvent) -> bytes:
    """MariaDB's extra row information: tag (0), length (which counts itself and the format), format, payload."""
    if len(event.extra) < 3:
        return b""
    size, number = event.extra[1], event.extra[2]
    payload = event.extra[3 : 1 + size]
    shown = b"0x" + payload.hex().upper().encode() if payload else b""
    return b"### Extra row data format: %d, len: %d :%b\n" % (number, len(payload), shown)
