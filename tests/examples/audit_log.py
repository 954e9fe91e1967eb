"""An audit log: exactly one line of JSON for each transaction, with every row before and after its change.

    python audit_log.py mysql://repl:secret@127.0.0.1:3306 audit.jsonl 'shop.*'

Each line has the checkpoint of its transaction: after a restart, the last complete line says where to continue.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import BinaryIO

import replica


def text(value: object) -> str:
    """The text of a value that JSON has no type for."""
    return value.hex() if isinstance(value, bytes) else str(value)


def write(log: BinaryIO, line: Mapping[str, object]) -> None:
    log.write(json.dumps(line, default=text).encode() + b"\n")
    log.flush()
    os.fsync(log.fileno())


def resume(log: BinaryIO) -> replica.Checkpoint | None:
    """The checkpoint of the last complete line; None for an empty log. A line cut short by a crash is removed."""
    log.seek(0)
    end, last = 0, b""
    for line in log:
        if line.endswith(b"\n"):
            end, last = end + len(line), line
    log.truncate(log.seek(end))
    return replica.Checkpoint.from_dict(json.loads(last)["checkpoint"]) if last else None


async def follow(dsn: str, log: BinaryIO, tables: str) -> None:
    async with replica.connect(dsn, tables=tables, start=resume(log)) as stream:
        if not log.tell() and stream.checkpoint is not None:
            write(log, {"checkpoint": stream.checkpoint.to_dict()})
        async for transaction in stream.transactions():
            changes = await transaction.collect()
            line = {
                "gtid": transaction.gtid,
                "committed": transaction.commit_time,
                "changes": [(one.op, str(one.table), one.before, one.after) for one in changes],
                "statements": [event.sql for event in transaction.ddl],
                "checkpoint": transaction.checkpoint.to_dict(),
            }
            if changes or transaction.ddl:
                write(log, line)


if __name__ == "__main__":
    with open(sys.argv[2], "a+b") as file:
        asyncio.run(follow(sys.argv[1], file, sys.argv[3]))
