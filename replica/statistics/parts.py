"""Adds the statistics of one part of a log to those of the parts before it. Reads no events."""

from collections.abc import Mapping
from typing import Final, Protocol, TypeVar

from .summaries import (
    DDL_KEPT,
    LagStatistics,
    MinuteStatistics,
    RowCounts,
    StatementStatistics,
    TableStatistics,
)

_Key = TypeVar("_Key")
_NUMBERS: Final = ("transactions", "with_rows", "unfinished", "incidents")


class _Counts(Protocol):
    """The attributes of ``LogStatistics`` that are added here."""

    files: list[str]
    versions: list[str]
    servers: dict[int, int]
    statements: dict[str, int]
    ddl: list[StatementStatistics]
    rows_classes: list[int]
    lag: LagStatistics
    seconds_behind: LagStatistics


def add_counts(counts: _Counts, later: _Counts) -> None:
    """Add the attributes that are numbers, lists and dicts."""
    for name in _NUMBERS:
        setattr(counts, name, getattr(counts, name) + getattr(later, name))
    counts.files += [file for file in later.files if file not in counts.files]
    counts.versions += [version for version in later.versions if version not in counts.versions]
    _add_each(counts.servers, later.servers)
    _add_each(counts.statements, later.statements)
    counts.ddl += later.ddl
    del counts.ddl[:-DDL_KEPT]
    pairs = zip(counts.rows_classes, later.rows_classes, strict=True)
    counts.rows_classes = [one + other for one, other in pairs]
    counts.lag.include(later.lag)
    counts.seconds_behind.include(later.seconds_behind)


def add_table(table: TableStatistics, later: TableStatistics) -> None:
    """Add the counts of a table."""
    _add_rows(table, later)
    table.events += later.events
    table.bytes += later.bytes
    table.transactions += later.transactions


def add_minute(minute: MinuteStatistics, later: MinuteStatistics) -> None:
    """Add the counts of a minute."""
    _add_rows(minute, later)
    minute.transactions += later.transactions
    minute.bytes += later.bytes
    if later.max_lag is not None:
        minute.see_lag(later.max_lag)


def _add_rows(counts: RowCounts, later: RowCounts) -> None:
    counts.inserts += later.inserts
    counts.updates += later.updates
    counts.deletes += later.deletes


def _add_each(counts: dict[_Key, int], later: Mapping[_Key, int]) -> None:
    for key, count in later.items():
        counts[key] = counts.get(key, 0) + count
