"""Rows that a copy reads again by their keys: what that costs."""

from __future__ import annotations

from protocol.gtid import GtidSet
from protocol.rows.table import Table
from replica.snapshot.marks import GtidMark, Place
from replica.snapshot.table_copy import TableCopy, TableProgress
from replica.snapshot.transaction_touches import KeyColumns
from tests.support.scripted_source import COLUMNS

GTIDS = GtidSet("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")
PLACE = Place("binlog.000001", 500, GTIDS)


class Number(int):
    """A number that counts how often numbers are hashed."""

    hashed = 0

    def __hash__(self) -> int:
        Number.hashed += 1
        return super().__hash__()


def hashes_of(rows: int) -> int:
    """How often keys are hashed while so many rows are read again and delivered."""
    keys = tuple((Number(number),) for number in range(rows))
    table = TableCopy(KeyColumns(("id",), (0,)), PLACE, TableProgress(again=keys, is_read=True))
    window = table.next_window(PLACE, table.progress)
    assert window is not None
    assert window.take_low(GtidMark(GTIDS))
    window.take_view()
    window.take_high(PLACE)
    read = [(*key, 2, 3) for key in window.wanted]
    window.take_rows(Table("shop", "t", COLUMNS, ("id",), "log"), (0,), list(read), None)
    window.close()
    Number.hashed = 0
    delivery = table.deliver(PLACE)
    assert delivery is not None
    assert (delivery.rows, delivery.behind.again) == (read, ())
    return Number.hashed


def test_it_grows_with_the_rows_and_not_with_their_square() -> None:
    """A set of all keys was made for each key: 2,000 rows held other tasks up for a second."""
    assert hashes_of(400) < 1.5 * 10 * hashes_of(40)
