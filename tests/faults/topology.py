"""Servers that replicate from one another by GTID, and the promotion of one of them.

What a server was prepared with is forgotten before it becomes a replica: all of them have been prepared alike, and
their logs shall hold nothing but what the first source has written.
"""

from __future__ import annotations

from tests.server.support.streams import executed
from tests.support.servers import Server

_SECONDS = 30


def follow(replica: Server, source: Server) -> None:
    """Make a server the replica of another one, from the source's present state on."""
    known = executed(source)
    replica.query(replica.reset_log)
    variable = "gtid_purged" if replica.family == "mysql" else "gtid_slave_pos"
    replica.query(f"SET GLOBAL {variable} = '{known}'")
    switch(replica, source)


def switch(replica: Server, source: Server) -> None:
    """Let a replica go on with another source, from where it is."""
    address, user, password = address_of(source), source.replica_user, source.replica_password
    stop(replica)
    if replica.family == "mysql":
        replica.query(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{address}', SOURCE_PORT = 3306, SOURCE_USER = '{user}', "
            f"SOURCE_PASSWORD = '{password}', SOURCE_AUTO_POSITION = 1, SOURCE_CONNECT_RETRY = 1, SOURCE_SSL = 1"
        )
        replica.query("START REPLICA")
    else:
        replica.query(
            f"CHANGE MASTER TO MASTER_HOST = '{address}', MASTER_PORT = 3306, MASTER_USER = '{user}', "
            f"MASTER_PASSWORD = '{password}', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, MASTER_SSL = 0, "
            "MASTER_SSL_VERIFY_SERVER_CERT = 0"
        )
        replica.query("START SLAVE")


def catch_up(replica: Server, source: Server) -> None:
    """Return when a replica has everything that its source has now."""
    wanted = executed(source)
    if replica.family == "mysql":
        [(timed_out,)] = replica.query(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{wanted}', {_SECONDS})")
    else:
        [(timed_out,)] = replica.query(f"SELECT MASTER_GTID_WAIT('{wanted}', {_SECONDS})")
    assert timed_out == 0, f"{replica} does not get {wanted} from {source}: {_trouble(replica)}"


def stop(replica: Server) -> None:
    """Let a replica get nothing more, until it is switched to another source."""
    replica.query("STOP REPLICA" if replica.family == "mysql" else "STOP SLAVE")


def promote(replica: Server) -> None:
    """Make a replica a source of its own."""
    stop(replica)
    replica.query("RESET REPLICA ALL" if replica.family == "mysql" else "RESET SLAVE ALL")


def address_of(server: Server) -> str:
    """Where other containers reach it."""
    container = server.container.get_wrapped_container()
    container.reload()
    return str(container.attrs["NetworkSettings"]["IPAddress"])


def _trouble(replica: Server) -> object:
    return replica.query("SHOW REPLICA STATUS" if replica.family == "mysql" else "SHOW SLAVE STATUS")
