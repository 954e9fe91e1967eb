"""The doctor on real servers: what is planted is found, the remedy that it names is carried out, and it is well then.

Here is what belongs to a user, a schema or a session, on the shared servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

import replica
from replica.doctor import can_start, examine
from tests.support.servers import Server

from .support.doctor_findings import assert_cured, carry_out, findings_of, options_in, typed
from .support.streams import MYSQL97_AND_MARIADB118, PASSWORD, end_of_log, stream_of, user_of

WITHOUT_LOGGED_CASCADES = ["mysql:5.6", "mariadb:10.11", "mariadb:11.8"]
EVERYTHING = "REPLICATION SLAVE, REPLICATION CLIENT, SELECT"


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


async def test_a_user_who_may_read_one_schema(server: Server, schema: str) -> None:
    """README's privileges: the remedy is to select that schema, and a copy takes its tables."""
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    with user_of(server, grants="REPLICATION SLAVE, REPLICATION CLIENT") as user:
        server.query(f"GRANT SELECT ON `{schema}`.* TO '{user}'@'%'")
        found = await findings_of(server, user)
        assert [remedy.text for remedy in found["select privilege"].remedies] == [f"tables={schema}.*"]
        cured = await findings_of(server, user, tables=f"{schema}.*")
        assert [cured["select privilege"].state, found["copy: privileges"].state] == ["ok", "ok"]


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


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_generated_columns(server: Server, schema: str) -> None:
    """They are named where the log of updates lacks them: MariaDB 11.8.9 and later."""
    server.query(f"CREATE TABLE {schema}.plain (a INT PRIMARY KEY)")
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY, `g s` INT AS (a + 1) VIRTUAL)")
    found = (await findings_of(server, tables=f"{schema}.*")).get("generated columns")
    if server.logs_generated:
        assert found is None
    else:
        assert found is not None
        assert found.message.startswith(f"{schema}.t.g s: ")


@pytest.mark.parametrize("sql_mode", ["DEFAULT", "'ANSI_QUOTES'"])
async def test_tables_of_any_name(server: Server, sql_mode: str) -> None:
    name = "Größe ’`x"
    quoted = name.replace("`", "``")
    server.query(f"CREATE DATABASE `{quoted}` CHARACTER SET utf8")
    try:
        server.query(f"SET GLOBAL sql_mode = {sql_mode}")
        server.query(f"CREATE TABLE `{quoted}`.`佐藤` (a INT, n INT AUTO_INCREMENT, KEY (n))")
        server.query(f"CREATE TABLE `{quoted}`.`佐 藤` (a INT PRIMARY KEY)")
        for tables in (f"{name}.*", f"{name}.佐 藤"):
            with user_of(server, grants="REPLICATION SLAVE") as user:
                await assert_cured(server, "select privilege", "warning", user, tables=tables)
        cured = await assert_cured(server, "primary keys", "warning", tables=f"{name}.*")
        assert "ADD PRIMARY KEY (`n`)" in cured.remedies[0].text
        assert (await findings_of(server, tables=f"{name}.*"))["primary keys"].state == "ok"
    finally:
        server.query("SET GLOBAL sql_mode = DEFAULT")
        server.query(f"DROP DATABASE `{quoted}`")


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
        session = own.thread_id()  # type: ignore[no-untyped-call]
        assert typed(found, "sql") == [f"KILL {session};"]
    finally:
        # It has been killed.
        with contextlib.suppress(pymysql.err.MySQLError):
            own.close()


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
    """No connection stays, and no replica in the source's list: one without a dump would kill MySQL 5.6."""
    listing = "SHOW REPLICAS" if server.version >= (8, 4) and server.family == "mysql" else "SHOW SLAVE HOSTS"
    connections = "SELECT id FROM information_schema.processlist WHERE user = %s"
    others = set(server.query(listing)) | set(server.query(connections, server.replica_user))
    before = time.monotonic()
    for _ in range(3):
        await examine(server.dsn(), server_id=7654)
    assert time.monotonic() - before < 60
    async with asyncio.timeout(20):
        while set(server.query(connections, server.replica_user)) - others:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert set(server.query(listing)) <= others
