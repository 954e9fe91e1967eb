"""The doctor and settings for all: planted on servers of these tests alone, found, and cured as it says."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.container import restart
from tests.support.servers import Server

from .support.doctor_findings import assert_cured, findings_of, typed
from .support.streams import MARIADB

# Settings for all


@dataclass(frozen=True)
class Plant:
    check: str
    state: str
    statements: tuple[str, ...]
    given: tuple[tuple[str, Any], ...] = ()


def setting(check: str, value: str, state: str = "warning", name: str = "") -> Plant:
    return Plant(check, state, (f"SET GLOBAL {name or check} = {value}",))


COMMON = (
    setting("binlog_format", "'STATEMENT'", "failure"),
    setting("binlog_row_image", "'MINIMAL'"),
    setting("binlog_checksum", "'NONE'"),
    setting("sync_binlog", "100"),
    setting("innodb_flush_log_at_trx_commit", "0"),
    setting("net_write_timeout", "10"),
)
ERROR_ACTION = setting("binlog_error_action", "'IGNORE_ERROR'")
SEMI_SYNC = (("semi_sync", True),)
PLANTS: dict[str, tuple[Plant, ...]] = {
    "mysql:9.7": (
        *COMMON,
        ERROR_ACTION,
        setting("binlog_row_value_options", "'PARTIAL_JSON'"),
        setting("retention", "3600", name="binlog_expire_logs_seconds"),
        setting("source's server_id", "0", "failure", name="server_id"),
        Plant("gtid_mode", "warning", ()),
        Plant("semi_sync", "failure", (), SEMI_SYNC),
        Plant("semi_sync", "warning", ("SET GLOBAL rpl_semi_sync_source_enabled = OFF",), SEMI_SYNC),
        Plant("semi_sync", "warning", ("SET GLOBAL rpl_semi_sync_source_timeout = 100",), SEMI_SYNC),
    ),
    "mysql:5.6": (
        *COMMON,
        ERROR_ACTION,
        setting("retention", "1", name="expire_logs_days"),
        setting("source's server_id", "0", "failure", name="server_id"),
    ),
    "mariadb:10.11": (
        *COMMON,
        setting("binlog_format", "'MIXED'", "failure"),
        setting("retention", "1", name="expire_logs_days"),
        Plant("semi_sync", "warning", (), SEMI_SYNC),
    ),
    "mariadb:11.8": (
        *COMMON,
        setting("retention", "86400", name="binlog_expire_logs_seconds"),
        setting("retention", "1000000000", name="max_binlog_total_size"),
        Plant("semi_sync", "warning", (), SEMI_SYNC),
        Plant("semi_sync", "warning", ("SET GLOBAL rpl_semi_sync_master_timeout = 100",), SEMI_SYNC),
    ),
}


@pytest.mark.parametrize("name", PLANTS)
async def test_settings(name: str, extra_server: Callable[..., Server]) -> None:
    without = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF") if name == "mysql:9.7" else ()
    server = extra_server(name, *without)
    for plant in PLANTS[name]:
        for statement in plant.statements:
            server.query(statement)
        await assert_cured(server, plant.check, plant.state, **dict(plant.given))
    # All together, and what was cured first is well still.
    given = {name: value for plant in PLANTS[name] for name, value in plant.given}
    left = await findings_of(server, **given)
    planted = {plant.check for plant in PLANTS[name]}
    assert {check for check in planted if left[check].state != "ok"} == set()
    assert left["start"].state == "ok"
    if name == "mysql:9.7":
        server.container.get_wrapped_container().restart()
        server.wait_until_ready()
        later = await findings_of(server, **given)
        # Arguments of the command line win over what was persisted; nothing else is as it was.
        stood = {"sync_binlog", "innodb_flush_log_at_trx_commit"}
        assert {check for check in planted if later[check].state != "ok"} <= stood


@pytest.mark.parametrize("name", ["mysql:9.7", "mariadb:11.8"])
async def test_semi_sync_that_falls_back(name: str, extra_server: Callable[..., Server]) -> None:
    server = extra_server(name)
    for statement in typed((await findings_of(server, semi_sync=True))["semi_sync"], "sql"):
        server.query(statement)
    word = server.semi_sync_word
    server.query(f"SET GLOBAL rpl_semi_sync_{word}_timeout = 1000")
    before = (await findings_of(server, semi_sync=True))["semi_sync"]
    assert (before.state, "connected" in before.message) == ("ok", False)
    assert f"at most 1 s (rpl_semi_sync_{word}_timeout)" in before.message
    # No replica acknowledges this commit.
    server.query("CREATE SCHEMA unacknowledged")
    after = (await findings_of(server, semi_sync=True))["semi_sync"]
    assert (after.state, "no semi-synchronous replica is connected" in after.message) == ("ok", True)


@pytest.mark.parametrize("name", ["mysql:9.7", "mysql:5.6", "mariadb:11.8"])
async def test_statements_in_the_log(name: str, extra_server: Callable[..., Server]) -> None:
    """From before the format was right: it is in the newest file, until that is closed."""
    server = extra_server(name)
    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
        assert (await findings_of(server))["statements in the log"].state == "ok"
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
            cursor.execute(f"INSERT INTO {schema}.t VALUES (1)")
        found = await assert_cured(server, "statements in the log", "warning")
        assert f"INSERT INTO {schema}.t" in found.message


# What takes a restart


class OptionFile:
    """The option file of a server that can be restarted, for lines that the doctor prints."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._path = "/etc/mysql/mariadb.conf.d/zz.cnf" if server.family == "mariadb" else "/etc/mysql/my.cnf"

    def add(self, *lines: str) -> None:
        text = "\\n".join(("", "[mysqld]", *lines, ""))
        self._server.exec("bash", "-c", f"printf '{text}' >> {self._path}")

    def take_out(self, *lines: str) -> None:
        for line in lines:
            self._server.exec("sed", "-i", f"/^{line}$/d", self._path)

    async def restart(self) -> None:
        await asyncio.to_thread(restart, self._server, "TERM")


def run_shell(server: Server, command: str, folder: Path) -> None:
    """In the data directory; the images lack the program, so it runs here."""
    subprocess.run(command, shell=True, check=True, cwd=folder, capture_output=True)
    for file in folder.iterdir():
        content = base64.b64encode(file.read_bytes()).decode()
        path = f"/var/lib/mysql/{file.name}"
        server.exec("bash", "-c", f"echo {content} | base64 -d > {path}; chown mysql: {path}")


async def assert_cured_by_restart(
    server: Server, tmp_path: Path, check: str, state: str, **given: Any
) -> None:
    options = OptionFile(server)
    before = (await findings_of(server, **given))[check]
    print(before)
    assert before.state == state
    for command in typed(before, "shell"):
        run_shell(server, command, tmp_path)
    options.add(*typed(before, "option file"))
    options.take_out(*typed(before, "out of option file"))
    await options.restart()
    after = (await findings_of(server, **given))[check]
    assert after.state == "ok", after


# A server is started four times.
@pytest.mark.parametrize(
    "name",
    [
        "mysql:9.7",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("mysql:5.6", MARIADB[0])),
        *MARIADB[1:],
    ],
)
async def test_schemas_that_are_not_logged(
    name: str, supervised_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = supervised_server(name)
    OptionFile(server).add("binlog_ignore_db = secret", "binlog_ignore_db = other")
    await OptionFile(server).restart()
    assert (await findings_of(server, tables="shop.*"))["log filters"].state == "ok"
    await assert_cured_by_restart(server, tmp_path, "log filters", "warning", tables="secret.*")
    assert (await findings_of(server, tables="other.*"))["log filters"].state == "warning"
    OptionFile(server).add("binlog_do_db = shop")
    await OptionFile(server).restart()
    assert (await findings_of(server, tables="shop.*"))["log filters"].state == "ok"
    await assert_cured_by_restart(server, tmp_path, "log filters", "warning", tables="shop.*,else.*")


@pytest.mark.parametrize("name", ["mysql:5.6", *MARIADB])
async def test_a_replica_that_logs_nothing(
    name: str, supervised_server: Callable[..., Server], tmp_path: Path
) -> None:
    arguments = () if name.startswith("mariadb") else ("--skip-log-slave-updates", "--gtid-mode=OFF")
    server = supervised_server(name, *arguments)
    server.query("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'x'")
    if server.family == "mariadb":
        assert "log_replica_updates" not in await findings_of(server)
        server.query(f"GRANT SLAVE MONITOR ON *.* TO '{server.replica_user}'@'%'")
        await assert_cured_by_restart(server, tmp_path, "log_replica_updates", "warning")
    else:
        assert (await findings_of(server))["log_replica_updates"].state == "warning"


@pytest.mark.parametrize("name", ["mariadb:10.11"])
async def test_a_source_without_certificate(
    name: str, supervised_server: Callable[..., Server], tmp_path: Path
) -> None:
    await assert_cured_by_restart(supervised_server(name), tmp_path, "TLS", "warning")


@pytest.mark.parametrize(
    ("name", "check", "planted"),
    [
        ("mysql:9.7", "log_bin", ("--skip-log-bin", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")),
        ("mysql:5.6", "log_bin", ("--skip-log-bin", "--gtid-mode=OFF", "--skip-log-slave-updates")),
        ("mariadb:11.8", "log_bin", ("--skip-log-bin",)),
        ("mysql:5.6", "gtid_mode", ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")),
    ],
)
async def test_what_the_command_line_says(
    name: str, check: str, planted: tuple[str, ...], extra_server: Callable[..., Server]
) -> None:
    """Lines of the option file are arguments as well; behind the planted ones they win over them."""
    before = (await findings_of(extra_server(name, *planted)))[check]
    assert before.state == ("failure" if check == "log_bin" else "warning")
    lines = [line.replace(" ", "") for line in typed(before, "option file")]
    cured = extra_server(name, *planted, *(f"--{line}" for line in lines))
    after = await findings_of(cured)
    assert after[check].state == "ok"
    assert after["start"].state == "ok"
