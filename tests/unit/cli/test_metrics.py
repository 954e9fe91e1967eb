"""``--metrics`` of the commands: what Prometheus scrapes while they run, and whether they are healthy."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import replica
import replica.sync
from replica import open_metrics
from replica.cli import main, metrics
from replica.cli.console import Console
from replica.cli.metrics import Report, serving_metrics
from replica.demo import DemoSource

SECONDS = 60
SAMPLE = re.compile(r'(\w+)\{source="([^"\\]|\\.)*"\} (\S+)')


@pytest.fixture(scope="module")
def source() -> Iterator[DemoSource]:
    with DemoSource(tls=False) as source:
        yield source


def samples(text: str) -> dict[str, float]:
    """The values by name; checks the form of every line."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""]
    found = {}
    for line in lines[:-2]:
        if not re.fullmatch(r"# (TYPE \w+ (counter|gauge)|HELP \w+ .+\.)", line):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            found[match[1]] = float(match[3])
    return found


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=SECONDS) as response:
        if url.endswith("/metrics"):
            kind = response.headers["Content-Type"]
            assert kind.startswith("application/openmetrics-text; version=1.0.0")
        return str(response.read().decode())


def status_of(url: str) -> int:
    """The status of an answer that is an error. Such an answer is a file, which has to be closed."""
    with pytest.raises(urllib.error.HTTPError) as raised:
        get(url)
    raised.value.close()
    return raised.value.code


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as a process, and the address of its metrics; it ends cleanly."""
    command = [sys.executable, "-m", "replica", *arguments, "--metrics=127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            while (url := re.search(r"metrics at (http://\S+)", process.stderr.readline())) is None:
                assert process.poll() is None
            yield process, url[1]
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SECONDS)
            assert process.returncode == 0
        finally:
            process.kill()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


def test_tail(source: DemoSource, tmp_path: Path) -> None:
    store = f"--checkpoint={tmp_path / 'ckpt'}"
    with running("tail", source.dsn, "--from=earliest", store) as (process, url):
        assert process.stdout is not None
        while "StopEvent" not in process.stdout.readline():
            assert process.poll() is None
        found = samples(get(url))
        health = url.replace("/metrics", "/healthz")
        assert get(health) == "streaming\n"
        assert status_of(health + "x") == 404
    assert found["mysql_replica_connected"] == 1
    assert found["mysql_replica_rows_total"] == 405
    assert found["mysql_replica_received_bytes_total"] > 130_000
    assert found["mysql_replica_reconnects_total"] == 0
    assert 0 <= time.time() - found["mysql_replica_last_checkpoint_timestamp_seconds"] < SECONDS


def is_synced(found: dict[str, float]) -> bool:
    """Whether all that came is on the disk, and the source has nothing more."""
    synced = found.get("mysql_replica_last_sync_timestamp_seconds", 0)
    newest = found.get("mysql_replica_last_event_timestamp_seconds", synced + 1)
    return synced >= newest and found.get("mysql_replica_seconds_behind") == 0


def test_relay(source: DemoSource, tmp_path: Path) -> None:
    with running("relay", source.dsn, str(tmp_path)) as (_, url):
        eventually(lambda: is_synced(samples(get(url))))
        found = samples(get(url))
        assert get(url.replace("/metrics", "/healthz")) == "streaming\n"
    assert found["mysql_replica_events_total"] > 1000
    assert found["mysql_replica_received_bytes_total"] > 130_000
    assert (found["mysql_replica_connected"], found["mysql_replica_reconnects_total"]) == (1, 0)


def test_relay_that_lost_its_source(tmp_path: Path) -> None:
    with DemoSource(tls=False) as lost:
        relay = running("relay", lost.dsn, str(tmp_path))
        _, url = relay.__enter__()
        eventually(lambda: "mysql_replica_seconds_behind" in samples(get(url)))
    try:
        eventually(lambda: samples(get(url))["mysql_replica_connected"] == 0)
        assert status_of(url.replace("/metrics", "/healthz")) == 503
    finally:
        relay.__exit__(None, None, None)


def test_serve(tmp_path: Path) -> None:
    log = Path(replica.__file__).with_name("demo") / "shop.binlog"
    (tmp_path / "shop.000001").write_bytes(log.read_bytes())
    with running("serve", str(tmp_path), "--listen=127.0.0.1:0", "--no-password") as (process, url):
        assert process.stderr is not None
        address = re.search(r"at (127\.0\.0\.1:\d+)$", process.stderr.readline().strip())
        assert address is not None
        assert samples(get(url))["mysql_replica_served_replicas"] == 0
        with replica.sync.connect(f"mysql://repl@{address[1]}", start="earliest", tls="disabled") as stream:
            next(stream)
            eventually(lambda: samples(get(url))["mysql_replica_served_replicas_waiting"] == 1)
            found = samples(get(url))
        assert get(url.replace("/metrics", "/healthz")) == "serving\n"
    assert (found["mysql_replica_served_replicas"], found["mysql_replica_served_connections"]) == (1, 1)


def test_a_copy_of_tables() -> None:
    status = replica.connect("mysql://repl@127.0.0.1:1").status
    copy = replica.SnapshotStatus(
        tables=3,
        tables_complete=1,
        rows=500,
        estimate=900,
        seconds_left=1.5,
        chunks=2,
        chunks_corrected=0,
        complete=False,
        keys={},
    )
    found = samples(replica.open_metrics(replace(status, snapshot=copy)))
    values = {name: value for name, value in found.items() if name.startswith("mysql_replica_snapshot_")}
    assert list(values.values()) == [3, 1, 500, 900, 0]


def test_a_stream_that_is_new() -> None:
    status = replica.connect("mysql://repl@127.0.0.1:1").status
    found = samples(open_metrics(replace(status, address='a"b\\c\nd')))
    assert found["mysql_replica_connected"] == 0
    # There is no value yet, so there is no sample.
    assert "mysql_replica_seconds_behind" not in found


@pytest.mark.parametrize("address", ["9100", "127.0.0.1:x", "192.0.2.1:9100"])
def test_an_address_that_cannot_be_used(
    source: DemoSource, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tail", source.dsn, "--stop=now", "--metrics", address]) == 2
    assert "error: --metrics: " in capsys.readouterr().err


async def test_connections_that_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All files that a process may open could be taken by them, and its stream could neither reconnect nor save."""
    monkeypatch.setattr(metrics, "_SECONDS", 600)
    errors = io.StringIO()
    report = Report("streaming", True, "# EOF\n")
    async with (
        asyncio.timeout(SECONDS),
        serving_metrics("127.0.0.1:0", lambda: report, Console(io.BytesIO(), errors)),
    ):
        port = int(errors.getvalue().rpartition(":")[2].partition("/")[0])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        for reader, _ in idle[:10]:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"# EOF\n")
        assert not idle[-1][0].at_eof()
        for _, one in [*idle, (reader, writer)]:
            one.close()
            with contextlib.suppress(ConnectionResetError):
                await one.wait_closed()
