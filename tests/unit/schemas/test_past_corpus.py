"""A start in the past, in real logs that have all metadata: it is hidden from the reader, and shows what is right."""

from __future__ import annotations

from collections import Counter

import pytest

import replica
from protocol.binlog.events import QueryEvent, TableMapEvent
from protocol.position import BinlogPosition
from replica.schemas.catalog import Catalog
from replica.schemas.logged_statements import LogTraits, statement_of
from replica.schemas.past_history import LoggedStatement, history_before
from replica.sql.token_reader import TableName
from tests.support.past_tables import named_in_the_past
from tests.support.places import CORPUS, corpus_index

_FULL = [
    "blackbeam__rust_mysql_common/binlog-invisible-columns.000001",
    "blackbeam__rust_mysql_common/json-opaque.binlog",
    "blackbeam__rust_mysql_common/mysql_type_bit.000001",
    "mysql-testsuite-9.7.4/rpl_binlog_with_gipk_info_full_metadata.000001",
]
BEGIN = BinlogPosition("binlog.000001", 4)


@pytest.mark.skipif(not corpus_index(), reason="no corpus of real logs")
@pytest.mark.parametrize("name", _FULL)
def test_a_start_in_the_past(name: str) -> None:
    with replica.open_binlog(CORPUS / "files" / name) as log:
        events = [event for event in log if isinstance(event, QueryEvent | TableMapEvent)]
    traits = LogTraits(is_mariadb=False, version=(8,))
    queries = [event for event in events if isinstance(event, QueryEvent)]
    logged = [LoggedStatement(_end(event), statement_of(event, traits)) for event in queries]
    catalog = Catalog(schemas={event.schema: "utf8mb4" for event in queries})
    for one in logged:
        catalog.apply(one.statement)
    history = history_before("uuid", BEGIN, catalog, logged)
    counts: Counter[str] = Counter()
    for event in events:
        if isinstance(event, TableMapEvent):
            table = TableName(event.table.schema, event.table.name)
            assert not list(named_in_the_past(history.shape_at(table, _end(event)), event.table, counts))
    assert counts["named"]
    assert not counts["nameless"]
    assert not counts["unknown"]


def _end(event: QueryEvent | TableMapEvent) -> BinlogPosition:
    return BinlogPosition(BEGIN.file, event.position + event.header.size)
