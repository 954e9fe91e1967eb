"""The outbox pattern: rows inserted into a table become messages in a queue, exactly once, in commit order.

    python outbox_to_queue.py mysql://repl:secret@127.0.0.1:3306 queue.db shop.outbox

An application inserts (topic, payload) in the transaction of its own changes. It may delete the row at once, as the
log keeps it. The queue here is a SQLite table, and the checkpoint is in the same database: a crash leaves both or
neither. If a queue cannot store the checkpoint, save it after sending; `origin` and `number` tell repeated messages.
"""

import asyncio
import json
import sqlite3
import sys

import replica

SCHEMA = """
CREATE TABLE IF NOT EXISTS message (
    origin TEXT, number INTEGER, topic TEXT, payload TEXT, PRIMARY KEY (origin, number)) STRICT;
CREATE TABLE IF NOT EXISTS resume (only INTEGER PRIMARY KEY CHECK (only = 1), checkpoint TEXT) STRICT;
"""


def save(queue: sqlite3.Connection, checkpoint: replica.Checkpoint) -> None:
    queue.execute("INSERT OR REPLACE INTO resume VALUES (1, ?)", (json.dumps(checkpoint.to_dict()),))


def load(queue: sqlite3.Connection) -> replica.Checkpoint | None:
    found = queue.execute("SELECT checkpoint FROM resume").fetchone()
    return replica.Checkpoint.from_dict(json.loads(found[0])) if found else None


def text(payload: object) -> str:
    """The payload as text: a JSON column is a Python object with MySQL, and text with MariaDB, which stores text."""
    return payload if isinstance(payload, str) else json.dumps(payload, default=str)


async def main(dsn: str, path: str, table: str) -> None:
    queue = sqlite3.connect(path)
    queue.executescript(SCHEMA)
    async with replica.connect(dsn, tables=table, start=load(queue)) as stream:
        if stream.checkpoint and not load(queue):
            with queue:
                save(queue, stream.checkpoint)
        async for transaction in stream.transactions():
            rows = [change.after for change in await transaction.collect() if change.op == "insert"]
            checkpoint = transaction.checkpoint
            origin = str(transaction.gtid or f"{checkpoint.file}:{checkpoint.position}")
            messages = [
                (origin, number, row["topic"], text(row["payload"])) for number, row in enumerate(rows) if row
            ]
            if messages:
                with queue:  # one SQLite transaction
                    queue.executemany("INSERT INTO message VALUES (?, ?, ?, ?)", messages)
                    save(queue, checkpoint)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
