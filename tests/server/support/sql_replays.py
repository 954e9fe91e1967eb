"""SQL of the command line on real servers: logs to decode, clients that run SQL, and tables to compare."""

from __future__ import annotations

import io
import json
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from replica.cli import main
from replica.files.schema_file import SCHEMA_QUERY
from tests.support.random_tables import quote_name
from tests.support.servers import ROOT_PASSWORD, Server

Contents = dict[str, tuple[int, list[tuple[Any, ...]]]]


class Log:
    """What a server writes to its log from now on, in a file of its own that can be copied out."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._folder = folder
        server.query("FLUSH BINARY LOGS")
        [*_, (self._name, *_)] = server.query("SHOW BINARY LOGS")

    def copy(self) -> Path:
        """The whole file; the server goes on with the next one."""
        self._server.query("FLUSH BINARY LOGS")
        [(basename,)] = self._server.query("SELECT @@log_bin_basename")
        path = self._folder / str(self._name)
        path.write_bytes(self._server.read_file(f"{basename.rpartition('/')[0]}/{self._name}"))
        return path


def decode(folder: Path, *arguments: str | Path) -> Path:
    """A file with what the command line writes."""
    path = folder / f"{len(list(folder.iterdir()))}.sql"
    assert main(["decode", "--debug", *map(str, arguments), "--output", str(path)]) == 0
    return path


def replay(server: Server, sql: Path, client: Server | None = None) -> None:
    """Have the server's own client run a file, or that of another server."""
    client = client or server
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(sql, "replay.sql")
    client.container.get_wrapped_container().put_archive("/tmp", archive.getvalue())
    program = "mysql" if client.family == "mysql" else "mariadb"
    host = "127.0.0.1" if client is server else _address_of(server)
    command = (
        f"{program} --binary-mode --host={host} --user=root --password={ROOT_PASSWORD} < /tmp/replay.sql"
    )
    client.exec("sh", "-c", command)


def _address_of(server: Server) -> str:
    """Where other containers find it."""
    container = server.container.get_wrapped_container()
    container.reload()
    [network] = container.attrs["NetworkSettings"]["Networks"].values()
    return str(network["IPAddress"])


def schema_file(server: Server, schema: str, folder: Path) -> Path:
    path = folder / "schema.json"
    if server.family == "mysql" and server.version < (5, 7, 22):
        path.write_text(json.dumps(_described_by_hand(server, schema)))
        return path
    [(text,)] = server.query(SCHEMA_QUERY.format(schema=schema))
    path.write_text(text or "{}")
    return path


def _described_by_hand(server: Server, schema: str) -> dict[str, list[dict[str, object]]]:
    """For a server without the functions of ``SCHEMA_QUERY``."""
    found: dict[str, list[dict[str, object]]] = defaultdict(list)
    for table, name, column_type, charset, key in server.query(
        "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, COLUMN_KEY FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = %s ORDER BY TABLE_NAME, ORDINAL_POSITION",
        schema,
    ):
        column = {"name": name, "type": column_type, "charset": charset, "primary": key == "PRI"}
        found[f"{schema}.{table}"].append(column)
    return found


def contents(server: Server, schema: str) -> Contents:
    """Checksum and rows of all tables; rows as hexadecimal, in any order that is always the same.

    There is no checksum where columns are generated: MariaDB then gives another one each time a table is opened.
    """
    found: Contents = {}
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        for (name,) in cursor.fetchall():
            table = quote_name(name)
            cursor.execute(f"SHOW COLUMNS FROM {table}")
            columns = cursor.fetchall()
            checksum = 0
            if not any(" GENERATED" in extra for *_, extra in columns):
                cursor.execute(f"CHECKSUM TABLE {table}")
                [(_, checksum)] = cursor.fetchall()
            shown = [_shown(column, column_type) for column, column_type, *_ in columns]
            cursor.execute(f"SELECT {', '.join(shown)} FROM {table}")
            found[name] = (checksum, sorted(cursor.fetchall(), key=repr))
    return found


def _shown(column: str, column_type: str) -> str:
    """FLOAT is shown rounded, and HEX() of it is that of a whole number."""
    is_float = column_type.startswith(("float", "double"))
    return f"{quote_name(column)} + 0e0" if is_float else f"HEX({quote_name(column)})"


def rows_of(tables: Contents) -> dict[str, list[tuple[Any, ...]]]:
    return {name: rows for name, (_, rows) in tables.items()}


def compare(found: Contents, expected: Contents) -> None:
    assert found.keys() == expected.keys()
    for name, (checksum, rows) in expected.items():
        lost = [row for row in rows if row not in found[name][1]]
        new = [row for row in found[name][1] if row not in rows]
        assert (lost, new) == ([], []), f"{name!r}: {_differences(lost, new)}"
        assert found[name] == (checksum, rows), f"{name!r}: equal by SELECT, but not by CHECKSUM TABLE"


def _differences(lost: list[tuple[Any, ...]], new: list[tuple[Any, ...]]) -> list[Any]:
    """Of rows that are alike: which columns differ, and how."""
    return [
        [(index, *pair) for index, pair in enumerate(zip(*rows, strict=True)) if pair[0] != pair[1]]
        for rows in zip(lost, new, strict=False)
    ] or [lost, new]
