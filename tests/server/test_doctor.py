"""The doctor on real servers: what is planted is found, the remedy that it names is carried out, and it is well then.

What belongs to a user, a schema or a session is planted on the shared servers. Settings for all are planted on
servers of these tests alone.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pymysql
import pytest

import replica
from replica.doctor import Finding, Remedy, can_start, examine
from tests.faults.container import restart
from tests.servers import Server

from .streams import MARIADB, MYSQL97_AND_MARIADB118, PASSWORD, end_of_log, stream_of, user_of

WITHOUT_LOGGED_CASCADES = ["mysql:5.6", "mariadb:10.11", "mariadb:11.8"]
EVERYTHING = "REPLICATION SLAVE, REPLICATION CLIENT, SELECT"


async def findings_of(server: Server, user: str | None = None, **given: object) -> dict[str, Finding]:
    dsn = server.dsn() if user is None else server.dsn(user, PASSWORD)
    found = await examine(dsn, **given)
    assert len({finding.check for finding in found}) == len(found)
    return {finding.check: finding for finding in found}


def typed(finding: Finding, where: str) -> list[str]:
    return [remedy.text for remedy in finding.remedies if remedy.where == where]


def carry_out(server: Server, remedies: Sequence[Remedy]) -> None:
    """Type the SQL as it is printed, as root. What is for the option file then is for the time after a restart."""
    statements = [remedy.text for remedy in remedies if remedy.where == "sql"]
    assert statements
    assert {remedy.where for remedy in remedies} <= {"sql", "option file"}
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            assert statement.endswith(";")
            cursor.execute(statement)


def options_in(finding: Finding) -> dict[str, object]:
    """The options of the stream that are printed, as the DSN has them."""
    options = [remedy.text.split("=", 1) for remedy in finding.remedies if remedy.where == "stream option"]
    return dict(options)


async def assert_cured(
    server: Server, check: str, state: str, user: str | None = None, **given: object
) -> Finding:
    """The check finds something, and nothing once its remedy has been carried out."""
    before = (await findings_of(server, user, **given))[check]
    assert before.state == state, before
    print(check, before.message, before.remedies)
    carry_out(server, before.remedies)
    after = (await findings_of(server, user, **given))[check]
    assert after.state == "ok", after
    assert not after.remedies
    return before


# Privileges


async def test_without_any_privilege(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    with user_of(server, grants="") as user:
        tables = f"{schema}.*"
        before = await findings_of(server, user, tables=tables)
        assert before["replication privilege"].state == "failure"
        assert "start" not in before
        assert not can_start(list(before.values()))
        await assert_cured(server, "replication privilege", "failure", user, tables=tables)
        between = await findings_of(server, user, tables=tables)
        assert between["start"].state == "ok"
        assert can_start(list(between.values()))
        await assert_cured(server, "monitor privilege", "warning", user, tables=tables)
        cure = await assert_cured(server, "select privilege", "warning", user, tables=tables)
        assert typed(cure, "sql") == [f"GRANT SELECT ON `{schema}`.* TO '{user}'@'%';"]
        async with stream_of(server, user, tables=tables, start=end_of_log(server)) as stream:
            await asyncio.to_thread(server.query, f"INSERT INTO {schema}.t VALUES (1)")
            async with asyncio.timeout(60):
                async for event in stream:
                    if isinstance(event, replica.WriteRowsEvent):
                        assert [column.name for column in event.table.columns] == ["a"]
                        break


@pytest.mark.parametrize("tables", ["{0}.t", "{0}.t, {0}.u", "*", "{0}_?.*"])
async def test_select_on_what_is_selected(server: Server, schema: str, tables: str) -> None:
    for name in "tu":
        server.query(f"CREATE TABLE {schema}.{name} (a INT PRIMARY KEY)")
    with user_of(server, grants="REPLICATION SLAVE") as user:
        await assert_cured(server, "select privilege", "warning", user, tables=tables.format(schema))


async def test_grants_of_every_kind(server: Server, schema: str) -> None:
    """Of a schema by its name, by a pattern, of a table, by a role: what is granted is seen."""
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    pattern = schema.replace("_", "\\_")
    for grant, tables in (
        (f"ALL PRIVILEGES ON `{pattern}`.*", f"{schema}.*"),
        (f"SELECT ON `{schema[:-1]}%`.*", f"{schema}.t"),
        (f"SELECT, INSERT ON {schema}.t", f"{schema}.t"),
        ("SELECT ON *.*", "*"),
    ):
        with user_of(server, grants="REPLICATION SLAVE") as user:
            assert (await findings_of(server, user, tables=tables))["select privilege"].state == "warning"
            server.query(f"GRANT {grant} TO '{user}'@'%'")
            assert (await findings_of(server, user, tables=tables))["select privilege"].state == "ok"
    if server.version >= (8,):
        with user_of(server, grants="REPLICATION SLAVE") as user:
            role = f"role_of_{user}"
            server.query(f"CREATE ROLE {role}")
            try:
                server.query(f"GRANT SELECT ON *.* TO {role}")
                server.query(f"GRANT {role} TO '{user}'@'%'")
                word = "TO" if server.family == "mysql" else "FOR"
                server.query(f"SET DEFAULT ROLE {role} {word} '{user}'@'%'")
                assert (await findings_of(server, user))["select privilege"].state == "ok"
            finally:
                server.query(f"DROP ROLE {role}")


# Tables


async def test_tables_without_primary_key(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.`no key ``here` (a INT, `id` INT)")
    server.query(f"CREATE TABLE {schema}.counted (n BIGINT NOT NULL AUTO_INCREMENT, a INT, KEY (n))")
    server.query(f"CREATE TABLE {schema}.fine (a INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.`no key ``here` VALUES (1, 1), (1, 1)")
    server.query(f"CREATE VIEW {schema}.view_of_it AS SELECT * FROM {schema}.counted")
    tables = f"{schema}.*"
    before = (await findings_of(server, tables=tables))["primary keys"]
    assert before.state == "warning"
    assert len(before.remedies) == 2
    others = (await findings_of(server, tables=tables, exclude_tables=f"{schema}.no*,{schema}.c*"))[
        "primary keys"
    ]
    assert others.state == "ok"
    await assert_cured(server, "primary keys", "warning", tables=tables)


@pytest.mark.parametrize("server", WITHOUT_LOGGED_CASCADES, indirect=True)
async def test_cascades(server: Server, schema: str) -> None:
    """Rows that a foreign key deletes are not in the log, but those that the application deletes then are."""
    # MariaDB prints a quote in a column's name so that nobody can read it.
    column = "b,( )" if server.family == "mariadb" else "b,(``)"
    server.query(f"CREATE TABLE {schema}.parent (a INT, b INT, PRIMARY KEY (a, b))")
    for name, rules in (
        ("deleted", "ON DELETE CASCADE"),
        ("updated", "ON DELETE RESTRICT ON UPDATE CASCADE"),
        ("emptied", "ON DELETE SET NULL"),
        ("kept", "ON DELETE RESTRICT ON UPDATE NO ACTION"),
    ):
        server.query(
            f"CREATE TABLE {schema}.{name} (id INT PRIMARY KEY, a INT, `{column}` INT, "
            f"CONSTRAINT `of {name}` FOREIGN KEY (a, `{column}`) REFERENCES {schema}.parent (a, b) {rules})"
        )
    found = await assert_cured(server, "foreign keys", "warning", tables=f"{schema}.*")
    assert len(found.remedies) == 6
    assert "kept" not in found.message
    server.query(f"INSERT INTO {schema}.parent VALUES (1, 1)")
    server.query(f"INSERT INTO {schema}.deleted VALUES (7, 1, 1)")
    with pytest.raises(pymysql.err.IntegrityError):
        server.query(f"DELETE FROM {schema}.parent")


async def test_cascades_that_are_logged(mysql97: Server) -> None:
    with mysql97.fresh_schema() as schema:
        mysql97.query(f"CREATE TABLE {schema}.p (a INT PRIMARY KEY)")
        mysql97.query(
            f"CREATE TABLE {schema}.c (a INT PRIMARY KEY, "
            f"FOREIGN KEY (a) REFERENCES {schema}.p (a) ON DELETE CASCADE)"
        )
        assert (await findings_of(mysql97, tables=f"{schema}.*"))["foreign keys"].state == "ok"


# The stream's own options


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_rows_in_clear(server: Server) -> None:
    before = (await findings_of(server, tls="disabled"))["TLS"]
    assert before.state == "warning"
    assert (await findings_of(server, **options_in(before)))["TLS"].state == "ok"


async def test_no_heartbeat(server: Server) -> None:
    before = (await findings_of(server, heartbeat=0))["heartbeat"]
    assert before.state == "warning"
    assert (await findings_of(server, **options_in(before)))["heartbeat"].state == "ok"


async def test_a_server_id_that_another_replica_has(server: Server) -> None:
    """And the other replica is not disturbed by being asked about."""
    worst = "failure" if server.family == "mariadb" else "warning"
    with user_of(server, EVERYTHING) as user:
        async with stream_of(server, user, server_id=54321) as stream:
            if server.family == "mariadb":
                # Who may not see the other replicas is told so.
                unseen = (await findings_of(server, user, server_id=54321))["server_id"]
                assert unseen.state == "warning"
                carry_out(server, unseen.remedies)
            before = (await findings_of(server, user, server_id=54321))["server_id"]
            assert before.state == worst, before
            assert (await findings_of(server, user, **options_in(before)))["server_id"].state == "ok"
            assert (await findings_of(server, user))["server_id"].state == "ok"
            assert stream.status.reconnects == 0
            ours = await findings_of(server, user, server_id=server.server_id)
            assert "source itself" in ours["server_id"].message
            assert (await findings_of(server, user, **options_in(ours["server_id"])))[
                "server_id"
            ].state == "ok"


async def test_a_start_that_is_gone(server: Server, tmp_path: Path) -> None:
    """The checkpoint is looked at, too; what is wrong is the error that the stream would raise."""
    end = end_of_log(server)
    good = await findings_of(server, start=end)
    assert good["start"].state == "ok"
    base = end.file.rpartition(".")[0]
    for position in (f"{base}.099999:4", f"{end.file}:{end.position + 1000}"):
        found = await findings_of(server, start=position)
        assert found["start"].state == "failure"
        assert "1236" in found["start"].message
        assert not can_start(list(found.values()))
    store = replica.FileCheckpointStore(tmp_path / "checkpoint")
    store.save(replica.Checkpoint("binlog.000001", 4, None, "elsewhere", 7))
    found = await findings_of(server, checkpoints=store)
    assert found["start"].state == "failure"
    assert "another server" in found["start"].message


async def test_no_connection(server: Server) -> None:
    found = await examine(server.dsn("nobody", "wrong"))
    assert [finding.state for finding in found] == ["failure"]
    assert "check user and password" in found[0].message


# Sessions


async def test_sessions_of_their_own(mysql97: Server) -> None:
    own = mysql97.connect()
    try:
        with own.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
        found = await assert_cured(mysql97, "sessions", "warning")
        assert typed(found, "sql") == [f"KILL {own.thread_id()};"]
    finally:
        # It has been killed.
        with contextlib.suppress(pymysql.err.MySQLError):
            own.close()


# Settings for all


@dataclass(frozen=True)
class Plant:
    check: str
    state: str
    statements: tuple[str, ...]
    given: tuple[tuple[str, object], ...] = ()


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
METADATA = setting("binlog_row_metadata", "'MINIMAL'")
SEMI_SYNC = (("semi_sync", True),)
PLANTS: dict[str, tuple[Plant, ...]] = {
    "mysql:9.7": (
        *COMMON,
        METADATA,
        ERROR_ACTION,
        setting("binlog_row_value_options", "'PARTIAL_JSON'"),
        setting("retention", "3600", name="binlog_expire_logs_seconds"),
        setting("source's server_id", "0", "failure", name="server_id"),
        Plant("gtid_mode", "warning", ()),
        Plant("semi_sync", "failure", (), SEMI_SYNC),
        Plant("semi_sync", "warning", ("SET GLOBAL rpl_semi_sync_source_enabled = OFF",), SEMI_SYNC),
    ),
    "mysql:5.6": (
        *COMMON,
        ERROR_ACTION,
        setting("retention", "1", name="expire_logs_days"),
        setting("source's server_id", "0", "failure", name="server_id"),
    ),
    "mariadb:10.11": (
        *COMMON,
        METADATA,
        setting("binlog_format", "'MIXED'", "failure"),
        setting("retention", "1", name="expire_logs_days"),
        Plant("semi_sync", "warning", (), SEMI_SYNC),
    ),
    "mariadb:11.8": (
        *COMMON,
        METADATA,
        setting("retention", "86400", name="binlog_expire_logs_seconds"),
        setting("retention", "1000000000", name="max_binlog_total_size"),
        Plant("semi_sync", "warning", (), SEMI_SYNC),
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
    left = await findings_of(server, semi_sync=True)
    planted = {plant.check for plant in PLANTS[name]}
    assert {check for check in planted if left[check].state != "ok"} == set()
    assert left["start"].state == "ok"
    if name == "mysql:9.7":
        server.container.get_wrapped_container().restart()
        server.wait_until_ready()
        later = await findings_of(server, semi_sync=True)
        # Arguments of the command line win over what was persisted; nothing else is as it was.
        stood = {"sync_binlog", "innodb_flush_log_at_trx_commit"}
        assert {check for check in planted if later[check].state != "ok"} <= stood


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
    server: Server, tmp_path: Path, check: str, state: str, **given: object
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


@pytest.mark.parametrize("name", ["mysql:9.7", "mysql:5.6", *MARIADB])
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


# The command


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "replica", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def unprivileged(server: Server) -> Iterator[str]:
    with user_of(server, grants="") as user:
        yield server.dsn(user, PASSWORD)


def test_the_command(server: Server, unprivileged: str) -> None:
    done = run(server.dsn())
    assert (done.returncode, done.stderr) == (0, "")
    assert "streaming can start" in done.stdout
    done = run(unprivileged, "--format", "json")
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    assert document["can_start"] is False
    by_check = {finding["check"]: finding for finding in document["findings"]}
    [remedy] = by_check["replication privilege"]["remedies"]
    assert remedy["where"] == "sql"
    assert remedy["text"].startswith("GRANT REPLICATION SLAVE ON *.* TO 'user_")
    done = run(unprivileged)
    assert remedy["text"] in done.stdout
    assert "streaming cannot start" in done.stdout
    assert run(server.dsn() + "/?nonsense=1").returncode == 2
    assert run(server.dsn(), "--from", "nowhere:nothing").returncode == 2


async def test_it_is_quick_and_leaves_nothing(server: Server) -> None:
    """No connection stays, and none was listed as a replica for longer."""
    before = time.monotonic()
    await examine(server.dsn())
    assert time.monotonic() - before < 30
    async with asyncio.timeout(20):
        while True:
            left = server.query(
                "SELECT id FROM information_schema.processlist WHERE user = %s", server.replica_user
            )
            if not left:
                break
            await asyncio.sleep(0.1)
