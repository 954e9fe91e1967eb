"""A process of its own whose files may not grow: it follows a stream whose checkpoint store can soon save no more.

Usage: python -m tests.faults.full_disk DSN START CHECKPOINT_FILE; prints type and text of what the stream raises.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import sys

import replica


async def main(dsn: str, start: str, path: str) -> None:
    # Without this the signal ends the process; with it the write fails, as on a full disk.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = replica.FileCheckpointStore(path)
    stream = replica.connect(dsn, tls="disabled", start=start, checkpoints=store, checkpoint_interval=0)
    try:
        async with stream:
            async for event in stream:
                if isinstance(event, replica.XidEvent):
                    # The checkpoint of the start has been saved; none behind it will be.
                    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
    except replica.ReplicaError as error:
        print(type(error).__name__, error)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
