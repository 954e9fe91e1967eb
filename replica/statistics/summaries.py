"""The records of ``LogStatistics``: row counts, tables, minutes, transactions, statements, lag. Read no events."""

import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final

from protocol.constants import EventType
from protocol.records import record

#: How many of the largest and longest transactions are kept, and how many of the last DDL statements.
KEPT: Final = 10
DDL_KEPT: Final = 50
#: Upper ends of the classes of transactions by row changes; the last class has no upper end.
ROWS_CLASSES: Final = (1, 10, 100, 1_000, 10_000, 100_000)

_TEXT_KEPT: Final = 200
# The text after these words may be a password or its hash; in CREATE TABLE, a FEDERATED table's address with one.
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
    """The row changes of one table, named by ``schema`` and ``name``.

    ``events`` is the number of its rows events, ``bytes`` their size with header and checksum (in a compressed
    transaction their size when decompressed). ``transactions`` is the number of transactions that changed the table.
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
    """The commits of one minute, by the clock of the server that wrote the log.

    ``start`` is in seconds since 1970, ``transactions`` the number of commits, ``bytes`` their size in the log.
    ``max_lag`` is in seconds; None if no transaction of that minute came from another server (of a live stream: if
    the lag was not measured).
    """

    start: int = 0
    transactions: int = 0
    bytes: int = 0
    max_lag: float | None = None

    def see_lag(self, seconds: float) -> None:
        """Note a lag measured in this minute."""
        self.max_lag = seconds if self.max_lag is None else max(self.max_lag, seconds)


@record(slots=True, frozen=True)
class TransactionStatistics:
    """One of the largest or longest transactions; ``gtid`` is text, None if the source logs no GTIDs.

    It begins at ``position`` of ``file`` and has ``rows`` row changes and ``bytes`` in the log. ``started`` is the
    time of its first statement, ``seconds`` the time from there to its commit, in whole seconds as in the log. Before
    MySQL 8.0.1 and on MariaDB the last statement's begin counts as the end. ``tables`` lists the changed tables,
    those with the most row changes first.
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
    """A DDL statement: ``time`` is its begin by the source's clock, ``seconds`` its duration.

    ``schema`` is the session's default schema. ``sql`` is the text, cut at 200 characters and before any password.
    """

    time: datetime
    seconds: int
    schema: str
    sql: str


@record(slots=True)
class LagStatistics:
    """The lag in seconds behind the commit on a transaction's first server, over ``count`` transactions.

    For a live stream ``count`` is the number of measurements. ``maximum`` is the largest lag, ``last`` the newest,
    ``microseconds`` the sum of all, a whole number, so that it does not depend on their order. Times are by the
    servers' own clocks: a difference between them is part of the lag, which may be negative.
    """

    count: int = 0
    microseconds: int = 0
    maximum: float = 0.0
    last: float = 0.0

    @property
    def mean(self) -> float:
        """The average; 0 if nothing was counted."""
        return self.microseconds / 1e6 / self.count if self.count else 0.0

    def add(self, seconds: float) -> None:
        """Count one lag."""
        self.maximum = max(seconds, self.maximum) if self.count else seconds
        self.count += 1
        self.microseconds += round(seconds * 1e6)
        self.last = seconds

    def include(self, later: "LagStatistics") -> None:
        """Add the lags of a later part of the log."""
        if later.count:
            self.maximum = max(self.maximum, later.maximum) if self.count else later.maximum
            self.last = later.last
        self.count += later.count
        self.microseconds += later.microseconds


class Largest:
    """Keeps the ``KEPT`` transactions with the largest values; of equal values the first."""

    def __init__(self, least: int = 0) -> None:
        self.least = least
        self._kept: list[tuple[int, TransactionStatistics]] = []

    def add(self, value: int, transaction: TransactionStatistics) -> None:
        """Keep a transaction if its value is above ``least``."""
        if value <= self.least:
            return
        place = next((i for i, (other, _) in enumerate(self._kept) if other < value), len(self._kept))
        self._kept.insert(place, (value, transaction))
        del self._kept[KEPT:]
        if len(self._kept) == KEPT:
            self.least = self._kept[-1][0]

    def include(self, later: "Largest") -> None:
        """Add the transactions kept from a later part of the log."""
        for value, transaction in later._kept:
            self.add(value, transaction)

    @property
    def transactions(self) -> list[TransactionStatistics]:
        """The kept transactions, the largest first."""
        return [transaction for _, transaction in self._kept]


def type_name(number: int) -> str:
    """The name of an event type."""
    try:
        return EventType(number).name
    except ValueError:
        return f"type {number}"


def shown_statement(name: str, sql: str) -> str:
    """A statement as shown in reports: on one line, cut to length, without passwords or their hashes."""
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
    """The fields of a record, and the sum of its row changes as ``rows``."""
    return asdict(counts) | {"rows": counts.total}


def lag_dict(lag: LagStatistics) -> dict[str, object] | None:
    """A lag's figures in seconds; None if nothing was counted."""
    return {"count": lag.count, "mean": lag.mean, "max": lag.maximum, "last": lag.last} if lag.count else None
