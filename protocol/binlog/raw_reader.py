"""Splits the bytes of one binlog file into raw events with their offsets, in bounded memory.

The bytes come from a ``read(size) -> bytes`` function; this module opens no file. It knows the magic bytes, the event
header and the encryption of a file; the decoder knows the events' content. After damage it searches for the next
bytes that can be an event header. The header's layout is in MySQL's ``binlog_event.h``.
"""

import re
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from ..constants import (
    BINLOG_MAGIC,
    CHECKSUM_SIZE,
    ENCRYPTED_BINLOG_MAGIC,
    ENCRYPTED_PREFIX_SIZE,
    ENCRYPTION_HEADER_SIZE,
    EVENT_HEADER_SIZE,
    EVENT_TYPE_OFFSET,
    MAX_EVENT_SIZE,
    POSITION_MASK,
    EventFlag,
    EventType,
)
from ..errors import DecodeError, TruncatedError, UnsupportedEventError
from ..wire import HeaderFields, LocatedEvent, ReadBytes, too_large, unpack_event_header
from .checksum import CRC32_ALGORITHM, algorithm_of, crc32_matches
from .keys import LogKeys

if TYPE_CHECKING:
    # The ciphers take 20 ms to import, and few logs are encrypted.
    from .encryption import EventDecryptor

TornTail = Literal["stop", "raise"]

CHUNK_SIZE: Final = 1 << 20
# The kernel maps larger pieces anew at each read and clears them, which takes 5 % of the time of reading a file.
_READ_SIZE: Final = 1 << 17

_OLDEST_HEADER_SIZE: Final = 13
_START_V3_SIZE: Final = 56
_SERVER_VERSION_SIZE: Final = 50
# log_event.cc, Format_description_event: the server versions with permuted event types.
_OTHER_TYPES: Final = r"5\.(1\.[1-5]-a_drop5|1\.4-a_drop6|2\.[0-2]-a_drop6)"
_KNOWN_TYPES: Final = frozenset(EventType) - {EventType.UNKNOWN, EventType.START_V3}
# The further flags that servers write or wrote: FORCED_ROTATE, UPDATE_TABLE_MAP_VERSION, MariaDB's ACCEPT_OWN.
_KNOWN_FLAGS: Final = sum(EventFlag) | 0x0002 | 0x0010 | 0x4000
_CHANGING_STATE: Final = frozenset({EventType.FORMAT_DESCRIPTION, EventType.MARIADB_START_ENCRYPTION})
# Types that end a batch: those that change the reader's state, and those that hold several log events or none.
_NOT_IN_BATCHES: Final = _CHANGING_STATE | {
    EventType.ROTATE,
    EventType.HEARTBEAT,
    EventType.HEARTBEAT_V2,
    EventType.TRANSACTION_PAYLOAD,
    EventType.MARIADB_PARTIAL_ROW_DATA,
}
#: Bytes of a batch: events are decoded this far ahead of the user, which takes little memory. With 8 KB it would have
#: two rows events of documents, which then take 3 % more time; with 4 KB, transactions of one row take 5 % more.
BATCH_BYTES: Final = 6 << 10
# In relay logs these may carry a position in another file.
_ELSEWHERE: Final = frozenset({EventType.FORMAT_DESCRIPTION, EventType.ROTATE})


class RawEventReader:
    """The decrypted raw events of one binlog or relay log file, one at a time.

    ``position`` is the offset of the next event, ``event_position`` the offset of the last event read. Both are
    offsets in the decrypted file; ``read`` starts at the offset ``base``. With ``torn="stop"`` an incomplete last
    event, or zeros at the end, end the file, and ``torn_bytes`` counts the bytes left over; ``"raise"`` raises
    ``TruncatedError`` instead. ``has_checksums`` says whether events carry a CRC32, as the format description says
    or, if that is damaged or missing, as the first event with a right CRC32 shows (None until then).

    An event of more than ``max_event_bytes`` is a ``DecodeError``, raised before it is read into memory.

    The constructor raises ``DecodeError`` if the bytes are no binlog file of version 4 (``UnsupportedEventError``
    for formats of servers before 5.0, which the message names). If a key is missing or wrong, the constructor or the
    first ``read_event`` raises ``ConfigurationError``.
    """

    def __init__(
        self,
        read: ReadBytes,
        *,
        file: str = "",
        torn: TornTail = "stop",
        keys: LogKeys | None = None,
        base: int = 0,
        max_event_bytes: int = MAX_EVENT_SIZE,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self.file = file
        self._batch_bytes = batch_bytes
        self.event_position = 0
        self.torn_bytes = 0
        self.has_checksums: bool | None = None
        self._read = read
        self._torn = torn
        self._keys = keys or LogKeys()
        self._decryptor: EventDecryptor | None = None
        self._header: HeaderFields | None = None  # header of the last event read
        self._buffer = b""
        self._limit = max_event_bytes
        self._base = base  # offset of the buffer's first byte in the file
        self._start = 0  # offset of the last event in the buffer
        self._next = 0  # offset of the next event in the buffer
        self._open()

    @property
    def position(self) -> int:
        """Offset of the next event in the file."""
        return self._base + self._next

    def read_event(self) -> bytes | None:
        """The next raw event, header and checksum included; None at the end of the file.

        Raises ``DecodeError`` if there is no event at this place, and again until ``resynchronize`` is called.
        """
        start = self._start = self._next
        self.event_position = self._base + start
        if len(self._buffer) - start < EVENT_HEADER_SIZE:
            if not self._fill(EVENT_HEADER_SIZE):
                self._end()
                return None
            start = self._start
        header = unpack_event_header(self._buffer, start)
        size = header[3]
        if not EVENT_HEADER_SIZE <= size <= self._limit:
            if not size and self._is_zero_tail():
                self._end()
                return None
            raise self._impossible_size(size, None if self._decryptor else header[1])
        if len(self._buffer) - start < size:
            if not self._fill(size):
                self._cut_short(size)
                return None
            start = self._start
        end = self._next = start + size
        raw = self._buffer[start:end]
        if self._decryptor is not None:
            raw = self._decryptor.decrypt(raw, self.event_position)
            header = unpack_event_header(raw)
        self._header = header
        if self.has_checksums is None or header[1] in _CHANGING_STATE:
            self._update_state(raw)
        return raw

    def read_batch(self) -> list[LocatedEvent]:
        """The next ordinary events of the buffer: a dozen bytecodes an event instead of two hundred.

        The batch is empty where ``read_event`` has to be called: at the end of the buffer, at damage, in encrypted
        files, and at events that change the reader's state or are not exactly one log event (FORMAT_DESCRIPTION,
        START_ENCRYPTION, ROTATE, TRANSACTION_PAYLOAD, MARIADB_PARTIAL_ROW_DATA, heartbeats).
        """
        batch: list[LocatedEvent] = []
        if self._decryptor is not None or self.has_checksums is None:
            return batch
        buffer, base, start = self._buffer, self._base, self._next
        # An event of more than max_event_bytes is left to read_event().
        size = min(len(buffer), start + self._limit)
        last = min(size - EVENT_HEADER_SIZE, start + self._batch_bytes)
        while start <= last:
            header = unpack_event_header(buffer, start)
            end = start + header[3]
            if end > size or header[3] < EVENT_HEADER_SIZE or header[1] in _NOT_IN_BATCHES:
                break
            batch.append((buffer[start:end], base + start, header))
            start = end
        if batch:
            self.step_back(*batch[-1])
        return batch

    def bytes_of(self, position: int, size: int) -> bytes:
        """The bytes of an event of the last batch."""
        start = position - self._base
        return self._buffer[start : start + size]

    def step_back(self, raw: bytes, position: int, header: HeaderFields) -> None:
        """Make an event of the last batch the last event read; reading continues after it."""
        self.event_position = position
        self._start = position - self._base
        self._next = self._start + len(raw)
        self._header = header

    def resynchronize(self) -> int:
        """Skip the event that could not be read or decoded; returns the number of bytes up to the next event.

        A candidate counts as an event if its header is possible and its checksum is right; without checksums its
        position or the next event's position must be right. A candidate with a wrong position is only examined if it
        is smaller than 1 MiB.
        """
        end = self._own_end()
        self._next = max(self._start, self.event_position + 1 - self._base) if end is None else end
        if end is None:
            self._find_event()
        self._header = None
        return self.position - self.event_position

    def _update_state(self, raw: bytes) -> None:
        """Note checksums and encryption, which decide how the next events are read."""
        event_type = raw[EVENT_TYPE_OFFSET]
        if event_type != EventType.FORMAT_DESCRIPTION and self.event_position == len(BINLOG_MAGIC):
            # No later check finds this damage if events have no checksums.
            self._next = self._start
            raise self._error("the file does not begin with a format description", event_type)
        if event_type == EventType.FORMAT_DESCRIPTION:
            algorithm = algorithm_of(raw)
            # Servers with checksums always give this event a right one, even if the other events have none.
            is_known = algorithm is None or crc32_matches(raw)
            self.has_checksums = algorithm == CRC32_ALGORITHM if is_known else None
        elif self.has_checksums is None and crc32_matches(raw):
            self.has_checksums = True
        if event_type == EventType.MARIADB_START_ENCRYPTION and self._decryptor is None:
            self._start_decrypting(raw)

    # The buffer holds the last event, for resynchronize(), and the bytes read after it.

    def _have(self, end: int) -> bool:
        """Read until the buffer has ``end`` bytes; False if the file ends before."""
        missing = end - len(self._buffer)
        if missing <= 0:
            return True
        parts = [self._buffer]
        while missing > 0 and (part := self._read(_READ_SIZE)):
            parts.append(part)
            missing -= len(part)
        self._buffer = b"".join(parts)
        return missing <= 0

    def _drop(self, count: int) -> None:
        """Forget the first ``count`` bytes of the buffer."""
        self._buffer = self._buffer[count:]
        self._base += count
        self._start -= count
        self._next -= count

    def _fill(self, size: int) -> bool:
        """Read ``size`` bytes of the next event, and drop the bytes before it; False if the file ends before."""
        self._drop(self._start)
        return self._have(size)

    # The file's beginning and end.

    def _open(self) -> None:
        magic_size = len(BINLOG_MAGIC)
        if self._have(magic_size) and self._buffer[:magic_size] == ENCRYPTED_BINLOG_MAGIC:
            self._open_encrypted()
        if self._buffer[:magic_size] == BINLOG_MAGIC:
            self._start = self._next = magic_size
            if not self._base:
                self._refuse_old_version()
        elif BINLOG_MAGIC.startswith(self._buffer):
            self._end()
            self._buffer = b""
        elif not self._is_event(0, None):
            # A later piece of a file that was split has no magic bytes but begins with an event.
            raise self._error(
                f"no binary log: the file begins with the bytes {self._buffer[:magic_size].hex(' ')}"
            )

    def _open_encrypted(self) -> None:
        if not self._have(ENCRYPTION_HEADER_SIZE):
            raise TruncatedError("the header of an encrypted log is cut short", self.file, 0)
        from .encryption import EncryptionHeader

        try:
            header = EncryptionHeader.parse(self._buffer[:ENCRYPTION_HEADER_SIZE])
        except DecodeError as error:
            raise type(error)(error.reason, self.file, 0) from None
        rest, read = self._buffer[ENCRYPTION_HEADER_SIZE:], self._read
        key = self._keys.mysql_key(header.key_id)

        def read_rest(size: int) -> bytes:
            nonlocal rest
            chunk, rest = rest, b""
            return chunk or read(size)

        self._read = header.decrypting(read_rest, key)
        self._buffer = b""
        if self._have(len(BINLOG_MAGIC)) and not self._buffer.startswith(BINLOG_MAGIC):
            raise header.wrong_key()

    def _refuse_old_version(self) -> None:
        """Refuse binlog versions 1 (3.23) and 3 (4.0, 4.1), which begin with START_V3, and trees with other types."""
        self._have(self._next + EVENT_HEADER_SIZE + 2 + _SERVER_VERSION_SIZE)
        event = self._buffer[self._next :]
        event_type = int.from_bytes(event[EVENT_TYPE_OFFSET : EVENT_TYPE_OFFSET + 1], "little")
        # In version 1 the header ends after the size.
        is_short = int.from_bytes(event[9:13], "little") < EVENT_HEADER_SIZE + _START_V3_SIZE
        body = event[_OLDEST_HEADER_SIZE if is_short else EVENT_HEADER_SIZE :]
        server = body[2 : 2 + _SERVER_VERSION_SIZE].split(b"\0", 1)[0].decode("ascii", "replace")
        if event_type == EventType.START_V3:
            version = int.from_bytes(body[:2], "little")
            reason = (
                f"binlog version {version} of server {server}: versions before 4 (MySQL 5.0) cannot be read"
            )
        elif event_type == EventType.FORMAT_DESCRIPTION and _has_other_types(server):
            reason = f"the log is from server {server}, a development tree with its own event numbers"
        else:
            return
        raise UnsupportedEventError(reason, self.file, self.position, event_type)

    def _end(self) -> None:
        left = len(self._buffer) - self._next
        if left and self._torn == "raise":
            raise TruncatedError(
                f"the file ends with {left} bytes of an incomplete event", self.file, self.position
            )
        self.torn_bytes += left
        self._next = len(self._buffer)

    def _cut_short(self, size: int) -> None:
        """The file ends inside an event: the file is torn, or the event's size is damaged."""
        left = len(self._buffer) - self._start
        header = self._header_at(self._start)
        if not self._is_torn(header) and left >= ENCRYPTED_PREFIX_SIZE:
            raise self._error(
                f"the header announces an event of {size} bytes, but the file holds only {left} of them",
                header and header[1],
            )
        self._end()

    def _is_torn(self, header: HeaderFields | None) -> bool:
        if header is None:
            return False
        if _ends_at(header, self.event_position + header[3]):
            return True
        # The position is not right: the header must follow the previous event, and no event may be inside this one.
        return self._may_follow(header, self._header) and self._search(self._start + 1) is None

    def _is_zero_tail(self) -> bool:
        """Whether only zeros are left, as after a power loss. The zeros are dropped from the buffer."""
        self._drop(self._start)
        zeros = 0
        while not self._buffer.strip(b"\0"):
            zeros += len(self._buffer)
            self._base += len(self._buffer)
            self._buffer = self._read(_READ_SIZE)
            if not self._buffer:
                self.torn_bytes += zeros
                if self._torn == "raise":
                    raise TruncatedError(
                        f"the file ends with {zeros} zero bytes", self.file, self.event_position
                    )
                return True
        return False

    def _impossible_size(self, size: int, event_type: int | None) -> DecodeError:
        if size < EVENT_HEADER_SIZE:
            return self._error(f"the header announces an event of {size} bytes", event_type)
        return self._error(too_large("an event", size, self._limit), event_type)

    def _error(self, reason: str, event_type: int | None = None) -> DecodeError:
        return DecodeError(reason, self.file, self.event_position, event_type)

    # Encrypted events.

    def _start_decrypting(self, raw: bytes) -> None:
        from .encryption import EventDecryptor

        try:
            decryptor = EventDecryptor(self._keys.mariadb_key, raw[EVENT_HEADER_SIZE:])
        except DecodeError as error:
            raise type(error)(error.reason, self.file, self.event_position, raw[EVENT_TYPE_OFFSET]) from None
        self._decryptor = decryptor
        if not self._have(self._next + ENCRYPTED_PREFIX_SIZE):
            return
        if not self._is_decrypted():
            decryptor.use_counter_mode()
            if not self._is_decrypted():
                raise decryptor.wrong_key()

    def _is_decrypted(self) -> bool:
        """Whether the next event's position is right, or 0 as in a relay log's first ROTATE."""
        header = self._header_at(self._next)
        return header is not None and (not header[4] or _ends_at(header, self.position + header[3]))

    # Damage: the search for the next event.

    def _header_at(self, offset: int) -> HeaderFields | None:
        """The header at this offset of the buffer; None if the file is too short or no header has these values."""
        if not self._have(offset + EVENT_HEADER_SIZE):
            return None
        header = unpack_event_header(self._buffer, offset)
        if self._decryptor is not None:
            prefix_size = min(header[3], ENCRYPTED_PREFIX_SIZE)
            if prefix_size < EVENT_HEADER_SIZE or not self._have(offset + prefix_size):
                return None
            prefix = self._buffer[offset : offset + prefix_size]
            header = unpack_event_header(self._decryptor.decrypt(prefix, self._base + offset))
        _, event_type, _, size, _, flags = header
        possible = (
            event_type in _KNOWN_TYPES
            and EVENT_HEADER_SIZE <= size <= self._limit
            and not flags & ~_KNOWN_FLAGS
        )
        return header if possible else None

    def _fits(self, header: HeaderFields, position: int, previous: HeaderFields | None) -> bool:
        """Whether a header's ``next_position`` fits this position, or the header ``previous`` of the event before."""
        return _ends_at(header, position + header[3]) or self._may_follow(header, previous)

    @staticmethod
    def _may_follow(header: HeaderFields, previous: HeaderFields | None) -> bool:
        """Whether a header's ``next_position`` follows from the previous header's; False without a previous header.

        Relay logs and parts of a log carry their source's positions; MariaDB 11.4 has none inside transactions.
        """
        if previous is None:
            return False
        _, event_type, _, size, next_position, flags = header
        if not next_position or event_type in _ELSEWHERE or flags & EventFlag.ARTIFICIAL:
            return True
        return not previous[4] or previous[1] in _ELSEWHERE or _ends_at(header, previous[4] + size)

    def _is_event(self, offset: int, previous: HeaderFields | None) -> bool:
        """Whether there is an event at this offset of the buffer; ``previous`` is the header before, if known."""
        header = self._header_at(offset)
        if header is None:
            return False
        size = header[3]
        fits = self._fits(header, self._base + offset, previous)
        if self.has_checksums:
            return (fits or size < CHUNK_SIZE) and self._has_right_checksum(offset, size)
        return fits or (size < CHUNK_SIZE and self._is_followed(offset, header))

    def _has_right_checksum(self, offset: int, size: int) -> bool:
        if size < EVENT_HEADER_SIZE + CHECKSUM_SIZE or not self._have(offset + size):
            return False
        raw = self._buffer[offset : offset + size]
        if self._decryptor is not None:
            raw = self._decryptor.decrypt(raw, self._base + offset)
        return crc32_matches(raw)

    def _is_followed(self, offset: int, header: HeaderFields) -> bool:
        """Whether the file ends after this event, or the next event's position follows from this event's."""
        end = offset + header[3]
        if not self._have(end + 1):
            return len(self._buffer) == end
        follower = self._header_at(end)
        return follower is not None and self._fits(follower, self._base + end, header)

    def _own_end(self) -> int | None:
        """The end of the event that could not be decoded, if the file ends or another event starts there."""
        header = self._header_at(self._start)
        if header is None:
            return None
        end = self._start + header[3]
        if not self._have(end + 1):
            return end if len(self._buffer) == end else None
        follower = self._header_at(end)
        if follower is None:
            return None
        # An event with the right position counts, even if it is damaged, too.
        is_right = _ends_at(follower, self._base + end + follower[3]) or (
            header[4] and _ends_at(follower, header[4] + follower[3])
        )
        return end if is_right or self._is_event(end, header) else None

    def _find_event(self) -> None:
        """Move to the first event from ``_next`` on, or to the end of the file if there is none."""
        while (start := self._search(self._next)) is None:
            # The buffer may end with the first bytes of a header.
            searched = max(self._next, len(self._buffer) - ENCRYPTED_PREFIX_SIZE + 1)
            self._drop(min(searched, len(self._buffer)))
            self._next = 0
            if not self._have(len(self._buffer) + 1):
                start = len(self._buffer)
                break
        self._next = start

    def _search(self, offset: int) -> int | None:
        """The offset of the first event in the buffer, from ``offset`` on; None if there is none."""
        pattern = _candidate_pattern(is_encrypted=self._decryptor is not None)
        while match := pattern.search(self._buffer, offset):
            offset = match.start()
            if self._is_event(offset, None):
                return offset
            offset += 1
        return None


def _ends_at(header: HeaderFields, end: int) -> bool:
    return header[4] == end & POSITION_MASK


def _has_other_types(server_version: str) -> bool:
    return "-a_drop" in server_version and re.match(_OTHER_TYPES, server_version) is not None


@cache
def _candidate_pattern(is_encrypted: bool) -> re.Pattern[bytes]:
    """Matches bytes that could be a header, by the type and the high bytes of size and flags. Matches may overlap."""
    if is_encrypted:
        return re.compile(rb"(?=.{12}[\x00-\x40].{7})", re.DOTALL)
    types = b"".join(re.escape(bytes([value])) for value in sorted(_KNOWN_TYPES))
    flags = rb"[\x00-\x03\x40-\x43\x80-\x83\xc0-\xc3]"
    return re.compile(rb"(?=.{4}[" + types + rb"].{7}[\x00-\x40].{5}" + flags + rb")", re.DOTALL)
