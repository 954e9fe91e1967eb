"""Records of the logger ``replica`` have attributes beside their text."""

from __future__ import annotations

import ast
import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import replica
from replica.config.log_facts import EVENTS, log_facts
from replica.config.options import Options
from replica.source.retry import Retry

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


def test_numbers_stay_numbers() -> None:
    facts = log_facts("names-corrected", table="a.b", binlog_file="binlog.000001", binlog_position=4)
    assert facts == {
        "event": "names-corrected",
        "table": "a.b",
        "binlog_file": "binlog.000001",
        "binlog_position": 4,
    }
