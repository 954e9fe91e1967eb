"""Reading tables of a real server in chunks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from replica.config.options import Options
from replica.schemas.table_shapes import read_shapes
from replica.snapshot.chunk_reader import ChunkReader, prepare_session
from replica.snapshot.read_plan import ReadPlan
from replica.snapshot.row_keys import KeyRange
from replica.source.session import Session
from replica.sql.token_reader import TableName
from tests.support.servers import Server

Row = tuple[Any, ...]


@contextlib.asynccontextmanager
async def reading_session(server: Server, **options: object) -> AsyncIterator[Session]:
    """A session of the replica user, prepared to read chunks."""
    session = await Session.open(Options.build(server.dsn(), options))
    try:
        await prepare_session(session)
        yield session
    finally:
        await session.aclose()


async def plan_of(session: Session, schema: str, name: str, **options: Any) -> ReadPlan:
    """The plan of a table with its shape as it is now."""
    table = TableName(schema, name)
    shapes = await read_shapes(session, [table])
    return ReadPlan(schema, name, shapes[table], is_mariadb=session.handshake.is_mariadb, **options)


async def read_chunks(session: Session, plan: ReadPlan, limit: int | None) -> list[Row]:
    """All rows of a table, in chunks of ``limit`` rows."""
    reader = ChunkReader(session, plan)
    keys = KeyRange(None, await reader.largest_key()) if plan.key_names else KeyRange()
    rows: list[Row] = []
    while True:
        chunk = await reader.start(keys, limit if plan.key_names else None)
        async for some in chunk:
            rows += some
        if chunk.end is None:
            return rows
        keys = KeyRange(chunk.end, keys.upto)
