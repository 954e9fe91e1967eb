"""``replica.doctor.examine`` with scripted sources: refused queries, lost connections, and trials that fail."""

from __future__ import annotations

from pathlib import Path

from protocol.conversation.messages import Err
from replica.doctor import Remedy, examine
from tests.support.scripted_log import Log, mysql, transaction
from tests.support.served import PASSWORD, USER, write_mysql_files
from tests.support.served import serving as relaying
from tests.support.socket_source import MYSQL_VARIABLES, serving


async def test_a_source_that_knows_little() -> None:
    """Refused queries are no failures."""
    refused = Err(1064, "42000", "what?")
    answers = dict.fromkeys(("SHOW GRANTS", "SHOW STATUS", "SHOW REPL", "SHOW BINARY", "SELECT t."), refused)
    source = mysql(transaction(Log(), 1), answers=answers)
    async with serving(source):
        findings = await examine(source.dsn, start="earliest")
    by_check = {finding.check: finding for finding in findings}
    assert by_check["start"].state == "ok"
    assert by_check["monitor privilege"].state == "warning"
    assert not source.is_open


async def test_a_trial_that_fails() -> None:
    gone = Err(1236, "HY000", "Could not find first log file name in binary log index file")
    async with serving(mysql(transaction(Log(), 1), refuses_dump=gone)) as source:
        findings = await examine(source.dsn, start="binlog.000001:4", server_id=7)
        assert findings[-1].check == "start"
        assert findings[-1].state == "failure"
        assert "SHOW BINARY LOGS" in findings[-1].message
        # The trial has another server id than the stream.
        assert source.dumps
        assert {dump.server_id for dump in source.dumps} - {0, 7}
        assert 7 not in {dump.server_id for dump in source.dumps}


async def test_the_source_goes_away_meanwhile() -> None:
    async with serving(mysql(transaction(Log(), 1), silent_for="SHOW GRANTS")) as source:
        findings = await examine(source.dsn, connect_timeout=0.2)
    assert [finding.state for finding in findings] == ["ok", "failure"]


async def test_a_source_does_not_list_its_tables() -> None:
    source = mysql(transaction(Log(), 1), silent_for="SELECT t.TABLE_SCHEMA")
    async with serving(source):
        findings = await examine(source.dsn, connect_timeout=0.2, start="earliest")
    by_check = {finding.check: finding for finding in findings}
    assert "did not list its tables" in by_check["primary keys"].message
    assert by_check["start"].state == "ok"


async def test_the_source_sends_less_than_an_event() -> None:
    log = Log()
    log.raw = [bytes(3)]
    async with serving(mysql(log)) as source:
        findings = await examine(source.dsn, start="earliest")
    assert (findings[-1].check, findings[-1].state) == ("start", "failure")
    assert findings[-1].message == "the source sends an event of 3 bytes"


async def test_the_source_ends_the_dump() -> None:
    log = Log()
    del log.raw[1:]
    async with serving(mysql(log, ends_dump=True)) as source:
        findings = await examine(source.dsn, start="earliest")
    assert (findings[-1].check, findings[-1].state) == ("start", "failure")
    assert "ended the binlog dump" in findings[-1].message


async def test_log_bin_is_off() -> None:
    variables = MYSQL_VARIABLES | {"log_bin": "OFF"}
    async with serving(mysql(Log(), variables=variables)) as source:
        findings = await examine(source.dsn, connect_timeout=0.2)
    assert {finding.check for finding in findings if finding.state == "failure"} == {"log_bin"}
    assert findings[-1].check != "start"


async def test_a_relay(tmp_path: Path) -> None:
    """A BinlogServer has no settings and no tables to check."""
    write_mysql_files(tmp_path)
    async with relaying(tmp_path / "bin.index", semi_sync=True) as server:
        port = server.port
        dsn = f"mysql://{USER}@127.0.0.1:{port}/?tls=disabled"
        findings = await examine(dsn, password=PASSWORD, semi_sync=True, start="earliest")
    assert [finding.check for finding in findings if finding.state != "ok"] == ["TLS"]
    assert {"semi_sync", "gtid_mode", "start"} <= {finding.check for finding in findings}
    assert "served by mysql-replica" in findings[1].message
    async with relaying(tmp_path / "bin.index") as server:
        findings = await examine(
            dsn.replace(f":{port}", f":{server.port}"), password=PASSWORD, semi_sync=True
        )
    [failure] = [finding for finding in findings if finding.state == "failure"]
    assert failure.remedies == (Remedy("shell", "mysql-replica serve --semi-sync DIR"),)
