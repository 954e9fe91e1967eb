"""A process of its own that follows a stream up to a number of rows, and prints what it has seen and its peak memory.

Usage: python -m tests.server.support.consumer DSN TABLES START ROWS
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from pathlib import Path

import replica


def peak_kilobytes() -> int:
    """The most that this process has had resident; unlike `ru_maxrss`, without that of the process it came from."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    return int(line.split()[1])


async def main(dsn: str, tables: str, start: str, wanted: str) -> None:
    rows, transactions, longest = 0, 0, 0
    digest = hashlib.sha256()
    async with replica.connect(dsn, tables=tables, start=start) as stream:
        async for event in stream:
            if isinstance(event, replica.WriteRowsEvent):
                rows += len(event.rows)
                for row in event.rows:
                    values = [value if isinstance(value, bytes) else str(value).encode() for value in row]
                    longest = max(longest, *map(len, values))
                    digest.update(b"\0".join(values) + b"\n")
            elif isinstance(event, replica.XidEvent):
                transactions += 1
                if rows >= int(wanted):
                    break
    result = {"rows": rows, "longest": longest, "digest": digest.hexdigest(), "peak_kb": peak_kilobytes()}
    print(json.dumps(result | {"transactions": transactions}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
