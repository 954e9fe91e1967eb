"""Kills a server that `ServerPool.start_supervised()` has started, by SIGKILL and inside its container.

The container and its published port stay, as on a machine whose server process dies. Nothing here waits for asyncio:
call it through `asyncio.to_thread()`.
"""

from __future__ import annotations

import contextlib
import time

import pymysql

from tests.support.servers import Server

_DOWN = "/run/server.down"
_DEAD_SECONDS = 60
_DATA = "/var/lib/mysql"
_COPY = "/var/lib/mysql-copy"


def kill(server: Server, *, signal: str = "KILL", stays_down: bool = False) -> None:
    """End the server process, without a chance to clean up; its supervisor starts it again unless told not to.

    With the signal TERM it is an orderly shutdown.
    """
    hold = f"touch {_DOWN};" if stays_down else ""
    # The shell's own kill: the images have no other.
    server.exec("bash", "-c", f"{hold} kill -{signal} $(</run/server.pid)")


def start(server: Server) -> None:
    """Let a server come up that was to stay down, and wait until it answers."""
    server.exec("rm", "-f", _DOWN)
    server.wait_until_ready()


def keep_state(server: Server) -> None:
    """Copy the data directory as it is at one moment; `lose_power` goes back to it."""
    copy = f"rm -rf {_COPY} && cp -a {_DATA} {_COPY}"
    server.exec(
        "bash", "-c", f"p=$(</run/server.pid); kill -STOP $p; {copy}; result=$?; kill -CONT $p; exit $result"
    )


def lose_power(server: Server) -> None:
    """Restart the server as after a power failure: what it wrote since `keep_state` had not reached the disk."""
    process = server.exec("cat", "/run/server.pid").decode().strip()
    kill(server, stays_down=True)
    waits = f"while [[ -e /proc/{process}/exe ]]; do sleep 0.05; done"
    server.exec("bash", "-c", f"{waits}; rm -rf {_DATA}/* && cp -a {_COPY}/. {_DATA}/")
    start(server)


def kill_dumps(server: Server) -> None:
    """End every connection over which the log is sent, as an administrator does."""
    sql = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
    for (number,) in server.query(sql):
        # It may be gone meanwhile.
        with contextlib.suppress(pymysql.err.MySQLError):
            server.query(f"KILL {number}")


def restart(server: Server, signal: str = "KILL") -> None:
    """Kill the server and wait until it answers again."""
    process = server.exec("cat", "/run/server.pid")
    kill(server, signal=signal)
    # What answers at once may still be the one that is about to die.
    deadline = time.monotonic() + _DEAD_SECONDS
    while server.exec("cat", "/run/server.pid") == process:
        assert time.monotonic() < deadline, "the supervisor does not start the server again"
        time.sleep(0.05)
    server.wait_until_ready()
