"""Frames of the client/server protocol: payloads are split into numbered frames and joined again.

A frame is a 3-byte length, a sequence number and up to 16 MB - 1 of payload; a payload that fills a frame
continues in the next frame, which may be empty (MySQL's ``page_protocol_basic_packets``). Both sides share one frame
counter, which restarts with each command. This module does not look into payloads.

Received chunks are joined only once a whole frame is there, so that no byte of a large frame is copied again with
each chunk. The frames of a large payload are gathered in a buffer, which becomes the payload: one of n bytes takes at
most about n bytes of memory and an eighth while it arrives. Large chunks are read where they were received: only the
frame that stands in two chunks is copied.
"""

import struct
from collections import deque
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TypeVar

from ..constants import MAX_FRAME_PAYLOAD
from ..errors import DecodeError, ProtocolError, ReplicaError
from ..wire import too_large, unpack_u32

Item = TypeVar("Item")
#: Reads frames into items. Arguments: items, bytes, the place of the first frame, the end of the bytes to read, the
#: first frame's number << 24, the largest length. Returns the place and the number << 24 of the first frame that was
#: not read, and the place of the last frame that was read.
Walk = Callable[[list[Item], bytes, int, int, int, int], tuple[int, int, int]]
#: Payloads without their prefix -> their items.
Read = Callable[[Sequence[bytes]], list[Item]]

HEADER_SIZE = 4
#: The largest payload before login: greetings and authentication data take a few hundred bytes.
MAX_LOGIN_PAYLOAD = 1 << 20
#: The largest payload after login: the highest max_allowed_packet is 1 GB, plus an event's header
#: (``MAX_LOG_EVENT_HEADER``).
MAX_PAYLOAD = (1 << 30) + (1 << 20)

#: Frames are read in blocks of this many bytes if more have arrived. Events that make many objects, such as JSON
#: documents, are not read in larger ones: with 64 KB so many objects are alive at a time that the garbage collector
#: ran 307 times in 24 MB of documents, a twelfth of the time, and 11 times with this. With 16 KB a stream took 4 %
#: longer, and one of small nested documents 37 %.
BULK_SIZE = 1 << 15
#: The same for other events of a stream, which counts once per block what has been done: with 32 KB a log of 145 MB
#: took 1.296 s of processor time, with this 1.255; one-row transactions 0.485 s and 0.478.
LARGE_BULK_SIZE = 1 << 16
# Smaller chunks are joined before they are read, in pieces of this size.
_PIECE_SIZE = 1 << 16

# By the length of a prefix: the function that unpacks a frame's header and the prefix behind it.
_PREFIXED_HEADERS = tuple(struct.Struct(f"<I{length}s").unpack_from for length in range(5))

# Bytes in front of an event: a zero, and the two of a semi-synchronous source.
_EVENT_PREFIX = 3
#: In a frame's header as an integer: 1 of the frame's number, and all bits of the number.
SEQUENCE_STEP = 1 << 24
SEQUENCES = 0xFF << 24


class FrameStream:
    """The frames of one connection in both directions, with their common counter.

    ``sequence`` is the number of the next frame in either direction. ``max_payload`` limits received payloads.
    """

    def __init__(self, max_payload: int = MAX_LOGIN_PAYLOAD) -> None:
        self.sequence = 0
        self.max_payload = max_payload
        self._has_events = False
        self._data = b""
        self._position = 0
        self._chunks: deque[bytes] = deque()
        self._chunk_position = 0  # the first unread byte of the first chunk
        self._size = 0  # unread bytes: those of _data from _position on, and those of _chunks
        self._wanted = HEADER_SIZE  # with fewer unread bytes no frame can be complete
        self._parts: BytesIO | None = None  # the frames read so far of a payload of several frames
        self._parts_size = 0
        self._removed = b""  # a prefix that the first of them had
        self._restarts: tuple[int, ...] = ()
        self._unread: bytes | None = None

    @property
    def buffered(self) -> int:
        """Number of bytes that were received and not yet returned as payloads."""
        return self._size + self._parts_size + len(self._unread or b"")

    @property
    def missing(self) -> int:
        """Minimum number of bytes to receive before ``read()`` can return more; 0 if it may have more already."""
        return max(self._wanted - self._size, 0)

    def limit_events(self, max_event_bytes: int) -> None:
        """From now on payloads are events: a larger one is a ``DecodeError``, which names this limit."""
        self.max_payload = max_event_bytes + _EVENT_PREFIX
        self._has_events = True

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer, cut anywhere."""
        if data:
            self._chunks.append(data)
            self._size += len(data)

    def start_command(self) -> None:
        """Number the next frame 0, in either direction: it begins a command."""
        self.sequence = 0

    def allow_restart(self, sequence: int) -> None:
        """Accept this number, too, for the peer's next frame, besides the number that is due."""
        self._restarts = (*self._restarts, sequence)

    def go_on_from(self, other: "FrameStream") -> None:
        """Replace another stream between two payloads: take over its counter and its unread bytes."""
        self.sequence = other.sequence
        self.receive(other.rest())

    def rest(self) -> bytes:
        """The bytes that were received and not yet read."""
        return self._joined(self._size)[self._position :]

    def encode(self, payload: bytes) -> bytes:
        """The frames of a payload, numbered from ``sequence`` on."""
        parts: list[bytes] = []
        for start in range(0, len(payload) + 1, MAX_FRAME_PAYLOAD):
            part = payload[start : start + MAX_FRAME_PAYLOAD]
            parts += ((len(part) | self.sequence << 24).to_bytes(HEADER_SIZE, "little"), part)
            self.sequence = (self.sequence + 1) & 0xFF
        return b"".join(parts)

    def read(self) -> bytes | None:
        """The next whole payload, or None until more is received."""
        if self._unread is not None:
            payload, self._unread = self._unread, None
            return payload
        taken = self._take(b"")
        return None if taken is None else self._removed + taken

    def _take(self, prefix: bytes) -> bytes | None:
        """The next whole payload without ``_removed``: the prefix, if a payload of several frames begins with it."""
        while (frame := self._read_frame()) is not None:
            if self._parts is None:
                is_large = len(frame) == MAX_FRAME_PAYLOAD
                self._removed = prefix if is_large and frame.startswith(prefix) else b""
                if not is_large:
                    return frame
                self._parts = BytesIO()
                self._parts.write(memoryview(frame)[len(self._removed) :])
            else:
                self._parts.write(frame)
            self._parts_size += len(frame)
            if len(frame) < MAX_FRAME_PAYLOAD:
                parts, self._parts, self._parts_size = self._parts, None, 0
                # The buffer's own bytes: they are not copied.
                return parts.getvalue()
        return None

    def read_prefixed(self, prefix: bytes, bulk_size: int = BULK_SIZE) -> list[bytes]:
        """The next complete payloads up to the first without this prefix, with the prefix removed; for bulk reading.

        Not many more than ``bulk_size`` bytes are taken at a time, so that what is made of them stays in the
        processor's cache: decoding an event of 130 bytes takes 1.6 us in runs of 250, and 2.2 us in runs of 2,000.
        The prefix has 1 to 4 bytes. An empty list means that more data is needed, or the next payload has another
        prefix; then ``read()`` returns that payload.
        """
        payloads: list[bytes] = []
        last = self._size - bulk_size
        while self._unread is None and (self._size > last or not payloads):
            self._read_small(prefix, payloads, self._size - last)
            if payloads and self._size <= last:
                break
            # The fast loop leaves payloads of several frames, gaps in the numbers, other prefixes, and a frame
            # within 8 bytes of the end.
            payload = self._read_without(prefix)
            if payload is None:
                break
            payloads.append(payload)
        return payloads

    def read_walked(
        self, prefix: bytes, walk: "Walk[Item]", read: "Read[Item]"
    ) -> tuple[list[Item], int, bytes]:
        """As ``read_prefixed``, but payloads are made into items where they stand: no bytes are copied for them.

        ``walk`` reads frames of a run of bytes until it comes to one that it leaves to ``read``, which gets a payload
        without its prefix. Returns the items, the bytes of their payloads, and the last payload.
        """
        items: list[Item] = []
        size, last = 0, b""
        goal = self._size - BULK_SIZE
        while self._unread is None and (self._size > goal or not items):
            walked, found = self._walk(walk, items, len(prefix))
            size, last = size + walked, found or last
            if items and self._size <= goal:
                break
            payload = self._read_without(prefix)
            if payload is None:
                break
            last = payload
            size += len(last)
            items += read([last])
        return items, size, last

    def walk(self, walk: "Walk[Item]", items: list[Item]) -> int:
        """Have ``walk`` read payloads where they stand, as far as it goes; returns their bytes. ``read`` goes on."""
        size = 0
        while walked := self._walk(walk, items, 0)[0]:
            size += walked
        return size

    def _read_without(self, prefix: bytes) -> bytes | None:
        """The next payload without its prefix; None if more data is needed, or if it has another prefix."""
        payload = self._take(prefix)
        if payload is None or self._removed == prefix:
            return payload
        whole = self._removed + payload
        if not whole.startswith(prefix):
            self._unread = whole
            return None
        return whole[len(prefix) :]

    def _walk(self, walk: "Walk[Item]", items: list[Item], prefix: int) -> tuple[int, bytes]:
        if self._size < self._wanted or self._parts is not None or self._restarts:
            return 0, b""
        data = self._joined(self._wanted)
        start, before = self._position, len(items)
        limit = min(len(data), start + BULK_SIZE)
        largest = min(MAX_FRAME_PAYLOAD - 1, self.max_payload)
        position, sequence, last = walk(items, data, start, limit, self.sequence << 24, largest)
        self.sequence = sequence >> 24
        self._position = position
        self._size -= position - start
        if position == start:
            return 0, b""
        self._wanted = HEADER_SIZE
        skip = HEADER_SIZE + prefix
        return position - start - skip * (len(items) - before), data[last + skip : position]

    def _read_small(self, prefix: bytes, payloads: list[bytes], bulk_size: int) -> None:
        """The hot loop of a dump: 5 million frames of 60 bytes a second (one AMD EPYC core, Python 3.11).

        Each frame costs one unpack and one slice. One comparison checks the length and the sequence number: the
        header as an integer minus the expected number is the length, which a wrong number puts out of range. A frame
        larger than the limit ends beyond ``size``.
        """
        if self._size < self._wanted or self._parts is not None or self._restarts:
            return
        data = self._joined(self._wanted)
        position = start = self._position
        size = min(len(data), start + min(MAX_FRAME_PAYLOAD - 1, self.max_payload))
        limit = min(len(data) - 8, start + bulk_size)
        sequence = self.sequence << 24
        before = HEADER_SIZE + len(prefix)
        unpack = _PREFIXED_HEADERS[len(prefix)]
        append = payloads.append
        while position <= limit:
            word, head = unpack(data, position)
            first = position + before
            end = position + HEADER_SIZE + word - sequence
            if head != prefix or not first <= end <= size:
                break
            append(data[first:end])
            position = end
            sequence = sequence + SEQUENCE_STEP & SEQUENCES
        self.sequence = sequence >> 24
        self._position = position
        self._size -= position - start
        self._wanted = HEADER_SIZE

    def _read_frame(self) -> bytes | None:
        if self._size < self._wanted:
            return None
        (word,) = unpack_u32(self._joined(self._wanted), self._position)
        sequence, length = word >> 24, word & MAX_FRAME_PAYLOAD
        if sequence != self.sequence and sequence not in self._restarts:
            raise ProtocolError(
                f"packets out of order: frame number {sequence} came where {self.sequence} was due"
            )
        if self._parts_size + length > self.max_payload:
            raise self._too_large(self._parts_size + length)
        if self._size < HEADER_SIZE + length:
            self._wanted = HEADER_SIZE + length
            return None
        data = self._joined(HEADER_SIZE + length)
        position = self._position
        end = position + HEADER_SIZE + length
        self._restarts = ()
        self.sequence = (sequence + 1) & 0xFF
        self._wanted = HEADER_SIZE
        self._size -= HEADER_SIZE + length
        self._position = end
        if end == len(data):
            # Drops the last reference to the chunk, so that a large frame's memory is freed with its payload.
            self._data, self._position = b"", 0
        return data[position + HEADER_SIZE : end]

    def _too_large(self, size: int) -> ReplicaError:
        if self._has_events:
            return DecodeError(too_large("an event", size, self.max_payload - _EVENT_PREFIX))
        return ProtocolError(f"a payload has {size} bytes or more; {self.max_payload} are allowed")

    def _joined(self, size: int) -> bytes:
        """Received bytes as one object, in which at least ``size`` unread bytes start at ``_position``."""
        have = len(self._data) - self._position
        if have >= size:
            return self._data
        chunks, begin = self._chunks, self._chunk_position
        rest = self._data[self._position :]
        self._position = 0
        if not begin and self._size <= 2 * _PIECE_SIZE:
            self._data = b"".join((rest, *chunks)) if rest or len(chunks) > 1 else chunks[0]
            chunks.clear()
            return self._data
        left = len(chunks[0]) - begin
        if left >= size and not have:
            self._data, self._position, self._chunk_position = chunks.popleft(), begin, 0
            return self._data
        parts: list[bytes | memoryview] = [rest]
        missing = (size if left > _PIECE_SIZE else max(size, _PIECE_SIZE)) - have
        while chunks and missing > 0:
            part = memoryview(chunks[0])[begin : begin + missing]
            parts.append(part)
            missing -= len(part)
            begin += len(part)
            if begin == len(chunks[0]):
                chunks.popleft()
                begin = 0
        self._chunk_position = begin
        self._data = b"".join(parts)
        return self._data


class PayloadInPieces:
    """The frames of one payload of ``size`` bytes that is given in pieces; ``sequence`` numbers the first frame.

    The frames are those of ``FrameStream.encode``. ``sequence`` is the number of the next frame.
    """

    def __init__(self, size: int, sequence: int) -> None:
        self.sequence = sequence
        self._left = size
        self._left_of_frame = 0
        self._ends_with_empty_frame = size % MAX_FRAME_PAYLOAD == 0

    @property
    def is_complete(self) -> bool:
        """Whether all pieces were given."""
        return not self._left

    def encode(self, piece: bytes) -> list[bytes]:
        """The bytes to send for the next piece. Raises ``ValueError`` for more bytes than the size says."""
        if len(piece) > self._left:
            raise ValueError(f"a piece of {len(piece)} bytes, but {self._left} are left")
        parts: list[bytes] = []
        start = 0
        while start < len(piece):
            if not self._left_of_frame:
                parts.append(self._header(min(self._left, MAX_FRAME_PAYLOAD)))
            part = piece[start : start + self._left_of_frame]
            parts.append(part)
            start += len(part)
            self._left_of_frame -= len(part)
            self._left -= len(part)
        if self.is_complete and self._ends_with_empty_frame:
            parts.append(self._header(0))
        return parts

    def _header(self, length: int) -> bytes:
        header = (length | self.sequence << 24).to_bytes(HEADER_SIZE, "little")
        self.sequence = (self.sequence + 1) & 0xFF
        self._left_of_frame = length
        return header
