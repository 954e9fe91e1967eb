"""Answers that are no answers: rows of another shape, texts of another kind, results without end."""

from __future__ import annotations

import tracemalloc
from typing import cast

import pytest

import replica
from protocol.constants import Capability
from protocol.conversation.results import MAX_ANSWER, ColumnDefinition, QueryAnswer, encode_row
from protocol.errors import DecodeError, ProtocolError
from protocol.gtid import GtidSet, MariadbGtid, MariadbGtidSet
from replica.config.options import Options
from replica.snapshot.table_list import list_tables
from replica.source.hosts import first_host
from replica.source.lagging_replica import check_lag
from replica.source.log_scan import LogScan
from replica.source.server_facts import ask, executed_gtids, log_status, owned_gtids, purged_gtids
from replica.source.session import Session
from replica.transactions.boundary import Progress
from tests.support.socket_source import MYSQL_VARIABLES, Rows, SocketSource, serving

CLOCK = "SELECT UNIX_TIMESTAMP"


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        (CLOCK, []),
        (CLOCK, [("",)]),
        (CLOCK, [(None,)]),
        (CLOCK, [("nan",)]),
        (CLOCK, [("1e400",)]),
        (CLOCK, [("1", "x")]),
        (CLOCK, [("1",), ("2",)]),
        ("SHOW GLOBAL VARIABLES", [("server_id",)]),
        ("SHOW GLOBAL VARIABLES", [("server_id", "one")]),
        ("SHOW GLOBAL VARIABLES", [("server_id", "-1")]),
        ("SHOW GLOBAL VARIABLES", [("server_id", "4294967296")]),
        ("SHOW GLOBAL VARIABLES", [("server_id", "9" * 5000)]),
        ("SHOW MASTER STATUS", [("binlog.000001",)]),
        ("SHOW MASTER STATUS", [("binlog.000001", "many")]),
        ("SHOW MASTER STATUS", [("binlog.000001", "-4")]),
        ("SHOW MASTER STATUS", [("", "4")]),
        ("SHOW MASTER STATUS", [(None, "4")]),
        ("SHOW MASTER STATUS", [("b" * 513, "4")]),
        ("SHOW MASTER STATUS", [("a\0b", "4")]),
        ("SELECT @@GLOBAL.gtid_executed", [("0-1-5",)]),
        ("SELECT @@GLOBAL.gtid_owned", [("x",)]),
        ("SELECT @@GLOBAL.gtid_purged", [("x",)]),
    ],
)
async def test_rows_of_another_shape(statement: str, rows: Rows) -> None:
    """Each ended in a ValueError, an IndexError or a TypeError."""
    source = SocketSource(answers={statement: rows}, version="5.7.44")
    async with serving(source) as listening:
        session = await first_host(Options.build(listening.dsn, {}), Session.open)

        async def all_questions() -> None:
            facts = await ask(session)
            await log_status(session, facts)
            await executed_gtids(session, facts)
            await owned_gtids(session)
            await purged_gtids(session)

        try:
            with pytest.raises(ProtocolError, match="answer"):
                await all_questions()
        finally:
            await session.aclose()


async def test_too_few_columns() -> None:
    """These ended in an IndexError and a ValueError."""
    source = SocketSource(version="11.8.6-MariaDB")
    source.answers["SHOW GLOBAL STATUS LIKE 'Slaves_running'"] = [("0",)]
    source.answers["SELECT TABLE_SCHEMA"] = [("s", "t", "InnoDB")]
    async with serving(source):
        session = await Session.open(Options.build(source.dsn, {}))
        facts = await ask(session)
        with pytest.raises(ProtocolError, match=r"1 columns answer .SHOW GLOBAL STATUS"):
            await check_lag(MariadbGtidSet("0-1-5"), session, facts)
        with pytest.raises(ProtocolError, match=r"3 columns answer .SELECT TABLE_SCHEMA"):
            await list_tables(session, lambda schema, table: True)
        await session.aclose()


@pytest.mark.parametrize("name", [b"\xff", None])
async def test_names_of_tables_that_no_statement_can_have(name: bytes | None) -> None:
    """A copy of such a table ended in a UnicodeEncodeError, and one without a name was called None."""
    source = SocketSource(answers={"SELECT TABLE_SCHEMA": cast("Rows", [("s", name, "InnoDB", "1")])})
    async with serving(source):
        session = await Session.open(Options.build(source.dsn, {}))
        with pytest.raises(ProtocolError, match="which is no value of its kind"):
            await list_tables(session, lambda schema, table: True)
        await session.aclose()


async def test_further_columns_are_left_out() -> None:
    variables = [(name, value, "and more") for name, value in MYSQL_VARIABLES.items()]
    async with serving(SocketSource(answers={"SHOW GLOBAL VARIABLES": variables})) as source:
        session = await Session.open(Options.build(source.dsn, {}))
        assert (await ask(session)).server_id == 97
        await session.aclose()


async def test_a_source_that_has_every_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for the newest file doubles its step, and never ended."""

    async def exists(self: LogScan, file: str) -> bool:
        return True

    async def first_file(self: LogScan) -> str:
        return "binlog.000001"

    monkeypatch.setattr(LogScan, "_exists", exists)
    monkeypatch.setattr(LogScan, "first_file", first_file)
    async with serving(SocketSource()) as source:
        session = await Session.open(Options.build(source.dsn, {}))
        scan = LogScan(session.options, await ask(session))
        await session.aclose()
        with pytest.raises(ProtocolError, match="more than 1048576 binlog files"):
            await scan.files()


@pytest.mark.parametrize("values", [[None] * 40, ["x" * 60_000]])
def test_a_result_without_end(values: list[str | None]) -> None:
    """It took 1.6 GB before the time for the answer was over."""
    answer = QueryAnswer(Capability.PROTOCOL_41 | Capability.DEPRECATE_EOF)
    answer.receive(bytes([len(values)]))
    for _ in values:
        answer.receive(ColumnDefinition("c", 253).encode())
    row = encode_row(values)
    tracemalloc.start()

    def receive_for_ever() -> None:
        while True:
            answer.receive(row)

    try:
        with pytest.raises(ProtocolError, match=f"more than {MAX_ANSWER} bytes"):
            receive_for_ever()
        assert tracemalloc.get_traced_memory()[1] < 2.5 * MAX_ANSWER
    finally:
        tracemalloc.stop()


def test_columns_are_counted_too() -> None:
    answer = QueryAnswer(Capability.PROTOCOL_41)
    answer.receive(b"\xfc\xff\x0f")
    column = ColumnDefinition("c" * (1 << 20), 253).encode()

    def receive_all() -> None:
        for _ in range(4095):
            answer.receive(column)

    with pytest.raises(ProtocolError, match="bytes of memory"):
        receive_all()


def test_gtids_of_the_other_family() -> None:
    for gtid_set, gtid in (
        (GtidSet(), MariadbGtid(0, 1, 2)),
        (MariadbGtidSet(), replica.Gtid.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1")),
    ):
        progress = Progress("binlog.000001", 4, gtid_set, has_gtids=True)
        progress._gtid = gtid
        with pytest.raises(DecodeError, match="other family"):
            progress._finish()
