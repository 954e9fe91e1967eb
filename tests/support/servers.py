"""Database servers for tests and the demo: one Docker container each, published on a port of 127.0.0.1.

Starts the images named in `SERVERS` as replication sources (row format, GTIDs, a replica user). The images
are the project's own (docker/images) or the official ones of the same tags. Nothing here knows pytest.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

# No image can be pulled for the helper container that would remove leftovers; ServerPool does that itself.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
os.environ.setdefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")

import docker.errors
import pymysql
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient

HOST = "127.0.0.1"
SHARED = "/shared"
ROOT_PASSWORD = "root-Secret_1"
REPLICA_USER = "repl"
REPLICA_PASSWORD = "repl-Secret_1"

# The first start of an official image makes its data directory: that, and not ours, is what takes this long.
START_SECONDS = 180
START_ATTEMPTS = 3
READ_ATTEMPTS = 5
POLL_SECONDS = 0.05
OWNER_LABEL = "mysql-replica.tests"

Family = Literal["mysql", "mariadb"]

# What a commit writes must outlive a killed server, not a machine that loses power: written, never synced.
_COMMON_ARGUMENTS = (
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--max-allowed-packet=128M",
    "--character-set-server=utf8mb4",
    "--innodb-flush-log-at-trx-commit=2",
    "--sync-binlog=0",
)
_GTID_ARGUMENTS = ("--gtid-mode=ON", "--enforce-gtid-consistency=ON")

# Image -> what it is started with.
SERVERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "mysql:9.7": ("--server-id=97", *_GTID_ARGUMENTS),
        "mysql:5.6": (
            "--server-id=56",
            *_GTID_ARGUMENTS,
            "--log-slave-updates",
        ),
        "mariadb:10.11": ("--server-id=1011",),
        "mariadb:11.8": ("--server-id=1108",),
    }
)
# Of the shared servers. A redo log of 2 x 512 MB is what 5.6 wants for a BLOB of 40 MB; to write it takes six of the
# eight seconds of a start.
_SHARED_ARGUMENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"mysql:5.6": ("--innodb-log-file-size=512M",)}
)
# Process 1 of a container whose server a test may kill: the container and its published port outlive the server,
# which is started again as soon as no file says to wait. The entry point is ours, or that of the official images.
_SUPERVISOR = """
entry=$(command -v docker-entrypoint.sh || command -v entrypoint.sh)
while true; do
    "$entry" "$@" &
    echo $! >/run/server.pid
    wait $!
    while [[ -e /run/server.down ]]; do sleep 0.05; done
done
"""
# Nothing that was committed may be lost with such a server, nor sent before it cannot be lost any more. Large BLOBs
# are not its business, and a small redo log is soon made.
_DURABLE_ARGUMENTS = (
    "--innodb-flush-log-at-trx-commit=1",
    "--sync-binlog=1",
    "--loose-innodb-log-file-size=48M",
)
_EXTRA_SERVER_IDS = itertools.count(9001)
_SCHEMA_NUMBERS = itertools.count(1)


class ServerUnavailableError(Exception):
    """There is no Docker daemon, or no such image and no registry to pull it from."""


class ServerStartError(Exception):
    """The container was started and the server in it did not come up; the message ends with its log."""


@dataclass(frozen=True)
class Server:
    """A running server. `version` is the numeric part of VERSION(), such as `(10, 11, 18)`.

    `name` is one of `SERVERS`: the one in whose place it stands, if the pool has another image for it.
    """

    name: str
    family: Family
    version: tuple[int, ...]
    server_id: int
    port: int
    container: DockerContainer = field(repr=False)
    host: str = HOST
    root_password: str = ROOT_PASSWORD
    replica_user: str = REPLICA_USER
    replica_password: str = REPLICA_PASSWORD

    @property
    def logs_generated(self) -> bool:
        """Whether UPDATE and DELETE log generated columns.

        MariaDB 11.8.9 leaves them out, whatever binlog_row_image is (MDEV-40057, suite/rpl/t/rpl_vcol_row.test).
        11.8.6 and 10.11.19 have them.
        """
        return self.family == "mysql" or self.version < (11, 8, 9)

    @property
    def is_stand_in(self) -> bool:
        """Whether it is of another version than its name says."""
        wanted = self.name.partition(":")[2].split(".")
        return self.version[: len(wanted)] != tuple(map(int, wanted))

    @property
    def semi_sync_word(self) -> str:
        """What variables of semi-synchronous replication call a source (MySQL 8.0.26, WL#14174)."""
        return "source" if self.family == "mysql" and self.version >= (8, 0, 26) else "master"

    @property
    def log_status(self) -> str:
        """The statement that tells where the log ends (renamed in MySQL 8.2, WL#14190)."""
        return "SHOW BINARY LOG STATUS" if self._has_new_words else "SHOW MASTER STATUS"

    @property
    def reset_log(self) -> str:
        """The statement that begins the log anew."""
        return "RESET BINARY LOGS AND GTIDS" if self._has_new_words else "RESET MASTER"

    @property
    def _has_new_words(self) -> bool:
        return self.family == "mysql" and self.version >= (8, 2)

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        """A PyMySQL connection, of root with autocommit unless the options say otherwise."""
        return _connect(self.port, **options)

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows of one statement, run as root on a connection of its own."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return list(cursor.fetchall())

    def dsn(self, user: str | None = None, password: str | None = None) -> str:
        """`mysql://user:password@host:port`; of the replica user by default."""
        user = self.replica_user if user is None else user
        password = self.replica_password if password is None else password
        quoted = (urllib.parse.quote(text, safe="") for text in (user, password))
        return f"mysql://{':'.join(quoted)}@{self.host}:{self.port}"

    def wait_until_ready(self) -> None:
        """Return when the server answers; for tests that stop and start the container."""
        _first_connection(self.name, self.container, self.port).close()

    def exec(self, *command: str) -> bytes:
        """What a command inside the container writes to its standard output; RuntimeError if it fails."""
        return run_in(self.container, *command)

    def read_file(self, path: str) -> bytes:
        """A file inside the container that is not empty: Docker can lose what a short command wrote."""
        for _ in range(READ_ATTEMPTS):
            content = self.exec("cat", path)
            if content:
                return content
        raise RuntimeError(f"{path} in {self.name} is empty")

    @contextlib.contextmanager
    def fresh_schema(self) -> Iterator[str]:
        """The name of a new, empty schema that is dropped afterwards."""
        name = f"test_{next(_SCHEMA_NUMBERS)}"
        self.query(f"CREATE DATABASE {name}")
        try:
            yield name
        finally:
            # A failed test may have left a transaction open; without a limit the server waits a day for it.
            limited = self.connect(init_command="SET lock_wait_timeout = 10")
            with limited, limited.cursor() as cursor:
                cursor.execute(f"DROP DATABASE IF EXISTS {name}")


class ServerPool:
    """Starts servers when they are first asked for, and removes them all in `close()`.

    `images` has other images for some names of `SERVERS`: `{"mysql:9.7": "mysql:8.0"}`.
    """

    def __init__(self, images: Mapping[str, str] = MappingProxyType({})) -> None:
        self._images = images
        self._shared: dict[str, Server | Exception] = {}
        self._containers: list[DockerContainer] = []
        self._docker_trouble: str | None = None

    def shared(self, name: str) -> Server:
        """The one server of this image, started on the first call. A failed start is not tried again."""
        if name not in self._shared:
            try:
                self._shared[name] = self._start(name, _SHARED_ARGUMENTS.get(name, ()))
            except (ServerUnavailableError, ServerStartError) as error:
                self._shared[name] = error
        server = self._shared[name]
        if isinstance(server, Exception):
            raise server
        return server

    def start(self, name: str, *arguments: str, shared: Path | None = None) -> Server:
        """Another server, with a new server id. The arguments follow the usual ones, so they win.

        The server sees the directory `shared` as `SHARED`, and may write there.
        """
        return self._start(name, (f"--server-id={next(_EXTRA_SERVER_IDS)}", *arguments), shared=shared)

    def start_supervised(self, name: str, *arguments: str) -> Server:
        """As `start()`, and the server can be killed and comes up again: see `tests.faults.container`."""
        arguments = (f"--server-id={next(_EXTRA_SERVER_IDS)}", *_DURABLE_ARGUMENTS, *arguments)
        return self._start(name, arguments, ("bash", "-c", _SUPERVISOR, "supervisor", server_program(name)))

    def client_programs(self, name: str) -> DockerContainer:
        """A container of an image without a server, in this machine's network: `mysqlbinlog` and `mysqldump` run in
        it reach servers through their published ports, as this machine's own processes do."""
        self._check_docker()
        container = DockerContainer(
            name, labels=_labels(), network_mode="host", entrypoint=["sleep", "infinity"]
        )
        self._containers.append(container)
        container.start()
        return container

    def stop(self, container: DockerContainer) -> None:
        """Remove a container with its data."""
        self._containers.remove(container)
        # A test may have removed it already.
        with contextlib.suppress(docker.errors.NotFound):
            container.stop()

    def close(self) -> None:
        """Remove every container that this pool has started."""
        for container in list(self._containers):
            self.stop(container)
        self._shared.clear()

    def _start(
        self,
        name: str,
        arguments: tuple[str, ...],
        command: tuple[str, ...] = (),
        shared: Path | None = None,
    ) -> Server:
        self._check_docker()
        for attempt in itertools.count(1):
            image = self._images.get(name, name)
            container, port = _new_container(image, name, arguments, command)
            if shared is not None:
                shared.chmod(0o777)
                container.with_volume_mapping(str(shared), SHARED, "rw")
            self._containers.append(container)
            try:
                container.start()
            except docker.errors.APIError as error:
                known = container.get_docker_client().client.images.list(image)
                self.stop(container)
                if not known:
                    reason = f"no image {image}, and it cannot be pulled (make images): {error}"
                    raise ServerUnavailableError(reason) from error
                # Anybody may have taken the port since it was found free.
                if attempt == START_ATTEMPTS or not re.search("already (allocated|in use)", str(error)):
                    raise ServerStartError(f"{name}: {error}") from error
            else:
                break
        return _prepare(name, container, port)

    def _check_docker(self) -> None:
        """Once per pool: see that Docker answers, and remove what runs that were killed have left behind."""
        if self._docker_trouble is None:
            self._docker_trouble = _docker_trouble()
            if not self._docker_trouble:
                _remove_leftovers()
        if self._docker_trouble:
            raise ServerUnavailableError(self._docker_trouble)


def run_in(container: DockerContainer, *command: str) -> bytes:
    """What a command inside a container writes to its standard output; RuntimeError if it fails."""
    result = container.get_wrapped_container().exec_run(list(command), demux=True)
    output, errors = cast("tuple[bytes | None, bytes | None]", result.output)
    if result.exit_code != 0:
        raise RuntimeError(
            f"{command} in {container.image}: exit code {result.exit_code}: {errors or output!r}"
        )
    return output or b""


def family_of(name: str) -> Family:
    return "mariadb" if name.startswith("mariadb:") else "mysql"


def server_program(name: str) -> str:
    return "mariadbd" if family_of(name) == "mariadb" else "mysqld"


def _docker_trouble() -> str:
    """Why no Docker daemon can be used; empty if one can."""
    # Asked through the command: the Python package leaves sockets open when nothing answers.
    command = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"no Docker: {error}"
    return (
        ""
        if answer.returncode == 0
        else f"no Docker daemon answers (see docker/up.sh): {answer.stderr.strip()}"
    )


def _remove_leftovers() -> None:
    """Remove the containers of processes that are no more on this machine."""
    client = DockerClient().client
    with contextlib.closing(client):
        # Others may remove theirs meanwhile.
        containers = client.containers.list(all=True, filters={"label": OWNER_LABEL}, ignore_removed=True)
        for container in containers:
            host, _, process = container.labels[OWNER_LABEL].rpartition(":")
            if host == socket.gethostname() and not _is_alive(int(process)):
                # Another run may be at the same work.
                with contextlib.suppress(docker.errors.APIError):
                    container.remove(force=True, v=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _labels() -> dict[str, str]:
    """Whose container it is, for `_remove_leftovers`."""
    return {OWNER_LABEL: f"{socket.gethostname()}:{os.getpid()}"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _new_container(
    image: str, name: str, arguments: tuple[str, ...], command: tuple[str, ...] = ()
) -> tuple[DockerContainer, int]:
    """The container, not yet started, and the port of 127.0.0.1 it will publish.

    The port is chosen here because one chosen by Docker changes when the container is restarted. For
    restarts, too, the data is not in a tmpfs: that would be emptied.
    """
    port = _free_port()
    container = DockerContainer(image, labels=_labels())
    container.with_env(f"{family_of(name).upper()}_ROOT_PASSWORD", ROOT_PASSWORD)
    container.with_command([*command, *_COMMON_ARGUMENTS, *SERVERS[name], *arguments])
    # with_bind_ports() knows no host address and would publish on all interfaces.
    container.ports["3306/tcp"] = (HOST, port)  # type: ignore[assignment]
    return container, port


def _prepare(name: str, container: DockerContainer, port: int) -> Server:
    """Wait until the server answers, then create the replica user."""
    with _first_connection(name, container, port) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT VERSION(), @@server_id")
        row = cursor.fetchone()
        assert row is not None
        text, server_id = row
        # A node of Galera has the users of the others. MySQL 5.6 does not know IF NOT EXISTS here.
        create = "CREATE USER IF NOT EXISTS" if family_of(name) == "mariadb" else "CREATE USER"
        cursor.execute(f"{create} '{REPLICA_USER}'@'%' IDENTIFIED BY '{REPLICA_PASSWORD}'")
        # MariaDB takes REPLICATION CLIENT for its BINLOG MONITOR.
        cursor.execute(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO '{REPLICA_USER}'@'%'")
    numbers = re.match(r"[\d.]+", text)
    assert numbers is not None, text
    version = tuple(int(number) for number in numbers[0].split("."))
    return Server(name, family_of(name), version, int(server_id), port, container)


def _first_connection(name: str, container: DockerContainer, port: int) -> pymysql.Connection[Any]:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            # A node of Galera that is not ready yet takes connections, and no statement.
            return _connect(port, init_command="SELECT 1")
        except pymysql.err.OperationalError as error:
            wrapped = container.get_wrapped_container()
            wrapped.reload()
            if wrapped.status == "exited" or time.monotonic() > deadline:
                log = wrapped.logs(tail=30).decode(errors="replace")
                raise ServerStartError(
                    f"{name} did not come up ({wrapped.status}, {error}):\n{log}"
                ) from error
        time.sleep(POLL_SECONDS)


def _connect(port: int, **options: Any) -> pymysql.Connection[Any]:
    defaults: dict[str, Any] = {
        "host": HOST,
        "port": port,
        "user": "root",
        "password": ROOT_PASSWORD,
        "charset": "utf8mb4",
        "autocommit": True,
    }
    if "ssl" not in options:
        # PyMySQL would offer TLS by itself, and making its context takes 24 ms a connection.
        defaults["ssl_disabled"] = True
    return pymysql.connect(**(defaults | options))
