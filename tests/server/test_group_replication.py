"""A stream from a group in single-primary mode: it goes on at another member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import replica
from replica import GtidSet
from tests.faults.proxy import FaultProxy
from tests.faults.topology import address_of
from tests.faults.waiting import until
from tests.server.support.faulty_streams import stream_through
from tests.server.support.streams import SECONDS, take_rows
from tests.support.servers import Server

_GROUP = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
_ARGUMENTS = (
    "--plugin-load-add=group_replication.so",
    f"--loose-group-replication-group-name={_GROUP}",
    "--loose-group-replication-start-on-boot=OFF",
)


@pytest.mark.long
async def test_a_stream_goes_on_at_the_next_primary(extra_server: Callable[..., Server]) -> None:
    """The group gives GTIDs, in blocks for each primary: there is a gap of a million."""
    first, second = begin_group(extra_server)
    first.query("CREATE SCHEMA d")
    first.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
    hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
    dsn = f"mysql://{first.replica_user}:{first.replica_password}@{hosts}"
    policy = replica.ReconnectPolicy(initial=0.05, maximum=0.5)
    options: dict[str, Any] = {"start": GtidSet(), "tables": "d.t", "tls": "disabled", "heartbeat": 0.5}
    async with asyncio.timeout(2 * SECONDS), replica.connect(dsn, reconnect=policy, **options) as stream:
        await asyncio.to_thread(second.query, "START GROUP_REPLICATION")
        await until(lambda: states(first) == ["ONLINE", "ONLINE"])
        first.query("INSERT INTO d.t VALUES (1)")
        assert await take_rows(stream, 1) == [(1,)]
        [(uuid,)] = second.query("SELECT @@server_uuid")
        first.query(f"SELECT group_replication_set_as_primary('{uuid}')")
        second.query("INSERT INTO d.t VALUES (2)")
        assert await take_rows(stream, 1) == [(2,)]
        first.container.get_wrapped_container().kill()
        await until(lambda: "UNREACHABLE" in states(second))
        # A member that is left alone has no majority.
        second.query(f"SET GLOBAL group_replication_force_members = '{address_of(second)}:33061'")
        second.query("INSERT INTO d.t VALUES (3)")
        assert await take_rows(stream, 1) == [(3,)]
        assert stream.status.server_id == second.server_id
        assert stream.checkpoint is not None
        assert GtidSet(stream.checkpoint.gtid_set or "") <= GtidSet(
            second.query("SELECT @@gtid_executed")[0][0]
        )


@pytest.mark.long
async def test_a_stream_waits_for_a_member_that_lags_behind(extra_server: Callable[..., Server]) -> None:
    """The member has received what it lacks: the stream ended, and told to copy the data again."""
    primary, lagging = members = begin_group(extra_server)
    primary.query("CREATE SCHEMA d")
    primary.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
    lagging.query("START GROUP_REPLICATION")
    await until(lambda: states(primary) == ["ONLINE"] * len(members))
    async with (
        asyncio.timeout(2 * SECONDS),
        FaultProxy(primary.port) as proxy,
        stream_through(proxy, primary, start=GtidSet(), tables="d.t") as stream,
    ):
        await until(lambda: bool(lagging.query("SHOW TABLES IN d LIKE 't'")))
        with lagging.connect() as session, session.cursor() as cursor:
            cursor.execute("LOCK TABLES d.t READ")
            # More than its appliers begin at once.
            for number in range(20):
                primary.query(f"INSERT INTO d.t VALUES ({number})")
            assert await take_rows(stream, 20) == [(number,) for number in range(20)]
            proxy.retarget(lagging.port)
            proxy.cut_now()
            task = asyncio.create_task(take_rows(stream, 1))
            await until(lambda: "is a replica that lags behind" in str(stream.status.last_error))
        primary.query("INSERT INTO d.t VALUES (20)")
        assert await task == [(20,)]
        assert stream.status.server_id == lagging.server_id


def begin_group(extra_server: Callable[..., Server]) -> list[Server]:
    """Two servers of a group, of which the first is its primary, and the second has not joined yet."""
    members = [extra_server("mysql:9.7", *_ARGUMENTS) for _ in range(2)]
    for one, other in (members, members[::-1]):
        name_in(one, other)
        prepare(one, members)
    members[0].query("SET GLOBAL group_replication_bootstrap_group = ON")
    members[0].query("START GROUP_REPLICATION")
    return members


def name_in(server: Server, other: Server) -> None:
    """Members know one another by the names of their machines."""
    [(name,)] = other.query("SELECT @@hostname")
    command = ["bash", "-c", f"echo {address_of(other)} {name} >>/etc/hosts"]
    server.container.get_wrapped_container().exec_run(command, user="root")


def prepare(server: Server, members: list[Server]) -> None:
    seeds = ",".join(f"{address_of(member)}:33061" for member in members)
    for statement in (
        server.reset_log,
        f"SET GLOBAL group_replication_local_address = '{address_of(server)}:33061'",
        f"SET GLOBAL group_replication_group_seeds = '{seeds}'",
        "SET GLOBAL group_replication_ip_allowlist = '10.0.0.0/8,172.16.0.0/12,192.168.0.0/16'",
        "SET GLOBAL group_replication_recovery_get_public_key = ON",
        f"CHANGE REPLICATION SOURCE TO SOURCE_USER = '{server.replica_user}', SOURCE_PASSWORD = "
        f"'{server.replica_password}' FOR CHANNEL 'group_replication_recovery'",
    ):
        server.query(statement)


def states(server: Server) -> list[str]:
    sql = "SELECT MEMBER_STATE FROM performance_schema.replication_group_members"
    return [str(state) for (state,) in server.query(sql)]
