"""The schema history of a stream, as far as it is not seen from outside."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.binlog.event import EventHeader
from protocol.binlog.events import QueryEvent
from protocol.errors import CheckpointError, ServerError
from protocol.position import BinlogPosition
from replica.config.options import Options
from replica.schemas import past_history, schema_keeper
from replica.schemas.catalog import Catalog, Statement
from replica.schemas.logged_statements import LogTraits
from replica.schemas.past_history import LoggedStatement
from replica.schemas.schema_keeper import SchemaKeeper
from replica.schemas.timeline import SchemaHistory
from replica.source.log_scan import LogScan
from tests.support.shape_text import MYSQL


class Statements:
    def __init__(self, count: int) -> None:
        self._found = [
            LoggedStatement(
                BinlogPosition("binlog.000001", 100 + number), Statement("FLUSH TABLES", "shop", MYSQL)
            )
            for number in range(count)
        ]

    async def statements(self, begin: object, end: object) -> list[LoggedStatement]:
        return self._found


@pytest.mark.parametrize(("count", "is_beside"), [(0, []), (10, []), (1000, [True])])
async def test_statements_are_undone_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, count: int, is_beside: list[bool]
) -> None:
    """4,000 statements behind a start kept all other tasks from running for more than a second."""
    beside: list[bool] = []

    def history_before(*arguments: Any) -> SchemaHistory:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            beside.append(True)
        return past_history.history_before(*arguments)

    monkeypatch.setattr(schema_keeper, "history_before", history_before)
    keeper = SchemaKeeper(Options.build("mysql://repl@127.0.0.1", {}))
    history = SchemaHistory("1", BinlogPosition("binlog.000001", 4000), Catalog())
    reader: Any = Statements(count)
    longer = await keeper._extended(reader, history, BinlogPosition("binlog.000001", 4))
    assert longer.begin == BinlogPosition("binlog.000001", 4)
    assert beside == is_beside


@pytest.mark.parametrize(("code", "expected"), [(1040, ServerError), (1236, CheckpointError)])
async def test_a_busy_source_is_no_reason_to_remove_the_store(code: int, expected: type[Exception]) -> None:
    """With too many connections the user was told to remove it, and the names of the past would have been lost."""

    class Refused:
        async def statements_and_end(self, begin: object, end: object) -> list[LoggedStatement]:
            raise ServerError(code, "HY000", "refused")

    keeper = SchemaKeeper(Options.build("mysql://repl@127.0.0.1", {}))
    history = SchemaHistory("1", BinlogPosition("binlog.000001", 4), Catalog())
    reader: Any = Refused()
    with pytest.raises(expected):
        await keeper._follow_gap(reader, history, BinlogPosition("binlog.000001", 400))


class MemoryStore:
    """Keeps the lines in memory. The calls of these numbers do not return."""

    def __init__(self, *stuck: int) -> None:
        self._stuck, self._calls = stuck, 0
        self.lines: list[str] = []

    async def load(self) -> list[str]:
        return self.lines

    async def save(self, lines: Sequence[str]) -> None:
        await self._turn()
        self.lines = list(lines)

    async def append(self, lines: Sequence[str]) -> None:
        await self._turn()
        self.lines += lines

    async def _turn(self) -> None:
        self._calls += 1
        if self._calls in self._stuck:
            await asyncio.Event().wait()


@pytest.mark.parametrize("most", [2000, 5], ids=["while it appends", "while it asks what is purged"])
async def test_a_store_is_whole_after_a_call_that_was_cancelled(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """The lines that a call for the next event was to write were lost: the store was damaged at the next start."""

    async def first_file(scan: LogScan) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(LogScan, "first_file", first_file)
    monkeypatch.setattr(schema_keeper, "_MOST_ADDED", most)
    store = MemoryStore(3)
    keeper = SchemaKeeper(Options.build("mysql://repl@127.0.0.1", {"schemas": store}))
    keeper._source = SimpleNamespace()  # type: ignore[assignment]
    history = SchemaHistory("1", BinlogPosition("binlog.000001", 4), Catalog())
    keeper.tracker.use(LogTraits(is_mariadb=False, version=(9, 7)), history)
    await keeper.save()
    for number in range(4):
        header = EventHeader(0, 2, 1, 100, 200 + 100 * number, 0)
        event = QueryEvent(
            header, "binlog.000001", 100 + 100 * number, 1, 0, 0, "s", f"CREATE TABLE t{number} (a INT)", b""
        )
        keeper.tracker.follow(event)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await keeper.save()
    stored = await schema_keeper.stored_history(store)
    assert stored is not None
    assert stored.tables.keys() == history.tables.keys()
