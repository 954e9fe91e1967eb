"""Programs as users write them, for type checkers: mypy --strict reads them with the rest. Nothing runs them."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, TypedDict, assert_never

import replica
import replica.sync
from replica import DeleteRowsEvent, QueryEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent

DSN = "mysql://repl:secret@127.0.0.1"


@dataclasses.dataclass
class Order:
    id: int
    status: str = "new"


class Customer(TypedDict):
    id: int
    name: str


class Item(NamedTuple):
    order_id: int
    price: float


async def events_by_class() -> int:
    count = 0
    async with replica.connect(DSN, tables=["shop.*"]) as stream:
        async for event in stream:
            match event:
                case WriteRowsEvent() | DeleteRowsEvent():
                    count += sum(len(row) for row in event.rows)
                case UpdateRowsEvent():
                    count += sum(len(before) + len(after) for before, after in event.rows)
                case QueryEvent():
                    print(event.schema.upper(), event.sql)
    return count


async def changes_by_operation() -> None:
    async with replica.connect(DSN) as stream:
        async for tx in stream.transactions():
            async for change in tx:
                if change.op == "insert":
                    print(change.after["id"] + 1)
                elif change.op == "update":
                    print(change.before.keys() | change.after.keys())
                elif change.op == "delete":
                    print(change.before["id"])


def changes_in_match(change: replica.Change) -> str:
    match change:
        case replica.Insert(after=after) | replica.Read(after=after):
            return f"new {after['id']}"
        case replica.Update(before=before, after=after):
            return f"{before['id']} {after['id']}"
        case replica.Delete():
            return f"gone {change.before['id']}"
        case _:
            assert_never(change)


async def batches() -> list[Order]:
    orders: list[Order] = []
    async with replica.connect(DSN) as stream:
        async for batch in stream.batches(max_rows=500, max_seconds=2.0):
            for change in batch.changes:
                if change.op == "insert":
                    orders.append(change.after_as(Order))
            print([statement.sql for statement in batch.ddl], batch.checkpoint.to_dict())
    return orders


def synchronous_batches() -> int:
    with replica.sync.connect(DSN) as stream:
        return sum(len(batch.changes) for batch in stream.batches())


def handlers(stream: replica.BinlogStream) -> None:
    @stream.on(WriteRowsEvent, table="shop.orders")
    async def inserted(event: WriteRowsEvent) -> None:
        print(len(event.rows))

    @stream.on(QueryEvent)
    def statement(event: QueryEvent) -> None:
        print(event.sql)

    @stream.on(DeleteRowsEvent)
    def any_rows(event: RowsEvent) -> None:
        print(event.table.name)


def synchronous(checkpoint: replica.Checkpoint) -> None:
    with replica.sync.connect(DSN, start=checkpoint, tables="shop.*") as stream:
        for event in stream:
            print(event.header.timestamp + 1, stream.status.events)


def synchronous_within_time(stream: replica.sync.SyncStream) -> list[replica.Change] | None:
    transactions: replica.sync.SyncTransactions = stream.transactions()
    try:
        with stream.timeout(5):
            return next(transactions).collect()
    except TimeoutError:
        return None


def synchronous_columns(stream: replica.sync.SyncStream) -> tuple[str, replica.sync.SyncBatches]:
    columns: replica.sync.SyncArrowBatches = stream.arrow("shop.orders", images="both")
    return columns.table, stream.batches(max_rows=5)


def synchronous_transactions() -> list[replica.Checkpoint]:
    with replica.sync.connect(DSN, stop="now") as stream:
        return [tx.checkpoint for tx in stream.transactions() if tx.collect()]


def synchronous_handlers() -> None:
    stream = replica.sync.connect(DSN)

    @stream.on(RowsEvent)
    def changed(event: RowsEvent) -> int:
        return sum(1 for _ in event.changes())

    stream.run()


def rows_as_objects(event: WriteRowsEvent | DeleteRowsEvent) -> list[int]:
    return [order.id + len(order.status) for order in event.rows_as(Order)]


def images_as_objects(change: replica.Change) -> str | None:
    order = change.after_as(Order)
    if change.op == "update":
        return change.before_as(Order).status + change.after_as(Order).status
    return None if order is None else order.status.upper()


def files() -> float:
    total = 0.0
    with replica.open_binlog("binlog.000042") as log:
        for event in log:
            if isinstance(event, UpdateRowsEvent):
                total += sum(after.price - before.price for before, after in event.rows_as(Item))
    return total


def changes_of_one_class(event: replica.Event) -> list[object]:
    if isinstance(event, WriteRowsEvent):
        return [change.after["id"] for change in event.changes()]
    if isinstance(event, UpdateRowsEvent):
        return [change.before["id"] for change in event.changes()]
    if isinstance(event, DeleteRowsEvent):
        return [change.before["id"] for change in event.changes()]
    if isinstance(event, replica.SnapshotRowsEvent):
        return [change.after["id"] for change in event.changes()]
    return []
