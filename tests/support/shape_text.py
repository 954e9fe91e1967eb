"""Shapes as one line of text, and catalogs made of statements, for tests."""

from __future__ import annotations

from collections.abc import Iterable

from replica.schemas.catalog import Catalog, Statement, Unknown
from replica.schemas.shape import ColumnShape, Shape
from replica.sql.dialect import Dialect
from replica.sql.token_reader import TableName

MYSQL = Dialect(False, (9, 7, 0))
MYSQL56 = Dialect(False, (5, 6, 51), explicit_timestamps=False)
MARIADB = Dialect(True, (11, 8, 2))
T = TableName("shop", "t")


def catalog_of(*statements: str, dialect: Dialect = MYSQL, charset: str | None = "utf8mb4") -> Catalog:
    """A catalog with the schema `shop`, behind these statements."""
    catalog = Catalog(schemas={"shop": charset})
    apply(catalog, *statements, dialect=dialect)
    return catalog


def apply(catalog: Catalog, *statements: str, dialect: Dialect = MYSQL) -> None:
    for sql in statements:
        catalog.apply(Statement(sql, "shop", dialect, "latin1"))


def shape_of(*statements: str, dialect: Dialect = MYSQL, charset: str | None = "utf8mb4") -> Shape:
    """The shape of `shop.t` behind these statements."""
    shape = catalog_of(*statements, dialect=dialect, charset=charset).get(T)
    assert isinstance(shape, Shape), shape
    return shape


def reason_of(*statements: str, dialect: Dialect = MYSQL, charset: str | None = "utf8mb4") -> str:
    """Why the shape of `shop.t` is not known behind these statements."""
    shape = catalog_of(*statements, dialect=dialect, charset=charset).get(T)
    assert isinstance(shape, Unknown), shape
    return shape.reason


def names(shape: Shape) -> str:
    return " ".join(column.name for column in shape.columns)


def column_text(column: ColumnShape) -> str:
    parts: Iterable[str] = (
        column.name,
        column.column_type,
        column.charset or "",
        {True: "", False: "NOT NULL", None: "NULL?"}[column.nullable],
        column.generated.upper(),
        "INVISIBLE" * column.invisible,
        "COMPRESSED" * column.compressed,
        column.role and f"ROW {column.role.upper()}",
        "HIDDEN" * column.is_hidden,
    )
    return " ".join(part for part in parts if part)


def columns_text(shape: Shape) -> str:
    return ", ".join(map(column_text, shape.columns))
