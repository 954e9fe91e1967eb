"""Cache invalidation: deletes the memcached key of each row that changes, whichever client changes it.

    python cache_invalidation.py mysql://repl:secret@127.0.0.1:3306 127.0.0.1:11211 'shop.*' cache.ckpt

Keys are `schema.table:primary key`. The primary key is in the log (binlog_row_metadata=FULL), or it is looked up with
SELECT. The checkpoint moves when memcached has answered for a whole transaction; a crash may delete keys twice.
"""

import asyncio
import sys
from collections.abc import Collection
from urllib.parse import quote

import replica


class Memcached:
    """A client of memcached's text protocol, for commands that delete."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, commands: Collection[str]) -> None:
        """Send all commands, and wait for the answer to each."""
        self._writer.write("".join(f"{command}\r\n" for command in commands).encode())
        await self._writer.drain()
        for _ in commands:
            answer = await self._reader.readline()
            if answer not in (b"DELETED\r\n", b"NOT_FOUND\r\n", b"OK\r\n"):
                raise ConnectionError(f"memcached answers {answer!r}")


def keys(change: replica.Change) -> set[str]:
    """The cache keys of a changed row: two if the primary key itself has changed."""
    names = change.table.primary_key
    assert names, f"{change.table} has no primary key that is known"
    images = [image for image in (change.before, change.after) if image]
    return {f"{change.table}:{','.join(quote(str(image[name])) for name in names)}" for image in images}


async def main(dsn: str, address: str, tables: str, checkpoint: str) -> None:
    host, _, port = address.rpartition(":")
    memcached = Memcached(*await asyncio.open_connection(host, int(port)))
    store = replica.FileCheckpointStore(checkpoint)
    if store.load() is None:
        # Earlier changes are not known, so begin with an empty cache; the stream has all later changes.
        async with replica.connect(dsn) as stream:
            await memcached.ask(["flush_all"])
            assert stream.checkpoint is not None
            store.save(stream.checkpoint)
    async with replica.connect(dsn, tables=tables, checkpoints=store) as stream:
        async for transaction in stream.transactions():
            changed = {key for change in await transaction.collect() for key in keys(change)}
            # TRUNCATE and DROP TABLE remove rows without rows events.
            await memcached.ask(["flush_all"] if transaction.ddl else [f"delete {key}" for key in changed])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
