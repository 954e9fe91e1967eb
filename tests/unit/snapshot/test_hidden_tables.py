"""A digest of tables that wait: which tables of statements explain that it is another one."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.errors import PrivilegeError
from protocol.position import BinlogPosition
from protocol.records import replace
from replica.schemas.catalog import Statement
from replica.schemas.past_history import LoggedStatement
from replica.snapshot import hidden_tables
from replica.snapshot.copy_outline import CopyOutline
from replica.snapshot.copy_outline import name_digest as _digest
from replica.snapshot.copy_state import CopyState, Unnamed
from replica.snapshot.hidden_tables import _is_sum_of, check_unnamed, stated_with
from replica.snapshot.marks import Place
from replica.snapshot.snapshot_copy import SnapshotCopy
from replica.snapshot.table_copy import TableProgress
from replica.snapshot.transaction_touches import KeyColumns
from replica.sql.ddl_reader import read_statement
from replica.sql.dialect import Dialect
from tests.support.scripted_source import query


def test_some_of_the_touched_tables_explain_a_difference(seed: int) -> None:
    rng = random.Random(seed)
    tables = [("shop", f"t{number}") for number in range(60)]
    for _ in range(50):
        touched = rng.sample(tables, rng.randrange(1, 50))
        changed = rng.sample(touched, rng.randrange(1, len(touched) + 1))
        difference = 0
        for table in changed:
            difference ^= _digest(table)
        assert _is_sum_of(difference, map(_digest, touched))
        hidden = rng.choice([table for table in tables if table not in touched])
        assert not _is_sum_of(difference ^ _digest(hidden), map(_digest, touched))


def test_the_digest_of_those_that_wait_from_a_table_on() -> None:
    a, b, c = ("a", "b"), ("a", "bc"), ("b", "a")
    outline = CopyOutline.of(dict.fromkeys((c, a, b), TableProgress()))
    assert outline.digest_from(2) == _digest(c)
    assert outline.digest_from(0) == outline.digest_from(1) ^ _digest(a)
    assert len({outline.digest_from(number) for number in range(3)}) == 3


def _log_of(logged: list[LoggedStatement], end: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source's log has these statements, and ends there."""

    class Reader:
        def __init__(self, *args: object) -> None:
            pass

        async def statements(self, *args: object) -> list[LoggedStatement]:
            return logged

    async def high_mark(*args: object) -> object:
        return end

    monkeypatch.setattr(hidden_tables, "TableReader", Reader)
    monkeypatch.setattr(hidden_tables, "high_mark", high_mark)


@pytest.mark.parametrize(
    ("sql", "is_told"),
    [("DROP TABLE shop.b", True), ("DROP DATABASE old", True), ("CREATE DATABASE new", False)],
)
async def test_each_statement_is_read_once(sql: str, is_told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    place, read = BinlogPosition("binlog.000001", 4), list[str]()
    logged = [
        LoggedStatement(place, Statement(text))
        for text in (sql, "ALTER TABLE shop.c ADD x INT", "FLUSH TABLES")
    ]

    def counted(text: str, *args: Any) -> object:
        read.append(text)
        return read_statement(text, *args)

    monkeypatch.setattr("replica.schemas.touched.read_statement", counted)
    monkeypatch.setattr("replica.snapshot.hidden_tables.read_statement", counted)
    _log_of(logged, place, monkeypatch)
    first, nobody = ("shop", "a"), SimpleNamespace()
    unnamed = Unnamed(first, _digest(first) ^ _digest(("shop", "b")))
    if is_told:
        await check_unnamed(unnamed, [first], place, nobody, nobody)  # type: ignore[arg-type]
    else:
        with pytest.raises(PrivilegeError):
            await check_unnamed(unnamed, [first], place, nobody, nobody)  # type: ignore[arg-type]
    assert read == [one.statement.sql for one in logged]


@pytest.mark.parametrize("is_hidden", [False, True])
@pytest.mark.parametrize(
    "sqls",
    [
        ["CREATE TABLE shop.w{0} (a INT)", "DROP TABLE IF EXISTS shop.w{0}"],
        ["ALTER TABLE shop.t{0} ADD x INT"],
        ["CREATE TABLE shop.n{0} (a INT)"],
        ["CREATE TABLE shop.w{0} (a INT)", "RENAME TABLE shop.t{0} TO shop.o{0}, shop.w{0} TO shop.t{0}"],
    ],
    ids=["made and dropped", "altered", "made", "swapped in"],
)
async def test_many_statements_explain_no_hidden_table(
    sqls: list[str], is_hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digests of 128 tables give any digest together: then a hidden table was left out without an error."""
    place, many = BinlogPosition("binlog.000001", 4), range(200)
    logged = [LoggedStatement(place, Statement(sql.format(f"{n:03}"))) for n in many for sql in sqls]

    _log_of(logged, place, monkeypatch)
    before = [("shop", f"t{n:03}") for n in many] + [("shop", "zz"), ("shop", "zzz")]
    unnamed, nobody = Unnamed(("shop", "a"), 0), SimpleNamespace()
    for table in before:
        unnamed = replace(unnamed, digest=unnamed.digest ^ _digest(table))
    made = [name for kind in "no" if f"shop.{kind}{{0}}" in "".join(sqls) for name in [kind]]
    now = before[:-1] if is_hidden else before
    now = now + [("shop", f"{kind}{n:03}") for kind in made for n in many]
    arguments: Any = (unnamed, now, place, nobody, nobody)
    if is_hidden:
        with pytest.raises(PrivilegeError):
            await check_unnamed(*arguments)
    else:
        await check_unnamed(*arguments)


def test_the_tables_that_statements_made_are_not_counted_without_end() -> None:
    """Each CREATE TABLE in the midst of a copy took as long as there had been others: 16,000 took 1.3 s."""
    stated: frozenset[tuple[str, str]] | None = frozenset()
    most = 0
    for number in range(1200):
        stated = stated_with(stated, read_statement(f"CREATE TABLE t{number} (a INT)", "shop", Dialect()), ())
        most = max(most, 0 if stated is None else len(stated))
    assert stated is None
    assert 1000 <= most <= 1001
    for number in range(1200):
        for sql in (f"CREATE TABLE t{number} (a INT)", f"DROP TABLE t{number}"):
            made = read_statement(sql, "shop", Dialect())
            stated = stated_with(frozenset() if stated is None else stated, made, ())
    # Tables that are gone again do not count.
    assert stated == frozenset()


def test_tables_of_which_the_checkpoint_tells_are_not_counted() -> None:
    """Those that a copy has, other tables than it copies, and those that are gone; they were, and no table of the
    copy was looked for after 31 of them.
    """
    copied = {("shop", "made")}

    def after(*sqls: str) -> frozenset[tuple[str, str]] | None:
        stated: frozenset[tuple[str, str]] | None = frozenset()
        for sql in sqls:
            read = read_statement(sql, "shop", Dialect())
            stated = stated_with(stated, read, copied, lambda schema, name: schema == "shop")
        return stated

    assert after("CREATE TABLE made (a INT)", "CREATE TABLE other.t (a INT)") == frozenset()
    create = "CREATE TABLE IF NOT EXISTS a (a INT)"
    assert after(create) == frozenset([("shop", "a")])
    assert after(create, "RENAME TABLE a TO b") == frozenset([("shop", "b")])
    assert after(create, "RENAME TABLE a TO made") == frozenset()
    assert after(create, "DROP TABLE a, b") == after(create, "DROP DATABASE shop") == frozenset()


def test_many_tables_that_statements_make_and_drop_during_a_copy() -> None:
    """The tables that wait are looked for all the same: a hidden one was left out without an error after 31."""
    copy = SnapshotCopy()
    copy.has_all, copy.coverage.wants = True, lambda schema, name: True
    for number in range(100):
        copy.add(("shop", f"t{number:03}"), KeyColumns(("id",), (0,)), Place("binlog.000001", 4, None))
    waiting = set(copy.tables)
    for number in range(1200):
        copy.settle([query(f"CREATE TABLE shop.z{number} (id INT PRIMARY KEY)")])
        if number % 100:
            copy.settle([query(f"DROP TABLE shop.z{number}")])
    text = copy.state().to_text()
    read = CopyState.from_text(text, copy.tables)
    assert set(read.waiting) == waiting
    assert read.unnamed is not None
    assert read.unnamed.stated == ()
    digest = 0
    for name in waiting:
        digest ^= _digest(name)
    assert read.unnamed.digest == digest
    assert len(text) < 1000
