"""Records of the logger ``replica`` have attributes beside their text."""

from __future__ import annotations

import ast
import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import replica
from replica.config.checkpoint import CheckpointKeeper
from replica.config.log_facts import EVENTS, log_facts
from replica.config.options import Options
from replica.demo import DemoSource
from replica.source.retry import Retry
from replica.stream.binlog_stream import BinlogStream
from replica.sync.sync_stream import SyncStream

_PRODUCT = Path(replica.__file__).parent


def calls() -> Iterator[ast.Call]:
    """Every call that makes facts, in the product."""
    texts = [path.read_text() for path in _PRODUCT.rglob("*.py")]
    for text in texts:
        for node in ast.walk(ast.parse(text)) if "_facts(" in text else ():
            if isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                if name in ("log_facts", "_facts") and node.args and isinstance(node.args[0], ast.Constant):
                    yield node


def test_the_list_of_events_is_complete() -> None:
    told = {str(call.args[0].value) for call in calls() if isinstance(call.args[0], ast.Constant)}
    assert told == EVENTS.keys()


def test_attributes_are_those_that_the_list_names() -> None:
    """And none is an attribute that every record has: ``logging`` would raise KeyError."""
    own = logging.makeLogRecord({}).__dict__.keys() | {"message", "asctime"}
    for call in calls():
        assert isinstance(call.args[0], ast.Constant)
        named = {keyword.arg or "" for keyword in call.keywords}
        assert not named & own
        for name in named:
            assert name in EVENTS[str(call.args[0].value)], name


async def test_a_lost_connection(caplog: pytest.LogCaptureFixture) -> None:
    options = Options.build("mysql://repl:secret@db.example:3307", {})
    logger = logging.getLogger("replica.test")
    Retry(options, asyncio.Event(), logger).lost(replica.ConnectionLostError("gone"))
    [record] = caplog.records
    facts = {name: record.__dict__[name] for name in ("event", "source", "error", "attempt")}
    assert facts == {
        "event": "connection-lost",
        "source": "db.example:3307",
        "error": "gone",
        "attempt": 0,
    }
    assert isinstance(record.__dict__["delay"], float)


class FullDisk:
    """A store that cannot save."""

    def load(self) -> None:
        return None

    def save(self, checkpoint: replica.Checkpoint) -> None:
        raise replica.CheckpointError("the disk is full")


@pytest.mark.parametrize("is_sync", [False, True])
def test_an_error_while_a_stream_is_closed_by_another_error(
    caplog: pytest.LogCaptureFixture, is_sync: bool
) -> None:
    with DemoSource(tls=False) as source:
        address, options = source.address, Options.build(source.dsn, {"start": "earliest"})

        async def fail() -> None:
            async with BinlogStream(options) as stream:
                stream._upkeep._keeper = CheckpointKeeper(FullDisk(), 1)
                async for _ in stream:
                    raise LookupError

        def fail_in_step() -> None:
            with SyncStream(BinlogStream(options)) as stream:
                stream._stream._upkeep._keeper = CheckpointKeeper(FullDisk(), 1)
                for _ in stream:
                    raise LookupError

        with pytest.raises(LookupError):
            fail_in_step() if is_sync else asyncio.run(fail())
    [record] = [one for one in caplog.records if one.levelno == logging.ERROR]
    facts = {name: record.__dict__[name] for name in ("event", "source", "error")}
    assert facts == {"event": "close-failed", "source": address, "error": "the disk is full"}


def test_numbers_stay_numbers() -> None:
    facts = log_facts("names-corrected", table="a.b", binlog_file="binlog.000001", binlog_position=4)
    assert facts == {
        "event": "names-corrected",
        "table": "a.b",
        "binlog_file": "binlog.000001",
        "binlog_position": 4,
    }
