"""Logs of any size, made in little memory: transactions of rows events whose rows are the numbers from 0 on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.log_builder import LogBuilder

ROWS_PER_EVENT = 1_000
_GTID, _XID, _IGNORABLE = 33, 16, 29
_PART_BYTES = 4 << 20


def write_numbered(path: Path, transactions: Sequence[int], filler: int = 0) -> None:
    """One transaction for each number, which says how many events of ``ROWS_PER_EVENT`` rows it has.

    Before each of these is an event with a statement's text of ``filler`` bytes.
    """
    one = LogBuilder()
    one.transaction(list(range(ROWS_PER_EVENT)))
    pair = [(raw[4], raw[19:-4]) for raw in (one.event(2), one.event(3))]
    log, head, written = LogBuilder(), 0, 0
    begin = len(log.data)
    with open(path, "wb") as file:
        for number, events in enumerate(transactions):
            log.add(_GTID, b"\1" + bytes(16) + (number + 1).to_bytes(8, "little"))
            log.statement("BEGIN")
            for _ in range(events):
                log.add(_IGNORABLE, b"\0" + b"x" * filler)
                for kind, body in pair:
                    log.add(kind, body)
                if len(log.data) > _PART_BYTES:
                    written += file.write(log.data[head:])
                    # The next part goes on where this one ends: its own beginning is left out.
                    log, head = LogBuilder(shift=written - begin), begin
            log.add(_XID, number.to_bytes(8, "little"))
        file.write(log.data[head:])
