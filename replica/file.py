"""Binlog files as a stream of the same events that a server sends: ``open_binlog`` and ``BinlogFile``.

It opens paths and hands their bytes to the file reader and the decoder below; it knows no connection.
"""

import os
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO, Literal, Self

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import Event
from protocol.binlog.file import RawEventReader, TornTail


class BinlogFile:
    """The events of binlog files, in order: a context manager and an iterator. Made by ``open_binlog``."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        torn: TornTail = "stop",
        verify_checksum: bool = True,
        on_schema_mismatch: Literal["error", "positional"] = "error",
    ) -> None:
        name = os.path.basename(path)
        self._file: BinaryIO = open(path, "rb")  # noqa: SIM115
        self._reader = RawEventReader(self._file.read, file=name, torn=torn)
        self._decoder = EventDecoder(
            file=name, verify_checksum=verify_checksum, on_schema_mismatch=on_schema_mismatch
        )

    def raw_events(self) -> Iterator[tuple[bytes, int, Event]]:
        """Each event as the bytes of the file, header and checksum included, with its offset and decoded."""
        reader, decoder = self._reader, self._decoder
        while (raw := reader.read_event()) is not None:
            event = decoder.decode(raw, reader.event_position)
            if event is not None:
                yield raw, reader.event_position, event

    def __iter__(self) -> Iterator[Event]:
        for _, _, event in self.raw_events():
            yield event

    def close(self) -> None:
        """Close the files."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open_binlog(
    path: str | os.PathLike[str],
    *,
    torn: TornTail = "stop",
    verify_checksum: bool = True,
    on_schema_mismatch: Literal["error", "positional"] = "error",
) -> BinlogFile:
    """Open a binlog file."""
    return BinlogFile(path, torn=torn, verify_checksum=verify_checksum, on_schema_mismatch=on_schema_mismatch)
