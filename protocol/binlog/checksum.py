"""Checksums of events: which algorithm a FORMAT_DESCRIPTION event announces, and the CRC32 check itself.

The algorithm holds from that event on. The event itself always ends in four checksum bytes
(``log_event.cc``: Format_description_event::write). An artificial ROTATE before it still follows the old algorithm.
The decoder keeps this state.
"""

from zlib import crc32

from ..constants import (
    CHECKSUM_SIZE,
    EVENT_FLAGS_OFFSET,
    EVENT_HEADER_SIZE,
    EVENT_TYPE_OFFSET,
    EventFlag,
    EventType,
)

CRC32_ALGORITHM = 1
# The CRC32 of any data followed by its own little-endian CRC32; saves a slice and an unpack per event.
CRC32_RESIDUE = 0x2144DF1C

_VERSION_OFFSET = EVENT_HEADER_SIZE + 2
_VERSION_SIZE = 50
_CREATED_OFFSET = _VERSION_OFFSET + _VERSION_SIZE
# The header's time is taken after the time of creation.
_CLOCK_STEPS = 2
# First versions that write the algorithm into the format description (log_event.cc: checksum_version_split_*).
_MYSQL_SINCE = (5, 6, 1)
_MARIADB_SINCE = (5, 3, 0)
# Format descriptions since then list 35 event types or more, older ones fewer. So a long event with an older version
# is damaged, and its checksum must still be checked. The fixed fields before the list take 57 bytes.
_MIN_SIZE_SINCE = EVENT_HEADER_SIZE + 57 + 35 + 1 + CHECKSUM_SIZE


def server_version_of(format_description: bytes) -> str:
    """The server version that a raw FORMAT_DESCRIPTION event names."""
    text = format_description[_VERSION_OFFSET : _VERSION_OFFSET + _VERSION_SIZE]
    return text.split(b"\0", 1)[0].decode("ascii", "replace")


def version_numbers(server_version: str) -> tuple[int, int, int]:
    """``"8.0.36-log"`` -> (8, 0, 36); parts without a number count as 0 (``do_server_version_split``)."""
    parts = server_version.removeprefix("5.5.5-").split(".", 2)
    numbers = []
    for part in (*parts, "", "")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        numbers.append(int(digits) if digits else 0)
    return numbers[0], numbers[1], numbers[2]


def is_mariadb_version(server_version: str) -> bool:
    """Whether a version string is MariaDB's."""
    return "mariadb" in server_version.lower()


def algorithm_of(format_description: bytes) -> int | None:
    """Checksum algorithm that a raw FORMAT_DESCRIPTION event announces; None from servers before checksums."""
    version = server_version_of(format_description)
    since = _MARIADB_SINCE if is_mariadb_version(version) else _MYSQL_SINCE
    size = len(format_description)
    if (
        version_numbers(version) < since and size < _MIN_SIZE_SINCE
    ) or size < EVENT_HEADER_SIZE + CHECKSUM_SIZE + 1:
        return None
    return format_description[-CHECKSUM_SIZE - 1]


def is_damaged_description(format_description: bytes, algorithm: int | None, *, is_repeated: bool) -> bool:
    """Whether the checksum of a FORMAT_DESCRIPTION event with this algorithm is wrong.

    The event has one with checksums off, too. But a source that repeats it for a dump from a later position changes
    it then without updating the checksum (rpl_binlog_sender.cc).
    """
    if algorithm == CRC32_ALGORITHM:
        return not crc32_matches(format_description)
    if algorithm is None or is_repeated:
        return _hides_checksums(format_description)
    return not (crc32_matches(format_description) or _lacks_creation_time(format_description))


def crc32_matches(event: bytes) -> bool:
    """Whether the last four bytes of ``event`` are the CRC32 of the bytes before them.

    The checksum is computed without the BINLOG_IN_USE flag, which is set while the file is open.
    """
    if crc32(event) == CRC32_RESIDUE:
        return True
    if (
        event[EVENT_TYPE_OFFSET] != EventType.FORMAT_DESCRIPTION
        or not event[EVENT_FLAGS_OFFSET] & EventFlag.BINLOG_IN_USE
    ):
        return False
    closed = bytearray(event)
    closed[EVENT_FLAGS_OFFSET] &= ~EventFlag.BINLOG_IN_USE & 0xFF
    return crc32(closed) == CRC32_RESIDUE


def _hides_checksums(format_description: bytes) -> bool:
    """Whether damage turned off the algorithm of an event with checksums: with CRC32 its own checksum is right."""
    algorithm = len(format_description) - CHECKSUM_SIZE - 1
    with_checksums = bytearray(format_description)
    with_checksums[algorithm] = CRC32_ALGORITHM
    return crc32_matches(bytes(with_checksums))


def _lacks_creation_time(format_description: bytes) -> bool:
    """Whether the checksum is right once the time of creation, which is zero here, is put back.

    For a dump by GTIDs MySQL sets the time to zero, and with binlog_checksum=NONE leaves the checksum as it was
    (rpl_binlog_sender.cc: m_gtid_clear_fd_created_flag). Only the first file after a server start has this time; it
    equals the time in the event's header.
    """
    begin, end = _CREATED_OFFSET, _CREATED_OFFSET + 4
    if format_description[begin:end] != bytes(4):
        return False
    timestamp = int.from_bytes(format_description[:4], "little")
    original = bytearray(format_description)
    for seconds in range(-_CLOCK_STEPS, _CLOCK_STEPS + 1):
        original[begin:end] = (timestamp + seconds & 0xFFFFFFFF).to_bytes(4, "little")
        if crc32_matches(bytes(original)):
            return True
    return False
