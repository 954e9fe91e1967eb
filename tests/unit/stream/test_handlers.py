"""Handlers: which handlers are called, in which order, sync or async, and which registrations are refused."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from protocol.binlog.events import (
    DeleteRowsEvent,
    Event,
    EventHeader,
    QueryEvent,
    RowsEvent,
    TableMapEvent,
    WriteRowsEvent,
    XidEvent,
)
from protocol.constants import ColumnType
from protocol.errors import ConfigurationError
from protocol.rows.column import Column
from protocol.rows.table import Table
from replica.schemas.change_event import SchemaChangeEvent
from replica.stream.handlers import Handlers
from replica.transactions.snapshot_events import SnapshotCompleteEvent, SnapshotRestartedEvent

HEADER = EventHeader(1, 30, 1, 50, 100, 0)


def rows(name: str, event_class: type[WriteRowsEvent] | type[DeleteRowsEvent] = WriteRowsEvent) -> RowsEvent:
    table = Table("shop", name, (Column("id", ColumnType.LONG, 0, False),))
    return event_class(HEADER, "binlog.000001", 4, 7, table, 1, b"", [(1,)])


XID = XidEvent(HEADER, "binlog.000001", 4, 5)


async def test_sync_and_async_handlers_run_in_order_of_registration() -> None:
    handlers = Handlers()
    calls: list[str] = []

    async def slow(event: WriteRowsEvent) -> None:
        await asyncio.sleep(0.01)
        calls.append("slow")

    def quick(event: WriteRowsEvent) -> None:
        calls.append("quick")

    handlers.on(WriteRowsEvent)(slow)
    handlers.on(WriteRowsEvent)(quick)
    await handlers.call(rows("orders"))
    assert calls == ["slow", "quick"]


async def test_by_class_and_subclass() -> None:
    handlers = Handlers()
    calls: list[str] = []

    def append(name: str, event: Event) -> None:
        calls.append(name)

    for event_class in (Event, RowsEvent, WriteRowsEvent, XidEvent, QueryEvent):
        handlers.on(event_class)(partial(append, event_class.__name__))
    await handlers.call(rows("orders"))
    await handlers.call(XID)
    assert calls == ["Event", "RowsEvent", "WriteRowsEvent", "Event", "XidEvent"]


async def test_by_table() -> None:
    handlers = Handlers()
    calls: list[str] = []
    handlers.on(RowsEvent, "shop.orders")(lambda event: calls.append("one"))
    handlers.on(RowsEvent, ["shop.o*", "shop.items"])(lambda event: calls.append("some"))
    handlers.on(WriteRowsEvent, "*")(lambda event: calls.append("all"))
    for event in (rows("orders"), rows("items"), rows("log"), rows("orders", DeleteRowsEvent)):
        await handlers.call(event)
        calls.append("|")
    assert " ".join(calls) == "one some all | some all | all | one some |"


async def test_copies_and_changes_of_tables_by_table() -> None:
    """These events name a table, and were refused as events of none."""
    handlers = Handlers()
    calls: list[str] = []
    table = rows("orders").table
    events: list[Event] = [
        SnapshotCompleteEvent(HEADER, "binlog.000001", 4, table),
        SnapshotRestartedEvent(HEADER, "binlog.000001", 4, table),
        SchemaChangeEvent(HEADER, "binlog.000001", 4, "shop", "orders"),
    ]
    for event in events:
        handlers.on(type(event), "shop.o*")(lambda event: calls.append(type(event).__name__))
        handlers.on(type(event), "crm.*")(lambda event: calls.append("other"))
    for event in events:
        await handlers.call(event)
    assert calls == [type(event).__name__ for event in events]


async def test_a_handler_added_later_is_called_from_then_on() -> None:
    handlers = Handlers()
    calls: list[Event] = []
    await handlers.call(XID)
    handlers.on(XidEvent)(calls.append)
    await handlers.call(XID)
    assert calls == [XID]


async def test_an_exception_ends_the_round() -> None:
    handlers = Handlers()
    calls: list[Event] = []

    def fail(event: Event) -> None:
        raise LookupError("of the handler")

    handlers.on(Event)(fail)
    handlers.on(Event)(calls.append)
    with pytest.raises(LookupError, match="of the handler"):
        await handlers.call(XID)
    assert calls == []


@pytest.mark.parametrize("event_class", [int, "WriteRowsEvent", None])
def test_what_is_no_event_class(event_class: object) -> None:
    with pytest.raises(ConfigurationError, match="event class"):
        Handlers().on(event_class)(print)  # type: ignore[arg-type]


@pytest.mark.parametrize("event_class", [Event, XidEvent, QueryEvent])
def test_a_table_for_events_without_one(event_class: type[Event]) -> None:
    with pytest.raises(ConfigurationError, match="table="):
        Handlers().on(event_class, "shop.orders")(print)


def test_a_bad_table() -> None:
    Handlers().on(TableMapEvent, "shop.orders")(print)
    with pytest.raises(ConfigurationError, match="table: "):
        Handlers().on(RowsEvent, "orders")(print)


@pytest.mark.parametrize("event_class", [QueryEvent, RowsEvent, DeleteRowsEvent])
def test_a_handler_of_another_event_is_refused(event_class: type[Event]) -> None:
    def inserted(event: WriteRowsEvent) -> None:
        raise AssertionError

    with pytest.raises(ConfigurationError, match=r"inserted takes WriteRowsEvent, but is registered for"):
        Handlers().on(event_class)(inserted)  # type: ignore[arg-type]


def test_handlers_that_take_more_than_their_event() -> None:
    handlers = Handlers()

    def of_two(event: WriteRowsEvent | DeleteRowsEvent) -> None:
        raise AssertionError

    def of_all(event: object) -> None:
        raise AssertionError

    for handler in (of_two, of_all, print, lambda event: None):
        handlers.on(WriteRowsEvent)(handler)
    with pytest.raises(ConfigurationError, match=r"of_two takes WriteRowsEvent \| DeleteRowsEvent"):
        handlers.on(QueryEvent)(of_two)  # type: ignore[arg-type]


def test_a_handler_of_no_event_or_of_two_is_refused() -> None:
    def none() -> None:
        raise AssertionError

    def two(event: QueryEvent, other: QueryEvent) -> None:
        raise AssertionError

    for handler in (none, two):
        with pytest.raises(ConfigurationError, match="is called with one event"):
            Handlers().on(QueryEvent)(handler)  # type: ignore[arg-type]
