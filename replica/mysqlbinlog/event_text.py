"""Events as the text of ``mysqlbinlog`` (MySQL) and ``mariadb-binlog``, with ``-vv --base64-output=decode-rows``.

The ``# at`` lines, the header lines and the ``###`` lines equal the tools' byte for byte (with ``TZ=UTC``). The
statements between them are complete, but not always worded like the tools'. Events must be decoded with
``TextRenderer.cells``. The output is a binary stream, because strings in the log may hold any bytes.
"""

import copy
from collections.abc import Iterable
from io import BytesIO
from typing import IO, BinaryIO, cast

from protocol.binlog.checksum import crc32_matches, is_mariadb_version
from protocol.binlog.events import Event, FormatDescriptionEvent
from protocol.constants import EVENT_HEADER_SIZE
from protocol.records import record

from .mariadb import MariadbText
from .mysql import MysqlText
from .values import Flavor, TextCells
from .writer import TextWriter

_WRITERS: dict[Flavor, type[TextWriter]] = {"mysql": MysqlText, "mariadb": MariadbText}


@record(frozen=True, slots=True)
class TextState:
    """The settings in the text before a place between two transactions: after equal states comes equal text."""

    flavor: Flavor
    settings: dict[str, object]


class TextRenderer:
    """Writes events to ``output``, each with ``render``, and the end of the text with ``finish``.

        renderer = TextRenderer(sys.stdout.buffer)
        with open_binlog("binlog.000042", cells=renderer.cells) as log:
            render_text(log.raw_events(), renderer)

    The events must come from a decoder that was made with ``cells=renderer.cells``. ``flavor`` chooses the tool to
    follow; without it the first format description decides. ``hexdump`` adds the annotated dump of each event. If a
    statement's rows take several events, up to 1 MiB of their text is kept in memory, the rest in a temporary file.
    """

    def __init__(
        self, output: BinaryIO | IO[bytes], hexdump: bool = False, *, flavor: Flavor | None = None
    ) -> None:
        self.cells = TextCells(flavor or "mysql")
        self._output = cast("BinaryIO", output)
        self._hexdump = hexdump
        self._flavor = flavor
        self._writer: TextWriter | None = None

    def render(self, raw: bytes, position: int, event: Event) -> None:
        """Write one event: ``raw`` are its bytes with header and checksum, ``position`` its offset in the file.

        The events inside a compressed transaction follow it, with its position; their ``raw`` is not used.
        """
        if self._writer is None:
            self._writer = self._begin(event)
            # For a log without a format description.
            self._writer.has_checksums = len(raw) > EVENT_HEADER_SIZE and crc32_matches(raw)
        self._writer.event(raw, position, event)

    def pause(self) -> TextState | None:
        """Write what the next event would release, and return what another renderer needs to go on with that event.

        None if it could not: then this one has to go on. To be called between two transactions, after an event.
        """
        state = None if self._writer is None else self._writer.pause()
        return None if state is None or self._flavor is None else TextState(self._flavor, state)

    def resume(self, state: TextState) -> None:
        """Go on where another renderer has paused, in place of the first event."""
        self._flavor = self.cells.flavor = state.flavor
        self._writer = _WRITERS[state.flavor](BytesIO(), self._hexdump)
        self._writer.resume(copy.deepcopy(state.settings), self._output)

    def finish(self) -> None:
        """Write pending rows, and the text that the tools write at the end of a log."""
        (self._writer or self._begin(None)).finish()

    def _begin(self, event: Event | None) -> TextWriter:
        if self._flavor is None:
            is_mariadb = isinstance(event, FormatDescriptionEvent) and is_mariadb_version(
                event.server_version
            )
            self._flavor = self.cells.flavor = "mariadb" if is_mariadb else "mysql"
        return _WRITERS[self._flavor](self._output, self._hexdump)


def render_text(events: Iterable[tuple[bytes, int, Event]], renderer: TextRenderer) -> None:
    """Render all of ``events`` (raw, position, event), to the end of the text."""
    for raw, position, event in events:
        renderer.render(raw, position, event)
    renderer.finish()
