"""What the stream yields for random tables equals what SELECT returned at that moment.

200 tables for each server and each form of table metadata: every column type that the server has, in every
character set, with NULLs, extremes, zero dates and odd names. `TEST_SEED` repeats a run.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

import replica
from protocol.binlog.events import RowsEvent
from protocol.position import BinlogPosition
from protocol.rows.column import ABSENT
from protocol.rows.table import Table
from tests.server.support.random_streams import (
    MATRIX,
    run_tables,
)
from tests.support.random_tables import RandomColumn, RandomTable, Step
from tests.support.servers import Server

Change = tuple[str, Table, tuple[object, ...] | None, tuple[object, ...] | None]


@pytest.mark.parametrize(("server", "metadata"), MATRIX, indirect=True)
async def test_the_stream_equals_select(seed: int, server: Server, schema: str, metadata: str | None) -> None:
    rng = random.Random(f"{seed} {server.name} {metadata}")
    file, position, *_ = server.query("SHOW BINARY LOGS")[-1]
    tables = run_tables(rng, server, schema, full=metadata == "FULL")
    changes: dict[str, list[Change]] = defaultdict(list)
    async with replica.connect(
        server.dsn(), start=BinlogPosition(file, int(position)), stop="now", tables=[f"{schema}.*"]
    ) as stream:
        async for event in stream:
            if isinstance(event, RowsEvent):
                changes[event.table.name] += changes_of(event)
    names_from = "log" if metadata == "FULL" else "history"
    problems: list[str] = []
    for table in tables:
        problems += check_table(table, changes.pop(table.name, []), names_from)
    streamed = sum(len(table.columns) for table in tables for step in table.steps for _ in step.ids)
    print(f"{server.name} {metadata}: about {streamed} values compared")
    assert not problems, "\n".join([f"{len(problems)} differences:", *problems[:20]])
    assert not changes


def changes_of(event: Any) -> Iterator[Change]:
    """The rows of a rows event, as they are: tuples in the order of the columns."""
    match event:
        case replica.WriteRowsEvent():
            yield from (("insert", event.table, None, row) for row in event.rows)
        case replica.UpdateRowsEvent():
            yield from (("update", event.table, before, after) for before, after in event.rows)
        case replica.DeleteRowsEvent():
            yield from (("delete", event.table, row, None) for row in event.rows)


def check_table(table: RandomTable, changes: list[Change], names_from: str) -> Iterator[str]:
    """The differences between what was done to a table and what was streamed of it."""
    for logged in {id(change[1]): change[1] for change in changes}.values():
        yield from check_columns(table, logged, names_from)
    rest = iter(changes)
    following = next(rest, None)
    for step in table.steps:
        seen: list[int] = []
        # The rows of a second insert may follow at once, where the update between them changed nothing.
        while following is not None and following[0] == step.operation and len(seen) < len(step.ids):
            before, after = following[2:]
            number = id_of(table, after if before is None else before)
            seen.append(number)
            if before is not None:
                yield from check_image(table, step, before, step.before[number], before=True)
            if after is not None:
                yield from check_image(table, step, after, step.after[number], before=False)
            following = next(rest, None)
        if not is_order(step, seen):
            yield f"{table.quoted}: {step.operation} of {step.ids} came as {seen}"
    if following is not None:
        yield f"{table.quoted}: more than was done: {following}"


def id_of(table: RandomTable, image: tuple[object, ...] | None) -> int:
    """Only the id has to be in a MINIMAL image."""
    assert image is not None
    number = image[table.id_index]
    assert isinstance(number, int)
    return number


def check_columns(table: RandomTable, logged: Table, names_from: str) -> Iterator[str]:
    found = (logged.names_from, list(logged.column_names), sorted(logged.primary_key))
    expected = (names_from, [column.name for column in table.columns], sorted(table.primary_key))
    if found != expected:
        yield f"{table.quoted}: {found} instead of {expected}"
    # information_schema has the key's columns in the order of the table.
    if names_from == "log" and list(logged.primary_key) != table.primary_key:
        yield f"{table.quoted}: key {logged.primary_key} instead of {table.primary_key}"
    for mine, theirs in zip(table.columns, logged.columns, strict=True):
        if mine.kind.unsigned is not None and theirs.unsigned != mine.kind.unsigned:
            yield f"{table.quoted}: {mine.definition} is unsigned: {theirs.unsigned}"
        if not mine.is_generated and theirs.nullable != mine.is_nullable:
            yield f"{table.quoted}: {mine.definition} is nullable: {theirs.nullable}"


def omits(table: RandomTable, step: Step, column: RandomColumn, *, before: bool) -> bool:
    """Whether the server leaves a column out of an image (``mark_columns_per_binlog_row_image``).

    An image before the change needs the key, an image after it what is written. MINIMAL has nothing else; NOBLOB
    leaves out the BLOB and TEXT columns that are not needed. New MariaDB servers log generated columns of an INSERT
    only (``Server.logs_generated``).
    """
    if column.is_generated and step.operation != "insert" and not table.logs_generated:
        return True
    is_needed = column.name in (table.primary_key if before else step.written)
    if table.row_image == "MINIMAL":
        return not is_needed
    return table.row_image == "NOBLOB" and column.is_blob and not is_needed


def check_image(
    table: RandomTable,
    step: Step,
    streamed: tuple[object, ...],
    selected: tuple[str | bytes | None, ...],
    *,
    before: bool,
) -> Iterator[str]:
    for column, value, raw in zip(table.columns, streamed, selected, strict=True):
        is_omitted = omits(table, step, column, before=before)
        if value is ABSENT or is_omitted:
            is_right = value is ABSENT and is_omitted
        elif raw is None:
            is_right = value is None
        else:
            is_right = column.kind.equals(value, column.kind.read(raw))
        if not is_right:
            yield (
                f"{table.quoted} ({table.row_image}) at the {step.operation}: {column.definition[:200]}: "
                f"streamed {value!r}, selected {raw!r}"
            )


def is_order(step: Step, seen: list[int]) -> bool:
    """Inserts come in their order; an update is logged for the rows that it changed, of those it was about."""
    if step.operation == "insert":
        return seen == step.ids
    if step.operation == "delete":
        return sorted(seen) == sorted(step.ids)
    changed = {number for number in step.ids if step.before[number] != step.after[number]}
    return len(set(seen)) == len(seen) and changed <= set(seen) <= set(step.ids)
