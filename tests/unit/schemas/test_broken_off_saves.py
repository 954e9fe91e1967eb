"""A save of a schema history that is broken off: the store lacks no line behind which it gets others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

import replica
from protocol.binlog.event import EventHeader
from protocol.binlog.events import QueryEvent
from protocol.errors import CheckpointError
from protocol.position import BinlogPosition
from replica.config.options import Options
from replica.schemas.logged_statements import LogTraits
from replica.schemas.schema_keeper import SchemaKeeper, stored_history
from replica.schemas.schema_tracker import SchemaTracker, write_unsaved
from replica.schemas.timeline import SchemaHistory
from replica.sql.token_reader import TableName

TRAITS = LogTraits(is_mariadb=False, version=(9, 7))


class FailingStore(replica.FileSchemaStore):
    """Fails once, as ``failure`` says, before it writes."""

    failure: BaseException | None = None

    def save(self, lines: Sequence[str]) -> None:
        self._fail()
        super().save(lines)

    def append(self, lines: Sequence[str]) -> None:
        self._fail()
        super().append(lines)

    def _fail(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


def made(number: int) -> QueryEvent:
    begin = 100 * number
    header = EventHeader(0, 2, 1, 100, begin + 100, 0)
    return QueryEvent(header, "binlog.000001", begin, 1, 0, 0, "s", f"CREATE TABLE t{number} (id INT)", b"")


def begin(tracker: SchemaTracker) -> None:
    tracker.use(TRAITS, SchemaHistory("uuid", BinlogPosition("binlog.000001", 4)))


async def tables(store: replica.FileSchemaStore) -> set[TableName]:
    history = await stored_history(store)
    assert history is not None
    return set(history.catalog.tables)


@pytest.mark.parametrize("failure", [asyncio.CancelledError(), OSError("no"), CheckpointError("no")])
async def test_a_save_that_is_broken_off(tmp_path: Path, failure: BaseException) -> None:
    """With later lines behind those that were missing, the store was refused as damaged."""
    store = FailingStore(tmp_path / "schemas")
    keeper = SchemaKeeper(Options.build("mysql://u@127.0.0.1", {"schemas": store}))
    begin(keeper.tracker)
    await keeper.save()
    keeper.tracker.follow(made(1))
    store.failure = failure
    with pytest.raises(type(failure)):
        await keeper.save()
    keeper.tracker.follow(made(2))
    await keeper.save()
    assert await tables(store) == {TableName("s", "t1"), TableName("s", "t2")}


async def test_of_a_relay_or_a_spool(tmp_path: Path) -> None:
    store = FailingStore(tmp_path / "schemas")
    tracker = SchemaTracker(Options.build("mysql://u@127.0.0.1", {}))
    begin(tracker)
    write_unsaved(tracker, store)
    tracker.follow(made(1))
    store.failure = CheckpointError("no")
    with pytest.raises(CheckpointError):
        write_unsaved(tracker, store)
    tracker.follow(made(2))
    write_unsaved(tracker, store)
    assert await tables(store) == {TableName("s", "t1"), TableName("s", "t2")}
