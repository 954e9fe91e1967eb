"""What a relay asks of its source about tables when it connects again, counted."""

from __future__ import annotations

import pytest

from protocol.position import BinlogPosition
from protocol.records import replace
from replica.relay.relay_schemas import _learn
from replica.schemas.baseline import baseline
from replica.schemas.catalog import Catalog, Unknown
from replica.schemas.reading import Reading
from replica.schemas.shape import ColumnShape, Shape
from replica.schemas.timeline import SchemaHistory
from replica.sql.token_reader import TableName
from tests.support.listed_tables import rows_of

PLACE = BinlogPosition("binlog.000001", 400)
TABLES = 1_000


class Reader:
    """A source whose tables are all there, and whose log has no statement."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.asked: list[str] = []

    async def names(self) -> list[TableName]:
        return list(self.catalog.tables)

    async def read(self, where: str = "") -> Reading:
        self.asked.append(where)
        return Reading(self.catalog, PLACE)


@pytest.mark.parametrize(("unknown", "named"), [(0, 0), (1, 1), (500, 500), (501, 0)])
async def test_only_tables_without_columns_are_read_again(unknown: int, named: int) -> None:
    """All columns of all tables were read at each connection: 3 MB for 10,000 tables, and MariaDB opened each."""
    catalog = baseline(*rows_of(TABLES))
    history = SchemaHistory("uuid", PLACE, baseline(*rows_of(TABLES)))
    for table in list(catalog.tables)[:unknown]:
        history.set_at(table, PLACE, Unknown("the trail is lost"))
    reader = Reader(catalog)
    await _learn(history, reader)  # type: ignore[arg-type]
    assert [where.count("(_utf8mb4") for where in reader.asked] == [named] * bool(unknown)
    assert all(isinstance(history.catalog.get(table), Shape) for table in catalog.tables)


async def test_a_table_with_a_column_of_no_known_type_is_read_again() -> None:
    """Its labels stayed unknown."""
    catalog = baseline(*rows_of(2))
    table, whole = next(iter(catalog.tables.items()))
    assert isinstance(whole, Shape)
    history = SchemaHistory("uuid", PLACE, baseline(*rows_of(2)))
    history.set_at(table, PLACE, replace(whole, columns=(ColumnShape("e", ""), *whole.columns[1:])))
    await _learn(history, Reader(catalog))  # type: ignore[arg-type]
    assert history.catalog.get(table) == whole
