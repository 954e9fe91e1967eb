"""Rows that are read by SELECT for a first copy equal the rows that the log has, value by value."""

from __future__ import annotations

import base64
import datetime
import json
import random
from collections import defaultdict
from decimal import Decimal
from typing import Any

import pytest

import replica
from protocol.binlog.events import RowsEvent
from protocol.constants import ColumnType
from protocol.position import BinlogPosition
from protocol.rows.column import ABSENT
from protocol.rows.undecoded_rows import UndecodedRows
from replica.snapshot.chunk_reader import ChunkReader
from replica.snapshot.read_plan import ReadPlan
from replica.snapshot.row_keys import KeyRange
from replica.source.session import Session
from tests.server.support.random_streams import MATRIX, run_tables
from tests.server.support.table_reading import Row, plan_of, read_chunks, reading_session
from tests.support.arrow_rows import arrow_value, same
from tests.support.random_tables import RandomTable
from tests.support.servers import Server


@pytest.mark.parametrize(("server", "metadata"), MATRIX, indirect=True)
async def test_a_row_as_read_equals_the_row_as_logged(
    seed: int, server: Server, schema: str, metadata: str | None
) -> None:
    rng = random.Random(f"{seed} {server.name} {metadata}")
    file, position, *_ = server.query("SHOW BINARY LOGS")[-1]
    tables = run_tables(rng, server, schema, full=metadata == "FULL", number=60)
    logged = await logged_rows(server, schema, BinlogPosition(file, int(position)), tables)
    compared = 0
    problems: list[str] = []
    async with reading_session(server) as session:
        for table in tables:
            plan = await plan_of(session, schema, table.name)
            read = {
                row[table.id_index]: row for row in await read_chunks(session, plan, rng.choice([None, 1, 2]))
            }
            if read.keys() != logged[table.name].keys():
                problems.append(f"{table.quoted}: read {sorted(read)}, logged {sorted(logged[table.name])}")
                continue
            problems += await column_differences(session, plan, list(read.values()))
            for number, row in read.items():
                compared += len(row)
                problems += differences(table, logged[table.name][number], row)
    print(f"{server.name} {metadata}: {compared} values compared")
    assert not problems, "\n".join([f"{len(problems)} differences:", *problems[:20]])


async def logged_rows(
    server: Server, schema: str, start: BinlogPosition, tables: list[RandomTable]
) -> dict[str, dict[Any, Row]]:
    """The rows of each table as the log leaves them; values that no image had are ABSENT."""
    indexes = {table.name: table.id_index for table in tables}
    rows: dict[str, dict[Any, Row]] = defaultdict(dict)
    async with replica.connect(server.dsn(), start=start, stop="now", tables=[f"{schema}.*"]) as stream:
        async for event in stream:
            if not isinstance(event, RowsEvent):
                continue
            name: str = event.table.name
            kept, index = rows[name], indexes[name]
            match event:
                case replica.WriteRowsEvent():
                    kept |= {row[index]: row for row in event.rows}
                case replica.UpdateRowsEvent():
                    for before, after in event.rows:
                        number = before[index] if after[index] is ABSENT else after[index]
                        kept[number] = merged(kept[number], after)
                case replica.DeleteRowsEvent():
                    for row in event.rows:
                        del kept[row[index]]
    return rows


async def column_differences(session: Session, plan: ReadPlan, rows: list[Row]) -> list[str]:
    """The same rows as Arrow columns."""
    batches = plan.select.batches()
    chunk = await ChunkReader(session, plan).start(KeyRange())
    undecoded = UndecodedRows()
    while await chunk.read_undecoded(undecoded):
        pass
    batch = batches.batch(undecoded)
    found = []
    for index, column in enumerate(plan.table.columns):
        values = batch.column(index).to_pylist()
        expected = [arrow_value(column, row[index]) for row in rows]
        if column.type is ColumnType.JSON:
            values = [None if value is None else said_exactly(value) for value in values]
        if not same(values, expected):
            found.append(f"{plan.table}: {column}: tuples {expected!r}, columns {values!r}")
    return found


def merged(old: Row, new: Row) -> Row:
    return tuple(before if after is ABSENT else after for before, after in zip(old, new, strict=True))


def differences(table: RandomTable, logged: Row, read: Row) -> list[str]:
    return [
        f"{table.quoted}: {column.definition[:200]}: logged {expected!r}, read {found!r}"
        for column, expected, found in zip(table.columns, logged, read, strict=True)
        if expected is not ABSENT and not is_same(expected, found)
    ]


def is_same(logged: object, read: object) -> bool:
    if type(logged) is type(read) and logged == read:
        return not isinstance(logged, Decimal) or str(logged) == str(read)
    return isinstance(read, dict | list | str | int | float | Decimal) and said_by_json(logged) == read


def said_exactly(text: str) -> object:
    """A JSON text, with DECIMALs where floats would round them."""

    def number(digits: str) -> float | Decimal:
        return float(digits) if Decimal(repr(float(digits))) == Decimal(digits) else Decimal(digits)

    return json.loads(text, parse_float=number)


def said_by_json(value: object) -> object:
    """A document of the log as the text of a document says it: a DECIMAL is a number, a date is text."""
    if isinstance(value, dict):
        return {name: said_by_json(member) for name, member in value.items()}
    if isinstance(value, list):
        return [said_by_json(member) for member in value]
    if isinstance(value, Decimal):
        return said_exactly(str(value))
    if isinstance(value, bytes):
        return f"base64:type15:{base64.b64encode(value).decode()}"
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ", "microseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        magnitude = abs(value)
        hours, rest = divmod(magnitude.days * 86400 + magnitude.seconds, 3600)
        sign = "-" if value < datetime.timedelta(0) else ""
        return f"{sign}{hours:02}:{rest // 60:02}:{rest % 60:02}.{magnitude.microseconds:06}"
    return value


async def test_an_answer_is_waited_for_while_the_server_works_on_it(server: Server, schema: str) -> None:
    """A list of thousands of tables takes long; a statement that waits for others may do so for a year."""
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    async with reading_session(server, connect_timeout=1) as session:
        assert await session.query(f"SELECT SLEEP(2.5), COUNT(*) FROM {schema}.t") == [("0", "0")]
        with server.connect() as other, other.cursor() as cursor:
            cursor.execute(f"LOCK TABLES {schema}.t WRITE")
            with pytest.raises(replica.ConnectionLostError, match=r"did not answer within 1 s"):
                await session.query(f"SELECT * FROM {schema}.t")
