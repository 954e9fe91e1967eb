"""What the text of both families has in common: header lines, checksums, rows held back until their statement ends.

A subclass per family says what each event's own text is and in which order parts come out. Formats:
``Log_event::print_header`` and ``print_timestamp`` of both servers' log_event sources.
"""

import time
from collections.abc import Iterable
from tempfile import SpooledTemporaryFile
from typing import BinaryIO

from protocol.binlog.events import Event, EventHeader, FormatDescriptionEvent, PartialRowDataEvent, RowsEvent
from protocol.constants import CHECKSUM_SIZE, EVENT_HEADER_SIZE, RowsFlag

from .query import Session
from .rows import RowsText
from .values import Flavor

_SPOOL_MEMORY = 1 << 20
_COPY_SIZE = 1 << 16


class Spool:
    """Bytes held back, in memory up to 1 MiB and in a temporary file beyond."""

    def __init__(self) -> None:
        self._file: SpooledTemporaryFile[bytes] | None = None

    def __bool__(self) -> bool:
        return self._file is not None

    def write(self, pieces: Iterable[bytes]) -> None:
        """Hold back more."""
        if self._file is None:
            self._file = SpooledTemporaryFile(_SPOOL_MEMORY)  # noqa: SIM115
        self._file.writelines(pieces)

    def release(self, output: BinaryIO) -> None:
        """Write what was held back to ``output``, and hold nothing any more."""
        if self._file is None:
            return
        with self._file as file:
            file.seek(0)
            while data := file.read(_COPY_SIZE):
                output.write(data)
        self._file = None


def timestamp_text(timestamp: int) -> bytes:
    """``yymmdd hh:mm:ss`` in UTC, the hour padded with a space."""
    moment = time.gmtime(timestamp)
    date = (moment.tm_year % 100, moment.tm_mon, moment.tm_mday)
    return b"%02d%02d%02d %2d:%02d:%02d" % (*date, moment.tm_hour, moment.tm_min, moment.tm_sec)


class TextWriter:
    """Base of the two families' writers: one event after the other to a binary stream."""

    flavor: Flavor
    closing: bytes

    def __init__(self, output: BinaryIO, hexdump: bool) -> None:
        self.output = output
        self.hexdump = hexdump
        self.has_checksums = False
        self.header_size = EVENT_HEADER_SIZE
        self.session = Session(self.flavor)
        self.rows = RowsText(self.flavor)
        self.held_rows = Spool()

    def event(self, raw: bytes, position: int, event: Event) -> None:
        """Write one event."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write what was held back, and the end of the file's text."""
        raise NotImplementedError

    def follow(self, event: FormatDescriptionEvent) -> None:
        """What a format description says of the events behind it."""
        self.has_checksums = event.checksum_algorithm == 1
        self.header_size = event.header_size
        self.session.follow(event.server_version)

    def header_line(self, raw: bytes, header: EventHeader) -> bytes:
        """The line before an event, up to where the event's own text begins."""
        checksum = b""
        if self.has_checksums:
            checksum = b"CRC32 0x%08x " % int.from_bytes(raw[-CHECKSUM_SIZE:], "little")
        return b"#%b server id %d  end_log_pos %d %b" % (
            timestamp_text(header.timestamp),
            header.server_id,
            header.next_position,
            checksum,
        )

    def end_statement(self, event: Event) -> None:
        """Write the rows that wait for their statement's last event, if that did not come: it may not be wanted."""
        if self.held_rows and not isinstance(event, RowsEvent | PartialRowDataEvent):
            self.release_rows()

    def release_rows(self) -> None:
        """Write what is held back."""
        self.held_rows.release(self.output)

    def write_rows(self, event: RowsEvent) -> None:
        """The event's ``###`` lines, once its statement is complete: behind the headers of all its events."""
        lines = self.rows.lines(event)
        is_last = event.rows_flags & RowsFlag.STATEMENT_END
        if not is_last or self.held_rows:
            self.held_rows.write(lines)
        else:
            self.output.writelines(lines)
        if is_last:
            self.held_rows.release(self.output)
