"""A stream from a cluster of Galera: nodes whose GTIDs agree, and what the doctor says where they may not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

import pymysql
import pytest

import replica
from protocol.errors import SourceChangedError
from tests.faults.proxy import FaultProxy
from tests.faults.topology import address_of
from tests.faults.waiting import until
from tests.server.support.doctor_findings import findings_of
from tests.server.support.faulty_streams import stream_through
from tests.server.support.streams import SECONDS, take_rows
from tests.support.servers import Server

NODE = (
    "--wsrep-on=ON",
    "--wsrep-provider=/usr/lib/galera/libgalera_smm.so",
    "--innodb-autoinc-lock-mode=2",
    "--log-slave-updates=ON",
)
ONE_COUNT = ("--wsrep-gtid-mode=ON", "--wsrep-gtid-domain-id=10", "--server-id=100")


@pytest.mark.long
async def test_a_stream_goes_on_at_another_node(extra_server: Callable[..., Server]) -> None:
    """Each node counts with the others what all of them log, and what it alone logs in a domain of its own."""
    first = node(extra_server, 1, "")
    second = node(extra_server, 2, address_of(first))
    first.query("CREATE SCHEMA d")
    first.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
    first.query("CREATE TABLE d.local (id INT) ENGINE=Aria")
    dsn = f"mysql://{first.replica_user}:{first.replica_password}@127.0.0.1:{first.port},127.0.0.1:{second.port}"
    policy = replica.ReconnectPolicy(initial=0.05, maximum=0.5)
    async with replica.connect(dsn, tables="d.t", tls="disabled", reconnect=policy, heartbeat=0.5) as stream:
        for number in range(10):
            first.query(f"INSERT INTO d.local VALUES ({number})")
            (first, second)[number % 2].query(f"INSERT INTO d.t VALUES ({number})")
        assert sorted(await take_rows(stream, 10)) == [(number,) for number in range(10)]
        first.container.get_wrapped_container().stop()
        for number in range(10, 20):
            second.query(f"INSERT INTO d.t VALUES ({number})")
        assert await take_rows(stream, 10) == [(number,) for number in range(10, 20)]
        assert stream.checkpoint is not None


async def test_nodes_that_count_by_themselves(extra_server: Callable[..., Server]) -> None:
    server = extra_server("mariadb:11.8", *NODE, "--wsrep-cluster-address=gcomm://", "--wsrep-new-cluster")
    finding = (await findings_of(server))["wsrep_gtid_mode"]
    assert finding.state == "warning"
    assert "each node of the cluster counts its transactions itself" in finding.message


async def test_a_stream_does_not_go_on_at_a_node_that_counts_by_itself(
    extra_server: Callable[..., Server],
) -> None:
    """A GTID of the first node names another transaction on the second one: rows were missing without an error."""
    first = node(extra_server, 1, "", ())
    second = node(extra_server, 2, address_of(first), ())
    first.query("CREATE SCHEMA d")
    first.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
    first.query("CREATE TABLE d.local (id INT) ENGINE=Aria")
    for number in range(3):
        first.query(f"INSERT INTO d.local VALUES ({number})")
    async with FaultProxy(first.port) as proxy, asyncio.timeout(SECONDS):
        async with stream_through(proxy, first, start="now", tables="d.t") as stream:
            second.query("INSERT INTO d.t VALUES (0)")
            transaction = await anext(stream.transactions())
            assert [change.after async for change in transaction] == [{"id": 0}]
            proxy.retarget(second.port)
            proxy.cut_now()
            for number in range(1, 6):
                second.query(f"INSERT INTO d.t VALUES ({number})")
            with pytest.raises(SourceChangedError, match="wsrep_gtid_mode=OFF"):
                await take_rows(stream, 1)
        with pytest.raises(SourceChangedError, match="wsrep_gtid_mode=OFF"):
            async with stream_through(proxy, first, start=transaction.checkpoint):
                pass
        # An address that takes turns leads to the node, too.
        proxy.balance(second.port, first.port)
        async with stream_through(proxy, first, start=transaction.checkpoint, tables="d.t") as stream:
            assert await take_rows(stream, 5) == [(number,) for number in range(1, 6)]


@pytest.mark.long
async def test_a_copy_of_a_node_has_what_another_one_writes(extra_server: Callable[..., Server]) -> None:
    """The node has logged a row, and its thread waits for a replica before it commits: the copy lacked the row."""
    first = node(extra_server, 1, "")
    second = node(extra_server, 2, address_of(first))
    # By the node itself: what it applies later would wait for a replica, too, and hold a lock on the table.
    await until(lambda: runs(second, "CREATE SCHEMA d"))
    await until(lambda: runs(second, "CREATE TABLE d.t (id INT PRIMARY KEY)"))
    await until(lambda: bool(first.query("SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'd'")))
    second.query("SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC")
    second.query("SET GLOBAL rpl_semi_sync_master_timeout = 600000")
    second.query("SET GLOBAL rpl_semi_sync_master_enabled = ON")
    waiting = "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for semi-sync ACK%'"
    async with replica.connect(second.dsn(), tls="disabled", semi_sync=True):
        first.query("INSERT INTO d.t VALUES (1)")
        await until(lambda: bool(second.query(waiting)))
        async with replica.connect(second.dsn(), tls="disabled", tables="d.t", start="snapshot") as stream:
            assert await take_rows(stream, 1) == [(1,)]


def runs(server: Server, statement: str) -> bool:
    """Run a statement; False if the node does not take it, as it may just after it has joined, ready or not."""
    try:
        server.query(statement)
    except pymysql.err.OperationalError as error:
        if error.args[0] != 1047:
            raise
        return False
    return True


def node(
    extra_server: Callable[..., Server], number: int, others: str, count: Sequence[str] = ONE_COUNT
) -> Server:
    new = () if others else ("--wsrep-new-cluster",)
    address = f"--wsrep-cluster-address=gcomm://{others}"
    domain = (f"--gtid-domain-id={number}",) if count else ()
    server = extra_server("mariadb:11.8", *NODE, *count, *domain, address, *new)
    for _ in range(600):
        # A node takes logins before it has joined, and statements about tables behind that.
        with contextlib.suppress(pymysql.err.OperationalError):
            if server.query("SHOW STATUS LIKE 'wsrep_ready'") == [("wsrep_ready", "ON")]:
                break
        time.sleep(0.1)
    return server
