"""Keys as bounds: which key is chosen, its bytes, its literals, and the conditions for the server."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from protocol.errors import CheckpointError
from replica.schemas.logged_columns import logged_table
from replica.schemas.shape import ColumnShape, Key, Shape
from replica.snapshot.row_keys import KeyColumn, behind, key_bytes, key_columns, key_literal, key_of, up_to

ID = ColumnShape("id", "int", nullable=False)
CODE = ColumnShape("code", "varchar", (10,), charset="latin1", nullable=False)
NOTE = ColumnShape("note", "varchar", (10,), charset="latin1")


def key(kind: str, *names: str, length: int = 0, **options: bool) -> Key:
    return Key(names[0], kind, tuple((name, length) for name in names), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        (Shape((ID, CODE), key("primary", "id")), ("id",)),
        (Shape((ID, CODE), key("primary", "code", "id")), ("code", "id")),
        (Shape((ID, CODE), key("primary", "code", length=3), (key("unique", "id"),)), ("id",)),
        (Shape((ID, NOTE), None, (key("unique", "note"), key("unique", "id"))), ("id",)),
        (Shape((ID, CODE), None, (key("unique", "code", is_hash=True),)), None),
        (Shape((ID, CODE), None, (key("index", "id"),)), None),
        (Shape((ID, CODE), None, (key("unique", ""),)), None),
        (Shape((ID, CODE), None, None), None),
    ],
)
def test_the_key_of_a_table(shape: Shape, names: tuple[str, ...] | None) -> None:
    found = key_of(shape)
    assert (None if found is None else key_columns(found, shape)) == names


def test_the_end_of_a_period_is_left_out() -> None:
    end = ColumnShape("row_end", "timestamp", (6,), nullable=False, role="end")
    shape = Shape((ID, end), key("primary", "id", "row_end"))
    found = key_of(shape)
    assert found is not None
    assert key_columns(found, shape) == ("id",)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (-5, b"-5"),
        (b"\xffa", b"\xffa"),
        (Decimal("0E-9"), b"0.000000000"),
        (Decimal("-1.50"), b"-1.50"),
        (0.10000000149011612, b"0.10000000149011612"),
        (1e300, b"1e+300"),
        (date(2026, 1, 2), b"2026-01-02"),
        ("2026-00-15", b"2026-00-15"),
        (datetime(2026, 1, 2, 3, 4, 5, 6), b"2026-01-02 03:04:05.000006"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), b"2026-01-02 03:04:05"),
        (-timedelta(hours=838, minutes=59, seconds=59, microseconds=1), b"-838:59:59.000001"),
        (timedelta(0), b"00:00:00.000000"),
    ],
)
def test_bytes_of_a_value(value: object, data: bytes) -> None:
    assert key_bytes(value) == data


@pytest.mark.parametrize(
    ("column", "data", "literal"),
    [
        (ID, b"-5", "-5"),
        (CODE, b"a'\\\xe9", "_latin1 X'61275ce9'"),
        (ColumnShape("c", "char", (3,), charset="utf8mb3"), b"", "_utf8 X''"),
        (ColumnShape("c", "varbinary", (3,)), b"\0", "X'00'"),
        (ColumnShape("c", "double"), b"0.5", "0.5e0"),
        (ColumnShape("c", "float"), b"1e+20", "1e+20"),
        (ColumnShape("c", "decimal", (9, 2)), b"1.50", "1.50"),
        (ColumnShape("c", "datetime"), b"2026-01-02 03:04:05", "'2026-01-02 03:04:05'"),
        (ColumnShape("c", "enum", labels=("a",), charset="latin1"), b"1", "1"),
        (ColumnShape("c", "inet4"), b"\x7f\0\0\1", "'127.0.0.1'"),
        (ColumnShape("c", "uuid"), bytes(range(16)), "'00010203-0405-0607-0809-0a0b0c0d0e0f'"),
    ],
)
def test_literals(column: ColumnShape, data: bytes, literal: str) -> None:
    [logged] = logged_table("s", "t", Shape((column,)), is_mariadb=True).columns
    assert key_literal(logged, column.type, data) == literal


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("int", b"1 OR 1"),
        ("int", b""),
        ("datetime", b"' OR 1"),
        ("double", b"nan"),
        ("decimal", b"1;"),
        ("int", b"\xff"),
    ],
)
def test_bytes_that_are_no_value_of_the_column(kind: str, data: bytes) -> None:
    [logged] = logged_table(
        "s", "t", Shape((ColumnShape("c", kind, (9, 2) if kind == "decimal" else ()),)), is_mariadb=False
    ).columns
    with pytest.raises(CheckpointError, match="'c'"):
        key_literal(logged, kind, data)


def test_conditions() -> None:
    a, b, c = map(KeyColumn, "abc")
    assert behind([a], ["1"]) == "(a > 1)"
    assert up_to([a], ["1"]) == "(a <= 1)"
    assert behind([a, b, c], ["1", "2", "3"]) == "(a > 1 OR (a = 1 AND (b > 2 OR (b = 2 AND (c > 3)))))"
    assert up_to([a, b], ["1", "2"]) == "(a < 1 OR (a = 1 AND (b <= 2)))"


def test_conditions_for_labels() -> None:
    label = KeyColumn("e", 3)
    assert behind([label], ["1"]) == "(e IN (2, 3))"
    assert behind([label], ["3"]) == "(1 = 0)"
    assert up_to([label], ["1"]) == "(e IN (0, 1))"
    assert up_to([label, KeyColumn("n")], ["1", "7"]) == "(e IN (0) OR (e = 1 AND (n <= 7)))"
    assert up_to([label, KeyColumn("n")], ["0", "7"]) == "(1 = 0 OR (e = 0 AND (n <= 7)))"
