"""Decompression inside events: payloads in pieces, MariaDB's events and columns, damage, a missing extra."""

from __future__ import annotations

import builtins
import subprocess
import sys
import tracemalloc
import zlib
from typing import Any

import pytest

from protocol.constants import EventType
from protocol.errors import DecodeError, MissingExtraError, TruncatedError
from protocol.inflate import payload_events, uncompress_column, uncompress_event_part
from tests.support.raw_events import format_description, int_rows, query, raw_event, rotate

zstd = pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
EVENTS = [query("BEGIN"), int_rows(list(range(1000))), query("COMMIT")]


def test_events_of_a_payload() -> None:
    assert list(payload_events(zstd.compress(b"".join(EVENTS)), 0)) == EVENTS
    assert list(payload_events(b"".join(EVENTS), 255)) == EVENTS
    frames = b"".join(zstd.compress(event) for event in EVENTS)
    assert list(payload_events(frames, 0)) == EVENTS


def test_many_small_frames_are_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each decompressor got the whole rest and copied it: 10 MB of empty frames took five minutes."""
    copied = 0

    class Decompressor:
        def __init__(self) -> None:
            self._real = zstd.ZstdDecompressor()

        def decompress(self, data: bytes, most: int) -> bytes:
            nonlocal copied
            result: bytes = self._real.decompress(data, most)
            copied += len(self._real.unused_data)
            return result

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    class Module:
        ZstdDecompressor = Decompressor
        ZstdError = zstd.ZstdError

    monkeypatch.setattr("protocol.inflate.load_zstd", lambda _: Module)
    frames = b"".join(zstd.compress(event) for event in EVENTS)
    payload = zstd.compress(b"") * 5000 + frames + b"\x50\x2a\x4d\x18\0\0\0\0" * 5000 + frames
    assert list(payload_events(payload, 0)) == EVENTS * 2
    assert copied < 10_010 * (8 << 10)


def test_an_event_that_no_transaction_holds() -> None:
    """Whoever reads the events inside follows neither a file's end nor a further compressed transaction."""
    fields = b"\2\3\xfc\xff\0\1\1\1\0x"
    for raw in (
        raw_event(EventType.TRANSACTION_PAYLOAD, fields),
        format_description(),
        rotate("../binlog.000009"),
        raw_event(EventType.HEARTBEAT, b"binlog.000001"),
        raw_event(EventType.PREVIOUS_GTIDS, bytes(8)),
        raw_event(EventType.GTID, b"\1" + bytes(23) + b"\1"),
        raw_event(EventType.STOP, b""),
    ):
        with pytest.raises(DecodeError, match=f"an event of type {raw[4]}, which no transaction holds"):
            list(payload_events(EVENTS[0] + raw, 255))


@pytest.mark.parametrize("cut", [1, 5, 20, 100])
def test_a_payload_cut_short(cut: int) -> None:
    with pytest.raises(DecodeError):
        list(payload_events(zstd.compress(b"".join(EVENTS))[:-cut], 0))
    with pytest.raises(TruncatedError):
        list(payload_events(b"".join(EVENTS)[:-cut], 255))


def test_a_payload_without_its_last_events() -> None:
    """A frame that was lost was not missed: the rows in it were not either."""
    size = len(b"".join(EVENTS))
    frames = [zstd.compress(event) for event in EVENTS]
    assert list(payload_events(b"".join(frames), 0, size)) == EVENTS
    with pytest.raises(TruncatedError, match=f"bytes of the {size} that it announces"):
        list(payload_events(b"".join(frames[:-1]), 0, size))


def test_a_damaged_payload() -> None:
    with pytest.raises(DecodeError, match="damaged"):
        list(payload_events(b"no zstd frame at all", 0))
    with pytest.raises(DecodeError, match="unknown compression type"):
        list(payload_events(b"", 7))
    with pytest.raises(DecodeError, match="event of 0 bytes"):
        list(payload_events(bytes(40), 255))


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name in ("compression", "backports"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=r"mysql-replica\[zstd\]"):
        list(payload_events(b"x", 0))


def test_event_parts() -> None:
    text = b"insert into t values (1)" * 20
    stored = b"\x82" + len(text).to_bytes(2, "big") + zlib.compress(text)
    assert uncompress_event_part(stored) == text
    for damaged in (
        b"",
        b"\x02ab",
        b"\x87abc",
        stored[:-5],
        b"\x82\0\1" + stored[3:],
        b"\x82",
        stored + b"x",
    ):
        with pytest.raises(DecodeError):
            uncompress_event_part(damaged)


def test_columns() -> None:
    text = b"a long text " * 50
    deflate = zlib.compressobj(wbits=-15)
    raw = deflate.compress(text) + deflate.flush()
    length = len(text).to_bytes(2, "big")
    assert uncompress_column(b"\x82" + length + zlib.compress(text)) == text
    assert uncompress_column(b"\x8a" + length + raw) == text
    assert uncompress_column(b"\0short") == b"short"
    assert uncompress_column(b"") == b""
    for damaged in (
        b"\x10abc",
        b"\x82",
        b"\x82\0\1" + zlib.compress(text),
        b"\x82" + length + zlib.compress(text) + b"x",
        b"\x8a" + length + raw + b"x",
    ):
        with pytest.raises(DecodeError):
            uncompress_column(damaged)


MEASURE = """
import re, sys
from pathlib import Path
from backports.zstd import ZstdCompressor
from protocol.inflate import payload_events
from tests.support.raw_events import int_rows
event, size = int_rows(list(range(1600))), int(sys.argv[1])
compressor, parts, count = ZstdCompressor(), [], size // len(event)
for _ in range(count):
    parts.append(compressor.compress(event))
parts.append(compressor.flush())
payload = b"".join(parts)
assert sum(1 for _ in payload_events(payload, 0)) == count
# Not getrusage: its peak would include what the parent had when it forked.
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


def peak_megabytes(size: int) -> int:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(size)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the measuring script uses the backport")
def test_memory_of_a_large_payload() -> None:
    assert peak_megabytes(64 << 20) < 150


@pytest.mark.long
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the measuring script uses the backport")
def test_memory_of_a_payload_of_one_gigabyte() -> None:
    assert peak_megabytes(1 << 30) < 150


def test_memory_of_a_large_event() -> None:
    """It was held three times: zeros of 30 KB took three gigabytes, at ``max_event_bytes``."""
    size = 32 << 20
    event = raw_event(EventType.ROWS_QUERY, bytes(size))
    payload = zstd.compress(event + EVENTS[0])
    tracemalloc.start()
    try:
        for number, raw in enumerate(payload_events(payload, 0)):
            assert raw == (event, EVENTS[0])[number]
        assert tracemalloc.get_traced_memory()[1] < 1.3 * size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("step", [1, 7, 18, 19, 20, 100])
def test_events_in_pieces_of_any_size(step: int) -> None:
    whole = b"".join(EVENTS)
    frames = b"".join(zstd.compress(whole[at : at + step]) for at in range(0, len(whole), step))
    assert list(payload_events(frames, 0, len(whole))) == EVENTS
