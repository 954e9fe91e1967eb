"""Shapes as values, as descriptions for the decoder, and in JSON."""

from __future__ import annotations

import json

import pytest

from protocol.rows.description import ColumnDescription
from replica.schemas.shape import ColumnShape, Shape
from tests.support.shape_text import MARIADB, MYSQL, shape_of

RICH = [
    ("CREATE TABLE t (a INT)", MYSQL),
    (
        "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a', 'é''\\\\'), s SET('x'), d DECIMAL(5,2)) CHARSET utf8",
        MYSQL,
    ),
    (
        "CREATE TABLE t (v INT AS (1) VIRTUAL INVISIBLE, t TIME(3), UNIQUE (t), KEY k (v), KEY ((v + 1)))",
        MYSQL,
    ),
    (
        "CREATE TABLE t (a TEXT COMPRESSED, b TEXT, s DATE, e DATE, PERIOD FOR p (s, e), UNIQUE (b), PRIMARY KEY (s))"
        " ENGINE=InnoDB WITH SYSTEM VERSIONING",
        MARIADB,
    ),
]


@pytest.mark.parametrize(("sql", "dialect"), RICH)
def test_json(sql: str, dialect: object) -> None:
    shape = shape_of(sql, dialect=dialect)  # type: ignore[arg-type]
    text = json.dumps(shape.to_dict())
    assert Shape.from_dict(json.loads(text)) == shape
    assert hash(Shape.from_dict(json.loads(text))) == hash(shape)
    again = shape_of(sql, dialect=dialect)  # type: ignore[arg-type]
    assert again == shape
    lost = Shape(shape.columns, shape.primary, None, None)
    assert Shape.from_dict(json.loads(json.dumps(lost.to_dict()))) == lost


def test_small_json() -> None:
    assert json.dumps(shape_of("CREATE TABLE t (a INT)").to_dict()) == (
        '{"columns": [{"name": "a", "type": "int"}], "charset": "utf8mb4"}'
    )


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"columns": [{}]},
        {"columns": [{"name": "a", "type": "int", "x": 1}]},
        {"columns": 5},
        {"columns": [[]]},
    ],
)
def test_what_is_no_shape(data: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Shape.from_dict(data)


def test_descriptions() -> None:
    shape = shape_of(
        "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, e ENUM('a', 'it''s', 'b\\\\\\n') CHARSET latin1, "
        "d DECIMAL(5,2), j JSON, b BLOB, t DATETIME(3) NOT NULL)"
    )
    assert shape.descriptions() == [
        ColumnDescription("id", "int", "int unsigned", False, None, True),
        ColumnDescription("e", "enum", "enum('a','it''s','b\\\\\\n')", True, "latin1"),
        ColumnDescription("d", "decimal", "decimal(5,2)", True),
        ColumnDescription("j", "json", "json", True),
        ColumnDescription("b", "blob", "blob", True),
        ColumnDescription("t", "datetime", "datetime(3)", False),
    ]
    unsure = Shape((ColumnShape("a", "timestamp", nullable=None),))
    assert unsure.descriptions()[0].nullable
