"""Logs recorded on real sources for ``BinlogServer``, and real replicas that are pointed at it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from replica import BinlogPosition
from replica.server import BinlogServer
from tests.support.servers import Server

USER, PASSWORD = "relay", "relay-Secret_1"
TABLE = "shop.orders"
_SECONDS = 60
_DATA = "/var/lib/mysql"


@dataclass(frozen=True)
class Recorded:
    """A source and a copy of its whole log. ``executed`` are all of its transactions."""

    source: Server
    folder: Path
    files: list[str]
    executed: str
    checksum: object


def forget(server: Server) -> None:
    """Empty the log of a server; a replica knows no transactions afterwards."""
    server.query(server.reset_log)
    if server.family == "mariadb":
        server.query("SET GLOBAL gtid_slave_pos = ''")


def fill(source: Server, doublings: int = 17) -> None:
    """More than 100,000 rows in two files, with updates, deletes, JSON and a column that was added meanwhile."""
    source.query("CREATE DATABASE shop")
    source.query(
        f"CREATE TABLE {TABLE} (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(50) NOT NULL, total DECIMAL(10,2), "
        "items JSON, placed DATETIME(3))"
    )
    source.query(
        f"INSERT INTO {TABLE} (name, total, items, placed) "
        "VALUES ('Zoë', 1.5, '{\"a\": 1}', '2026-01-02 03:04:05.678')"
    )
    for number in range(doublings):
        source.query(
            f"INSERT INTO {TABLE} (name, total, items, placed) "
            f"SELECT CONCAT(LEFT(name, 40), id % 10), total + id / 100, items, placed FROM {TABLE}"
        )
        if number == doublings // 2:
            source.query(f"ALTER TABLE {TABLE} ADD COLUMN note TEXT")
            source.query("FLUSH BINARY LOGS")
    source.query(f"UPDATE {TABLE} SET total = total + 1, note = 'ü' WHERE id % 7 = 0")
    source.query(f"DELETE FROM {TABLE} WHERE id % 11 = 0")


def names_of_logs(source: Server) -> list[str]:
    return [str(row[0]) for row in source.query("SHOW BINARY LOGS")]


def stored(source: Server, name: str) -> bytes:
    """A file of a server's data directory."""
    return source.read_file(f"{_DATA}/{name}")


def copy_log(source: Server, folder: Path) -> list[str]:
    """Copy all of a server's log with its index, and what says who it is."""
    names = names_of_logs(source)
    others = ["binlog.index", "auto.cnf"] if source.family == "mysql" else ["binlog.index"]
    for name in [*names, *others]:
        (folder / name).write_bytes(stored(source, name))
    return names


def executed_on(server: Server) -> str:
    variable = "gtid_executed" if server.family == "mysql" else "gtid_current_pos"
    return str(server.query(f"SELECT @@GLOBAL.{variable}")[0][0]).replace("\n", "")


def record(source: Server, folder: Path) -> Recorded:
    forget(source)
    fill(source)
    wait_for_checkpoint(source)
    names = copy_log(source, folder)
    return Recorded(source, folder, names, executed_on(source), checksum_of(source))


def wait_for_checkpoint(source: Server) -> None:
    """Until MariaDB has noted, as it does when it likes, that it would recover from the newest file: the end."""
    newest = names_of_logs(source)[-1]
    deadline = time.monotonic() + _SECONDS
    while source.family == "mariadb":
        events = source.query(f"SHOW BINLOG EVENTS IN '{newest}'")
        if any(row[2] == "Binlog_checkpoint" and row[5] == newest for row in events):
            return
        assert time.monotonic() < deadline, events[:5]
        time.sleep(0.2)


class GrowingLog:
    """A copy of a recorded log that is written bit by bit; each file in three pieces."""

    def __init__(self, recorded: Recorded, folder: Path) -> None:
        self.names = recorded.files
        self._folder = folder
        self._contents = {name: (recorded.folder / name).read_bytes() for name in recorded.files}
        self._current = 0
        identity = recorded.folder / "auto.cnf"
        if identity.exists():
            (folder / identity.name).write_bytes(identity.read_bytes())

    def grow(self) -> bool:
        """Write the next piece, if there is one."""
        name = self.names[self._current]
        path, content = self._folder / name, self._contents[name]
        if path.exists() and path.stat().st_size == len(content):
            self._current += 1
            return self._current < len(self.names) and self.grow()
        if not path.exists():
            path.touch()
            with open(self._folder / "binlog.index", "a") as index:
                index.write(f"./{name}\n")
        with open(path, "ab") as file:
            file.write(content[file.tell() :][: len(content) // 3 + 1])
        return True

    def has(self, place: BinlogPosition) -> bool:
        """Whether a place is at the end of what is written, but for the event that is not whole yet (10 KB)."""
        if self._current >= len(self.names):
            return True
        path = self._folder / self.names[self._current]
        return place.file == path.name and place.position > path.stat().st_size - 10_000


def checksum_of(server: Server) -> object:
    return server.query(f"CHECKSUM TABLE {TABLE}")[0][1]


def gateway(server: Server) -> str:
    """The address of this machine for a container."""
    container = server.container.get_wrapped_container()
    container.reload()
    address = container.attrs["NetworkSettings"]["Networks"]["bridge"]["Gateway"]
    if not address:
        pytest.skip("containers have no address for this machine here")
    return str(address)


def serve(files: Path, clients: Server, **options: object) -> BinlogServer:
    """A server that containers can reach: the tests alone listen at such an address."""
    given = {"user": USER, "password": PASSWORD, "host": gateway(clients)} | options
    return BinlogServer(files, **given)  # type: ignore[arg-type]


def follow(replica: Server, server: BinlogServer, *, by_gtid: bool, file: str, options: str) -> None:
    """Start replication from the beginning of the log; ``options`` are those of the connection."""
    address = f"'{gateway(replica)}'"
    if replica.family == "mysql":
        place = "SOURCE_AUTO_POSITION = 1" if by_gtid else f"SOURCE_LOG_FILE = '{file}', SOURCE_LOG_POS = 4"
        replica.query(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = {address}, SOURCE_PORT = {server.port}, "
            f"SOURCE_USER = '{USER}', SOURCE_PASSWORD = '{PASSWORD}', SOURCE_CONNECT_RETRY = 1, "
            f"SOURCE_HEARTBEAT_PERIOD = 0.5, {options}, {place}"
        )
        replica.query("START REPLICA")
        return
    place = (
        "MASTER_USE_GTID = slave_pos"
        if by_gtid
        else f"MASTER_USE_GTID = no, MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = 4"
    )
    replica.query(
        f"CHANGE MASTER TO MASTER_HOST = {address}, MASTER_PORT = {server.port}, MASTER_USER = '{USER}', "
        f"MASTER_PASSWORD = '{PASSWORD}', MASTER_CONNECT_RETRY = 1, MASTER_HEARTBEAT_PERIOD = 0.5, "
        f"{options}, {place}"
    )
    replica.query("START SLAVE")


def catch_up(replica: Server, executed: str) -> None:
    """Return when a replica has all of these transactions."""
    wait = "WAIT_FOR_EXECUTED_GTID_SET" if replica.family == "mysql" else "MASTER_GTID_WAIT"
    [(timed_out,)] = replica.query(f"SELECT {wait}('{executed}', {_SECONDS})")
    assert timed_out == 0, trouble(replica)


def status_of(replica: Server) -> dict[str, object]:
    """SHOW REPLICA STATUS by its names."""
    with replica.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW REPLICA STATUS")
        names = [str(column[0]) for column in cursor.description or ()]
        return dict(zip(names, cursor.fetchone() or (), strict=True))


def trouble(replica: Server) -> dict[str, object]:
    """What a replica says is wrong."""
    return {name: value for name, value in status_of(replica).items() if "Error" in name and value}


def unfollow(replica: Server) -> None:
    """Make a server forget that it was a replica, and what it has replicated."""
    word = "REPLICA" if replica.family == "mysql" else "SLAVE"
    replica.query(f"STOP {word}")
    replica.query(f"RESET {word} ALL")
    replica.query("DROP DATABASE IF EXISTS shop")
    forget(replica)
