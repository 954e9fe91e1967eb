"""A process of its own that copies tables and follows them, and keeps all in a file. Tests kill it at any moment.

Usage: python -m tests.server.support.copying_consumer FILE DSN KEYS GENERATED OPTIONS

KEYS, GENERATED and OPTIONS are JSON: the columns of each table's key, generated columns that the log of updates
lacks, and options of ``replica.connect``. It prints a line of
JSON for each chunk, for some other transactions, and when the copy is complete.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import replica
from tests.server.support.kept_rows import KeptStore

#: The place is told after so many transactions.
_EVERY = 10


async def main(file: str, dsn: str, keys: str, generated: str, options: str) -> None:
    by_name = {name: tuple(columns) for name, columns in json.loads(keys).items()}
    store = KeptStore(Path(file), by_name, tuple(json.loads(generated)))
    is_complete, count = False, 0
    start = store.checkpoint or "snapshot"
    async with replica.connect(dsn, start=start, **json.loads(options)) as stream:
        async for tx in stream.transactions():
            changes = await store.kept.take(tx)
            store.commit(tx.checkpoint)
            count += 1
            status = stream.status.snapshot
            place = [tx.checkpoint.file, tx.checkpoint.position]
            if status is None or not (tx.outcome == "snapshot" or (status.complete and not is_complete)):
                if not count % _EVERY:
                    print(json.dumps({"place": place}), flush=True)
                continue
            is_complete = status.complete
            last = changes[-1] if changes else None
            said = {
                "place": place,
                "table": last.table.name if last else None,
                "n": last.after.get("n") if last and last.after else None,
                "chunks": status.chunks,
                "corrected": status.chunks_corrected,
                "complete": is_complete,
            }
            print(json.dumps(said), flush=True)
    store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
