"""The two programs of MIGRATING.md, as they are printed there: what python-mysql-replication prints, this prints."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import replica
from tests.support.places import ROOT
from tests.support.servers import Server

from .support.streams import MYSQL97_AND_MARIADB118, SECONDS, end_of_log, stream_of, to_the_end

TEXT = (ROOT / ".github" / "MIGRATING.md").read_text()
BEFORE, AFTER = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)

STATEMENTS = (
    "INSERT INTO orders VALUES (1, 'new', 12.50, '2026-11-22 10:00:00', 2.5), (2, NULL, NULL, NULL, -1)",
    "UPDATE orders SET status = 'bezahlt: 7 €', total = total + 1",
    "UPDATE orders SET id = id + 10 WHERE id = 2",
    "DELETE FROM orders WHERE id = 1",
    "REPLACE INTO orders VALUES (12, 'again', 0, '1999-12-31 23:59:59', 0)",
)


@pytest.mark.skipif(
    importlib.util.find_spec("pymysqlreplication") is None, reason="python-mysql-replication is not installed"
)
@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
def test_both_programs_print_the_same(server: Server, schema: str, tmp_path: Path) -> None:
    server.query(
        f"CREATE TABLE {schema}.orders (id INT PRIMARY KEY, status VARCHAR(40) CHARACTER SET utf8mb4, "
        "total DECIMAL(9, 2), placed DATETIME, weight DOUBLE)"
    )
    start = end_of_log(server)
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        for statement in STATEMENTS:
            cursor.execute(statement)
        connection.commit()
    account = urlsplit(server.dsn())
    assert account.username is not None
    assert account.password is not None
    arguments = [server.host, str(server.port), account.username, account.password, schema, start.file]
    arguments.append(str(start.position))
    printed = []
    for number, program in enumerate((BEFORE, AFTER)):
        path = tmp_path / f"program{number}.py"
        path.write_text(program)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(path), *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=ROOT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    before, after = printed
    assert after == before
    changes = [json.loads(line) for line in after.splitlines()]
    assert [change[0] for change in changes[:6]] == ["insert"] * 2 + ["update"] * 3 + ["delete"]
    assert changes[2][3]["status"] == "bezahlt: 7 €"


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_places_that_others_have_saved(server: Server, schema: str) -> None:
    """At each event of a transaction: from there on its rest comes, but not from inside a statement."""
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    start = end_of_log(server)
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1), (2)")
        cursor.execute("INSERT INTO t VALUES (3)")
        connection.commit()
    logged = server.query(f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.position}")
    found: dict[int, list[str]] = {}
    for _, position, kind, *_ in logged:
        place = replica.BinlogPosition(start.file, int(position))
        if kind.startswith("Write_rows"):
            with pytest.raises(replica.PositionInsideEventError, match="start where its transaction begins"):
                await to_the_end(stream_of(server, start=place, stop="now", reconnect=False))
            continue
        rows = await to_the_end(stream_of(server, start=place, stop="now", tables=f"{schema}.*"))
        found.setdefault(len(rows), []).append(kind)
    assert found.keys() == {3, 1, 0}
    assert found[0] == ["Xid"]
