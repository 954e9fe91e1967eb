"""The decoder's state: checksums, positions, files, table maps, descriptions, payloads, fragments."""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import pytest

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import (
    PartialRowDataEvent,
    QueryEvent,
    RotateEvent,
    TableMapEvent,
    TransactionPayloadEvent,
    UnknownEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
    XidEvent,
)
from protocol.constants import ColumnType, EventFlag, EventType
from protocol.errors import (
    ChecksumError,
    ConfigurationError,
    DecodeError,
    MissingTableMapError,
    SchemaMismatchError,
    TruncatedError,
)
from protocol.rows.description import ColumnDescription
from protocol.wire import encode_lenenc_int
from tests.support.raw_events import format_description, int_rows, int_table_map, query, raw_event, rotate

# Numbers of events that servers do not write. START_V3 begins files of servers before 5.0, which are refused as a
# whole; IGNORABLE is a base class.
NO_EVENTS = {EventType.UNKNOWN, EventType.START_V3, EventType.SLAVE, EventType.IGNORABLE}
# Types of values and of literals, which no column has.
NO_COLUMNS = {ColumnType.NULL, ColumnType.INVALID, ColumnType.BOOL}

ID = ColumnDescription("id", "int", "int(10) unsigned", primary=True)


def decoder(**options: Any) -> EventDecoder:
    made = EventDecoder(**options)
    made.decode(format_description(algorithm=0))
    return made


def kind_of(event_type: int, flags: int) -> str:
    """The class of an event without a body, or of its refusal."""
    try:
        return type(decoder().decode(raw_event(event_type, b"", flags=flags))).__name__
    except DecodeError as error:
        return type(error).__name__


def table_map_error(column_type: int, metadata: bytes) -> str:
    """Why a table map with one column of this type is refused; empty if it is not."""
    body = (7).to_bytes(6, "little") + b"\1\0\1s\0\1t\0\1" + bytes([column_type, len(metadata)]) + metadata
    try:
        decoder().decode(raw_event(EventType.TABLE_MAP, body + b"\xff"))
    except DecodeError as error:
        return error.reason
    return ""


def payload(inner: bytes, compression_type: int) -> bytes:
    """The body of a TRANSACTION_PAYLOAD event."""
    fields = ((2, compression_type), (3, len(inner)), (1, len(inner)))
    head = b"".join(
        encode_lenenc_int(code) + encode_lenenc_int(len(encode_lenenc_int(value))) + encode_lenenc_int(value)
        for code, value in fields
    )
    return head + b"\0" + inner


class TestChecksums:
    def test_state_starts_as_asked_for_and_follows_the_format_description(self) -> None:
        made = EventDecoder()
        made.checksum_enabled = True
        made.decode(rotate("binlog.000007", flags=EventFlag.ARTIFICIAL, checksum=True))
        made.decode(format_description(algorithm=0))
        assert not made.checksum_enabled
        made.decode(raw_event(EventType.XID, bytes(8)))
        made.decode(format_description(algorithm=1))
        assert isinstance(made.decode(raw_event(EventType.XID, bytes(8), checksum=True)), XidEvent)

    def test_an_artificial_rotate_belongs_to_the_old_state(self) -> None:
        made = EventDecoder()
        made.decode(format_description(algorithm=1))
        with pytest.raises(ChecksumError):
            made.decode(rotate("binlog.000008", flags=EventFlag.ARTIFICIAL))
        event = made.decode(rotate("binlog.000008", flags=EventFlag.ARTIFICIAL, checksum=True))
        assert isinstance(event, RotateEvent)
        assert event.next_file == "binlog.000008"

    def test_a_wrong_checksum_names_its_place(self) -> None:
        made = EventDecoder(file="binlog.000001", position=777)
        made.decode(format_description(algorithm=1))
        damaged = bytearray(raw_event(EventType.XID, bytes(8), checksum=True))
        damaged[20] ^= 1
        with pytest.raises(ChecksumError) as caught:
            made.decode(bytes(damaged))
        assert (caught.value.file, caught.value.position, caught.value.event_type) == (
            "binlog.000001",
            777,
            16,
        )
        assert "binlog.000001, at 777, event type 16" in str(caught.value)

    def test_verification_can_be_left_out(self) -> None:
        made = EventDecoder(verify_checksum=False)
        made.decode(format_description(algorithm=1))
        event = made.decode(
            raw_event(EventType.XID, b"\5" + bytes(7))[:9]
            + struct.pack("<I", 31)
            + bytes(6)
            + b"\5"
            + bytes(11)
        )
        assert isinstance(event, XidEvent)
        assert event.xid == 5

    def test_a_file_in_use_keeps_its_checksum(self) -> None:
        closed = format_description(algorithm=1)
        in_use = closed[:17] + b"\1" + closed[18:]
        EventDecoder().decode(in_use)
        with pytest.raises(ChecksumError):
            EventDecoder().decode(closed[:17] + b"\2" + closed[18:])

    @pytest.mark.parametrize("seconds", [0, 1])
    def test_a_source_may_take_the_time_of_creation_out(self, seconds: int) -> None:
        """MySQL does so for a dump by GTIDs, and with binlog_checksum=NONE it leaves the checksum as it was."""
        logged = bytearray(format_description(algorithm=0, next_position=120))
        timestamp = 1_700_000_000
        logged[:4] = timestamp.to_bytes(4, "little")
        logged[71:75] = (timestamp - seconds).to_bytes(4, "little")
        logged[-4:] = crc32(logged[:-4]).to_bytes(4, "little")
        sent = bytes(logged[:71] + bytes(4) + logged[75:])
        made = EventDecoder()
        made.decode(sent)
        assert not made.checksum_enabled
        for bit in range(len(sent) * 8):
            damaged = bytearray(sent)
            damaged[bit // 8] ^= 1 << bit % 8
            # The lowest bit of the flags: the source sets it behind the check.
            if bit != 17 * 8:
                made = EventDecoder()
                made.checksum_enabled = True
                with pytest.raises(DecodeError):
                    made.decode(bytes(damaged))

    @pytest.mark.parametrize("next_position", [0, 120])
    @pytest.mark.parametrize("version", ["5.6.24-log", "9.7.4", "11.8.6-MariaDB-log"])
    def test_no_flipped_bit_turns_the_check_off(self, version: str, next_position: int) -> None:
        whole = format_description(version, next_position=next_position)
        in_use = 17 * 8  # The lowest bit of the flags, which the source sets behind the check.
        for bit in set(range(len(whole) * 8)) - {in_use}:
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            made = EventDecoder()
            made.checksum_enabled = True
            with pytest.raises(DecodeError):
                made.decode(bytes(damaged))

    def test_servers_before_checksums(self) -> None:
        made = EventDecoder()
        made.decode(format_description("5.5.62-log", algorithm=None))
        assert not made.checksum_enabled

    def test_every_unknown_algorithm_is_an_error(self) -> None:
        for algorithm in range(256):
            made = EventDecoder()
            if algorithm in (0, 1):
                made.decode(format_description(algorithm=algorithm))
                assert made.checksum_enabled is bool(algorithm)
                continue
            with pytest.raises(DecodeError, match=rf"checksum algorithm {algorithm}\b"):
                made.decode(format_description(algorithm=algorithm))
            assert made.format_description is None


class TestPositions:
    def test_follow_the_source_and_sum_where_it_says_nothing(self) -> None:
        made = EventDecoder(file="a.000001", position=100)
        made.decode(format_description(algorithm=0))
        assert made.position == 100
        first = made.decode(query("BEGIN", next_position=200))
        assert first is not None
        assert (first.position, made.position) == (200 - first.header.size, 200)
        second = made.decode(query("x"))
        assert second is not None
        assert (second.position, made.position) == (200, 200 + second.header.size)

    def test_beyond_four_gigabytes(self) -> None:
        made = EventDecoder(file="a.000001", position=2**32 - 10)
        event = made.decode(query("BEGIN", next_position=2**32 - 10 + len(query("BEGIN")) - 2**32))
        assert event is not None
        assert event.position == 2**32 - 10
        assert made.position == 2**32 - 10 + event.header.size

    def test_a_rotate_moves_to_the_next_file(self) -> None:
        made = decoder(file="a.000001")
        made.decode(rotate("a.000002", 4, next_position=500))
        assert (made.file, made.position) == ("a.000002", 4)
        event = made.decode(query("x", next_position=0))
        assert event is not None
        assert (event.file, event.position) == ("a.000002", 4)

    def test_heartbeats_do_not_move(self) -> None:
        made = decoder(file="a.000001")
        made.decode(raw_event(EventType.HEARTBEAT, b"a.000001", next_position=99999))
        assert made.position == 4


class TestTables:
    def test_rows_need_a_table_map(self) -> None:
        with pytest.raises(MissingTableMapError):
            decoder().decode(int_rows([1]))

    def test_a_statement_end_forgets_the_tables(self) -> None:
        made = decoder()
        made.decode(int_table_map())
        made.decode(int_rows([1], flags=0))
        made.decode(int_rows([1], flags=1))
        with pytest.raises(MissingTableMapError):
            made.decode(int_rows([1]))

    def test_filtered_rows_are_not_read(self) -> None:
        made = decoder(wants_table=lambda schema, name: name == "other")
        assert made.decode(int_table_map()) is None
        assert made.decode(int_rows([1])[:-1][:9] + int_rows([1])[9:]) is None

    def test_another_number_of_columns_is_an_error(self) -> None:
        made = decoder()
        made.decode(int_table_map(columns=2))
        with pytest.raises(DecodeError, match="1 columns"):
            made.decode(int_rows([1]))

    def test_described_names_and_signs(self) -> None:
        made = decoder()
        event = made.decode(int_table_map())
        assert isinstance(event, TableMapEvent)
        assert event.table.names_from is None
        assert event.table.column_names == ("@1",)
        table = made.describe(7, [ID])
        assert (table.names_from, table.column_names, table.primary_key) == (
            "information_schema",
            ("id",),
            ("id",),
        )
        rows = made.decode(int_rows([-1]))
        assert isinstance(rows, WriteRowsEvent)
        assert rows.rows == [(2**32 - 1,)]
        assert [change.after for change in rows.changes()] == [{"id": 2**32 - 1}]

    def test_a_description_lasts_until_a_statement_that_may_change_it(self) -> None:
        made = decoder()
        made.decode(int_table_map())
        made.describe(7, [ID])
        made.decode(query("BEGIN"))
        known = made.decode(int_table_map(8))
        assert isinstance(known, TableMapEvent)
        assert known.table.column_names == ("id",)
        assert isinstance(made.decode(query("ALTER TABLE t RENAME COLUMN id TO no")), QueryEvent)
        unknown = made.decode(int_table_map(9))
        assert isinstance(unknown, TableMapEvent)
        assert unknown.table.names_from is None

    @pytest.mark.parametrize(
        ("descriptions", "message"),
        [
            ([], "0 columns now, but 1 in the log"),
            ([ID, ID], "2 columns now"),
            ([ColumnDescription("id", "bigint", "bigint")], "bigint now, but LONG"),
        ],
    )
    def test_a_description_that_does_not_fit(
        self, descriptions: list[ColumnDescription], message: str
    ) -> None:
        made = decoder()
        made.decode(int_table_map())
        with pytest.raises(SchemaMismatchError, match=message):
            made.describe(7, descriptions)
        lenient = decoder(on_schema_mismatch="positional")
        lenient.decode(int_table_map())
        assert lenient.describe(7, descriptions).column_names == ("@1",)

    def test_columns_asked_for(self) -> None:
        made = decoder(columns={"s.t": ["b"]})
        made.decode(int_table_map(columns=2))
        names = [ColumnDescription(name, "int", "int") for name in "ab"]
        assert made.describe(7, names).column_names == ("b",)
        body = (7).to_bytes(6, "little") + struct.pack("<HHBB", 1, 2, 2, 3) + b"\0" + struct.pack("<ii", 5, 6)
        rows = made.decode(raw_event(EventType.WRITE_ROWS, body))
        assert isinstance(rows, WriteRowsEvent)
        assert rows.rows == [(6,)]

    def test_columns_of_tables_whose_names_have_dots(self) -> None:
        """A schema with a dot is in backticks: no two tables have one text."""
        names = [ColumnDescription(name, "int", "int") for name in "ab"]
        for key, found in (("w.a.t", ("b",)), ("`w.a`.t", ("a", "b"))):
            made = decoder(columns={key: ["b"]})
            made.decode(int_table_map(7, columns=2, schema="w", name="a.t"))
            made.decode(int_table_map(8, columns=2, schema="w.a"))
            assert made.describe(7, names).column_names == found
            assert made.describe(8, names).column_names == (("a", "b") if found == ("b",) else ("b",))

    def test_columns_that_are_not_there(self) -> None:
        made = decoder(columns={"s.t": ["nope"]})
        made.decode(int_table_map())
        with pytest.raises(ConfigurationError, match="nope"):
            made.describe(7, None)

    def test_describing_what_is_not_mapped(self) -> None:
        with pytest.raises(MissingTableMapError):
            decoder().describe(7, [ID])


class TestKinds:
    def test_every_unknown_event_type_is_an_error_unless_it_is_ignorable(self) -> None:
        """And no known type is taken for one, with the flag or without."""
        for number in range(256):
            plain, ignorable = (kind_of(number, flags) for flags in (0, EventFlag.IGNORABLE))
            if number in NO_EVENTS or number not in set(EventType):
                assert (plain, ignorable) == ("UnsupportedEventError", "UnknownEvent"), number
            else:
                assert plain == ignorable not in ("UnsupportedEventError", "UnknownEvent"), number

    def test_an_ignorable_event_keeps_its_body(self) -> None:
        event = decoder().decode(raw_event(99, b"abc", flags=EventFlag.IGNORABLE))
        assert isinstance(event, UnknownEvent)
        assert event.body == b"abc"

    def test_every_unknown_column_type_is_an_error(self) -> None:
        known = set()
        for number in range(256):
            # Metadata of some size fits a known type, or its value is refused.
            reasons = {table_map_error(number, bytes([size]) * size) for size in range(5)}
            if reasons != {f"the table map has the unknown column type {number}"}:
                known.add(number)
        assert known == {int(kind) for kind in ColumnType} - NO_COLUMNS

    def test_every_unknown_compression_of_a_transaction_is_an_error(self) -> None:
        inner = query("BEGIN")
        for number in range(256):
            made = decoder()
            event = made.decode(raw_event(EventType.TRANSACTION_PAYLOAD, payload(inner, number)))
            assert isinstance(event, TransactionPayloadEvent)
            if number == 255:
                assert len(list(made.payload_events(event))) == 1
                continue
            # 0 is zstd, which this is not.
            with pytest.raises(DecodeError, match=None if number == 0 else f"compression type {number}"):
                list(made.payload_events(event))

    def test_sizes(self) -> None:
        with pytest.raises(TruncatedError):
            decoder().decode(b"abc")
        with pytest.raises(TruncatedError):
            decoder().decode(query("BEGIN")[:-1])

    def test_a_payload_that_is_not_compressed(self) -> None:
        inner = query("BEGIN") + int_table_map() + int_rows([1, 2]) + raw_event(EventType.XID, bytes(8))
        made = EventDecoder(file="a.000001", position=1000)
        made.decode(format_description(algorithm=1))
        outer = raw_event(EventType.TRANSACTION_PAYLOAD, payload(inner, 255), checksum=True)
        event = made.decode(outer)
        assert isinstance(event, TransactionPayloadEvent)
        events = list(made.payload_events(event))
        assert [type(inside).__name__ for inside in events] == [
            "QueryEvent",
            "TableMapEvent",
            "WriteRowsEvent",
            "XidEvent",
        ]
        assert {inside.position for inside in events} == {1000}
        assert made.position == 1000 + len(outer)
        assert made.checksum_enabled

    def test_fragments_of_a_rows_event(self) -> None:
        made = decoder()
        made.decode(int_table_map())
        whole = int_rows(list(range(100)))
        pieces = [whole[:50], whole[50:300], whole[300:]]
        events = []
        for number, piece in enumerate(pieces, 1):
            head = struct.pack("<IIB", 3, number, number == 1) + (
                struct.pack("<Q", len(whole)) if number == 1 else b""
            )
            events.append(made.decode(raw_event(EventType.MARIADB_PARTIAL_ROW_DATA, head + piece)))
        assert isinstance(events[0], PartialRowDataEvent)
        assert isinstance(events[2], WriteRowsEvent)
        assert events[2].rows == [(value,) for value in range(100)]
        with pytest.raises(DecodeError, match="out of order"):
            made.decode(raw_event(EventType.MARIADB_PARTIAL_ROW_DATA, struct.pack("<IIB", 3, 2, 0)))

    def test_rows_of_no_table_end_a_statement(self) -> None:
        made = decoder()
        body = (0xFFFFFF).to_bytes(6, "little") + struct.pack("<HHBB", 1, 2, 0, 0)
        assert made.decode(raw_event(EventType.WRITE_ROWS, body)) is None


@pytest.mark.parametrize(
    ("kind", "extra", "is_damaged"),
    [
        (EventType.WRITE_ROWS, b"\x00\x04\x00\xab\xcd\x01\x09\x00", False),
        (EventType.UPDATE_ROWS, b"\x01\x09\x00\x08\x00", False),
        (EventType.WRITE_ROWS, b"\x07\xff", False),
        (EventType.WRITE_ROWS, b"\x00", True),
        (EventType.WRITE_ROWS, b"\x00\x05\x00\xab\xcd", True),
        (EventType.WRITE_ROWS, b"\x01\x09", True),
        (EventType.UPDATE_ROWS, b"\x01\x09\x00", True),
    ],
)
def test_extra_row_data_that_are_announced_and_not_there(
    kind: EventType, extra: bytes, is_damaged: bool
) -> None:
    """They were passed over. An unknown tag ends what the server understands (rows_event.cpp)."""
    made = decoder()
    made.decode(int_table_map())
    bitmaps = b"\xff" * (2 if kind == EventType.UPDATE_ROWS else 1)
    body = struct.pack("<IHHH", 7, 0, 1, 2 + len(extra)) + extra + b"\1" + bitmaps + bytes(10)
    if is_damaged:
        with pytest.raises(DecodeError, match="a part of it ends at"):
            made.decode(raw_event(kind, body))
        return
    event = made.decode(raw_event(kind, body))
    assert isinstance(event, WriteRowsEvent | UpdateRowsEvent)
    assert event.extra == extra


@pytest.mark.parametrize("name", ["binlog", "binlog.", "binlog.index", "binlog.99999999999"])
def test_a_rotate_to_a_name_without_a_number(name: str) -> None:
    """A stream said of it that places cannot be ordered, or read on."""
    with pytest.raises(DecodeError, match=rf"invalid binlog file name: '{name}' does not end with a number"):
        decoder().decode(rotate(name, flags=EventFlag.ARTIFICIAL))
