"""The figures of ``LogStatistics``: one record for each thing that is counted. They count nothing themselves."""

import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final

from protocol.constants import EventType
from protocol.records import record

#: How many of the largest and of the longest transactions are kept, and of the last DDL statements.
KEPT: Final = 10
DDL_KEPT: Final = 50
#: Upper ends of the classes by which transactions are counted, in row changes; the last class is open.
ROWS_CLASSES: Final = (1, 10, 100, 1_000, 10_000, 100_000)

_TEXT_KEPT: Final = 200
# What follows may be a password or its hash; in CREATE TABLE, the address of a FEDERATED table with one.
_SECRETS: Final = re.compile(r"\b(?:IDENTIFIED|PASSWORD)\b|\bCONNECTION\s*=", re.IGNORECASE)
_TABLE_SECRETS: Final = re.compile(r"\bCONNECTION\s*=", re.IGNORECASE)


@record(slots=True)
class RowCounts:
    """Row changes by operation: ``inserts``, ``updates`` and ``deletes``."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0

    @property
    def total(self) -> int:
        """All row changes."""
        return self.inserts + self.updates + self.deletes


@record(slots=True)
class TableStatistics(RowCounts):
    """One table, ``schema`` and ``name``: its row changes, and in how many rows ``events`` of how many ``bytes`` they
    came.

    ``bytes`` are those of the rows events with header and checksum; inside of a compressed transaction as they are
    when decompressed. ``transactions`` have changed the table.
    """

    schema: str = ""
    name: str = ""
    events: int = 0
    bytes: int = 0
    transactions: int = 0

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@record(slots=True)
class MinuteStatistics(RowCounts):
    """What was committed in one minute, by the clock of the server that wrote the log.

    ``start`` is in seconds since 1970, ``transactions`` how many ended then, ``bytes`` their size in the log.
    ``max_lag`` is in seconds, None where no transaction of that minute came from another server (or, live, where it
    was not measured).
    """

    start: int = 0
    transactions: int = 0
    bytes: int = 0
    max_lag: float | None = None

    def see_lag(self, seconds: float) -> None:
        """A lag that was met in this minute."""
        self.max_lag = seconds if self.max_lag is None else max(self.max_lag, seconds)


@record(slots=True, frozen=True)
class TransactionStatistics:
    """One transaction among the largest or the longest; ``gtid`` is text, None where the source logs none.

    It begins at ``position`` of ``file``, has ``rows`` row changes, and ``bytes`` in the log. ``started`` is the time
    of its first statement; ``seconds`` passed from there to its commit, to the second: the log has no finer time for
    statements. Before MySQL 8.0.1 and on MariaDB the end is when the last statement began. ``tables`` are those that
    it changed, in the order of their rows.
    """

    gtid: str | None
    file: str
    position: int
    started: datetime
    seconds: int
    rows: int
    bytes: int
    tables: tuple[str, ...]


@record(slots=True, frozen=True)
class StatementStatistics:
    """A DDL statement: ``time`` is when it began (by the source's clock), ``seconds`` what it took.

    ``schema`` is the session's default schema, ``sql`` the text, cut at 200 characters and where a password would
    follow.
    """

    time: datetime
    seconds: int
    schema: str
    sql: str


@record(slots=True)
class LagStatistics:
    """Seconds from a commit on its first server to another place, over ``count`` transactions (or samples, live).

    ``maximum`` is the largest, ``last`` the newest, ``total`` their sum. Clocks are the servers' own: where they
    differ, it is part of the lag, which may be negative.
    """

    count: int = 0
    total: float = 0.0
    maximum: float = 0.0
    last: float = 0.0

    @property
    def mean(self) -> float:
        """The average; 0 without any."""
        return self.total / self.count if self.count else 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.maximum = max(seconds, self.maximum) if self.count else seconds
        self.count += 1
        self.total += seconds
        self.last = seconds


class Largest:
    """The ``KEPT`` transactions with the largest value; of equal ones those that came first."""

    def __init__(self, least: int = 0) -> None:
        self.least = least
        self._kept: list[tuple[int, TransactionStatistics]] = []

    def add(self, value: int, transaction: TransactionStatistics) -> None:
        """Keep it, if its value is above ``least``."""
        if value <= self.least:
            return
        place = next((i for i, (other, _) in enumerate(self._kept) if other < value), len(self._kept))
        self._kept.insert(place, (value, transaction))
        del self._kept[KEPT:]
        if len(self._kept) == KEPT:
            self.least = self._kept[-1][0]

    @property
    def transactions(self) -> list[TransactionStatistics]:
        """Those that are kept, the largest first."""
        return [transaction for _, transaction in self._kept]


def type_name(number: int) -> str:
    """The name of an event type."""
    try:
        return EventType(number).name
    except ValueError:
        return f"type {number}"


def shown_statement(name: str, sql: str) -> str:
    """A statement for people: on one line, not too long, and without passwords or their hashes."""
    secret = (_TABLE_SECRETS if name.endswith(" TABLE") else _SECRETS).search(sql)
    text = " ".join((sql if secret is None else sql[: secret.end()] + " …").split())
    return text if len(text) <= _TEXT_KEPT else f"{text[: _TEXT_KEPT - 1]}…"


def utc(seconds: int) -> datetime:
    """Seconds since 1970 as a time."""
    return datetime.fromtimestamp(seconds, UTC)


def iso_text(seconds: int | None) -> str | None:
    """Seconds since 1970 in ISO 8601."""
    return None if seconds is None else utc(seconds).isoformat()


def with_total(counts: RowCounts) -> dict[str, object]:
    """Its fields, and the sum of its row changes as ``rows``."""
    return asdict(counts) | {"rows": counts.total}


def lag_dict(lag: LagStatistics) -> dict[str, object] | None:
    """Its figures in seconds; None without any."""
    return {"count": lag.count, "mean": lag.mean, "max": lag.maximum, "last": lag.last} if lag.count else None
