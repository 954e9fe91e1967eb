"""What the doctor says about an initial copy: it works or not as the doctor said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import replica
from tests.support.servers import Server

from .support.doctor_findings import assert_cured, findings_of, options_in
from .support.streams import MYSQL97_AND_MARIADB118, stream_of, user_of


async def test_tables_that_can_be_copied(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.a (id INT PRIMARY KEY)")
    server.query(
        f"CREATE TABLE {schema}.b (x VARCHAR(9) NOT NULL, y INT NOT NULL, z INT, UNIQUE (x, y), UNIQUE (z))"
    )
    found = await findings_of(server, tables=f"{schema}.*")
    assert found["copy: privileges"].state == "ok"
    assert found["copy: tables"].message == "2 tables can be copied, in chunks by their keys"
    assert "about 0 rows" in found["copy: log"].message


async def test_tables_that_cannot_be_copied(server: Server, schema: str) -> None:
    """Another engine: the copy refuses it until it is InnoDB."""
    server.query(f"CREATE TABLE {schema}.m (id INT PRIMARY KEY) ENGINE=MyISAM")
    options = {"start": "snapshot", "tables": f"{schema}.*"}
    with pytest.raises(replica.ConfigurationError, match="its engine MyISAM"):
        async with stream_of(server, **options):
            pass
    finding = await assert_cured(server, "copy: tables", "warning", tables=f"{schema}.*")
    assert f"{schema}.m (MyISAM)" in finding.message
    async with stream_of(server, **options):
        pass


@pytest.mark.parametrize("index", ["INDEX (a)", "UNIQUE (a)", "UNIQUE (b(3))"])
async def test_tables_without_a_key(server: Server, schema: str, index: str) -> None:
    """Exact GTIDs copy them in one view, other sources with locks only."""
    server.query(f"CREATE TABLE {schema}.nokey (a INT, b VARCHAR(20) NOT NULL, {index})")
    finding = (await findings_of(server, tables=f"{schema}.*"))["copy: tables"]
    assert f"{schema}.nokey" in finding.message
    options = options_in(finding)
    is_exact = server.family == "mysql" and server.version >= (5, 7)
    assert finding.state == ("warning" if options else "ok")
    assert options == ({} if is_exact else {"snapshot_locking": "rows"})
    async with stream_of(server, start="snapshot", tables=f"{schema}.*", **options):
        pass
    if options:
        with pytest.raises(replica.ConfigurationError, match="there is no key"):
            async with stream_of(server, start="snapshot", tables=f"{schema}.*"):
                pass


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_privileges_for_a_copy(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    with user_of(server, grants="REPLICATION SLAVE") as user:
        await assert_cured(server, "copy: privileges", "warning", user, tables=f"{schema}.*")
        async with stream_of(server, user, start="snapshot", tables=f"{schema}.*"):
            pass


async def test_no_table_matches(server: Server, schema: str) -> None:
    """The doctor said that 0 tables can be copied, and the copy was refused."""
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    finding = (await findings_of(server, tables=f"{schema}.t,{schema}.tt"))["copy: tables"]
    assert finding.state == "warning"
    assert f"no table matches {schema}.tt" in finding.message
    with pytest.raises(replica.ConfigurationError, match=f"no table matches '{schema}.tt'"):
        async with stream_of(server, start="snapshot", tables=f"{schema}.t,{schema}.tt"):
            pass


async def test_a_schema_that_is_left_out_of_a_grant(extra_server: Callable[..., Server]) -> None:
    """partial_revokes: SELECT on all but one schema."""
    server = extra_server("mysql:9.7", "--partial-revokes=ON")
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
    with user_of(server) as user:
        server.query(f"REVOKE SELECT ON d.* FROM '{user}'@'%'")
        for name in ("select privilege", "copy: privileges"):
            server.query(f"REVOKE SELECT ON d.* FROM '{user}'@'%'")
            await assert_cured(server, name, "warning", user, tables="d.*")
        async with stream_of(server, user, start="snapshot", tables="d.*"):
            pass
