"""What one value of each kind costs: nanoseconds per value, through the decoder, from rows that a server wrote.

Each table of the log has eight equal columns. The time of a table's rows events, less that of as many rows of a
table that has only its key, is divided by the number of values; the best of several passes counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import RowsEvent, TableMapEvent
from replica import open_binlog
from tests.benchmarks.logs import Log
from tests.benchmarks.workloads import MICRO_COLUMNS, MICRO_WIDTH

PASSES = 15
_TABLE_PREFIX = "m_"


def nanoseconds_per_value(log: Log) -> Mapping[str, float]:
    """By the names of ``MICRO_COLUMNS``."""
    tables, others = _raw_events(log.path)
    values = log.row_changes // len(tables) * MICRO_WIDTH
    best = {name: min(_seconds(others, events) for _ in range(PASSES)) for name, events in tables.items()}
    alone = best.pop("key")
    return {name: (best[name] - alone) * 1e9 / values for name in MICRO_COLUMNS}


def _raw_events(path: Path) -> tuple[dict[str, list[bytes]], list[bytes]]:
    """Each table's maps and rows, and the events that set the decoder up."""
    tables: dict[str, list[bytes]] = {}
    others: list[bytes] = []
    with open_binlog(path) as log:
        for raw, _, event in log.raw_events():
            if isinstance(event, TableMapEvent):
                tables.setdefault(event.table.name.removeprefix(_TABLE_PREFIX), []).append(raw)
            elif isinstance(event, RowsEvent):
                tables[event.table.name.removeprefix(_TABLE_PREFIX)].append(raw)
            elif not tables:
                others.append(raw)
    return tables, others


def _seconds(others: list[bytes], events: list[bytes]) -> float:
    """For the rows of one table in a decoder that has seen the table before."""
    # What CRC32 costs is not asked here.
    decoder = EventDecoder(verify_checksum=False)
    for raw in (*others, *events):
        decoder.decode(raw)
    began = time.perf_counter()
    for raw in events:
        decoder.decode(raw)
    return time.perf_counter() - began
