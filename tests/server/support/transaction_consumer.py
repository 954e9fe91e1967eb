"""A process of its own that reads one transaction row by row, and prints what it has seen and its peak memory.

Usage: python -m tests.server.support.transaction_consumer DSN TABLES START
"""

from __future__ import annotations

import asyncio
import json
import sys

import replica

from .consumer import peak_kilobytes


async def main(dsn: str, tables: str, start: str) -> None:
    rows, total = 0, 0
    async with replica.connect(dsn, tables=tables, start=start) as stream:
        tx = await anext(stream.transactions())
        async for change in tx:
            assert change.after is not None
            rows += 1
            total += int(str(change.after["id"]))
    print(json.dumps({"rows": rows, "total": total, "outcome": tx.outcome, "peak_kb": peak_kilobytes()}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
