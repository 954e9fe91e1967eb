"""A copy begins at the log's end only where nothing runs that may be in the log and not in the tables yet."""

from __future__ import annotations

from typing import Any

import pytest

import replica
from replica import BinlogPosition
from replica.config.options import Options
from replica.demo import DemoSource
from replica.source.hosts import first_host
from replica.source.quiet_end import quiet_end
from replica.source.server_facts import ask
from replica.source.session import Session
from tests.support.socket_source import SocketSource, serving

RUNNING = "SHOW GLOBAL STATUS WHERE"
DUMPS = "SELECT ID FROM information_schema.PROCESSLIST"
XA = "SHOW GLOBAL STATUS LIKE 'Com_xa_start'"
SCHEDULER = "SELECT @@GLOBAL.event_scheduler"
END = BinlogPosition("binlog.000007", 1234)


def status(running: int, applies: str = "OFF", appliers: str = "0") -> list[tuple[str, str]]:
    return [("Slave_running", applies), ("Slaves_running", appliers), ("Threads_running", str(running))]


async def end_of(**answers: Any) -> BinlogPosition | None:
    known: dict[str, Any] = {
        "SHOW MASTER STATUS": [(END.file, str(END.position))],
        SCHEDULER: [("OFF",)],
        XA: [("Com_xa_start", "0")],
        DUMPS: [],
        RUNNING: status(1),
    }
    source = SocketSource(answers=known | answers, version=str(answers.pop("version", "11.8.9-MariaDB")))
    source.variables["wsrep_on"] = str(answers.pop("wsrep_on", "OFF"))
    async with serving(source) as listening:
        session = await first_host(Options.build(listening.dsn, {}), Session.open)
        try:
            return await quiet_end(session, await ask(session))
        finally:
            await session.aclose()


async def test_nothing_runs() -> None:
    assert await end_of() == END


async def test_xa_transactions_were_decided_before() -> None:
    assert await end_of(**{XA: [("Com_xa_start", "3")], "XA RECOVER": []}) == END


async def test_dumps_of_the_same_user_change_nothing() -> None:
    assert await end_of(**{DUMPS: [("8",), ("9",)], RUNNING: status(3)}) == END


@pytest.mark.parametrize(
    "answers",
    [
        {RUNNING: status(2)},
        {RUNNING: status(1, applies="ON")},
        {RUNNING: status(1, appliers="1")},
        {RUNNING: [("Threads_running", "1")]},
        {RUNNING: []},
        {DUMPS: [("8",)], RUNNING: status(3)},
        {SCHEDULER: [("ON",)]},
        {XA: [("Com_xa_start", "1")], "XA RECOVER": [("1", "1", "0", "x")]},
        {"SHOW MASTER STATUS": []},
    ],
)
async def test_something_may_run(answers: dict[str, Any]) -> None:
    assert await end_of(**answers) is None


async def test_a_dump_that_ends_meanwhile_hides_no_statement() -> None:
    """The dump was counted before, and the statement that began meanwhile would pass for it."""
    dumps = iter([[("8",)], []] * 20)
    assert await end_of(**{DUMPS: lambda: next(dumps), RUNNING: status(2)}) is None


async def test_the_source_becomes_quiet() -> None:
    counts = iter([status(4), status(2), status(1)])
    ends = iter([[("binlog.000007", str(position))] for position in (1000, 1100, 1234)])
    found = await end_of(**{RUNNING: lambda: next(counts), "SHOW MASTER STATUS": lambda: next(ends)})
    assert found == END


async def test_mysql_says_who_applies_logs_up_to_5_6() -> None:
    assert await end_of(version="5.6.24") == END
    assert await end_of(version="5.7.44") is None


async def test_a_node_of_galera_applies_what_others_write() -> None:
    """The threads that do are not counted: a copy lacked rows that such a one had logged and not committed yet."""
    assert await end_of(wsrep_on="ON") is None


async def test_served_files_have_no_tables_to_copy() -> None:
    """The statements about tables were refused one after another, as syntax errors."""
    with (
        DemoSource(tls=False) as source,
        pytest.raises(replica.ConfigurationError, match="no tables to copy: copy from the server"),
    ):
        async with replica.connect(source.dsn, start="snapshot"):
            pass
