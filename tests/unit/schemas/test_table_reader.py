"""Which statements of the log are kept to follow tables through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocol.binlog.event import EventHeader
from protocol.binlog.events import Event, QueryEvent
from protocol.errors import BinlogNotFoundError, PrivilegeError
from protocol.gtid import GtidSet
from protocol.position import BinlogPosition
from protocol.records import replace
from replica.config.options import Options
from replica.schemas.reading import TableReader
from replica.source.log_scan import LogScan
from replica.source.statement_answers import Question
from tests.support.source_facts import MYSQL97

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SOURCE = replace(MYSQL97, has_gtids=False)
KEPT = (
    "CREATE TABLE t (a INT)",
    "/* by a tool */ ALTER TABLE t ADD b INT",
    "SET STATEMENT max_statement_time=9 FOR ALTER TABLE t ADD c INT",
    "RENAME TABLE t TO u",
    "drop database shop",
)
LEFT_OUT = (
    "BEGIN",
    "COMMIT",
    "INSERT INTO t VALUES ('ALTER TABLE t')",
    "TRUNCATE TABLE t",
    "GRANT ALL ON t TO u",
)


async def test_only_statements_that_may_change_shapes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """MySQL begins each transaction with a BEGIN: a million of them took 0.3 GB, and were read as DDL three times."""
    log = [*KEPT, *(sql for sql in LEFT_OUT for _ in range(200))]

    async def statements(
        scan: LogScan, start: object, visit: Callable[[Event, str, int], bool], end: object
    ) -> None:
        for number, sql in enumerate(log):
            header = EventHeader(0, 2, 1, 100, 0, 0)
            visit(
                QueryEvent(header, "binlog.000001", number, 1, 0, 0, "shop", sql, b""),
                "binlog.000001",
                number,
            )

    monkeypatch.setattr(LogScan, "statements", statements)
    session: Any = type("Session", (), {"options": None})()
    reader = TableReader(session, SOURCE)
    begin, end = BinlogPosition("binlog.000001", 4), BinlogPosition("binlog.000001", 1 << 20)
    found, last = await reader.statements_and_end(begin, end)
    assert [one.statement.sql for one in found] == list(KEPT)
    # A store goes on from there: the log up to it is not read again.
    assert last == BinlogPosition("binlog.000001", len(log) - 1)
    assert await reader.statements(begin, end) == found


class BusySession:
    """The source goes on writing: its log has another end at each question."""

    options: Options | None = None

    def __init__(self) -> None:
        self.asked = 0

    async def query_each(self, questions: list[Question]) -> list[list[tuple[str, ...]]]:
        self.asked += 1
        answers: list[list[tuple[str, ...]]] = [[] for _ in questions]
        answers[-3:] = [[("binlog.000001", str(1000 * self.asked))], [("",)], [(f"{UUID}:1-{self.asked}",)]]
        return answers


@pytest.mark.parametrize("is_untouched", [None, True, False])
async def test_a_reader_of_one_table_need_not_read_the_log_for_it(
    is_untouched: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By GTIDs a busy source read its newest file from the beginning, for each table that it was asked about."""
    scans: list[object] = []

    async def statements(scan: LogScan, start: object, visit: object, end: object) -> None:
        scans.append(start)

    async def knows(end: BinlogPosition) -> bool:
        assert end == BinlogPosition("binlog.000001", 2000)
        assert is_untouched is not None
        return is_untouched

    monkeypatch.setattr(LogScan, "statements", statements)
    session: Any = BusySession()
    reader = TableReader(session, replace(SOURCE, has_gtids=True))
    reading = await reader.read("", None if is_untouched is None else knows)
    assert reading.place == BinlogPosition("binlog.000001", 2000)
    assert scans == ([] if is_untouched else [GtidSet(f"{UUID}:1")])


@pytest.mark.parametrize(
    ("sql", "readings"),
    [
        ("ALTER TABLE other.t ADD x INT", 1),
        ("RENAME TABLE other.t TO other.o, shop.t TO shop.o", 5),
        ("DROP DATABASE other", 5),
    ],
)
async def test_statements_about_tables_that_a_stream_does_not_select(
    sql: str, readings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tables were read five times, of 10,000 tables 22 MB, while another table was altered again and again."""

    async def statements(
        scan: LogScan, start: object, visit: Callable[[Event, str, int], bool], end: object
    ) -> None:
        header = EventHeader(0, 2, 1, 100, 0, 0)
        visit(QueryEvent(header, "binlog.000001", 50, 1, 0, 0, "shop", sql, b""), "binlog.000001", 50)

    monkeypatch.setattr(LogScan, "statements", statements)
    session: Any = BusySession()
    session.options = Options.build("mysql://repl@127.0.0.1", {"tables": ["shop.*"]})
    await TableReader(session, replace(SOURCE, has_gtids=True)).read()
    # The marks before and after the tables.
    assert session.asked == 2 * readings


async def test_a_known_end_of_the_log_may_be_purged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may not ask for the log's end reads on from where it was seen to end."""
    since: list[BinlogPosition | None] = []

    async def end(scan: LogScan, known: BinlogPosition | None = None) -> BinlogPosition:
        since.append(known)
        if known is not None and known.file == "binlog.000001":
            raise BinlogNotFoundError(
                1236, "HY000", "Could not find first log file name in binary log index file"
            )
        return BinlogPosition("binlog.000009", 400)

    monkeypatch.setattr(LogScan, "end", end)
    session: Any = RefusingSession()
    old = BinlogPosition("binlog.000001", 4000)
    reading = await TableReader(session, SOURCE, old).read()
    assert reading.place == BinlogPosition("binlog.000009", 400)
    assert since == [old, None, reading.place]


class RefusingSession:
    options = Options.build("mysql://repl@127.0.0.1", {})

    async def query(self, sql: str, columns: int | None = None) -> list[tuple[str, ...]]:
        return []

    async def query_each(self, questions: list[Question]) -> list[object]:
        denied = PrivilegeError(1227, "42000", "Access denied", "GRANT REPLICATION CLIENT")
        return [denied if one.sql.startswith("SHOW BINARY LOG STATUS") else [] for one in questions]
