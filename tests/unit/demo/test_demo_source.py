"""The demo's recorded log has the documented content, and its source serves all of it, ``with`` or ``async with``."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

import replica
from protocol.binlog.events import GtidEvent, QueryEvent, RowsEvent
from protocol.binlog.row_changes import Change
from protocol.errors import AuthenticationError, ConfigurationError
from replica.demo import DemoSource, recorded_log

MOST_BYTES = 150_000


def logged() -> list[replica.Event]:
    with recorded_log() as path, replica.open_binlog(path) as log:
        return list(log)


def changes_of(events: list[replica.Event]) -> list[Change]:
    return [change for event in events if isinstance(event, RowsEvent) for change in event.changes()]


async def streamed(dsn: str) -> list[replica.Event]:
    async with replica.connect(dsn, start="earliest", stop="now") as stream:
        return [event async for event in stream]


def test_the_log_holds_what_a_shop_does() -> None:
    with recorded_log() as path:
        assert path.stat().st_size < MOST_BYTES
    events = logged()
    changes = changes_of(events)
    counted = Counter((change.op, str(change.table)) for change in changes)
    for table in ("shop.customers", "shop.orders", "shop.order_items"):
        assert counted["insert", table] > 10 or table == "shop.customers"
    assert counted["update", "shop.orders"] > 50
    assert counted["delete", "shop.orders"] > 2
    assert sum(isinstance(event, GtidEvent) for event in events) > 200
    statements = [event.sql for event in events if isinstance(event, QueryEvent) and event.sql != "BEGIN"]
    assert [sql.split()[0] for sql in statements] == ["CREATE", "CREATE", "CREATE", "CREATE", "ALTER"]
    order = next(change.after for change in changes if str(change.table) == "shop.orders" and change.after)
    assert isinstance(order["total"], Decimal)
    assert isinstance(order["details"], dict)
    assert order["status"] == "new"
    assert {change.table.names_from for change in changes} == {"log"}
    times = [event.header.timestamp for event in events]
    assert timedelta(minutes=25) < timedelta(seconds=max(times) - min(times)) < timedelta(minutes=35)


@pytest.mark.parametrize("tls", [True, False])
async def test_it_serves_the_whole_log(tls: bool) -> None:
    async with asyncio.timeout(60), DemoSource(tls=tls) as source:
        assert changes_of(await streamed(source.dsn)) == changes_of(logged())
        with pytest.raises(AuthenticationError):
            await streamed(source.dsn.replace(source.password, "wrong"))
    assert source.port == 0


def test_it_serves_from_a_thread() -> None:
    before = threading.active_count()
    with DemoSource(tls=False) as source:
        assert len(asyncio.run(streamed(source.dsn))) > 1000
    assert threading.active_count() == before


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_it_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cut_off: bool) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if is_cut_off:
        monkeypatch.setattr("replica.demo.source.read_log", lambda: b"no log")
        with pytest.raises(ConfigurationError), DemoSource():
            pass
    else:
        with DemoSource(tls=False):
            assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())
