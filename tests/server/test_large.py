"""Large things arrive whole and in little memory: a row of 40 MB, and a transaction of 200,000 rows."""

from __future__ import annotations

import hashlib

from tests.support.servers import Server

from .support.other_process import result_of
from .support.streams import end_of_log

MEGABYTE = 1 << 20
LIMIT_KB = 400 << 10


async def test_a_row_of_40_megabytes(server: Server, schema: str) -> None:
    pattern = bytes(range(256)) * 4
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, b LONGBLOB)")
    start = end_of_log(server)
    server.query(
        f"INSERT INTO {schema}.t VALUES (1, REPEAT(UNHEX('{pattern.hex()}'), {40 * MEGABYTE // len(pattern)}))"
    )
    seen = await result_of("consumer", server, schema, start, 1)
    expected = b"1\0" + pattern * (40 * MEGABYTE // len(pattern)) + b"\n"
    assert (seen["rows"], seen["longest"]) == (1, 40 * MEGABYTE)
    assert seen["digest"] == hashlib.sha256(expected).hexdigest()
    assert seen["peak_kb"] < LIMIT_KB


async def test_a_transaction_of_200000_rows(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.digits (d INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)")
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, name VARCHAR(40))")
    start = end_of_log(server)
    digits = ", ".join(f"{schema}.digits AS d{place}" for place in range(6))
    number = " + ".join(f"d{place}.d * {10**place}" for place in range(6))
    # Ordered, so that the log is.
    server.query(
        f"INSERT INTO {schema}.t SELECT n, CONCAT('row number ', n) FROM (SELECT {number} AS n FROM {digits}) AS x "
        "WHERE n < 200000 ORDER BY n"
    )
    seen = await result_of("consumer", server, schema, start, 200_000)
    expected = hashlib.sha256()
    for row in range(200_000):
        expected.update(f"{row}\0row number {row}\n".encode())
    assert (seen["rows"], seen["transactions"]) == (200_000, 1)
    assert seen["digest"] == expected.hexdigest()
    assert seen["peak_kb"] < LIMIT_KB
