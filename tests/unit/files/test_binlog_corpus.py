"""Real binlog files, read from the first to the last event; and large files, read in little memory."""

from __future__ import annotations

import contextlib
import gzip
import io
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from protocol.binlog.events import Event, TransactionPayloadEvent
from protocol.constants import EventType
from protocol.errors import ChecksumError, DecodeError, ReplicaError, UnsupportedEventError
from replica.files.binlog_file import open_binlog
from tests.support.log_builder import LogBuilder
from tests.support.places import CORPUS, corpus_index

# Real files


# The end of a file's name -> why the file cannot be read to its end.
REFUSED: dict[str, tuple[type[ReplicaError], str]] = {
    "suite_binlog__binlog_old_version_4_1.000001": (
        UnsupportedEventError,
        "binlog version 3 of server 4.1.24",
    ),
    "trunc_binlog.000001": (UnsupportedEventError, "binlog version 3 of server 4.0.23"),
    "suite_binlog__invalid_row_v2_tag.001": (DecodeError, "event type 30"),
    "BINLOG_stmts__r_mysqlbinlog_base64_flag.result__2.binlog": (DecodeError, "event type 19"),
    "suite_binlog__ver_5_1-wl2325_s.001": (UnsupportedEventError, "server 5.2.2-a_drop6p13"),
}


@pytest.mark.thorough
@pytest.mark.skipif(not corpus_index(), reason="the corpus is not there")
def test_every_file_of_the_corpus() -> None:
    opened = 0
    for record in corpus_index():
        path = CORPUS / record["file"]
        has_stale_checksums = any("crc bad" in note for note in record["walk_notes"])
        found: Counter[int] = Counter()
        log = open_binlog(path, verify_checksum=not has_stale_checksums, keyring=bytes(32))
        refusal, message = REFUSED.get(path.name, (None, ""))
        with log, pytest.raises(refusal, match=message) if refusal else contextlib.nullcontext():
            found.update(raw[4] for raw, _, _ in log.raw_events() if raw)
        if refusal:
            continue
        opened += 1
        assert log.skipped.events == 0
        if record["magic_ok"]:
            expected = {
                int(name.split()[0]): count
                for name, count in record["event_counts"].items()
                if name.split()[0].isdigit()
            }
            assert found == expected, record["file"]
    print(f"{opened} files opened, {len(corpus_index()) - opened} refused")
    assert opened == len(corpus_index()) - len(REFUSED)


@pytest.mark.thorough
@pytest.mark.skipif(not corpus_index(), reason="the corpus is not there")
def test_stale_checksums_of_the_corpus_are_found() -> None:
    for record in corpus_index():
        if bad := [note for note in record["walk_notes"] if "crc bad" in note]:
            with open_binlog(CORPUS / record["file"], on_error="skip") as log:
                list(log)
            assert log.skipped.events >= len(bad), record["file"]
            with pytest.raises(ChecksumError):
                list(open_binlog(CORPUS / record["file"]))


@pytest.mark.thorough
@pytest.mark.skipif(not corpus_index(), reason="the corpus is not there")
def test_compressed_transactions() -> None:
    compared = 0
    for record in corpus_index():
        if not record["embedded_event_counts"]:
            continue
        path = CORPUS / record["file"]
        with open_binlog(path) as log:
            events = list(log)
        with open_binlog(path) as log:
            raws = list(log.raw_events())
        envelopes = [event for _, _, event in raws if isinstance(event, TransactionPayloadEvent)]
        assert [event for _, _, event in raws if event not in envelopes] == events
        inner: list[Event] = [event for raw, _, event in raws if not raw]
        assert {event.position for event in inner} <= {event.position for event in envelopes}
        found = Counter(event.header.type for event in inner)
        assert found == {
            int(name.split()[0]): count for name, count in record["embedded_event_counts"].items()
        }
        compared += 1
    assert compared >= 2


# Memory

MEASURE = """
import re, sys
from pathlib import Path
from protocol.binlog.events import WriteRowsEvent
from replica.files.binlog_file import open_binlog
with open_binlog(sys.argv[1]) as log:
    print(sum(len(event.rows) for event in log if type(event) is WriteRowsEvent))
# Not getrusage: its peak would include what the parent had when it forked.
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


def peak_megabytes(path: Path, size: int) -> int:
    """Peak memory of a process that decodes a file of that size and counts its rows."""
    log = LogBuilder()
    # The copied events keep their positions; only each event's own checksum is verified, and that fits.
    begin = len(log.data)
    for _ in range(100):
        log.transaction(list(range(1000)), sequence=1)
    block = bytes(log.data[begin:])
    count = size // len(block)
    with path.open("wb") as file:
        file.write(log.data[:begin])
        for _ in range(count):
            file.write(block)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True
    )
    rows, peak = done.stdout.split()
    assert int(rows) == count * 100_000
    return int(peak)


def test_memory_of_a_large_file(tmp_path: Path) -> None:
    assert peak_megabytes(tmp_path / "binlog.000001", 64 << 20) < 150


@pytest.mark.long
def test_memory_of_a_file_of_one_gigabyte(tmp_path: Path) -> None:
    assert peak_megabytes(tmp_path / "binlog.000001", 1 << 30) < 150


def test_memory_of_an_encrypted_and_gzipped_file(tmp_path: Path) -> None:
    """Both layers are read in pieces: a megabyte of zeros takes a kilobyte of gzip."""
    log = LogBuilder()
    log.statement("x" * (64 << 20))
    data = gzip.compress(bytes(log.data), 1)
    assert len(data) < 1 << 20
    with open_binlog(io.BytesIO(data)) as file:
        assert next(file).header.type == EventType.FORMAT_DESCRIPTION
        assert file.bytes_read < len(data)
