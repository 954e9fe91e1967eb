"""A reader that begins in the past of a log, knows the tables of now, and does not see the metadata of the log."""

from __future__ import annotations

import random
from collections import Counter

from protocol.binlog.events import QueryEvent, RowsEvent
from protocol.position import BinlogPosition
from replica.schemas.logged_statements import statement_of
from replica.schemas.past_history import LoggedStatement, history_before
from replica.sql.token_reader import TableName
from tests.server.support.schema_oracle import DdlRun, place_behind, tables_and_statements
from tests.support.past_tables import named_in_the_past


def wrong_in_the_past(run: DdlRun, rng: random.Random, starts: int) -> tuple[list[str], Counter[str]]:
    """What is wrong from some places of the log on, and how many columns have a name and have none.

    The log must have all metadata: it is the truth.
    """
    events = list(tables_and_statements(run))
    now = run.snapshots[-1]
    places = [snapshot.position for snapshot in rng.sample(run.snapshots[:-1], starts)]
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    for begin in [run.snapshots[0].position, *places]:
        wrong += _wrong_from(begin, now.position, events, run, counts)
    return wrong, counts


def _wrong_from(
    begin: BinlogPosition,
    end: BinlogPosition,
    events: list[QueryEvent | RowsEvent],
    run: DdlRun,
    counts: Counter[str],
) -> list[str]:
    events = [event for event in events if begin < place_behind(event) <= end]
    statements = [
        LoggedStatement(place_behind(event), statement_of(event, run.traits))
        for event in events
        if isinstance(event, QueryEvent)
    ]
    history = history_before("source", begin, run.snapshots[-1].catalog, statements)
    wrong: list[str] = []
    for event in events:
        if isinstance(event, RowsEvent):
            state = history.shape_at(TableName(event.table.schema, event.table.name), place_behind(event))
            found = named_in_the_past(state, event.table, counts)
            wrong += [f"from {begin}, at {place_behind(event)}: {problem}" for problem in found]
    return wrong
