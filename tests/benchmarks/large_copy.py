"""A copy of a large table beside a steady writer: `python -m tests.benchmarks.large_copy [ROWS]`.

Prints, for each million rows, the seconds and the processor time that they took, the stream's lag behind the writer
and the most memory that was resident. The consumer is a process of its own; each change that the writer makes has its
time, and the lag is how old it is when the consumer has it.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import threading
import time
from contextlib import closing

import replica
from tests.support.places import ROOT
from tests.support.servers import Server, ServerPool

_ROWS = 5_000_000
_STEP = 1_000_000
#: Pause of the writer between its transactions, in seconds.
_PAUSE = 0.01
_FILLED = 250_000


def main(rows: int) -> None:
    """Fill the table, and copy it in another process while a thread writes."""
    with closing(ServerPool()) as pool:
        server = pool.start("mysql:9.7", "--innodb-buffer-pool-size=1G")
        _fill(server, rows)
        over = threading.Event()
        writer = threading.Thread(target=_write, args=(server, over, rows), daemon=True)
        writer.start()
        command = [sys.executable, "-m", "tests.benchmarks.large_copy", "--consume", server.dsn()]
        subprocess.run(command, cwd=ROOT, check=True)
        over.set()
        writer.join()


def _fill(server: Server, rows: int) -> None:
    server.query("CREATE DATABASE large")
    server.query(
        "CREATE TABLE large.t (id INT NOT NULL PRIMARY KEY, a BIGINT NOT NULL, b VARCHAR(40) NOT NULL, "
        "c DATETIME(6) NOT NULL) ENGINE=InnoDB"
    )
    server.query("CREATE TABLE large.beats (id INT NOT NULL PRIMARY KEY, at DOUBLE NOT NULL) ENGINE=InnoDB")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET cte_max_recursion_depth = {_FILLED}")
        for begin in range(0, rows, _FILLED):
            cursor.execute(
                f"INSERT INTO large.t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < "
                f"{_FILLED}) SELECT {begin} + i, i * 7919, CONCAT('row ', {begin} + i), NOW(6) FROM n"
            )


def _write(server: Server, over: threading.Event, rows: int) -> None:
    """Changes a row and says when, a hundred times a second at most."""
    number = 0
    with server.connect() as connection, connection.cursor() as cursor:
        while not over.wait(_PAUSE):
            number += 1
            cursor.execute("BEGIN")
            cursor.execute(f"UPDATE large.t SET a = a + 1 WHERE id = {number * 7919 % rows + 1}")
            cursor.execute(f"REPLACE INTO large.beats VALUES ({number % 1000}, {time.time()!r})")
            cursor.execute("COMMIT")


async def consume(dsn: str) -> None:
    """Copy the table and print a line for each million rows."""
    reads = changes = 0
    step = _STEP
    lags: list[float] = []
    began, busy = time.monotonic(), time.process_time()
    async with replica.connect(dsn, start="snapshot", tables=["large.t", "large.beats"]) as stream:
        async for event in stream:
            if isinstance(event, replica.SnapshotRowsEvent):
                reads += len(event.rows) if event.table.name == "t" else 0
                if reads >= step:
                    step += _STEP
                    _say(reads, changes, lags, time.monotonic() - began, time.process_time() - busy)
                    lags, began, busy = [], time.monotonic(), time.process_time()
            elif isinstance(event, replica.WriteRowsEvent | replica.UpdateRowsEvent):
                changes += len(event.rows)
                if event.table.name == "beats":
                    [change] = event.changes()
                    lags.append(time.time() - (change.after or {})["at"])
            elif isinstance(event, replica.SnapshotCompleteEvent) and event.table.name == "t":
                break


def _say(reads: int, changes: int, lags: list[float], seconds: float, processor: float) -> None:
    lags.sort()
    print(
        json.dumps(
            {
                "rows": reads,
                "changes": changes,
                "us_per_row": round(seconds / _STEP * 1e6, 2),
                "processor_us_per_row": round(processor / _STEP * 1e6, 2),
                "lag_median": round(lags[len(lags) // 2], 3) if lags else None,
                "lag_most": round(lags[-1], 3) if lags else None,
                "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, 1),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--consume"]:
        asyncio.run(consume(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else _ROWS)
