"""Every schedule of small cases: what a copy gives is the table at its place of the stream."""

from __future__ import annotations

import random

import pytest

from protocol.binlog.events import XaPrepareEvent
from protocol.gtid import Gtid, GtidSet
from replica.snapshot import transaction_touches
from replica.snapshot.marks import GtidMark, LowMark, Place
from replica.snapshot.table_copy import TableCopy, TableProgress
from replica.snapshot.touches import Key, Segments, Touch
from replica.snapshot.transaction_touches import Touching, TransactionTouches
from replica.snapshot.window import Window
from replica.sql.xa import Xid
from tests.support.scripted_source import FILE, SOURCE, Case, Script, log_of
from tests.support.source_model import Break, World, explore

UPDATE = Script((("update", 1, 11),))
AGAIN = Script((("update", 1, 12),))
DELETE = Script((("delete", 2),))
INSERT = Script((("insert", 2, 21),))
ANEW = Script((("delete", 1), ("insert", 1, 14)))
MOVE_DOWN = Script((("move", 3, 0),))
MOVE_UP = Script((("move", 1, 4),))
XA = Script((("update", 1, 13), ("insert", 5, 51)), is_xa=True)
XA_DELETE = Script((("delete", 2),), is_xa=True)
XA_BACK = Script((("delete", 1),), is_xa=True, is_rolled_back=True)


def case(name: str, *scripts: Script, order: tuple[int, ...] | None = None, **settings: object) -> Case:
    return Case(name, (1, 2, 3), scripts, log_of(scripts, order), **settings)  # type: ignore[arg-type]


def small(name: str, *scripts: Script, **settings: object) -> Case:
    return Case(name, (1,), scripts, log_of(scripts), **settings)  # type: ignore[arg-type]


CASES = [
    case("updates of one row", UPDATE, AGAIN),
    case("two rows", UPDATE, DELETE),
    case("deleted and made again", DELETE, INSERT),
    case("a key moves into the part that was read", MOVE_DOWN, UPDATE),
    case("a key moves on", MOVE_UP, Script((("update", 4, 14),))),
    case("a moved key moves again", MOVE_DOWN, Script((("move", 0, 6),))),
    small("moved twice, low mark by file", Script((("move", 1, 0),)), Script((("move", 0, 6),)), low="file"),
    case("XA", XA, order=(0, 0)),
    case("XA with another between", XA, DELETE, order=(0, 1, 0), kills=0),
    case("XA rolled back", XA_BACK, order=(0, 0)),
    small("four transactions", UPDATE, INSERT, DELETE, AGAIN, kills=0),
    case("low mark by file", UPDATE, DELETE, low="file"),
    case("a slow consumer", UPDATE, DELETE, kills=0, is_slow=True),
    small("a slow consumer, minimal: deleted and made again", DELETE, INSERT, image="MINIMAL", is_slow=True),
    small("commits out of order", UPDATE, INSERT, AGAIN, low="file", is_ordered=False, kills=0),
    case("minimal: updates", UPDATE, Script((("update", 2, 22),)), image="MINIMAL"),
    case("minimal: deleted and made again", DELETE, INSERT, image="MINIMAL"),
    case("minimal, low mark by file: deleted and made again", DELETE, INSERT, image="MINIMAL", low="file"),
    case(
        "minimal, commits out of order: deleted and made again",
        *(DELETE, INSERT, UPDATE),
        image="MINIMAL",
        low="file",
        is_ordered=False,
        kills=0,
    ),
    small(
        "minimal, low mark by file: made anew in one transaction", ANEW, UPDATE, image="MINIMAL", low="file"
    ),
    case("minimal: a key moves", MOVE_DOWN, UPDATE, image="MINIMAL"),
    case("minimal: XA", XA, order=(0, 0), image="MINIMAL"),
    case("low mark by file: XA", XA, order=(0, 0), low="file"),
    case("minimal, low mark by file: XA", XA, order=(0, 0), image="MINIMAL", low="file"),
    case("without a key", UPDATE, DELETE, has_key=False),
    case("without a key: XA", XA, order=(0, 0), has_key=False),
    case("without a key: XA rolled back", XA_BACK, order=(0, 0), has_key=False),
    case("without a key: XA with another between", XA, DELETE, order=(0, 1, 0), has_key=False),
    case(
        "without a key: XA that is committed behind another", XA, XA_DELETE, order=(0, 1, 0, 1), has_key=False
    ),
    case(
        "without a key: a row of XA that is committed behind another",
        *(XA, Script((("insert", 6, 61),), is_xa=True)),
        order=(0, 1, 0, 1),
        has_key=False,
    ),
]


#: `make check` has these alone.
QUICK = ("moved twice, low mark by file", "without a key", "minimal: XA")


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(one, id=one.name, marks=[] if one.name in QUICK else [pytest.mark.thorough])
        for one in CASES
    ],
)
def test_every_schedule(one: Case) -> None:
    explored = explore(one)
    assert explored.violation == ""
    print(f"{one.name}: {explored.schedules:,} schedules, {explored.states:,} states")
    assert explored.schedules > 100_000


def by_name(name: str) -> Case:
    [one] = [one for one in CASES if one.name == name]
    return one


def all_flushed(world: World) -> LowMark:
    return GtidMark(GtidSet([Gtid(SOURCE, number + 1) for number in range(world.flushed)]))


def test_a_position_as_low_mark_is_found() -> None:
    assert explore(by_name("updates of one row"), Break(low=all_flushed)).violation


def test_no_high_mark_is_found() -> None:
    assert explore(by_name("two rows"), Break(high=lambda world: Place(FILE, 4))).violation


def test_the_place_of_another_view_is_found() -> None:
    """MariaDB's Binlog_snapshot_position, read while another session opens its view."""

    def of_an_older_view(world: World) -> Place:
        return Place(FILE, 4 + world.committed_at_low)

    assert explore(by_name("two rows"), Break(high=of_an_older_view)).violation


def test_a_stream_that_is_ahead_of_the_tables_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill the touches of delivered transactions are not known, and these may not be visible yet."""
    monkeypatch.setattr(Segments, "covering", lambda self, low: self.newest)
    assert explore(by_name("updates of one row")).violation


def test_touches_after_a_view_that_count_as_visible_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """All touches of a key but the newest are visible if they came before the view was opened, not later."""

    def newest(self: Segments, key: Key, number: int, opened: int) -> Touch | None:
        touches = [segment.touched[key] for segment in self._segments if key in segment.touched]
        return (touches[-1].last or touches[-1]) if touches else None

    monkeypatch.setattr(Segments, "touch", newest)
    assert explore(by_name("minimal, low mark by file: deleted and made again")).violation


def test_rows_that_are_read_again_while_the_consumer_has_them_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The progress moves when the consumer is done; what is read meanwhile comes behind the rows that it has."""
    next_window = TableCopy.next_window

    def from_progress(self: TableCopy, place: Place, progress: TableProgress) -> Window | None:
        return next_window(self, place, self.progress)

    monkeypatch.setattr(TableCopy, "next_window", from_progress)
    assert "second time" in explore(by_name("a slow consumer")).violation


def test_xa_that_counts_at_prepare_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(self: TransactionTouches, event: XaPrepareEvent) -> None:
        self.prepared[Xid(event.format_id, event.gtrid, event.bqual)] = Touching()
        self._end()

    steps = {**transaction_touches._STEPS, XaPrepareEvent: prepare}
    monkeypatch.setattr(transaction_touches, "_STEPS", steps)
    assert explore(by_name("XA")).violation


def test_hidden_rows_of_xa_that_are_not_read_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepared before a table without a key was read, and committed after it."""
    monkeypatch.setattr(Touching, "misses", lambda self, table: False)
    assert explore(by_name("without a key: XA")).violation


def test_minimal_images_that_are_not_read_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableProgress, "with_again", lambda self, keys: self)
    assert explore(by_name("minimal: a key moves")).violation


def test_a_moved_key_that_is_not_read_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with whole images: a consumer that does not have the row yet cannot update it."""
    monkeypatch.setattr(TableProgress, "with_again", lambda self, keys: self)
    assert explore(by_name("a key moves into the part that was read")).violation


@pytest.mark.long
def test_larger_cases_at_random(seed: int) -> None:
    rng = random.Random(seed)
    for number in range(40):
        scripts = tuple(random_script(rng) for _ in range(3))
        order = [index for index, script in enumerate(scripts) for _ in range(1 + script.is_xa)]
        one = Case(
            f"random {number}",
            (1, 2, 3),
            scripts,
            log_of(scripts, tuple(order)),
            image=rng.choice(["FULL", "MINIMAL"]),
            low=rng.choice(["gtid", "file"]),
            kills=rng.randint(0, 1),
            may_await_file=any(makes_anew(script) for script in scripts),
        )
        explored = explore(one)
        assert explored.violation == "", (seed, one)


def makes_anew(script: Script) -> bool:
    """Whether a transaction deletes a row, or moves it away, and makes one with its key, in this order."""
    gone = set[int]()
    for kind, key, *values in script.ops:
        if (values[0] if kind == "move" else key) in gone and kind in ("insert", "move"):
            return True
        gone |= {key} if kind in ("delete", "move") else set()
    return False


def random_script(rng: random.Random) -> Script:
    ops = []
    for _ in range(rng.randint(1, 2)):
        kind, key = rng.choice(["update", "insert", "delete", "move"]), rng.randint(0, 4)
        values: tuple[int, ...] = (
            () if kind == "delete" else (rng.randint(0, 4),) if kind == "move" else (rng.randint(50, 90),)
        )
        ops.append((kind, key, *values))
    return Script(tuple(ops), is_xa=rng.random() < 0.2)
