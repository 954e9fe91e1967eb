"""``@record`` compared with ``@dataclass``: the same class, written once and decorated with each."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest

import replica
from protocol import gtid, position, records
from protocol.binlog import events
from protocol.constants import ColumnType
from protocol.records import record
from protocol.rows import column, table
from tests.support.places import ROOT

Decorate = Callable[..., Callable[[type], Any]]


def classes(decorate: Decorate, **options: bool) -> tuple[Any, Any, Any]:
    """A base class with a default, a subclass, and a subclass with a keyword-only field."""
    field = records.field if decorate is record else dataclasses.field

    @decorate(slots=True, **options)
    class Base:
        """A base."""

        first: int
        second: str = "b"

        def doubled(self) -> int:
            return self.first * 2

    @decorate(slots=True, **options)
    class Below(Base):
        """A subclass."""

        many: list[int] = field(default_factory=list)
        derived: int = field(init=False, compare=False, repr=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "derived", self.doubled())

    @decorate(slots=True, kw_only=True, **options)
    class Named(Base):
        """A subclass with a keyword-only field."""

        third: object

    return Base, Below, Named


OPTIONS = [{"frozen": frozen, "eq": eq} for frozen in (False, True) for eq in (False, True)]


def outcome(function: Callable[[], object]) -> object:
    """The function's result, or the type of its exception with the text of a TypeError."""
    try:
        return function()
    except FrozenInstanceError as error:
        return type(error)
    except TypeError as error:
        return type(error), str(error)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("is_written", [False, True], ids=["first instances", "with an __init__"])
def test_a_record_is_a_dataclass(options: dict[str, bool], index: int, is_written: bool) -> None:
    arguments: dict[str, Any] = {"third": 3} if index == 2 else {}
    looks: list[Callable[[Any], object]] = [
        lambda kind: kind.__slots__,
        lambda kind: kind.__match_args__,
        lambda kind: repr(kind(1, **arguments)),
        lambda kind: kind(1, "x", **arguments).doubled(),
        lambda kind: kind(first=1, **arguments) == kind(1, "b", **arguments),
        lambda kind: kind(1, **arguments) == kind(2, **arguments),
        lambda kind: kind(1, **arguments) == (1, "b"),
        lambda kind: isinstance(hash(kind(1, **arguments)), int),
        lambda kind: kind(**arguments),
        lambda kind: kind(1, wrong=2, **arguments),
        lambda kind: kind(1, "b", [], 4, **arguments),
        lambda kind: setattr(kind(1, **arguments), "first", 2),
        lambda kind: delattr(kind(1, **arguments), "first"),
        lambda kind: hasattr(kind(1, **arguments), "__dict__"),
        lambda kind: [(one.name, one.default, one.init) for one in dataclasses.fields(kind)],
        lambda kind: dataclasses.is_dataclass(kind),
        lambda kind: dataclasses.asdict(kind(1, **arguments)),
        lambda kind: repr(dataclasses.replace(kind(1, **arguments), second="z")),
        lambda kind: repr(copy.deepcopy(kind(1, **arguments))),
        lambda kind: (kind(1, **arguments), inspect.signature(kind))[1],
        lambda kind: (kind(1, **arguments), kind.__init__.__qualname__)[1],
    ]
    # Each look gets new classes, whose methods are not generated yet.
    for look in looks:
        kind = classes(record, **options)[index]
        if is_written:
            assert inspect.isfunction(kind.__init__)
        mine = outcome(lambda: look(kind))  # noqa: B023
        real = outcome(lambda: look(classes(dataclass, **options)[index]))  # noqa: B023
        assert repr(mine) == repr(real)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_class_below_a_record_is_an_ordinary_one(options: dict[str, bool]) -> None:
    _, below, _ = classes(record, **options)

    class Own(below):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__(5)

    assert (Own().first, Own().derived) == (5, 10)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("index", range(3))
def test_an_instance_takes_its_init_alone(
    options: dict[str, bool], index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated: list[type] = []

    def note(**given: bool) -> Callable[[type], Any]:
        def decorate(kind: type) -> Any:
            generated.append(kind)
            return dataclass(**given)(kind)

        return decorate

    monkeypatch.setattr(dataclasses, "dataclass", note)
    kind = classes(record, **options)[index]
    arguments: dict[str, Any] = {"third": 3} if index == 2 else {}
    assert kind(1, "x", **arguments).second == "x"
    assert (kind(1, "x", **arguments) == kind(1, "x", **arguments)) is options["eq"]
    assert kind(1, "x", **arguments) != kind(1, "y", **arguments)
    if options["eq"] and options["frozen"] and index != 1:  # the list of Below has no hash
        assert hash(kind(1, "x", **arguments)) == hash(kind(1, "x", **arguments))
        assert hash(kind(1, "x", **arguments)) != hash(kind(1, "y", **arguments))
    assert not generated
    assert "second='x'" in repr(kind(1, "x", **arguments))
    assert generated[0].__name__ == kind.__name__


def test_the_first_instances_need_no_written_init() -> None:
    _, below, _ = classes(record)
    for number in range(records._INSTANCES_BEFORE_WRITING):
        assert below(number, many=[number]).derived == 2 * number
        assert not inspect.isfunction(vars(below)["__init__"])
    assert below(9).many == []
    assert inspect.isfunction(vars(below)["__init__"])


def test_patterns() -> None:
    _, below, named = classes(record)
    match below(1, "x", [2]):
        case below(first, second, many):
            assert (first, second, many) == (1, "x", [2])
        case _:
            pytest.fail("no match")
    match named(1, third=3):
        case named(first, third=3):
            assert first == 1
        case _:
            pytest.fail("no match")


def test_two_threads_at_once() -> None:
    for _ in range(50):
        _, below, _ = classes(record)
        made: list[object] = []
        threads = [threading.Thread(target=lambda: made.append(below(1))) for _ in range(4)]  # noqa: B023
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 4


@pytest.mark.parametrize(
    "value",
    [
        gtid.Gtid.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:23"),
        gtid.MariadbGtid(0, 1, 100),
        position.BinlogPosition("binlog.000003", 154),
        position.Checkpoint("binlog.000003", 154, "0-1-100"),
        column.Column("id", ColumnType.LONG, 0, False),
        table.Table("s", "t", (column.Column("id", ColumnType.LONG, 0, False),), ("id",)),
        events.XidEvent(events.EventHeader(1, 16, 1, 31, 100, 0), "binlog.000003", 69, 5),
    ],
)
def test_public_records_are_copied_and_pickled(value: Any) -> None:
    for again in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert again == value
        assert repr(again) == repr(value)
    if not isinstance(value, replica.Event):
        assert len({value, copy.copy(value)}) == 1
        with pytest.raises(FrozenInstanceError):
            value.name = "other"


def test_records_go_to_another_process() -> None:
    """As Spark sends them: by cloudpickle, to a process that has called no method of their classes."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    values = [
        position.Checkpoint("binlog.000003", 154, "0-1-100"),
        events.XidEvent(events.EventHeader(1, 16, 1, 31, 100, 0), "binlog.000003", 69, 5),
    ]
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=cloudpickle.dumps(values),
        capture_output=True,
        check=True,
        cwd=ROOT,
    )
    assert done.stdout.decode().strip() == repr(values)


def test_the_header_of_an_event() -> None:
    fields = (1, 16, 1, 31, 100, 0)
    unpacked = events.XidEvent(events.EventHeader(*fields), "f", 69, 5)
    unpacked.header_fields = fields
    assert unpacked == events.XidEvent(events.EventHeader(*fields), "f", 69, 5)
    assert type(unpacked.header) is events.EventHeader
    assert unpacked.header is unpacked.header
    assert unpacked.header.next_position == 100
