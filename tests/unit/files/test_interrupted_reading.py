"""After an exception of a signal handler a log does not seem to be at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.binlog.batch_decoder import BatchDecoder
from protocol.binlog.raw_reader import RawEventReader
from replica.files.binlog_file import BinlogFile, open_binlog
from replica.transactions.units import TransactionGrouper
from tests.support.log_builder import numbered_log


class RaisedError(Exception):
    """What a signal handler raises."""


KINDS: dict[str, Callable[[BinlogFile], Iterator[object]]] = {
    "events": iter,
    "transactions": lambda log: iter(log.transactions()),
    "arrow": lambda log: iter(log.arrow("s.t", batch_rows=1)),
}


@pytest.mark.parametrize("options", [{}, {"start": 4, "stop": "bin.000001:999999"}], ids=["batches", "range"])
@pytest.mark.parametrize("kind", KINDS)
def test_reading_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, options: dict[str, Any]
) -> None:
    path = tmp_path / "bin.000001"
    path.write_bytes(bytes(numbered_log(30).data))
    calls = 0

    def interrupting(real: Callable[..., Any]) -> Callable[..., Any]:
        def interrupted(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 4:
                raise RaisedError
            return real(*arguments)

        return interrupted

    for name in ("BATCH_BYTES", "_UNDECODED_BYTES"):
        monkeypatch.setattr(f"replica.files.log_events.{name}", 200)
    monkeypatch.setattr(RawEventReader, "read_event", interrupting(RawEventReader.read_event))
    monkeypatch.setattr(BatchDecoder, "decode_batch", interrupting(BatchDecoder.decode_batch))
    monkeypatch.setattr(TransactionGrouper, "feed", interrupting(TransactionGrouper.feed))
    with open_binlog(path, **options) as log:
        items = KINDS[kind](log)
        with pytest.raises(RaisedError):
            for _ in items:
                pass
        for _ in range(2):
            with pytest.raises(RuntimeError, match="open the log again"):
                for _ in items:
                    pass
