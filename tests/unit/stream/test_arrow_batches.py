"""``stream.arrow()``: rows of whole transactions as RecordBatches, and a checkpoint that waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import replica
import replica.sync
from protocol.constants import EventType
from protocol.errors import ConfigurationError, DecodeError
from protocol.gtid import GtidSet
from replica import BinlogStream, Checkpoint, open_binlog
from replica.demo import DemoSource, recorded_log
from tests.support.checkpoints import MemoryStore
from tests.support.raw_events import int_rows, int_table_map, query
from tests.support.resumed_streams import (
    OTHER_CONTENT,
    QUICK,
    everything,
    fail_over,
    gtid_log,
    gtid_source,
    size_of,
    split_transaction,
)
from tests.support.scripted_log import XID, Log, gtid
from tests.support.socket_source import SocketSource, serving

pa = pytest.importorskip("pyarrow")

SECONDS = 10
EMPTY = GtidSet("")
LOG = [[[1, 2]], [[3], [4]], [[5]], [[6, 7, 8, 9, 10, 11]], [[12]]]


def numbers(batch: Any) -> list[int]:
    found: list[int] = batch.column("id").to_pylist()
    return found


@asynccontextmanager
async def opened(source: SocketSource, start: object = EMPTY, **given: Any) -> AsyncIterator[BinlogStream]:
    options: dict[str, Any] = {"start": start, "reconnect": QUICK} | given
    async with (
        asyncio.timeout(SECONDS),
        serving(source),
        replica.connect(source.dsn, **options) as stream,
    ):
        yield stream


async def batches_of(
    source: SocketSource, rows: int, start: object = EMPTY, **given: Any
) -> list[tuple[list[int], Checkpoint | None]]:
    """The batches until so many rows have come, and the place behind each."""
    found: list[tuple[list[int], Checkpoint | None]] = []
    async with opened(source, start) as stream:
        batches = stream.arrow("s.t", **given)
        async for batch in batches:
            found.append((numbers(batch), batches.checkpoint))
            if sum(len(part) for part, _ in found) >= rows:
                break
        assert stream.status.rows == sum(len(part) for part, _ in found)
    return found


@pytest.mark.parametrize("most", [1, 2, 4, 100])
async def test_each_row_once_from_every_checkpoint(most: int) -> None:
    """Whoever stores rows and place together has each row once, wherever it begins again."""
    limits: dict[str, Any] = {"max_rows": most, "max_seconds": 0.3}
    found = await batches_of(gtid_source(gtid_log(*LOG)), 12, **limits)
    rows = [number for part, _ in found for number in part]
    assert rows == list(range(1, 13))
    if most == 1:
        assert len(found) == 12
    if most == 100:
        assert found[0][0] == rows
    stored = 0
    before: Checkpoint | None = None
    for part, checkpoint in found[:-1]:
        stored += len(part)
        if checkpoint != before:
            assert checkpoint is not None
            before = Checkpoint.from_dict(checkpoint.to_dict())
            rest = await batches_of(gtid_source(gtid_log(*LOG)), 12 - stored, before, **limits)
            assert [number for part, _ in rest for number in part] == rows[stored:]


async def test_the_checkpoint_waits_for_the_batch() -> None:
    """At every moment the store has a place before which all rows are done, and no later one."""
    store = MemoryStore()
    done, rows, first = [""], 0, {1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 12: 5} | dict.fromkeys(range(6, 12), 4)
    async with opened(gtid_source(gtid_log(*LOG)), checkpoints=store, checkpoint_interval=0) as stream:
        batches = stream.arrow("s.t", max_rows=2, max_seconds=0.2)
        async for batch in batches:
            assert store.checkpoint is not None
            assert stream.checkpoint is not None
            assert str(stream.checkpoint.gtid_set) == str(store.checkpoint.gtid_set) == done[-1]
            if batches.checkpoint is not None:
                done.append(str(batches.checkpoint.gtid_set))
            rows += batch.num_rows
            assert done[-1] in (
                "",
                *(f"{done[-1].partition(':')[0]}:{n}" for n in ("1", "1-2", "1-3", "1-4", "1-5")),
            )
            if done[-1]:
                finished = int(done[-1].rpartition(":")[2].rpartition("-")[2])
                assert all(first[number] > finished for number in range(rows + 1, 13))
            if rows == 12:
                break
        await stream.acknowledge()
        assert store.checkpoint == batches.checkpoint == stream.checkpoint


async def test_a_part_of_a_transaction_is_not_acknowledged() -> None:
    store = MemoryStore()
    log = gtid_log([[1]], [list(range(2, 40))])
    async with opened(gtid_source(log), checkpoints=store) as stream:
        batches = stream.arrow("s.t", max_rows=4, max_seconds=0.2)
        seen: list[int] = []
        while len(seen) < 20:
            seen += numbers(await anext(batches))
            await stream.acknowledge()
        assert store.checkpoint is not None
        assert str(store.checkpoint.gtid_set).endswith(":1")
        while len(seen) < 39:
            seen += numbers(await anext(batches))
        await stream.acknowledge()
        assert str(store.checkpoint.gtid_set).endswith(":1-2")
    assert seen == list(range(1, 40))


@pytest.mark.parametrize("content", ["other rows", "fewer rows", "gone"])
async def test_failover_in_the_middle_of_a_transaction(content: str) -> None:
    """What was read of a transaction that begins again is dropped; a batch has each row once."""
    gone = split_transaction(gtid(gtid_log([[1]]), 3), [9])
    other: Log = gone if content == "gone" else OTHER_CONTENT[content]
    source = gtid_source(gtid_log([[1]], [[2, 3], [4], [5]]))
    source.cuts = [size_of(source, everything()) - 110]
    source.on_cut = lambda: fail_over(source, other)
    async with opened(source) as stream:
        found: list[int] = []
        async for batch in stream.arrow("s.t", max_seconds=0.3):
            found += numbers(batch)
            if len(found) > 1:
                break
    assert found[0] == 1
    assert len(found) == len(set(found))
    if content == "gone":
        assert found == [1, 9]


@pytest.mark.parametrize("same", [True, False])
async def test_a_lost_connection_repeats_and_loses_no_row(same: bool) -> None:
    """Also where another server cuts the rows of the transaction into other events."""
    log = gtid_log([[1]], [[2, 3], [4, 5], [6]])
    other = log if same else gtid_log([[1]], [[2, 3, 4], [5, 6]])
    source = gtid_source(log)
    source.cuts = [size_of(source, everything()) - cut for cut in (150, 100, 60)]
    if not same:
        source.cuts = source.cuts[:1]
        source.on_cut = lambda: fail_over(source, other)
    async with opened(source) as stream:
        found: list[int] = []
        async for batch in stream.arrow("s.t", max_seconds=0.3):
            found += numbers(batch)
            if len(found) >= 6:
                break
    assert found == [1, 2, 3, 4, 5, 6]


async def test_rows_that_are_rolled_back_to_a_savepoint() -> None:
    log = gtid_log([[1]])
    gtid(log, 2).add(query("BEGIN")).add(int_table_map()).add(int_rows([2]))
    log.add(query("SAVEPOINT `a`")).add(int_table_map()).add(int_rows([3])).add(query("ROLLBACK TO `a`"))
    log.add(int_table_map()).add(int_rows([4])).event(EventType.XID, XID)
    found = await batches_of(gtid_source(log), 3, max_seconds=0.3)
    assert [number for part, _ in found for number in part] == [1, 2, 4]


async def test_damaged_rows_end_the_stream_behind_those_before() -> None:
    log = gtid_log([[1]], [[2]])
    damaged = bytearray(int_rows([3]))
    damaged[19 + 12] |= 1
    gtid(log, 3).add(query("BEGIN")).add(int_table_map()).add(bytes(damaged)).event(EventType.XID, XID)
    store = MemoryStore()
    async with opened(gtid_source(log), checkpoints=store) as stream:
        batches = stream.arrow("s.t", max_seconds=0.3)
        assert numbers(await anext(batches)) + numbers(await anext(batches)) == [1, 2]
        for _ in range(2):
            with pytest.raises(DecodeError):
                await anext(batches)
        await stream.acknowledge()
    assert store.checkpoint is not None
    assert store.checkpoint.gtid_set == ""


async def test_what_cannot_be_asked_for() -> None:
    def connect(**options: Any) -> BinlogStream:
        return replica.connect("mysql://repl@127.0.0.1", **options)

    refused: list[tuple[BinlogStream, dict[str, Any], str]] = [
        (connect(), {"table": "t"}, "table: schema and table with a dot between"),
        (connect(), {"table": "s.t", "max_rows": 0}, r"arrow\(\): max_rows"),
        (connect(), {"table": "s.t", "max_seconds": 0}, r"arrow\(\): max_seconds"),
        (connect(), {"table": "s.t", "metadata": ["op"]}, "metadata: unknown column op"),
        (connect(events=replica.QueryEvent), {"table": "s.t"}, "leave out events="),
        (connect(start="snapshot"), {"table": "s.t"}, "start='snapshot'"),
    ]
    for stream, given, text in refused:
        with pytest.raises(ConfigurationError, match=text):
            stream.arrow(**given)
    stream = connect()
    stream.arrow("s.t")
    with pytest.raises(RuntimeError, match="connect another stream"):
        stream.arrow("s.t")
    with pytest.raises(RuntimeError, match="not both"):
        stream.batches()
    with pytest.raises(RuntimeError, match=r"arrow\(\) alone"):
        stream.transactions()
    with pytest.raises(RuntimeError, match=r"arrow\(\) alone"):
        aiter(stream)
    with pytest.raises(RuntimeError, match="copies no tables"):
        await stream.snapshot("s.t")
    grouped = [connect(), connect()]
    grouped[0].transactions()
    grouped[1].batches()
    for stream in grouped:
        with pytest.raises(RuntimeError, match="connect another stream"):
            stream.arrow("s.t")


async def test_events_that_were_read_before() -> None:
    async with opened(gtid_source(gtid_log(*LOG))) as stream:
        await anext(stream)
        with pytest.raises(ConfigurationError, match="before any event is read"):
            stream.arrow("s.t")


async def test_a_place_that_was_read_before() -> None:
    """A second decoder would not know in which file it is."""
    source = gtid_source(gtid_log(*LOG))
    source.pause = 0.2
    async with opened(source) as stream:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.1)
        with pytest.raises(ConfigurationError, match="before any event is read"):
            stream.arrow("s.t")


# Without asyncio

METADATA = ["_op", "_ts", "_gtid", "_pos", "_row"]
OPTIONS: dict[str, Any] = {"start": "earliest", "stop": "now"}


def test_an_arrow_stream() -> None:
    """pyarrow takes the stream as it is; it has the rows that the file has."""
    with recorded_log() as path, open_binlog(path) as log:
        expected = pa.table(log.arrow("shop.customers", metadata=METADATA))
    with DemoSource(tls=False) as source:
        for most in (7, 16_384):
            with replica.sync.connect(source.dsn, **OPTIONS) as stream:
                batches = stream.arrow("shop.customers", metadata=METADATA, max_rows=most)
                assert pa.table(batches) == expected
                assert batches.checkpoint is not None
                assert stream.checkpoint is not None
                assert batches.checkpoint.position <= stream.checkpoint.position
                assert batches.schema == expected.schema
                assert stream.status.rows == expected.num_rows
                assert list(batches) == []
                with pytest.raises(RuntimeError, match=r"arrow\(\)"):
                    iter(stream)
            assert list(batches) == []
        with replica.sync.connect(source.dsn, **OPTIONS) as stream:
            nothing = pa.table(stream.arrow("shop.none", metadata=["_op"]))
    assert nothing.schema.names == ["_op"]
    assert nothing.num_rows == 0


def test_columns_that_change() -> None:
    """The next batch has another schema; an Arrow stream fails there, and iterating goes on with that batch."""
    with recorded_log() as path, open_binlog(path) as log:
        expected = list(log.arrow("shop.orders", metadata=METADATA))
    schemas = list(dict.fromkeys(batch.schema for batch in expected))
    assert len(schemas) == 2
    tables = [pa.Table.from_batches([b for b in expected if b.schema == schema]) for schema in schemas]
    with DemoSource(tls=False) as source:
        with replica.sync.connect(source.dsn, **OPTIONS) as stream:
            found = list(stream.arrow("shop.orders", metadata=METADATA))
        assert [pa.Table.from_batches([b for b in found if b.schema == s]) for s in schemas] == tables
        with replica.sync.connect(source.dsn, **OPTIONS) as stream:
            batches = stream.arrow("shop.orders", metadata=METADATA)
            reader = pa.RecordBatchReader.from_stream(batches)
            first = [reader.read_next_batch() for batch in found if batch.schema == schemas[0]]
            with pytest.raises(pa.ArrowException, match=r"columns of shop\.orders change within the log"):
                reader.read_next_batch()
            assert pa.Table.from_batches(first) == tables[0]
            assert pa.table(batches) == tables[1]
