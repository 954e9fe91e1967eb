"""A shape against the table map of a log: what agrees, and the first difference in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from protocol.constants import ColumnType
from protocol.rows.column import Column
from protocol.rows.table import Table
from replica.schemas.proof import first_difference, logged_types, with_shape
from replica.sql.dialect import Dialect
from tests.support.shape_text import MARIADB, MYSQL, shape_of


def logged(kind: ColumnType, metadata: int = 0, *, nullable: bool = True, **more: Any) -> Column:
    return Column("@1", kind, metadata, nullable, **more)


def difference(
    definition: str, column: Column, dialect: Dialect = MYSQL, names_from: str | None = None
) -> str | None:
    shape = shape_of(f"CREATE TABLE t (c {definition})", dialect=dialect)
    table = Table("shop", "t", (column,), (), names_from)
    return first_difference(shape, table)


@pytest.mark.parametrize(
    ("definition", "kind", "metadata", "dialect"),
    [
        ("TINYINT", ColumnType.TINY, 0, MYSQL),
        ("INT", ColumnType.LONG, 0, MYSQL),
        ("MEDIUMINT", ColumnType.INT24, 0, MYSQL),
        ("FLOAT(9,3)", ColumnType.FLOAT, 4, MYSQL),
        ("DOUBLE", ColumnType.DOUBLE, 8, MYSQL),
        ("DECIMAL(5,2)", ColumnType.NEWDECIMAL, 5 << 8 | 2, MYSQL),
        ("BIT(9)", ColumnType.BIT, 9, MYSQL),
        ("DATE", ColumnType.DATE, 0, MYSQL),
        ("YEAR", ColumnType.YEAR, 0, MYSQL),
        ("TIME(2)", ColumnType.TIME2, 2, MYSQL),
        ("DATETIME", ColumnType.DATETIME2, 0, MYSQL),
        ("DATETIME", ColumnType.DATETIME, 0, MARIADB),
        ("TIMESTAMP(6)", ColumnType.TIMESTAMP2, 6, MYSQL),
        ("VARCHAR(20)", ColumnType.VARCHAR, 80, MYSQL),
        ("VARCHAR(20) COMPRESSED", ColumnType.MARIADB_VARCHAR_COMPRESSED, 81, MARIADB),
        ("CHAR(20) CHARSET utf8", ColumnType.STRING, 60, MYSQL),
        ("VARBINARY(20)", ColumnType.VARCHAR, 20, MYSQL),
        ("BINARY(20)", ColumnType.STRING, 20, MYSQL),
        ("TINYTEXT", ColumnType.BLOB, 1, MYSQL),
        ("LONGBLOB", ColumnType.BLOB, 4, MYSQL),
        ("TEXT COMPRESSED", ColumnType.MARIADB_BLOB_COMPRESSED, 2, MARIADB),
        ("ENUM('a')", ColumnType.ENUM, 1, MYSQL),
        ("SET('a','b','c','d','e','f','g','h','i')", ColumnType.SET, 2, MYSQL),
        ("JSON", ColumnType.JSON, 4, MYSQL),
        ("JSON", ColumnType.BLOB, 4, MARIADB),
        ("POINT", ColumnType.GEOMETRY, 4, MYSQL),
        ("VECTOR(3)", ColumnType.VECTOR, 4, MYSQL),
        ("VECTOR(3)", ColumnType.VARCHAR, 12, MARIADB),
        ("UUID", ColumnType.STRING, 16, MARIADB),
        ("INET4", ColumnType.STRING, 4, MARIADB),
    ],
)
def test_what_agrees(definition: str, kind: ColumnType, metadata: int, dialect: Dialect) -> None:
    assert difference(definition, logged(kind, metadata), dialect) is None
    assert "in the log" in (difference(definition, logged(ColumnType.NULL, metadata), dialect) or "")


@pytest.mark.parametrize(
    ("definition", "column", "expected"),
    [
        (
            "VARCHAR(20)",
            logged(ColumnType.VARCHAR, 60),
            "VARCHAR with metadata 60 in the log, varchar(20) in the history",
        ),
        ("INT NOT NULL", logged(ColumnType.LONG), "NULL in the log, NOT NULL in the history"),
        ("INT", logged(ColumnType.LONG, nullable=False), "NOT NULL in the log"),
        ("INT", logged(ColumnType.LONG, unsigned=True), "unsigned in the log, int in the history"),
        (
            "INT UNSIGNED",
            logged(ColumnType.LONG, unsigned=False),
            "signed in the log, int unsigned in the history",
        ),
        ("YEAR", logged(ColumnType.YEAR, unsigned=True), None),
        (
            "TEXT",
            logged(ColumnType.BLOB, 2, charset="latin1"),
            "character set latin1 in the log, utf8mb4 in the history",
        ),
        (
            "BLOB",
            logged(ColumnType.BLOB, 2, charset="latin1"),
            "character set latin1 in the log, binary in the history",
        ),
        ("BLOB", logged(ColumnType.BLOB, 2, charset="binary"), None),
        (
            "ENUM('a')",
            logged(ColumnType.ENUM, 1, labels=("b",)),
            "labels ('b',) in the log, ('a',) in the history",
        ),
        ("INT", logged(ColumnType.LONG, visible=False), "invisible in the log"),
        ("INT INVISIBLE", logged(ColumnType.LONG, visible=False), None),
        (
            "POINT",
            logged(ColumnType.GEOMETRY, 4, geometry_type=3),
            "polygon in the log, point in the history",
        ),
        ("VECTOR(3)", logged(ColumnType.VECTOR, 4, dimension=4), "4 dimensions in the log, 3 in the history"),
        ("VECTOR(3)", logged(ColumnType.VECTOR, 4, dimension=3), None),
    ],
)
def test_a_difference(definition: str, column: Column, expected: str | None) -> None:
    assert difference(definition, column) == (expected and f"column 1, 'c': {expected}")


def test_names_and_keys_where_the_log_has_them() -> None:
    column = replace(logged(ColumnType.LONG, nullable=False), name="d")
    assert difference("INT NOT NULL", column) is None
    assert difference("INT NOT NULL", column, names_from="log") == "column 1, 'c': named 'd' in the log"
    table = Table("shop", "t", (replace(column, name="c"),), ("c",), "log")
    assert first_difference(shape_of("CREATE TABLE t (c INT PRIMARY KEY)"), table) is None
    assert "the key is ('c',) in the log" in (
        first_difference(shape_of("CREATE TABLE t (c INT NOT NULL)"), table) or ""
    )
    lost = shape_of("CREATE TABLE t (c INT NOT NULL)", "ALTER TABLE t DROP KEY x")
    assert first_difference(lost, table) is None


def test_the_count_of_columns() -> None:
    shape = shape_of("CREATE TABLE t (a INT, b INT)")
    assert first_difference(shape, Table("shop", "t", (logged(ColumnType.LONG),))) == (
        "1 columns in the log, 2 in the history"
    )


def test_an_unknown_type_agrees_with_nothing() -> None:
    assert logged_types(replace(shape_of("CREATE TABLE t (a INT)").columns[0], type="quaternion")) == ()


def test_a_table_gets_what_its_log_lacks() -> None:
    shape = shape_of(
        "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, e ENUM('a') CHARSET greek, b BLOB, y YEAR, n TEXT INVISIBLE)"
    )
    bare = Table(
        "shop",
        "t",
        (
            logged(ColumnType.LONG, nullable=False),
            logged(ColumnType.ENUM, 1),
            logged(ColumnType.BLOB, 2),
            logged(ColumnType.YEAR),
            logged(ColumnType.BLOB, 2, charset="latin1"),
        ),
    )
    table = with_shape(bare, shape)
    assert (table.names_from, table.primary_key) == ("history", ("id",))
    assert table.column_names == ("id", "e", "b", "y", "n")
    assert [column.unsigned for column in table.columns] == [True, None, None, None, None]
    assert [column.charset for column in table.columns] == [None, "greek", "binary", None, "latin1"]
    assert [column.labels for column in table.columns] == [None, ("a",), None, None, None]
    assert [column.visible for column in table.columns] == [True, True, True, True, False]
    named = replace(bare, names_from="log", primary_key=("x",))
    assert (with_shape(named, shape).names_from, with_shape(named, shape).primary_key) == ("log", ("x",))
