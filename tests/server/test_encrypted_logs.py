"""Logs that real servers have encrypted: copied out with their keys and read without a server, and streamed."""

from __future__ import annotations

import asyncio
import base64
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.binlog.events import DeleteRowsEvent, Event, RowsEvent, UpdateRowsEvent, WriteRowsEvent
from protocol.errors import ConfigurationError
from replica.files.binlog_file import KeyFile, open_binlog
from replica.mysqlbinlog.event_text import TextRenderer, render_text
from tests.faults.proxy import FaultProxy
from tests.server.support.faulty_streams import stream_through
from tests.server.support.streams import MARIADB, SECONDS, end_of_log, take_rows
from tests.support.encrypted_logs import OPENSSL_FILES
from tests.support.servers import Server

KEYRING = "/var/lib/mysql-keyring/keyring"
KEY_FILE = "/etc/mysql/log-keys/keys"
SECRET = "s3cret"
ROWS = 300
PLAIN_KEYS = f"# for tests\n1;{bytes(range(32)).hex()}\n".encode()


def put(server: Server, path: str, content: bytes) -> None:
    """Write a file inside of the container, readable for all."""
    data = base64.b64encode(content).decode()
    server.exec("sh", "-c", f"mkdir -p {Path(path).parent} && echo {data} | base64 -d > {path}")


def restart(server: Server) -> None:
    server.container.get_wrapped_container().restart()
    server.wait_until_ready()


def copy_out(server: Server, path: str, folder: Path) -> Path:
    chunks, _ = server.container.get_wrapped_container().get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        archive.extractall(folder, filter="data")
    return folder / Path(path).name


def copy_logs(server: Server, folder: Path) -> Path:
    """The index file, beside the logs that it names."""
    for (
        name,
        *_,
    ) in server.query("SHOW BINARY LOGS"):
        copy_out(server, f"/var/lib/mysql/{name}", folder)
    return copy_out(server, "/var/lib/mysql/binlog.index", folder)


def write_rows(server: Server) -> None:
    """ROWS rows inserted, half of them updated, a third deleted, in two log files."""
    server.query("CREATE DATABASE secrets")
    server.query("CREATE TABLE secrets.t (id INT PRIMARY KEY, text VARCHAR(2000) CHARACTER SET utf8mb4)")
    values = ", ".join(f"({number}, REPEAT('{number}é', {number}))" for number in range(ROWS))
    server.query(f"INSERT INTO secrets.t VALUES {values}")
    server.query("FLUSH BINARY LOGS")
    server.query("UPDATE secrets.t SET text = CONCAT('new ', id) WHERE id % 2 = 0")
    server.query("DELETE FROM secrets.t WHERE id % 3 = 0")


def check_rows(server: Server, events: list[Event]) -> None:
    """The rows in the log, applied one after the other, make the table."""
    table: dict[int, object] = {}
    counts = {WriteRowsEvent: 0, UpdateRowsEvent: 0, DeleteRowsEvent: 0}
    for event in events:
        if not isinstance(event, RowsEvent) or str(event.table) != "secrets.t":
            continue
        for change in event.changes():
            counts[type(event)] += 1
            if change.before is not None:
                key, _ = change.before.values()
                del table[key]
            if change.after is not None:
                key, text = change.after.values()
                table[key] = text.decode() if isinstance(text, bytes) else text
    assert list(counts.values()) == [ROWS, ROWS // 2, ROWS // 3]
    assert table == dict(server.query("SELECT id, text FROM secrets.t"))


def check_text(server: Server, path: Path, **keys: Any) -> int:
    """Row lines equal those of the server's own tool, which gets the log from the server, decrypted; their number."""
    output = io.BytesIO()
    renderer = TextRenderer(output)
    with open_binlog(path, cells=renderer.cells, **keys) as log:
        render_text(log.raw_events(), renderer)
    tool = "mysqlbinlog" if server.family == "mysql" else "mariadb-binlog"
    theirs = server.exec(
        *("env", "TZ=UTC", tool, "-vv", "--base64-output=decode-rows", "--read-from-remote-server"),
        *("--host=127.0.0.1", "--user=root", f"--password={server.root_password}", path.name),
    )
    ours, expected = (
        [line for line in text.split(b"\n") if line.startswith(b"###")]
        for text in (output.getvalue(), theirs)
    )
    assert ours == expected
    return len(ours)


def test_mysql(extra_server: Callable[..., Server], tmp_path: Path) -> None:
    server = extra_server("mysql:9.7")
    # The server opens its keyring as root and goes on as mysql.
    put(server, KEYRING, b"")
    server.exec("chown", "-R", "mysql:", str(Path(KEYRING).parent))
    put(server, "/usr/sbin/mysqld.my", b'{"components": "file://component_keyring_file"}')
    settings = f'{{"path": "{KEYRING}", "read_only": false}}'
    put(server, "/usr/lib/mysql/plugin/component_keyring_file.cnf", settings.encode())
    restart(server)
    server.query("SET GLOBAL binlog_encryption = ON")
    write_rows(server)
    server.query("ALTER INSTANCE ROTATE BINLOG MASTER KEY")

    index = copy_logs(server, tmp_path)
    keyring = copy_out(server, KEYRING, tmp_path)
    encrypted = [tmp_path / name for name, _, state in server.query("SHOW BINARY LOGS") if state == "Yes"]
    assert len(encrypted) >= 3
    assert all(path.read_bytes().startswith(b"\xfdbin") for path in encrypted)
    with open_binlog(index, keyring=keyring) as log:
        check_rows(server, list(log))
    assert log.torn_bytes == 0
    assert sum(check_text(server, path, keyring=keyring) for path in encrypted) > ROWS
    with pytest.raises(ConfigurationError, match="keyring"):
        list(open_binlog(index))
    # What the server has as the end of its log is the plain file's.
    with open_binlog(encrypted[-1], keyring=keyring) as log:
        last = list(log)[-1]
    assert last.header.next_position == server.query(server.log_status)[0][1]


@pytest.mark.parametrize("algorithm", ["aes_cbc", "aes_ctr"])
@pytest.mark.parametrize("secret", ["", SECRET])
def test_mariadb(extra_server: Callable[..., Server], tmp_path: Path, algorithm: str, secret: str) -> None:
    server = extra_server("mariadb:11.8")
    # The image has no openssl to encrypt a key file with: this one was made elsewhere.
    keys = bytes.fromhex(OPENSSL_FILES[0]) if secret else PLAIN_KEYS
    encrypt(server, keys, algorithm, *([f"file_key_management_filekey={secret}"] if secret else []))
    assert server.query("SELECT @@encrypt_binlog, @@file_key_management_encryption_algorithm") == [
        (1, algorithm)
    ]
    write_rows(server)

    index = copy_logs(server, tmp_path)
    key_file = copy_out(server, KEY_FILE, tmp_path)
    with open_binlog(index, key_file=KeyFile(key_file, secret)) as log:
        check_rows(server, list(log))
    assert log.torn_bytes == 0
    names = [name for name, *_ in server.query("SHOW BINARY LOGS")]
    given = KeyFile(key_file, secret)
    assert sum(check_text(server, tmp_path / name, key_file=given) for name in names) > ROWS
    with pytest.raises(ConfigurationError, match="no key file is given"):
        list(open_binlog(index))
    with pytest.raises(ConfigurationError, match="does not open the log"):
        list(open_binlog(index, key_file={1: bytes(32)}))


@pytest.mark.parametrize("name", MARIADB)
async def test_a_stream_goes_on_in_the_middle_of_a_file(
    name: str, extra_server: Callable[..., Server]
) -> None:
    """The source repeats what tells how the file is encrypted: it was counted as 40 bytes of the log."""
    server = extra_server(name)
    encrypt(server, PLAIN_KEYS, "aes_cbc")
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
    async with (
        asyncio.timeout(SECONDS),
        FaultProxy(server.port) as proxy,
        stream_through(proxy, server, start=end_of_log(server), tables="d.t") as stream,
    ):
        for number in range(3):
            server.query(f"INSERT INTO d.t VALUES ({number})")
            assert await take_rows(stream, 1) == [(number,)]
            await stream.acknowledge()
            proxy.cut_now()


def encrypt(server: Server, keys: bytes, algorithm: str, *settings: str) -> None:
    """Have a server of MariaDB encrypt its log from now on."""
    put(server, KEY_FILE, keys)
    lines = (
        "[mariadbd]",
        "plugin_load_add=file_key_management",
        f"file_key_management_filename={KEY_FILE}",
        f"file_key_management_encryption_algorithm={algorithm}",
        "encrypt_binlog=ON",
        *settings,
    )
    put(server, "/etc/mysql/conf.d/encryption.cnf", "\n".join([*lines, ""]).encode())
    restart(server)
