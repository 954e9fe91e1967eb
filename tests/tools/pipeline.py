"""`make pipeline SERVER=mysql:9.7`: a real server in Docker, whose tables were there before, mirrored on Spark.

The shop's first transactions are made, and their log is purged. Then `mirror` copies the tables, while the shop works
on, and follows the log. In the end the mirrored tables are printed; the server is removed. It is no part of the test
suite.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from replica.spark.jobs import mirror, pipeline
from replica.spark.jobs.spark_session import Pace, await_queries, session_for
from tests.server.support.streams import begin_log
from tests.support import shop
from tests.support.servers import SERVERS, Server, ServerPool, ServerStartError, ServerUnavailableError

_BEFORE, _ALL = 40, 80
# MySQL 5.6 does not have the type.
_JSON_SINCE = (5, 7)


def main(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "mysql:9.7"
    # Bind Spark to the loopback interface; then it does not look up the machine's name either.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if name not in SERVERS:
        print(f"The pipeline knows {', '.join(SERVERS)}, not {name}.", file=sys.stderr)
        return 2
    with contextlib.closing(ServerPool()) as pool, tempfile.TemporaryDirectory() as folder:
        print(f"Starting {name} in Docker ...", flush=True)
        try:
            server = pool.shared(name)
        except (ServerUnavailableError, ServerStartError) as error:
            print(f"The pipeline needs a Docker daemon and an image of {name}: {error}", file=sys.stderr)
            return 1
        return 0 if run(server, Path(folder)) else 1


def run(server: Server, folder: Path) -> bool:
    """Mirror the shop of this server, and print it. Returns whether the mirror has the rows of the server."""
    works = list(shop.transactions(_ALL))
    for sql in shop.create_statements("JSON" if server.version >= _JSON_SINCE else "TEXT"):
        server.query(sql)
    _work(server, works[:_BEFORE])
    begin_log(server)
    print(f"{_BEFORE} transactions were made, and their log is gone. Spark copies the tables ...", flush=True)
    secret = folder / "password"
    secret.write_text(server.replica_password)
    source = {
        "host": server.host,
        "port": str(server.port),
        "user": server.replica_user,
        "passwordFile": str(secret),
        "includeTables": f"{pipeline.SCHEMA}.*",
    }
    target = str(folder / "lake")
    with session_for("mysql-replica pipeline", "local[2]", pipeline.SETTINGS) as spark:
        with _working(server, works[_BEFORE:]):
            await_queries(mirror.start(spark, source, target, pace=Pace(once=True)))
        await_queries(mirror.start(spark, source, target, pace=Pace(once=True)))
    found = pipeline.tables(target)
    pipeline.show(found, None)
    counts = {name: server.query(f"SELECT COUNT(*) FROM {name}")[0][0] for name in found}
    return bool(found) and counts == {name: table.num_rows for name, table in found.items()}


@contextlib.contextmanager
def _working(server: Server, works: list[shop.Work]) -> Iterator[None]:
    """The shop works beside, and is done in the end."""
    thread = threading.Thread(target=_work, args=(server, works))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _work(server: Server, works: list[shop.Work]) -> None:
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for work in works:
            for sql in work.statements:
                cursor.execute(sql)
            connection.commit()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
