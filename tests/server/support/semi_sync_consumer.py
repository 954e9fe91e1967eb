"""A process of its own that follows a stream semi-synchronously, with its checkpoint in a file; it never ends.

The checkpoint is saved when the source waits for it, and at no other time. Usage:
python -m tests.server.support.semi_sync_consumer DSN TABLES CHECKPOINT
"""

from __future__ import annotations

import asyncio
import sys

import replica


async def main(dsn: str, tables: str, checkpoint: str) -> None:
    store = replica.FileCheckpointStore(checkpoint)
    stream = replica.connect(dsn, tables=tables, semi_sync=True, checkpoints=store, checkpoint_interval=3600)
    await stream.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
