"""A gateway in front of an object store that loses the answers to some commits: the store has them all the same.

    python -m tests.server.support.losing_store PORT  ->  prints its own port

The client sees a 503 or a broken connection in turns, as from a real gateway, sends the commit again, and is told
that it is there already. It may not look at the bucket itself (HEAD), as a user who has rights below a prefix only.
A process of its own: deltalake holds the interpreter while it waits for the store.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

#: The answer to one of so many commits is lost. A micro-batch of a mirror makes three: so each kind has its turn.
EVERY = 4
# Headers for one hop; the body is read whole, so nobody waits for 100 Continue.
_HOP = ("connection", "content-length", "transfer-encoding", "expect")


class _Gateway(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: int
    commits = itertools.count(1)
    losses = itertools.count(1)

    def _pass_on(self) -> None:
        body = b"".join(self._body())
        if self.command == "HEAD" and "/" not in self.path.strip("/"):
            self.send_error(http.client.FORBIDDEN)
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        store = http.client.HTTPConnection("127.0.0.1", self.store)
        store.request(self.command, self.path, body, headers)
        answer = store.getresponse()
        data, status = answer.read(), answer.status
        length = answer.getheader("content-length") if self.command == "HEAD" else None
        store.close()
        if self._is_lost(status):
            if next(self.losses) % 2:
                self.close_connection = True
                return
            status, data = 503, b""
        self.send_response_only(status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("content-length", length or str(len(data)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(data if self.command != "HEAD" else b"")

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("transfer-encoding") != "chunked":
            yield self.rfile.read(int(self.headers.get("content-length") or 0))
            return
        while length := int(self.rfile.readline().partition(b";")[0], 16):
            yield self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()

    def _is_lost(self, status: int) -> bool:
        is_commit = self.command == "PUT" and self.path.endswith(".json") and "/_delta_log/" in self.path
        return is_commit and status == http.client.OK and next(self.commits) % EVERY == 0

    do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = _pass_on

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def losing(store: dict[str, str]) -> Iterator[dict[str, str]]:
    """The storage options of a store behind a gateway."""
    port = urlsplit(store["AWS_ENDPOINT_URL"]).port
    command = [sys.executable, "-m", "tests.server.support.losing_store", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        assert process.stdout is not None
        yield store | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(process.stdout.readline())}"}
    finally:
        process.kill()
        process.communicate()


def main(port: int) -> None:
    _Gateway.store = port
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Gateway)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
