"""``tail --metrics``: what Prometheus scrapes while the stream runs, and whether the stream is healthy."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import pytest

import replica
from replica.cli import main
from replica.config.open_metrics import open_metrics
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


def test_tail(source: DemoSource) -> None:
    command = [
        sys.executable,
        "-m",
        "replica",
        "tail",
        source.dsn,
        "--from=earliest",
        "--metrics=127.0.0.1:0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            url = re.search(r"http://\S+", process.stderr.readline())
            assert url is not None
            while "StopEvent" not in process.stdout.readline():
                assert process.poll() is None
            with urllib.request.urlopen(url[0], timeout=SECONDS) as response:
                assert response.headers["Content-Type"].startswith(
                    "application/openmetrics-text; version=1.0.0"
                )
                found = samples(response.read().decode())
            health = url[0].replace("/metrics", "/healthz")
            with urllib.request.urlopen(health, timeout=SECONDS) as response:
                assert response.read() == b"streaming\n"
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(health + "x", timeout=SECONDS)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS)
            assert process.returncode == 0
        finally:
            process.kill()
    assert found["mysql_replica_connected"] == 1
    assert found["mysql_replica_rows_total"] == 405
    assert found["mysql_replica_received_bytes_total"] > 130_000
    assert found["mysql_replica_reconnects_total"] == 0


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
