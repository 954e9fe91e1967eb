"""Appends the changes of tables to a Redis stream, each once, beginning with a copy of the rows they have.

    python changes_to_redis.py mysql://repl:secret@127.0.0.1:3306 127.0.0.1:6379 changes 'shop.*'

Each entry has `op`, `table` and `row`, the row as JSON ("read" is a row of the copy). The entries of a batch and the
checkpoint are one MULTI ... EXEC: Redis has both or neither. It is as durable as Redis: appendonly, appendfsync.
"""

import json
import socket
import sys

import replica.sync


class Redis:
    """As much of a client as this needs."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self.close = self._socket.close
        self._answers = self._socket.makefile("rb")

    def run(self, *commands: tuple[str, ...]) -> object:
        """Send all commands at once; the answer to the last one."""
        request = b""
        for command in commands:
            words = [word.encode(errors="surrogateescape") for word in command]
            request += b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)
        self._socket.sendall(request)
        return [self._answer() for _ in commands][-1]

    def _answer(self) -> object:
        line = self._answers.readline()
        kind, text = line[:1], line[1:].decode().strip()
        if kind == b"$" and text != "-1":
            return self._answers.read(int(text) + 2)[:-2].decode(errors="surrogateescape")
        if kind == b"*" and text != "-1":
            return [self._answer() for _ in range(int(text))]
        if kind in (b"-", b""):
            raise RuntimeError(f"Redis: {text or 'the connection was closed'}")
        return int(text) if kind == b":" else None if text == "-1" else text


def entry(stream: str, change: replica.Change) -> tuple[str, ...]:
    row = change.before if change.after is None else change.after
    fields = "op", change.op, "table", str(change.table), "row", json.dumps(row, default=str)
    return "XADD", stream, "*", *fields


def main(dsn: str, address: str, target: str, tables: str) -> None:
    redis, place = Redis(address), f"{target}:checkpoint"
    found = redis.run(("GET", place))
    start = replica.Checkpoint.from_dict(json.loads(str(found))) if found else "snapshot"
    with replica.sync.connect(dsn, tables=tables, start=start) as stream:
        for batch in stream.batches(max_rows=500, max_seconds=0.2):
            entries = [entry(target, change) for change in batch.changes]
            if batch.voided:  # the copy begins anew: what was read so far is void
                entries.append(("XADD", target, "*", "op", "voided", "table", str(batch.voided), "row", "{}"))
            checkpoint = json.dumps(batch.checkpoint.to_dict())
            redis.run(("MULTI",), *entries, ("SET", place, checkpoint), ("EXEC",))


if __name__ == "__main__":
    main(*sys.argv[1:])
