"""How far the schema history of a stream has come: after a reconnect, and on another server."""

from __future__ import annotations

import pytest

from protocol.binlog.event import EventHeader
from protocol.binlog.events import TableMapEvent
from protocol.position import BinlogPosition
from replica.config.options import Options
from replica.schemas.catalog import Catalog
from replica.schemas.logged_statements import LogTraits
from replica.schemas.schema_tracker import SchemaTracker
from replica.schemas.timeline import SchemaHistory
from replica.sql.token_reader import TableName
from tests.support.past_tables import logged_table
from tests.support.shape_text import MARIADB, shape_of

BEGIN = BinlogPosition("binlog.000001", 4)
TRAITS = LogTraits(is_mariadb=True, version=(11, 8))


def test_nothing_is_to_be_saved_before_the_place_on_the_new_server_is_known() -> None:
    """A restart at another server loads the history of the one before, and saved what was not there yet."""
    tracker = SchemaTracker(Options.build("mysql://repl@127.0.0.1", {}))
    tracker.use(TRAITS, SchemaHistory("1", BinlogPosition("binlog.000001", 4), Catalog()))
    assert tracker.is_unsaved
    tracker.move(TRAITS, "2", Catalog())
    assert not tracker.is_unsaved
    tracker.begin_at("binlog.000007", 400)
    assert tracker.is_unsaved
    _, is_whole = tracker.take_unsaved()
    assert is_whole


@pytest.mark.parametrize("on_mismatch", ["error", "positional"])
def test_a_column_may_be_called_as_one_without_a_name(on_mismatch: str) -> None:
    """Such a table was never named: its stream ended with an error that the log lacks a statement."""
    shape = shape_of("CREATE TABLE t (`@1` INT, b INT)", dialect=MARIADB)
    name = TableName("shop", "t")
    tracker = SchemaTracker(
        Options.build("mysql://repl@127.0.0.1", {"on_schema_mismatch": on_mismatch}), asks=True
    )
    tracker.use(TRAITS, SchemaHistory("1", BEGIN, Catalog({name: shape})))
    header = EventHeader(0, 19, 1, 0, 0, 0)
    event = TableMapEvent(header, "binlog.000001", 200, 7, 0, logged_table(name, shape, "NO_LOG"))
    table = tracker.named(event)
    assert table is not None
    assert table.column_names == ("@1", "b")


def test_a_file_that_was_followed_before_does_not_lead_back() -> None:
    """A dump by GTIDs begins with its head. A comparison of tables would read the log from there each time."""
    tracker = SchemaTracker(Options.build("mysql://repl@127.0.0.1", {}))
    tracker.use(TRAITS, SchemaHistory("1", BinlogPosition("binlog.000001", 4), Catalog()))
    tracker.reach("binlog.000002", 4)
    tracker.reach("binlog.000002", 900)
    for file, position in (("binlog.000001", 120), ("binlog.000002", 4), ("binlog.000002", 120)):
        tracker.reach(file, position)
        assert tracker.reached == BinlogPosition("binlog.000002", 900)
    tracker.reach("binlog.1000000", 4)
    assert tracker.reached == BinlogPosition("binlog.1000000", 4)
