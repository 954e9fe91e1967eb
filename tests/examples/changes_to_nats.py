"""Publishes the changes of tables to a NATS JetStream stream, beginning with a copy of the rows they have.

    python changes_to_nats.py mysql://repl:secret@127.0.0.1:3306 127.0.0.1:4222 CHANGES changes.ckpt 'shop.*'

Subjects are STREAM.schema.table. The checkpoint moves when JetStream has stored a transaction's messages. After a
crash some come again: their ids (`Nats-Msg-Id`) are the same, and JetStream drops them within its duplicate window.
"""

import hashlib
import json
import socket
import sys

import replica.sync


class JetStream:
    """As much of a client as this needs: publishes, and waits for the answers of the server."""

    def __init__(self, address: str) -> None:
        self._socket = socket.create_connection(address.rpartition(":")[::2])
        self.close = self._socket.close
        self._lines = self._socket.makefile("rb")
        self._inbox = f"_INBOX.{hashlib.sha256(repr(self._socket).encode()).hexdigest()}"
        options = '{"headers": true, "no_responders": true, "verbose": false}'
        self._socket.sendall(f"CONNECT {options}\r\nSUB {self._inbox} 1\r\n".encode())

    def publish(self, messages: list[tuple[str, str, object]]) -> list[dict[str, object]]:
        """Publish (subject, message id, JSON); the answers to all of them. Raises for one that is refused."""
        request = b""
        answers: list[dict[str, object]] = []
        for number, (subject, identity, payload) in enumerate(messages, 1):
            head = f"NATS/1.0\r\nNats-Msg-Id: {identity}\r\n\r\n".encode()
            body = json.dumps(payload, default=str).encode()
            sizes = f"{len(head)} {len(head) + len(body)}"
            request += f"HPUB {subject} {self._inbox} {sizes}\r\n".encode() + head + body + b"\r\n"
            if number % 500 == 0 or number == len(messages):
                self._socket.sendall(request)
                request = b""
                answers += [self._answer() for _ in range(number - len(answers))]
        return answers

    def _answer(self) -> dict[str, object]:
        while line := self._lines.readline():
            words = line.split()
            if words[0] == b"PING":
                self._socket.sendall(b"PONG\r\n")
            elif words[0] == b"MSG":
                answer = json.loads(self._lines.read(int(words[-1]) + 2))
                if "error" in answer:
                    raise RuntimeError(f"NATS: {answer['error']}")
                return dict(answer)
            elif words[0] in (b"HMSG", b"-ERR"):
                break
        raise RuntimeError(f"NATS: {line!r}: is JetStream enabled?")


def main(dsn: str, address: str, target: str, checkpoint: str, tables: str) -> None:
    nats = JetStream(address)
    options = {"name": target, "subjects": [f"{target}.>"], "duplicate_window": 86400 * 10**9}
    nats.publish([(f"$JS.API.STREAM.CREATE.{target}", "", options)])
    store = replica.FileCheckpointStore(checkpoint)
    with replica.sync.connect(dsn, tables=tables, start="snapshot", checkpoints=store) as stream:
        for tx in stream.transactions():
            changes = tx.collect()
            place = str(tx.gtid or f"{tx.checkpoint.file}:{tx.checkpoint.position}")
            if tx.outcome == "snapshot":  # chunks of the copy have no place of their own, but a state
                place = hashlib.sha256(json.dumps(tx.checkpoint.to_dict()).encode()).hexdigest()
            messages: list[tuple[str, str, object]] = []
            for number, change in enumerate(changes):
                row = {"op": change.op, "before": change.before, "after": change.after}
                messages.append((f"{target}.{change.table}", f"{place}:{number}", row))
            if tx.voided:  # the copy begins anew: what was read so far is void
                messages.append((f"{target}.{tx.voided}", f"{place}:voided", {"op": "voided"}))
            nats.publish(messages)


if __name__ == "__main__":
    main(*sys.argv[1:])
