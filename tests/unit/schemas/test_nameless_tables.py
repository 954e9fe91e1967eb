"""When the source is asked again about a table whose columns it could not tell."""

from __future__ import annotations

import pytest

from protocol.position import BinlogPosition
from replica.schemas import lost_names
from replica.schemas.lost_names import NamelessTables
from replica.sql.statement_kind import may_grant
from replica.sql.token_reader import TableName
from tests.support.shape_text import T

RARELY = [0, 1, 3, 7, 15, 31, 63, 127, 255, 511]
FAR = 1 << 20


def place(position: int) -> BinlogPosition:
    return BinlogPosition("binlog.000001", position)


def asked(
    count: int, *, until: int = 0, is_known: bool = False, grants: frozenset[int] = frozenset()
) -> list[int]:
    """Behind which of so many statements the table is asked about, if each row of it comes behind one.

    The answers hold up to ``until``, or the place itself if that is later.
    """
    tables, found, granted = NamelessTables(), [], 0
    for statements in range(count):
        here = place(100 + statements)
        granted += statements in grants
        if not tables.is_vain(T, here, statements, granted, is_known=is_known):
            found.append(statements)
            tables.note(T, here, max(here, place(until)), statements, granted)
        # Without a statement it is never asked again.
        assert tables.is_vain(T, here, statements, granted, is_known=is_known)
        assert not tables.is_vain(TableName("shop", "other"), here, statements, granted, is_known=is_known)
    return found


@pytest.mark.parametrize("is_known", [False, True])
def test_in_front_of_the_answer_less_and_less_often(is_known: bool) -> None:
    """There each statement asked about each table again."""
    assert asked(1000, until=FAR, is_known=is_known) == RARELY
    assert asked(1000, until=FAR, is_known=is_known, grants=frozenset({500}))[:9] == RARELY[:9]


def test_a_table_that_nobody_sees_is_asked_about_behind_a_grant() -> None:
    """Each statement at the end of the log asked about each table of the source that the user may not see."""
    assert asked(1000) == RARELY
    assert asked(1000, grants=frozenset({500, 900})) == [
        *RARELY[:9],
        500,
        501,
        503,
        507,
        515,
        531,
        563,
        627,
        755,
        900,
        901,
        903,
        907,
        915,
        931,
        963,
    ]


def test_a_statement_may_have_made_a_table_known() -> None:
    assert asked(10, is_known=True) == list(range(10))


def test_the_first_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_names, "_MOST_TABLES", 10)
    tables = NamelessTables()
    for number in range(100):
        tables.note(TableName("shop", f"t{number}"), place(4), place(4), 0, 0)
    vain = [
        number
        for number in range(100)
        if tables.is_vain(TableName("shop", f"t{number}"), place(4), 0, 0, is_known=False)
    ]
    assert vain == list(range(90, 100))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("GRANT SELECT ON shop.* TO u", True),
        ("SET STATEMENT max_statement_time=1 FOR GRANT r TO u", True),
        ("SET DEFAULT ROLE r FOR u", True),
        ("/* tool */ create user u", True),
        ("DROP ROLE r", True),
        ("FLUSH PRIVILEGES", True),
        ("BEGIN", False),
        ("", False),
        ("CREATE TABLE user (role INT)", False),
        ("ALTER TABLE t ADD a INT", False),
        ("DROP DATABASE shop", False),
        ("INSERT INTO t VALUES (1)", False),
    ],
)
def test_statements_that_may_let_a_user_see_more(sql: str, expected: bool) -> None:
    assert may_grant(sql) is expected
