"""A process of its own that takes ten rows a second from a stream, and prints its resident memory after each second.

Usage: python -m tests.faults.slow_consumer DSN TABLES START SECONDS; the last line has the number of the last row.
On a busy machine it goes on until it has printed enough.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import replica
from replica import WriteRowsEvent

ROWS_PER_SECOND = 10
LEAST_SAMPLES = 4


def resident_kilobytes() -> int:
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line]
    return int(line.split()[1])


async def main(dsn: str, tables: str, start: str, seconds: str) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + float(seconds)
    numbers: list[object] = []
    async with replica.connect(dsn, tls="disabled", tables=tables, start=start, heartbeat=1.0) as stream:
        async for event in stream:
            if not isinstance(event, WriteRowsEvent):
                continue
            for row in event.rows:
                numbers.append(row[0])
                if len(numbers) % ROWS_PER_SECOND == 0:
                    print(resident_kilobytes(), flush=True)
                await asyncio.sleep(1 / ROWS_PER_SECOND)
            if loop.time() > end and len(numbers) >= LEAST_SAMPLES * ROWS_PER_SECOND:
                break
    assert numbers == list(range(1, len(numbers) + 1)), numbers
    print("rows", len(numbers), "reconnects", stream.status.reconnects)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
