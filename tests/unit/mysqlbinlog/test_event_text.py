"""The text renderer on events made by hand; real logs and servers are compared with the tools elsewhere."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from decimal import Decimal
from zlib import crc32

import pytest

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import (
    AnnotateRowsEvent,
    DeleteRowsEvent,
    Event,
    EventHeader,
    FormatDescriptionEvent,
    IntvarEvent,
    MariadbGtidEvent,
    QueryEvent,
    RotateEvent,
    RowsEvent,
    StopEvent,
    TableMapEvent,
    TransactionPayloadEvent,
    UnknownEvent,
    UpdateRowsEvent,
    UserVarEvent,
    WriteRowsEvent,
    XidEvent,
)
from protocol.constants import ColumnType, EventType
from protocol.errors import DecodeError
from protocol.gtid import MariadbGtid
from protocol.rows.column import ABSENT, Column
from protocol.rows.table import Table
from protocol.values.jsonb_diff import JsonDiff
from replica.mysqlbinlog.collations import collation_name
from replica.mysqlbinlog.event_text import TextRenderer
from replica.mysqlbinlog.hexdump import mariadb_hexdump, mysql_hexdump
from replica.mysqlbinlog.statements import user_value
from replica.mysqlbinlog.values import Flavor, JsonDiffText

CREATED = 1_700_000_000  # 231114 22:13:20


def header(kind: int, *, flags: int = 0, position: int = 100, timestamp: int = CREATED) -> EventHeader:
    return EventHeader(timestamp, kind, 1, 50, position, flags)


def format_description(version: str = "9.7.4", algorithm: int | None = 0) -> Event:
    head = header(EventType.FORMAT_DESCRIPTION)
    return FormatDescriptionEvent(head, "", 4, 4, version, 0, 19, b"", algorithm)


TABLE = Table(
    "s`1",
    "t",
    (
        Column("@1", ColumnType.LONG, 0, False),
        Column("@2", ColumnType.VARCHAR, 40, True),
    ),
)


def rows_event(
    rows: Sequence[tuple[object, ...]],
    *,
    last: bool = True,
    kind: int = EventType.WRITE_ROWS,
    extra: bytes = b"",
) -> WriteRowsEvent:
    return WriteRowsEvent(header(kind), "", 200, 7, TABLE, int(last), extra, list(rows))


def rendered(
    *events: Event, flavor: Flavor | None = None, hexdump: bool = False, raw: bytes = b"\0" * 23
) -> bytes:
    """The text of events at positions 0, 10, 20..., without its opening and closing lines."""
    output = io.BytesIO()
    renderer = TextRenderer(output, hexdump, flavor=flavor)
    for index, event in enumerate(events):
        renderer.render(raw, 10 * index, event)
    renderer.finish()
    return output.getvalue().partition(b"DELIMITER /*!*/;\n")[2].partition(b"DELIMITER ;\n")[0]


def lines(text: bytes) -> list[bytes]:
    """The lines that must equal the tools'."""
    return [line for line in text.splitlines() if line.startswith((b"# at", b"#2", b"###"))]


HEAD = b"#231114 22:13:20 server id 1  end_log_pos 100 "


def test_a_header_line_pads_the_hour_and_shows_a_checksum() -> None:
    stop = StopEvent(header(EventType.STOP, timestamp=CREATED - 18 * 3600), "", 0)
    raw = b"\0" * 19 + b"\x01\x02\x03\x04"
    assert b"#231114  4:13:20 server id 1  end_log_pos 100 \tStop\n" in rendered(stop)
    shown = rendered(format_description(algorithm=1), stop, raw=raw)
    assert b"#231114  4:13:20 server id 1  end_log_pos 100 CRC32 0x04030201 \tStop\n" in shown


def test_a_log_without_a_format_description_tells_by_itself_whether_it_has_checksums() -> None:
    raw = b"\x01" * 19
    raw += crc32(raw).to_bytes(4, "little")
    assert b"CRC32" in rendered(StopEvent(header(EventType.STOP), "", 0), raw=raw)


@pytest.mark.parametrize(
    ("version", "tail"),
    [("9.7.4", b"/*!50003 SET COMPLETION"), ("11.8.6-MariaDB-log", b"ROLLBACK /* added by mysqlbinlog */;")],
)
def test_the_format_description_says_whose_tool_to_follow(version: str, tail: bytes) -> None:
    output = io.BytesIO()
    renderer = TextRenderer(output)
    renderer.render(b"\0" * 23, 4, format_description(version))
    renderer.finish()
    assert output.getvalue().partition(b"# End of log file\n")[2].startswith(tail)
    assert renderer.cells.flavor == ("mariadb" if b"ROLLBACK" in tail else "mysql")


def test_nothing_at_all_is_a_whole_text_too() -> None:
    output = io.BytesIO()
    TextRenderer(output).finish()
    assert output.getvalue().endswith(b"SET @@SESSION.PSEUDO_SLAVE_MODE=0*/;\n")


def test_rows_with_null_absent_and_odd_names() -> None:
    shown = rendered(rows_event([(b"1", b"'%s'"), (b"2", None), (b"3", ABSENT)]))
    assert lines(shown) == [
        b"# at 0",
        HEAD + b"\tWrite_rows: table id 7 flags: STMT_END_F",
        b"### INSERT INTO `s``1`.`t`",
        b"### SET",
        b"###   @1=1 /* INT meta=0 nullable=0 is_null=0 */",
        b"###   @2='%s' /* VARSTRING(40) meta=40 nullable=1 is_null=0 */",
        b"### INSERT INTO `s``1`.`t`",
        b"### SET",
        b"###   @1=2 /* INT meta=0 nullable=0 is_null=0 */",
        b"###   @2=NULL /* VARSTRING(40) meta=40 nullable=1 is_null=1 */",
        b"### INSERT INTO `s``1`.`t`",
        b"### SET",
        b"###   @1=3 /* INT meta=0 nullable=0 is_null=0 */",
    ]


def test_updates_deletes_and_inserts_of_nothing() -> None:
    partial = JsonDiffText([JsonDiff("remove", "$.a", b"")])
    update = UpdateRowsEvent(
        header(EventType.PARTIAL_UPDATE_ROWS), "", 0, 7, TABLE, 1, b"", [((b"1", b"'a'"), (b"2", partial))]
    )
    delete = DeleteRowsEvent(
        header(EventType.DELETE_ROWS), "", 0, 7, TABLE, 1 | 2 | 16, b"", [(b"1", ABSENT)]
    )
    shown = lines(rendered(update, delete, rows_event([(ABSENT, ABSENT)]), rows_event([])))
    assert shown[1:9] == [
        HEAD + b"\tUpdate_rows_partial: table id 7 flags: STMT_END_F",
        b"### UPDATE `s``1`.`t`",
        b"### WHERE",
        b"###   @1=1 /* INT meta=0 nullable=0 is_null=0 */",
        b"###   @2='a' /* VARSTRING(40) meta=40 nullable=1 is_null=0 */",
        b"### SET",
        b"###   @1=2 /* INT meta=0 nullable=0 is_null=0 */",
        b"###   @2=JSON_REMOVE(@2, '$.a') /* VARSTRING(40) meta=40 nullable=1 is_null=0 */",
    ]
    assert (
        HEAD + b"\tDelete_rows: table id 7 flags: STMT_END_F NO_FOREIGN_KEY_CHECKS_F USE_SQL_FOREIGN_KEY_F"
        in shown
    )
    assert shown.count(b"### INSERT INTO `s``1`.`t` VALUES ()") == 2


def _statement() -> tuple[Event, Event, RowsEvent, RowsEvent]:
    table_map = TableMapEvent(header(EventType.TABLE_MAP), "", 0, 7, 0, TABLE)
    return (
        format_description(),
        table_map,
        rows_event([(b"1", b"'a'")], last=False),
        rows_event([(b"2", b"'b'")]),
    )


def test_mysqls_rows_follow_the_headers_of_their_whole_statement() -> None:
    starts = [line[:11] for line in lines(rendered(*_statement()))[2:]]
    headers = [b"# at 10", HEAD[:11], b"# at 20", HEAD[:11], b"# at 30", HEAD[:11]]
    row = [b"### INSERT ", b"### SET", b"###   @1=1 ", b"###   @2='a"]
    assert starts == [*headers, *row, *row[:2], b"###   @1=2 ", b"###   @2='b"]


def test_mariadbs_headers_wait_too_and_rows_are_counted() -> None:
    stop = StopEvent(header(EventType.STOP), "", 0)
    text = rendered(*_statement(), stop, flavor="mariadb")
    at = [line for line in lines(text) if not line.startswith(b"###")][2:]
    rows, last = HEAD + b"\tWrite_rows: table id 7", b" flags: STMT_END_F"
    table_map = HEAD + b"\tTable_map: `s``1`.`t` mapped to number 7"
    assert at == [
        b"# at 10",
        table_map,
        b"# at 20",
        b"# at 30",
        rows,
        rows + last,
        b"# at 40",
        HEAD + b"\tStop",
    ]
    assert b"is_null=0 */\n# Number of rows: 2\n# at 40\n" in text


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@pytest.mark.parametrize("behind", [XidEvent(header(EventType.XID), "", 0, 5), _statement()[1]])
def test_rows_come_before_the_next_statement_where_the_last_event_is_not_wanted(
    flavor: Flavor, behind: Event
) -> None:
    """A statement may change several tables, and the filter may leave out the last one."""
    text = rendered(*_statement()[:3], behind, flavor=flavor)
    names = [b"Write_rows: table id 7", b"### INSERT INTO", b"# at 30\n"]
    assert sorted(names, key=text.index) == names


def test_a_long_statement_is_kept_in_a_file() -> None:
    rows = [(b"%d" % number, b"'%b'" % (b"x" * 1000)) for number in range(3000)]
    text = rendered(rows_event(rows, last=False), rows_event(rows))
    assert text.count(b"### INSERT") == 6000
    assert text.index(b"# at 10") < text.index(b"### INSERT")
    assert text.index(b"@1=2999 ") < text.rindex(b"@1=0 ")


def test_extra_row_information() -> None:
    partition = rows_event([(b"1", None)], extra=b"\x01\x03\x00")
    assert b"### Extra row info for partitioning: partition: 3\n### INSERT" in rendered(partition)
    moved = UpdateRowsEvent(header(EventType.UPDATE_ROWS), "", 0, 7, TABLE, 1, b"\x01\x02\x00\x01\x00", [])
    assert b"source_partition: 1 target_partition: 2\n" in rendered(moved)
    ndb = rows_event([(b"1", None)], extra=b"\x00\x04\x00\xab\xcd\x01\x09\x00")
    assert b"### Extra row ndb info: data_format: 0, len: 2, data: 0xABCD\n" in rendered(ndb)
    assert b"partition: 9\n" in rendered(ndb)
    assert b"### Extra row data format: 0, len: 2 :0xABCD\n" in rendered(ndb, flavor="mariadb")


def test_settings_are_printed_where_they_change() -> None:
    def query(sql: str, *variables: bytes, schema: str = "s") -> QueryEvent:
        return QueryEvent(header(EventType.QUERY), "", 0, 5, 0, 0, schema, sql, b"".join(variables))

    mode, other_mode = b"\x01" + bytes(8), b"\x01" + (1 << 20).to_bytes(8, "little")
    charset = b"\x04\x21\x00\x21\x00\x08\x00"
    text = rendered(
        query("A", mode, charset),
        query("B", mode, charset),
        query("C", other_mode, schema="q"),
        query("COMMIT"),
    )
    assert text.count(b"use `s`") == 1
    assert text.count(b"SET @@session.sql_mode=") == 2
    assert b"SET @@session.sql_mode=1048576/*!*/;\nC\n" in text
    assert text.count(b"/*!\\C utf8mb3 */") == 1
    assert (
        b"character_set_client=33,@@session.collation_connection=33,@@session.collation_server=8/*!*/" in text
    )
    assert b"use `q`/*!*/;\n" in text
    assert text.endswith(
        b"SET TIMESTAMP=1700000000/*!*/;\nCOMMIT\n/*!*/;\n" + text[text.rindex(b"SET @@SESSION") :]
    )


def test_mysqls_variables_are_printed_with_their_statement() -> None:
    insert_id = IntvarEvent(header(EventType.INTVAR), "", 0, 2, 8)
    query = QueryEvent(header(EventType.QUERY), "", 0, 5, 0, 0, "", "INSERT", b"")
    shown = lines(rendered(insert_id, query))
    assert shown == [
        b"# at 0",
        b"# at 10",
        HEAD + b"\tIntvar",
        HEAD + b"\tQuery\tthread_id=5\texec_time=0\terror_code=0",
    ]
    assert lines(rendered(insert_id, query, flavor="mariadb"))[1] == HEAD + b"\tIntvar"
    assert b"SET INSERT_ID=8/*!*/;\n" in rendered(insert_id)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, 0, b"NULL"),
        (b"a'\x00", 0, b"_latin1 0x612700 COLLATE `latin1_swedish_ci`"),
        (b"", 0, b'_latin1 "" COLLATE `latin1_swedish_ci`'),
        (1.5e10, 1, b"15000000000"),
        (-5, 2, b"-5"),
        (18446744073709551615, 2, b"18446744073709551615"),
        (Decimal("-12.50"), 4, b"-12.50"),
    ],
)
def test_user_variables(value: bytes | float | int | Decimal | None, kind: int, text: bytes) -> None:
    event = UserVarEvent(header(EventType.USER_VAR), "", 0, "a`b", value, kind, 8)
    assert user_value(event, "mysql") == text
    assert b"SET @`a``b`:=%b/*!*/;\n" % text in rendered(event)
    text = text.replace(b"0x612700", b"X'612700'")
    assert user_value(event, "mariadb") == text
    assert b"SET @`a``b`:=%b/*!*/;\n" % text in rendered(event, flavor="mariadb")


@pytest.mark.parametrize(
    ("collation", "flavor", "text"),
    [
        (255, "mysql", b"_utf8mb4 0x78 COLLATE `utf8mb4_0900_ai_ci`"),
        (245, "mysql", b"_utf8mb4 0x78 COLLATE `utf8mb4_croatian_ci`"),
        (245, "mariadb", b"_utf8mb4 X'78' COLLATE `utf8mb4_croatian_mysql561_ci`"),
        (315, "mysql", b"_utf8mb4 0x78 COLLATE `utf8mb4_sr_latn_0900_as_cs`"),
        (249, "mysql", b"_gb18030 0x78 COLLATE `gb18030_bin`"),
        # The default of MariaDB 11.8: the character set was not known, and a replay took the text for bytes.
        (2304, "mariadb", b"_utf8mb4 X'78' COLLATE `utf8mb4_uca1400_ai_ci`"),
        (63, "mysql", b"_binary 0x78 COLLATE `binary`"),
        (9999, "mysql", b"_binary 0x78"),
    ],
)
def test_collations_of_user_variables(collation: int, flavor: Flavor, text: bytes) -> None:
    event = UserVarEvent(header(EventType.USER_VAR), "", 0, "a", b"x", 0, collation)
    assert user_value(event, flavor) == text


def test_annotations_come_with_the_table_map() -> None:
    annotation = AnnotateRowsEvent(header(EventType.MARIADB_ANNOTATE_ROWS), "", 0, "INSERT\r\n\nINTO t\n")
    text = rendered(annotation, _statement()[1], flavor="mariadb")
    table_map = HEAD + b"\tTable_map: `s``1`.`t` mapped to number 7\n"
    assert text == b"# at 0\n# at 10\n" + HEAD + b"\tAnnotate_rows:\n#Q> INSERT\n#Q> INTO t\n" + table_map
    # The annotation of a statement whose tables are filtered out: the next table map is another statement's.
    end = XidEvent(header(EventType.XID), "", 0, 5)
    assert b"#Q>" not in rendered(annotation, end, _statement()[1], flavor="mariadb")


def test_mariadbs_gtid_names_its_flags() -> None:
    gtid = MariadbGtidEvent(header(EventType.MARIADB_GTID), "", 0, MariadbGtid(0, 1, 9), 1 | 2 | 4 | 32, 77)
    gtid.extra_flags, gtid.alter_sequence = 4, 8
    assert b"\tGTID 0-1-9 cid=77 ddl trans COMMIT ALTER id= 8\n" in rendered(gtid, flavor="mariadb")
    gtid.thread_id = 11
    assert b" COMMIT ALTER id= 8 thread_id=11\n" in rendered(gtid, flavor="mariadb")


@pytest.mark.parametrize(
    ("body", "alter_sequence", "thread_id"),
    [
        # As MariaDB 11.8.6 logs them: DDL; COMMIT ALTER; XA with further engines.
        ("10000000000000000000000029 10 0b000000", None, 11),
        ("12000000000000000000000029 14 1100000000000000 0b000000", 17, 11),
        ("1400000000000000000000004c 01000000010078 11 ff 0b000000", None, 11),
    ],
)
def test_the_session_of_a_gtid(body: str, alter_sequence: int | None, thread_id: int) -> None:
    raw = _raw(EventType.MARIADB_GTID, bytes.fromhex(body))
    event = EventDecoder(mariadb=True).decode(raw)
    assert isinstance(event, MariadbGtidEvent)
    assert (event.alter_sequence, event.thread_id) == (alter_sequence, thread_id)


def test_default_collations_stand_before_each_statement_that_has_them() -> None:
    event = QueryEvent(header(EventType.QUERY), "", 0, 1, 0, 0, "", "CREATE TABLE t (a CHAR(1))", b"")
    event.status_variables = b"\x83\x02" + struct.pack("<HHHH", 8, 47, 45, 2304)
    line = b"SET @@session.character_set_collations='latin1=latin1_bin,utf8mb4=utf8mb4_uca1400_ai_ci'/*!*/;\n"
    assert rendered(event, event, flavor="mariadb").count(line) == 2
    event.status_variables = b"\x83\x00"
    assert b"SET @@session.character_set_collations=''/*!*/;\n" in rendered(event, flavor="mariadb")


@pytest.mark.parametrize(
    ("collation", "name"),
    [
        (63, "binary"),
        (76, None),
        (83, "utf8mb3_bin"),
        (124, "utf16_vietnamese_ci"),
        (245, "utf8mb4_croatian_mysql561_ci"),
        (255, "utf8mb4_0900_ai_ci"),
        (275, "utf8mb4_hr_0900_ai_ci"),
        (276, None),
        (300, "utf8mb4_vi_0900_as_cs"),
        (309, "utf8mb4_0900_bin"),
        (579, "utf8mb3_general1400_as_ci"),
        (1025, "big5_chinese_nopad_ci"),
        (1107, "utf8mb3_nopad_bin"),
        (2048, "utf8mb3_uca1400_ai_ci"),
        (2382, "utf8mb4_uca1400_turkish_nopad_as_ci"),
        (2672, "ucs2_uca1400_spanish2_ai_ci"),
        (3072 + 21 * 8, None),
        (9999, None),
    ],
)
def test_names_of_mariadbs_collations(collation: int, name: str | None) -> None:
    assert collation_name(collation) == name


def test_an_unknown_event_is_shown_as_such() -> None:
    event = UnknownEvent(header(99, flags=0x80), "", 0, b"")
    assert HEAD + b"\tIgnorable\n" in rendered(event)
    assert b"# Ignorable event type 99\n" in rendered(event, flavor="mariadb")


def _raw(kind: int, body: bytes) -> bytes:
    return struct.pack("<IBIIIH", CREATED, kind, 1, 19 + len(body), 0, 0) + body


def test_events_of_a_compressed_transaction_stand_at_its_end() -> None:
    stored = _raw(EventType.XID, bytes(8))
    payload = TransactionPayloadEvent(
        header(EventType.TRANSACTION_PAYLOAD, position=500), "", 10, 255, len(stored), stored
    )
    xid = XidEvent(EventHeader(CREATED, EventType.XID, 1, len(stored), 0, 0), "", 10, 0)
    output = io.BytesIO()
    renderer = TextRenderer(output)
    renderer.render(b"\0" * 23, 4, format_description(algorithm=1))
    renderer.render(b"\0" * 23, 10, payload)
    renderer.render(b"", 10, xid)
    renderer.render(b"\0" * 23, 500, RotateEvent(header(EventType.ROTATE), "", 500, "next", 4))
    renderer.finish()
    grown = bytearray(stored)
    grown[9:13] = (len(stored) + 4).to_bytes(4, "little")
    line = b"#231114 22:13:20 server id 1  end_log_pos 500 CRC32 0x%08x \tXid = 0\n" % crc32(grown)
    expected = (
        b"# Start of compressed events.\n# at 500\n"
        + line
        + b"COMMIT/*!*/;\n# End of compressed events.\n# at 500\n"
    )
    assert expected in output.getvalue()


def test_an_event_that_is_not_in_the_payload_is_an_error() -> None:
    payload = TransactionPayloadEvent(header(EventType.TRANSACTION_PAYLOAD), "", 10, 255, 0, b"")
    renderer = TextRenderer(io.BytesIO())
    renderer.render(b"\0" * 23, 10, payload)
    with pytest.raises(DecodeError, match="not in the compressed transaction"):
        renderer.render(b"", 10, StopEvent(header(EventType.STOP), "", 10))


def test_a_dump_stands_between_the_header_line_and_the_events_own_text() -> None:
    stop = StopEvent(header(EventType.STOP), "", 0)
    raw = _raw(EventType.STOP, b"abcd")
    assert rendered(stop, hexdump=True, raw=raw).startswith(
        b"# at 0\n" + HEAD + b"\n" + mysql_hexdump(raw, 0) + b"# \tStop\n"
    )
    assert rendered(stop, hexdump=True, raw=raw, flavor="mariadb").endswith(
        mariadb_hexdump(raw, 0) + b"# Event: \tStop\n"
    )
