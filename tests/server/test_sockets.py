"""Unix sockets of real servers, by each way to name one."""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import replica
from tests.support.servers import HOST, SHARED, Server

from .support.streams import SECONDS, take_rows


@pytest.mark.parametrize("name", ["mysql:9.7", "mysql:5.6", "mariadb:10.11", "mariadb:11.8"])
async def test_each_way_to_name_a_socket(
    name: str, extra_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = extra_server(name, f"--socket={SHARED}/server.sock", shared=tmp_path)
    path = tmp_path / "server.sock"
    server.query("CREATE DATABASE local")
    server.query("CREATE TABLE local.t (a INT PRIMARY KEY)")
    user, password = server.replica_user, server.replica_password
    option_file = tmp_path / "my.cnf"
    # The port is of no use to a client that has a socket.
    option_file.write_text(f"[client]\nuser={user}\npassword='{password}'\nsocket={path}\nport=1\n")
    option_file.chmod(0o600)
    quoted = urllib.parse.quote(str(path), safe="")
    ways: list[tuple[str | None, dict[str, Any]]] = [
        (f"mysql://{user}:{password}@/?unix_socket={quoted}", {}),
        (f"mysql://{user}:{password}@localhost/?unix_socket={path}&compression=zlib", {}),
        (None, {"user": user, "password": password, "unix_socket": path}),
        (None, {"option_file": option_file}),
        (f"mysql:///?option_file={option_file}", {}),
    ]
    for number, (dsn, given) in enumerate(ways):
        async with replica.connect(dsn, tables="local.*", **given) as stream:
            assert stream.status.address == str(path)
            server.query(f"INSERT INTO local.t VALUES ({number})")
            assert await take_rows(stream, 1) == [(number,)]
    # A host in the DSN wins over the file's socket.
    dsn = f"mysql://{HOST}:{server.port}/?option_file={option_file}"
    async with asyncio.timeout(SECONDS), replica.connect(dsn) as stream:
        assert stream.status.address == f"{HOST}:{server.port}"
    with pytest.raises(replica.ConnectionLostError, match=r"cannot connect to .*nowhere\.sock"):
        async with replica.connect(user=user, unix_socket=str(tmp_path / "nowhere.sock")):
            pass
