"""Rows as data classes, typed dicts, named tuples and pydantic models: the columns they take, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, NotRequired, TypedDict

import pytest

from protocol.binlog.events import DeleteRowsEvent, EventHeader, UpdateRowsEvent, WriteRowsEvent
from protocol.binlog.row_changes import Change, Delete, Insert, Read, Update
from protocol.constants import ColumnType
from protocol.errors import ConfigurationError
from protocol.rows.column import ABSENT, Column
from protocol.rows.row_types import row_as
from protocol.rows.table import Table

TABLE = Table(
    "shop", "orders", tuple(Column(name, ColumnType.LONG, 0, False) for name in ("id", "status", "total"))
)
HEADER = EventHeader(1, 30, 1, 50, 100, 0)
ROW = (1, "new", 5)


@dataclasses.dataclass
class Order:
    id: int
    status: str
    note: str = "none"
    tags: list[str] = dataclasses.field(default_factory=list)
    seen: int = dataclasses.field(default=0, init=False)


class OrderDict(TypedDict):
    id: int
    status: str
    note: NotRequired[str]


class OrderTuple(NamedTuple):
    total: int
    id: int
    note: str = "none"


EXPECTED: list[tuple[Any, object]] = [
    (Order, Order(1, "new")),
    (OrderDict, {"id": 1, "status": "new"}),
    (OrderTuple, OrderTuple(5, 1)),
]


@pytest.mark.parametrize(("kind", "expected"), EXPECTED)
def test_changes_and_events(kind: Any, expected: object) -> None:
    image = dict(zip(TABLE.column_names, ROW, strict=True))
    found: dict[str, tuple[object, object]] = {}
    changes: list[Change] = [
        *(Insert(TABLE, image), Update(TABLE, image, image), Delete(TABLE, image), Read(TABLE, image)),
    ]
    for change in changes:
        found[change.op] = change.before_as(kind), change.after_as(kind)
    assert found == {
        "insert": (None, expected),
        "update": (expected, expected),
        "delete": (expected, None),
        "read": (None, expected),
    }
    common = (HEADER, "binlog.000001", 4, 7, TABLE, 1, b"")
    assert list(WriteRowsEvent(*common, [ROW, ROW]).rows_as(kind)) == [expected, expected]
    assert list(DeleteRowsEvent(*common, [ROW]).rows_as(kind)) == [expected]
    assert list(UpdateRowsEvent(*common, [(ROW, ROW)]).rows_as(kind)) == [(expected, expected)]


@pytest.mark.parametrize("kind", [Order, OrderDict])
def test_a_column_that_the_row_lacks(kind: Any) -> None:
    event = WriteRowsEvent(HEADER, "binlog.000001", 4, 7, TABLE, 1, b"", [(1, ABSENT, 5)])
    with pytest.raises(
        ConfigurationError, match=r"shop.orders has no value for status; its columns are id, total"
    ):
        next(event.rows_as(kind))


@pytest.mark.parametrize("kind", [int, dict, str, object, None, list[int]])
def test_what_cannot_hold_a_row(kind: Any) -> None:
    with pytest.raises(
        ConfigurationError, match="give a dataclass, a TypedDict, a NamedTuple or a pydantic model"
    ):
        row_as(kind, {"id": 1}, TABLE)


def test_a_pydantic_model() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", id=(int, ...), total=(str, "none"))
    assert row_as(model, {"id": "7", "other": 1}, TABLE) == model(id=7)
    with pytest.raises(pydantic.ValidationError):
        row_as(model, {"id": "x"}, TABLE)
