"""Random logs: many small transactions and a large one, on tables with every column type."""

from __future__ import annotations

import random
import struct
from pathlib import Path

from protocol.constants import EventType
from tests.support import binlog_encoder as encoder
from tests.support.log_builder import SOURCE_ID, LogBuilder
from tests.support.random_logs import KINDS, random_form, random_rows, random_table
from tests.support.raw_events import query, rotate

# Sorted, so that a seed gives the same log in every run.
USED_KINDS = sorted(KINDS)


def generated_log(
    seed: int, transactions: int, *, gtids: bool = True, width: int = 6, largest: int = 1
) -> LogBuilder:
    """``largest`` is how many rows events the largest transaction may have."""
    rng = random.Random(seed)
    log = LogBuilder(version="9.7.4")
    tables = [random_table(rng, rng.sample(USED_KINDS, rng.randint(1, width))) for _ in range(5)]
    for number in range(1, transactions + 1):
        if gtids:
            log.add(EventType.GTID, b"\1" + SOURCE_ID.bytes + struct.pack("<q", number))
        log.add(EventType.QUERY, query("BEGIN")[19:])
        for _ in range(rng.choice([1, 1, 1, 2, largest])):
            table = rng.choice(tables)
            form = random_form(rng, table)
            log.add(EventType.TABLE_MAP, table.table_map)
            log.add(form.event, random_rows(rng, table, form, rng.choice([1, 1, 2, 30])))
        ending = rng.random()
        if ending < 0.8:
            log.add(EventType.XID, struct.pack("<Q", number))
        else:
            log.add(EventType.QUERY, query("COMMIT" if ending < 0.9 else "ROLLBACK")[19:])
    return log


def write_generated(folder: Path, seed: int, files: int = 3, transactions: int = 40) -> list[Path]:
    """Write the files of one log; the last one has no ROTATE at its end."""
    paths = [folder / f"binlog.{number:06d}" for number in range(1, files + 1)]
    for number, path in enumerate(paths):
        log = generated_log(seed + number, transactions, largest=4, gtids=number != 1)
        if path is not paths[-1]:
            log.append(rotate(paths[number + 1].name, checksum=True))
        path.write_bytes(log.data)
    return paths


__all__ = ["encoder", "generated_log", "write_generated"]
