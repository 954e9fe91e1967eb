"""``BatchDecoder`` decodes many events in one call: one loop for files, one for live streams.

``EventDecoder`` decodes one event and keeps the state. A separate loop for each caller saves a call and a dozen
attribute lookups per event.
"""

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from ..constants import ALONE, ARTIFICIAL, CHECKSUM_SIZE, EVENT_HEADER_SIZE, POSITION_MASK
from ..errors import ReplicaError, TruncatedError
from ..wire import HeaderFields, LocatedEvent, unpack_event_header
from .checksum import CRC32_RESIDUE
from .damage import DAMAGE, damaged, wrong_checksum
from .decoder import EventDecoder
from .events import Event

_NO_HEADER: Final[HeaderFields] = (0, 0, 0, 0, 0, 0)


class BatchDecoder(EventDecoder):
    """An ``EventDecoder`` that also decodes many events in one call."""

    def decode_batch(self, batch: Sequence[LocatedEvent], events: list[Event]) -> None:
        """Do ``decode`` for consecutive whole events; setup that ``decode`` repeats per event is done once.

        Wanted events are appended to ``events``, also if a later event raises. The batch holds no event that changes
        how later events are read (``RawEventReader.read_batch``).
        """
        parser_of, file = self._frequent.get, self.file
        trailer = CHECKSUM_SIZE if self.checksum_enabled else 0
        verifies = self.checksum_enabled and self._verify_checksum
        try:
            for raw, position, header in batch:
                parse = parser_of(header[1])
                if parse is None or header[5] & ARTIFICIAL:
                    event = self.decode(raw, position, header)
                elif verifies and crc32(raw) != CRC32_RESIDUE:
                    raise wrong_checksum(raw)
                else:
                    event = parse(header, file, position, raw, header[3] - trailer)
                if event is not None:
                    events.append(event)
        except ReplicaError as error:
            raise self._located(error, header[1], position) from error.__cause__
        except DAMAGE as error:
            raise self._located(damaged(error), header[1], position) from error

    def decode_run(self, raws: Sequence[bytes], begin: int, events: list[Event], kept: list[bytes]) -> int:
        """Do ``decode`` for a stream's raw events from number ``begin`` on. Returns the number of the next event.

        Wanted events are appended to ``events`` and their bytes to ``kept``, also if a later event raises. The run
        ends before an event that the caller must decode by itself (``ALONE``, or artificial), before an event that
        does not begin where the one before it ends, and after the table map of a new table without column names
        (``takes_description``).
        """
        parser_of, file, position = self._frequent.get, self.file, self.position
        trailer = CHECKSUM_SIZE if self.checksum_enabled else 0
        verifies, nameless = trailer and self._verify_checksum, self._nameless
        raw, header = b"", _NO_HEADER
        # ``kept`` takes whole slices: the bytes from ``first`` up to the next unwanted event.
        number, first = begin - 1, begin
        try:
            for number, raw in enumerate(raws[begin:] if begin else raws, begin):
                header = unpack_event_header(raw)
                size = header[3]
                parse = parser_of(header[1])
                if parse is None or header[5] & ARTIFICIAL or size != len(raw):
                    if header[1] in ALONE or header[5] & ARTIFICIAL:
                        return number
                    if number > begin and header[4] not in (0, position + size & POSITION_MASK):
                        return number
                    self.position = position
                    event = self.decode(raw, None, header)
                    position = self.position
                else:
                    end = position + size
                    # If the source gives no position, the sum of the event sizes is used: see decode().
                    if end != header[4] and header[4] and end & POSITION_MASK != header[4]:
                        if number > begin:
                            return number
                        position = max(header[4] - size, 0)
                        end = position + size
                    if verifies and crc32(raw) != CRC32_RESIDUE:
                        raise wrong_checksum(raw)
                    event = parse(header, file, position, raw, size - trailer)
                    position = end
                if event is None:
                    kept += raws[first:number]
                    first = number + 1
                    continue
                events.append(event)
                if nameless:
                    break
            number += 1
        except ReplicaError as error:
            raise self._located(error, header[1], position) from error.__cause__
        except DAMAGE as error:
            if len(raw) < EVENT_HEADER_SIZE:
                raise TruncatedError(f"{len(raw)} bytes are too few for an event", file, position) from None
            raise self._located(damaged(error), header[1], position) from error
        finally:
            self.position = position
            kept += raws[first:number]
        return number

    @property
    def has_documents(self) -> bool:
        """Whether rows have come that are mainly JSON documents: they are many objects."""
        return self._row_readers.has_documents

    def forget_tables(self) -> None:
        """Treat every table as new from here on."""
        self._known_tables.forget()
        self._nameless.clear()

    def takes_description(self) -> bool:
        """Whether the last table map was of a new table without column names. True once per such table map."""
        takes = bool(self._nameless)
        self._nameless.clear()
        return takes
