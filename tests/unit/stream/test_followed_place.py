"""The schema store knows how far the log was followed: a restart reads little twice, and misses no statement."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import replica
from protocol.binlog.events import PreviousGtidsEvent
from protocol.constants import EventType
from protocol.conversation.commands import BinlogDump, BinlogDumpGtid
from protocol.errors import ReplicaError
from replica import BinlogPosition, Checkpoint, Insert
from replica.schemas.shape import Shape
from replica.schemas.timeline import SchemaHistory
from replica.sql.token_reader import TableName
from tests.support.raw_events import format_description, query, rotate
from tests.support.scripted_log import INT_COLUMN, Log, transaction
from tests.support.socket_source import FILE, SocketSource, serving

SECOND = "binlog.000002"
T = TableName("s", "t")


class Lines:
    """A store in memory."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def load(self) -> list[str] | None:
        return list(self.lines) or None

    def save(self, lines: Sequence[str]) -> None:
        self.lines = list(lines)

    def append(self, lines: Sequence[str]) -> None:
        self.lines += lines

    @property
    def history(self) -> SchemaHistory:
        return SchemaHistory.from_lines(self.lines)


class Files:
    """The files of a source's log, sent from the place that is asked for; a purged file is refused."""

    def __init__(self, **logs: Log) -> None:
        self.logs = {name.replace("binlog_", "binlog."): log for name, log in logs.items()}
        self.source = SocketSource(columns=[(*INT_COLUMN[:-1], "")], events_for=self.events_for)

    def events_for(self, dump: BinlogDump | BinlogDumpGtid) -> list[bytes]:
        assert isinstance(dump, BinlogDump)
        first = dump.file or min(self.logs)
        events = [rotate(first, dump.position, flags=0x20)]
        for file in sorted(self.logs):
            begin = dump.position if file == first else 4
            if file < first:
                continue
            if file != first:
                events.append(rotate(file, flags=0x20))
            if begin > 4:
                events.append(format_description(algorithm=0))
            place = 4
            for raw in self.logs[file].raw[1:]:
                events += [raw] if place >= begin else []
                place = int.from_bytes(raw[13:17], "little")
        return events


def two_files(*, statements: bool) -> Files:
    """Three transactions in each of two files; with ``statements`` each stands behind a change of the table."""
    logs = {}
    number = 0
    for file in (FILE, SECOND):
        log = Log(file=file)
        for _ in range(3):
            number += 1
            if statements:
                log.add(query(f"ALTER TABLE s.t RENAME COLUMN {name(number - 1)} TO {name(number)}"))
            transaction(log, number)
        if file == FILE:
            log.event(EventType.ROTATE, rotate(SECOND)[19:])
        logs[file.replace(".", "_")] = log
    return Files(**logs)


def name(number: int) -> str:
    return f"c{number}" if number else "id"


def options(store: Lines, start: Any) -> dict[str, Any]:
    return {"start": start, "schemas": store, "reconnect": False}


async def read(stream: replica.BinlogStream) -> tuple[str, int, Checkpoint]:
    """The column's name and the value of the next transaction, and the checkpoint behind it."""
    async for tx in stream.transactions():
        changes = await tx.collect()
        if not changes:
            continue
        [change] = changes
        assert isinstance(change, Insert)
        assert change.table.names_from == "history"
        [(column, value)] = change.after.items()
        assert isinstance(value, int)
        return column, value, tx.checkpoint
    raise AssertionError("the stream has ended")


async def test_a_stream_that_was_closed_goes_on_without_a_look_at_the_log_before() -> None:
    files, store = two_files(statements=False), Lines()
    start: Any = "earliest"
    async with serving(files.source) as source:
        for number in range(1, 7):
            async with replica.connect(source.dsn, **options(store, start)) as stream:
                column, value, start = await read(stream)
                assert (column, value) == ("id", number)
            assert store.history.head >= BinlogPosition(start.file, start.position)
    # The stream's own dumps, and none that looks for statements.
    assert len(files.source.dumps) == 6


async def test_a_file_without_a_transaction_is_followed_to() -> None:
    """The checkpoint moved to it and the store did not: when the file before was purged, a restart was refused."""
    first, second, store = Log(), Log(file=SECOND), Lines()
    transaction(first, 1).event(EventType.ROTATE, rotate(SECOND)[19:])
    second.event(EventType.PREVIOUS_GTIDS, b"\0" * 8)
    files = Files(binlog_000001=first, binlog_000002=second)
    async with (
        serving(files.source) as source,
        replica.connect(source.dsn, **options(store, "earliest")) as stream,
    ):
        async for event in stream:
            assert stream.position is not None
            assert store.history.head.file >= stream.position.file
            if isinstance(event, PreviousGtidsEvent):
                break
    assert store.history.head == BinlogPosition(SECOND, second.position)


@pytest.mark.parametrize("statements", [False, True])
async def test_a_killed_stream_needs_no_file_before_its_checkpoint(statements: bool) -> None:
    """Files before that of a checkpoint may be purged, whatever of the store is on the disk by then."""
    files, store = two_files(statements=statements), Lines()
    moments: list[tuple[int, Checkpoint, list[str]]] = []
    async with (
        serving(files.source) as source,
        replica.connect(source.dsn, **options(store, "earliest")) as stream,
    ):
        for _ in range(6):
            _, value, checkpoint = await read(stream)
            moments.append((value, checkpoint, list(store.lines)))
    for number, checkpoint, lines in moments[:-1]:
        left = Lines()
        left.lines = lines
        rest = two_files(statements=statements)
        async with (
            serving(rest.source) as source,
            replica.connect(source.dsn, **options(left, checkpoint)) as stream,
        ):
            column, value, _ = await read(stream)
        assert (column, value) == (name(number + 1) if statements else "id", number + 1)
        assert checkpoint.file == FILE or FILE not in [
            dump.file for dump in rest.source.dumps if isinstance(dump, BinlogDump)
        ]


async def test_the_store_never_claims_a_statement_that_it_lacks() -> None:
    """Connections that are cut at any byte: what the store has up to its end is what the log says."""
    truth = [
        (BinlogPosition(file.replace("_", "."), end), name(number))
        for number, (file, end) in enumerate(statement_ends(two_files(statements=True)), 1)
    ]
    whole = sum(len(raw) + 5 for raw in two_files(statements=True).events_for(BinlogDump("", 4, 1, 0)))
    claimed = Counter[int]()
    for size in range(0, whole, 101):
        files, store = two_files(statements=True), Lines()
        files.source.cuts = [size]
        async with serving(files.source) as source:
            with contextlib.suppress(ReplicaError):
                async with replica.connect(source.dsn, **options(store, "earliest")) as stream:
                    async for _ in stream:
                        pass
        history = store.history
        known = [(end, column) for end, column in truth if end <= history.head]
        claimed[len(known)] += 1
        for end, column in known:
            shape = history.shape_at(T, end)
            assert isinstance(shape, Shape), (size, store.lines)
            assert names_of(shape) == column, (size, end)
    assert set(claimed) == set(range(7))


def names_of(shape: Shape) -> str:
    return " ".join(column.name for column in shape.columns)


def statement_ends(files: Files) -> Iterator[tuple[str, int]]:
    for file, log in files.logs.items():
        for raw in log.raw:
            if b"ALTER TABLE" in raw:
                yield file, int.from_bytes(raw[13:17], "little")
