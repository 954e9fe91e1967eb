"""Binlog files made by hand: events with right positions, one behind the other."""

from __future__ import annotations

import struct
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from protocol.binlog.events import QueryEvent, WriteRowsEvent, XidEvent
from protocol.constants import BINLOG_MAGIC, EventType
from replica.files.binlog_file import BinlogFile

from .raw_events import format_description, int_rows, int_table_map, query, raw_event, rotate

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SOURCE_ID = uuid.UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")


class LogBuilder:
    """``data`` is the file so far, ``offsets`` says where each event begins.

    ``shift`` is added to the positions that events name, as in a relay log; None leaves them 0.
    """

    def __init__(self, *, checksum: bool = True, version: str = "9.7.4", shift: int | None = 0) -> None:
        self.checksum = checksum
        self.shift = shift
        self.version = version
        self.data = bytearray(BINLOG_MAGIC)
        self.offsets: list[int] = []
        self.add_format_description()

    @property
    def ends(self) -> list[int]:
        return [*self.offsets[1:], len(self.data)]

    def event(self, index: int) -> bytes:
        return bytes(self.data[self.offsets[index] : self.ends[index]])

    def append(self, raw: bytes) -> None:
        self.offsets.append(len(self.data))
        self.data += raw

    def add_format_description(self) -> None:
        size = len(format_description(self.version))
        self.append(format_description(self.version, int(self.checksum), next_position=len(self.data) + size))

    def add(self, event_type: int, body: bytes, *, timestamp: int = 1_700_000_000, flags: int = 0) -> None:
        end = len(self.data) + 19 + len(body) + 4 * self.checksum
        position = 0 if self.shift is None else end + self.shift
        self.append(
            raw_event(
                event_type,
                body,
                next_position=position & 0xFFFFFFFF,
                flags=flags,
                checksum=self.checksum,
                timestamp=timestamp,
            )
        )

    def transaction(
        self,
        values: list[int],
        *,
        sequence: int | None = None,
        timestamp: int = 1_700_000_000,
        name: str = "t",
    ) -> None:
        """Rows of one INT each; five events, and a GTID before them if it gets a sequence number."""
        if sequence is not None:
            body = b"\1" + SOURCE_ID.bytes + struct.pack("<q", sequence)
            self.add(EventType.GTID, body, timestamp=timestamp)
        self.add(EventType.QUERY, query("BEGIN")[19:], timestamp=timestamp)
        self.rows(values, timestamp=timestamp, name=name)
        self.add(EventType.XID, struct.pack("<Q", values[0]), timestamp=timestamp)

    def rows(self, values: list[int], *, timestamp: int = 1_700_000_000, name: str = "t") -> None:
        """Rows of one INT each, within a transaction."""
        self.add(EventType.TABLE_MAP, int_table_map(name=name)[19:], timestamp=timestamp)
        self.add(EventType.WRITE_ROWS, int_rows(values)[19:], timestamp=timestamp)

    def compressed_transaction(self, values: list[int], *, sequence: int) -> None:
        """As ``transaction``, in an envelope that is not really compressed."""
        body = b"\1" + SOURCE_ID.bytes + struct.pack("<q", sequence)
        self.add(EventType.GTID, body)
        inner = LogBuilder(checksum=False)
        inner.transaction(values)
        content = bytes(inner.data[inner.offsets[1] :])
        # Compression none, the size, the end of the fields.
        fields = b"\2\3\xfc\xff\0" + b"\1\3\xfc" + struct.pack("<H", len(content)) + b"\0"
        self.add(EventType.TRANSACTION_PAYLOAD, fields + content)

    def statement(self, sql: str, *, timestamp: int = 1_700_000_000) -> None:
        self.add(EventType.QUERY, query(sql)[19:], timestamp=timestamp)


def numbered_log(count: int = 5, *, first: int = 1, gtids: bool = True, **options: Any) -> LogBuilder:
    """Transactions 1, 2, 3... of one row each with that number, a minute apart."""
    log = LogBuilder(**options)
    for number in range(first, first + count):
        timestamp = int((NOON + timedelta(minutes=number)).timestamp())
        log.transaction([number], sequence=number if gtids else None, timestamp=timestamp)
    return log


def numbers(log: BinlogFile) -> list[int]:
    """The rows of the transactions of `numbered_log`, each with all of its events or none."""
    with log:
        events = list(log)
    found: list[Any] = [row[0] for event in events if isinstance(event, WriteRowsEvent) for row in event.rows]
    assert found == [event.xid for event in events if isinstance(event, XidEvent)]
    begun = [event for event in events if isinstance(event, QueryEvent) and event.sql == "BEGIN"]
    assert len(begun) == len(found)
    return found


def write_logs(folder: Path) -> list[Path]:
    """Three files with transactions 1-2, 3-4 and 5-6; the numbers of the files gain a digit."""
    paths = [folder / name for name in ("bin.999998", "bin.999999", "bin.1000000")]
    for index, path in enumerate(paths):
        log = numbered_log(2, first=index * 2 + 1)
        if index < 2:
            end = len(log.data) + 31 + len(paths[index + 1].name)
            log.append(rotate(paths[index + 1].name, next_position=end, checksum=True))
        path.write_bytes(log.data)
    return paths
