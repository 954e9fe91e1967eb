"""Ten mistakes for type checkers. mypy --strict fails if one of the comments is not needed. Nothing runs them."""

from __future__ import annotations

import dataclasses

import replica
import replica.sync
from replica import QueryEvent, WriteRowsEvent

DSN = "mysql://repl:secret@127.0.0.1"


@dataclasses.dataclass
class Order:
    id: int


def an_insert_has_no_before(change: replica.Insert) -> None:
    print(change.before["id"])  # type: ignore[index]


def a_change_may_have_no_after(change: replica.Change) -> None:
    print(change.after["id"])  # type: ignore[index]


def an_attribute_that_does_not_exist(change: replica.Insert) -> None:
    print(change.values)  # type: ignore[attr-defined]


def a_handler_of_another_event(stream: replica.BinlogStream) -> None:
    @stream.on(QueryEvent)  # type: ignore[arg-type]
    def inserted(event: WriteRowsEvent) -> None:
        print(event.rows)


def a_synchronous_handler_of_another_event(stream: replica.sync.SyncStream) -> None:
    @stream.on(WriteRowsEvent)  # type: ignore[arg-type]
    async def statement(event: QueryEvent) -> None:
        print(event.sql)


def an_option_that_does_not_exist() -> None:
    replica.sync.connect(DSN, table="shop.*")  # type: ignore[call-arg]


def a_value_of_the_wrong_type() -> None:
    replica.connect(DSN, heartbeat="30 s")  # type: ignore[arg-type]


def a_field_that_the_class_lacks(event: WriteRowsEvent) -> None:
    print([order.status for order in event.rows_as(Order)])  # type: ignore[attr-defined]


def after_may_be_none(change: replica.Change) -> int:
    return change.after_as(Order).id  # type: ignore[union-attr]


def a_stream_of_asyncio_in_a_plain_loop() -> None:
    for event in replica.connect(DSN):  # type: ignore[attr-defined]
        print(event)
