"""Binlog files made by hand: events with right positions, one behind the other."""

from __future__ import annotations

import struct
import uuid

from protocol.constants import BINLOG_MAGIC, EventType

from .raw_events import format_description, int_rows, int_table_map, query, raw_event

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
        self.add(EventType.TABLE_MAP, int_table_map(name=name)[19:], timestamp=timestamp)
        self.add(EventType.WRITE_ROWS, int_rows(values)[19:], timestamp=timestamp)
        self.add(EventType.XID, struct.pack("<Q", values[0]), timestamp=timestamp)

    def statement(self, sql: str, *, timestamp: int = 1_700_000_000) -> None:
        self.add(EventType.QUERY, query(sql)[19:], timestamp=timestamp)
