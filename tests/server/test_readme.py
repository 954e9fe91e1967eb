"""The README's first sample runs as it is printed."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from pymysql.cursors import Cursor

from tests.servers import Server

README = Path(__file__).parents[2] / "README.md"


def wait_for_replica(cursor: Cursor) -> None:
    deadline = time.monotonic() + 30
    while not cursor.execute("SHOW REPLICAS"):
        assert time.monotonic() < deadline, "the sample did not register"
        time.sleep(0.05)


def test_first_sample(mysql97: Server, tmp_path: Path) -> None:
    text = README.read_text()
    sample = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert sample is not None
    assert text[: sample.end()].count("\n") < 40
    script = tmp_path / "sample.py"
    script.write_text(sample[1])
    with mysql97.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS shop")
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("CREATE TABLE shop.orders (id INT PRIMARY KEY, status VARCHAR(20))")
        process = subprocess.Popen(
            [sys.executable, str(script), mysql97.dsn()], stdout=subprocess.PIPE, text=True, cwd=README.parent
        )
        try:
            assert process.stdout is not None
            # Where "now" is has been settled before the sample registers as a replica.
            wait_for_replica(cursor)
            cursor.execute("INSERT INTO shop.orders VALUES (1, 'new')")
            cursor.execute("UPDATE shop.orders SET status = 'paid'")
            cursor.execute("DELETE FROM shop.orders")
            connection.commit()
            lines = [process.stdout.readline().rstrip() for _ in range(3)]
        finally:
            process.kill()
            process.communicate()
            cursor.execute("DROP DATABASE shop")
    new, paid = "{'id': 1, 'status': 'new'}", "{'id': 1, 'status': 'paid'}"
    assert lines == [
        f"insert shop.orders None {new}",
        f"update shop.orders {new} {paid}",
        f"delete shop.orders {paid} None",
    ]
