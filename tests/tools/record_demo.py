"""Records the binlog of the demo, `replica/demo/shop.binlog`: `python -m tests.tools.record_demo`. It needs Docker.

A MySQL 9.7 of its own does the shop's work and is shut down in order, so that the log has an end. That takes half an
hour: the times in the log are true. What the log holds is tested in `tests/unit/demo/test_demo_source.py`.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tarfile
import time

import pymysql

from tests.support import shop
from tests.support.places import ROOT
from tests.support.servers import Server, ServerPool

TRANSACTIONS = 220
LOG = ROOT / "replica" / "demo" / "shop.binlog"
_SERVER = "mysql:9.7"
_DATA = "/var/lib/mysql"
_SHUTDOWN_SECONDS = 60


def main() -> int:
    with contextlib.closing(ServerPool()) as pool:
        server = pool.start(_SERVER, "--binlog-row-metadata=FULL", "--server-id=7")
        _work(server)
        content = _log_of(server)
    LOG.write_bytes(content)
    print(f"{LOG}: {len(content)} bytes")
    return 0


def _work(server: Server) -> None:
    # What the server's own start has logged is nobody's business.
    server.query("RESET BINARY LOGS AND GTIDS")
    for sql in shop.create_statements():
        server.query(sql)
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for work in shop.transactions(TRANSACTIONS):
            time.sleep(work.after)
            for sql in work.statements:
                cursor.execute(sql)
            connection.commit()


def _log_of(server: Server) -> bytes:
    """The one file of its log, when the server has closed it."""
    with contextlib.suppress(pymysql.err.OperationalError):
        server.query("SHUTDOWN")
    container = server.container.get_wrapped_container()
    container.wait(timeout=_SHUTDOWN_SECONDS)
    chunks, _ = container.get_archive(f"{_DATA}/binlog.000001")
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        file = archive.extractfile("binlog.000001")
        assert file is not None
        return file.read()


if __name__ == "__main__":
    sys.exit(main())
