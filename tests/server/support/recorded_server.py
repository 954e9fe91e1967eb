"""Records whole conversations with a server: what streams, copies, a relay, the doctor and Spark's intake ask it."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import replica
from replica.config.options import Options
from replica.doctor import examine
from replica.export.exporter import Exporter
from replica.relay import BinlogRelay
from replica.spool.live_log import LiveLog
from tests.faults.recording import Recorder, Recording
from tests.server.support.streams import begin_log
from tests.support.servers import REPLICA_PASSWORD, REPLICA_USER, Server

_TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20), b TEXT, c DECIMAL(10,2), d DATETIME(3), e TIMESTAMP NULL,
    f ENUM('x','y'), g SET('p','q'), h BLOB, i DOUBLE, j BIT(9), k YEAR, l TIME(2), m BINARY(5), n FLOAT, o DATE,
    p BIGINT UNSIGNED);
CREATE TABLE u (v VARCHAR(10) PRIMARY KEY, w INT) CHARACTER SET latin1;
CREATE TABLE w (a INT);
INSERT INTO t VALUES (1, 'a', 'b', 1.25, '2026-01-01 10:00:00.123', '2026-01-01 10:00:00', 'x', 'p,q', 'blob', 1.5, 5,
    2026, '-10:00:00.25', 'bin', 2.5, '2026-01-02', 18446744073709551615);
INSERT INTO t (id) VALUES (2);
INSERT INTO u VALUES ('a', 1), ('b', 2), ('c', 3);
INSERT INTO w VALUES (1), (2);
"""
_CHANGES = """
UPDATE t SET a = 'b', b = REPEAT('x', 300) WHERE id = 1;
DELETE FROM u WHERE v = 'b';
ALTER TABLE u ADD x INT;
FLUSH LOGS;
INSERT INTO u VALUES ('d', 1, 5);
XA START 'x';
INSERT INTO w VALUES (9);
XA END 'x';
XA PREPARE 'x';
XA COMMIT 'x';
"""
_OF_MYSQL = """
CREATE TABLE j (id INT PRIMARY KEY, d JSON, g GEOMETRY);
INSERT INTO j VALUES (1, '{"a": [1, 2.5, "x", null, true, {"b": 1}]}', ST_GeomFromText('POINT(1 2)'));
SET SESSION binlog_row_value_options = PARTIAL_JSON;
UPDATE j SET d = JSON_SET(d, '$.a[0]', 7, '$.c', 'yy');
SET SESSION binlog_transaction_compression = ON;
INSERT INTO u VALUES ('zz', 1, 5), ('zy', 1, 6);
"""
_OF_MARIADB = """
CREATE TABLE z (a TEXT COMPRESSED);
INSERT INTO z VALUES (REPEAT('z', 3000));
INSERT INTO t (id, b) VALUES (77, REPEAT('y', 3000));
"""


def _run(server: Server, schema: str, script: str) -> None:
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        for statement in script.split(";\n"):
            if statement.strip():
                cursor.execute(statement.strip())


#: Tables that some servers cannot copy.
KEYLESS = ("*.w", "*.z")


async def record(server: Server, schema: str, folder: Path) -> Recording:
    """What the server says to everything that the library can ask it; ``folder`` is scratch space."""
    # Tables of other tests, which are gone, would be asked about in another order when it is played back.
    begin_log(server)
    place = server.query(server.log_status)[0][:2]
    start = f"{place[0]}:{place[1]}"
    _run(server, schema, _TABLES + _CHANGES)
    if server.family == "mariadb":
        _run(server, schema, _OF_MARIADB)
    elif server.version >= (8, 0):
        _run(server, schema, _OF_MYSQL)
    async with Recorder.before(server.port) as recorder:
        dsn = f"mysql://{REPLICA_USER}:{REPLICA_PASSWORD}@127.0.0.1:{recorder.port}/?tls=disabled"
        for given in (start, "earliest", "now", "snapshot"):
            async with replica.connect(dsn, start=given, stop="now", exclude_tables=KEYLESS) as stream:
                async for _ in stream:
                    pass
            checkpoint = stream.checkpoint
        assert checkpoint is not None
        async with replica.connect(dsn, start=checkpoint, stop="now") as stream:
            async for _ in stream:
                pass
        await examine(dsn, semi_sync=True)
        await BinlogRelay(dsn, str(folder / "relay"), once=True).run()
        exporter = Exporter(Options.build(dsn, {"exclude_tables": KEYLESS}), str(folder / "copy"), "jsonl")
        with contextlib.closing(exporter):
            async with exporter.stream:
                await exporter.copy(lambda status: None)
        await asyncio.to_thread(_take_in, Options.build(dsn, {}), folder)
    return recorder.recording


def _take_in(options: Options, folder: Path) -> None:
    with contextlib.closing(LiveLog(options, str(folder / "spool"))) as log:
        start = log.find("earliest")
        log.follow(start)
        log.reach(log.end())
