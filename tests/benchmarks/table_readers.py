"""One reader of a whole table, as a process of its own: `python -m tests.benchmarks.table_readers NAME JSON`.

What the process prints is one JSON object: `rows`, `seconds` (from connecting to the last row, imports left out),
`cpu_seconds` (of this process in that time) and `peak_kib` (the most memory that was resident).
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

# host, port, user, password, schema and table.
Setting = Mapping[str, Any]

CHUNK_ROWS = 50_000
BATCH_ROWS = 16_384


def pymysql_tuples(setting: Setting) -> Callable[[], int]:
    """PyMySQL's cursor that does not keep the rows."""
    import pymysql.cursors

    def read() -> int:
        address = {name: setting[name] for name in ("host", "port", "user", "password")}
        rows = 0
        with (
            pymysql.connect(
                **address, cursorclass=pymysql.cursors.SSCursor, charset="utf8mb4", ssl_disabled=True
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"SELECT * FROM {setting['schema']}.{setting['table']}")
            for _ in cursor:
                rows += 1
        return rows

    return read


def ours_tuples(setting: Setting) -> Callable[[], int]:
    from replica.schemas import table_shapes  # noqa: F401
    from replica.snapshot import chunk_reader, read_plan  # noqa: F401

    return lambda: asyncio.run(_read(setting, in_columns=False))


def ours_arrow(setting: Setting) -> Callable[[], int]:
    from replica.arrow import result_rows  # noqa: F401
    from replica.schemas import table_shapes  # noqa: F401
    from replica.snapshot import chunk_reader, read_plan  # noqa: F401

    return lambda: asyncio.run(_read(setting, in_columns=True))


async def _read(setting: Setting, *, in_columns: bool) -> int:
    from protocol.rows.undecoded_rows import UndecodedRows
    from replica.config.options import Options
    from replica.schemas.table_shapes import read_shapes
    from replica.snapshot.chunk_reader import ChunkReader, prepare_session
    from replica.snapshot.read_plan import ReadPlan
    from replica.snapshot.row_keys import KeyRange
    from replica.source.session import Session
    from replica.sql.token_reader import TableName

    address = {name: setting[name] for name in ("host", "port", "user", "password")}
    session = await Session.open(Options.build(None, address | {"tls": "disabled"}))
    await prepare_session(session)
    table = TableName(setting["schema"], setting["table"])
    shapes = await read_shapes(session, [table])
    plan = ReadPlan(*table, shapes[table], is_mariadb=session.handshake.is_mariadb)
    reader = ChunkReader(session, plan)
    batches = plan.select.batches() if in_columns else None
    keys = KeyRange(None, await reader.largest_key())
    count = 0
    pending = UndecodedRows()
    while True:
        chunk = await reader.start(keys, CHUNK_ROWS)
        if batches is None:
            async for rows in chunk:
                count += len(rows)
        else:
            # The end of a chunk ends no batch: the server would wait for it, as it does not know the next chunk yet.
            while await chunk.read_undecoded(pending):
                if len(pending) >= BATCH_ROWS:
                    count += batches.batch(pending).num_rows
                    pending = UndecodedRows()
        if chunk.end is None:
            break
        keys = KeyRange(chunk.end, keys.upto)
    if batches is not None:
        count += batches.batch(pending).num_rows
    await session.aclose()
    return count


READERS: Mapping[str, Callable[[Setting], Callable[[], int]]] = MappingProxyType(
    {"pymysql_tuples": pymysql_tuples, "ours_tuples": ours_tuples, "ours_arrow": ours_arrow}
)


def main() -> None:
    read = READERS[sys.argv[1]](json.loads(sys.argv[2]))
    began, cpu_began = time.perf_counter(), time.process_time()
    rows = read()
    result = {
        "rows": rows,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu_began,
        "peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
