"""The text that both families share: header lines, checksums, and rows held back until their statement ends.

A subclass for each family writes each event's own text and decides the order of the parts. Formats:
``Log_event::print_header`` and ``print_timestamp`` of both servers' log_event sources.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, singledispatchmethod
from tempfile import SpooledTemporaryFile
from typing import BinaryIO

from protocol.binlog.events import Event, EventHeader, FormatDescriptionEvent, PartialRowDataEvent, RowsEvent
from protocol.constants import CHECKSUM_SIZE, EVENT_HEADER_SIZE, RowsFlag

from .query import Session
from .rows import RowsText
from .values import Flavor

_SPOOL_MEMORY = 1 << 20
_COPY_SIZE = 1 << 16
# Attributes that do not depend on the events read: the output, spools, caches.
_NOT_IN_STATE = frozenset({"output", "hexdump", "session", "rows", "held_rows", "_head", "_bodies"})
_STATEMENT_END = int(RowsFlag.STATEMENT_END)


class Spool:
    """Bytes held back, in memory up to 1 MiB and in a temporary file beyond."""

    def __init__(self) -> None:
        self._file: SpooledTemporaryFile[bytes] | None = None

    def __bool__(self) -> bool:
        return self._file is not None

    def write(self, pieces: Iterable[bytes]) -> None:
        """Hold back more bytes."""
        if self._file is None:
            self._file = SpooledTemporaryFile(_SPOOL_MEMORY)  # noqa: SIM115
        self._file.writelines(pieces)

    def release(self, output: BinaryIO) -> None:
        """Write the held bytes to ``output``; the spool is then empty."""
        if self._file is None:
            return
        with self._file as file:
            file.seek(0)
            while data := file.read(_COPY_SIZE):
                output.write(data)
        self._file = None


# The events of a second have the same text.
@lru_cache(maxsize=16)
def timestamp_text(timestamp: int) -> bytes:
    """``yymmdd hh:mm:ss`` in UTC, the hour padded with a space."""
    moment = time.gmtime(timestamp)
    date = (moment.tm_year % 100, moment.tm_mon, moment.tm_mday)
    return b"%02d%02d%02d %2d:%02d:%02d" % (*date, moment.tm_hour, moment.tm_min, moment.tm_sec)


class TextWriter:
    """Base of the two families' writers: writes one event after another to a binary stream."""

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
        # ``_body`` for each type of events; finding it anew for each event took a tenth of a text's time.
        self._bodies: dict[type[Event], Callable[[Event], Iterator[bytes]]] = {}

    def body(self, event: Event) -> Iterator[bytes]:
        """The event's own text, after its header line."""
        kind = type(event)
        known = self._bodies.get(kind)
        if known is None:
            method: singledispatchmethod[Iterator[bytes]] = vars(type(self))["_body"]
            known = self._bodies[kind] = method.dispatcher.dispatch(kind).__get__(self)
        return known(event)

    def event(self, raw: bytes, position: int, event: Event) -> None:
        """Write one event."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write the held bytes, and the end of the text."""
        raise NotImplementedError

    def pause(self) -> dict[str, object] | None:
        """Write what the next event would release, and return what ``resume`` needs to go on with that event.

        None if more than settings is held: another writer cannot go on. To be called between two transactions.
        """
        if self.held_rows:
            self.release_rows()
        state = {name: value for name, value in vars(self).items() if name not in _NOT_IN_STATE}
        return state | {"session": self.session.state()}

    def resume(self, state: dict[str, object], output: BinaryIO) -> None:
        """Go on where another writer has paused; ``output`` gets the text from here on."""
        settings = dict(state)
        session = settings.pop("session")
        assert isinstance(session, dict)
        vars(self.session).update(session)
        vars(self).update(settings)
        self.output = output

    def follow(self, event: FormatDescriptionEvent) -> None:
        """Take checksums, header size and version for the following events from a format description."""
        self.has_checksums = event.checksum_algorithm == 1
        self.header_size = event.header_size
        self.session.follow(event.server_version)

    def header_line(self, raw: bytes, header: EventHeader) -> bytes:
        """The line before an event, up to the event's own text."""
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
        """Write held rows if their statement's last event has not come; it may be filtered out."""
        if self.held_rows and not isinstance(event, RowsEvent | PartialRowDataEvent):
            self.release_rows()

    def release_rows(self) -> None:
        """Write the held rows."""
        self.held_rows.release(self.output)

    def write_rows(self, event: RowsEvent) -> None:
        """Write the event's ``###`` lines once its statement is complete, after the headers of all its events."""
        lines = self.rows.lines(event)
        is_last = event.rows_flags & _STATEMENT_END
        if not is_last or self.held_rows:
            self.held_rows.write(lines)
        else:
            self.output.writelines(lines)
        if is_last:
            self.held_rows.release(self.output)
