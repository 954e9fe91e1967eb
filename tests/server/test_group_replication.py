"""A stream from a group in single-primary mode: it goes on at the next primary when the first one dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import replica
from replica import GtidSet
from tests.faults.topology import address_of
from tests.faults.waiting import until
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
    first, second = members = [extra_server("mysql:9.7", *_ARGUMENTS) for _ in range(2)]
    for one, other in (members, members[::-1]):
        name_in(one, other)
        prepare(one, members)
    first.query("SET GLOBAL group_replication_bootstrap_group = ON")
    first.query("START GROUP_REPLICATION")
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
