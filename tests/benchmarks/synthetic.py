"""Tables that a job on Spark keeps, and logs of updates of their rows, made without a server.

Rows have 160 bytes of text that does not compress well, so that a million of them are some 120 MB of Parquet. Their
keys are the numbers from 0 on. An update has both images of its row, as in the log of a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from protocol.constants import ColumnType, EventType
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.job_state import JobState, TableState
from replica.spark.jobs.kept_table import Step, table_path
from replica.spark.jobs.leaf_files import LeafWriter, NewFile, folder
from replica.spark.jobs.leaves import HIGHEST, LEAF_BYTES, LOWEST, ROWS, Range
from replica.spark.jobs.merges import Merged
from tests.support import binlog_encoder as encoder
from tests.support.log_builder import LogBuilder
from tests.support.raw_events import query

SCHEMA = "made"
_EVENT_BYTES = 8192
_EVENTS = 10
_FILLED_ROWS = 200_000
_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
#: The mark of a DATETIME(6) of 2026-01-01 00:00:00, and its microseconds.
_MOMENT = (0x8000000000 + ((2026 * 13 + 1) << 22 | 1 << 17)).to_bytes(5, "big") + b"\0\0\0"


@dataclass(frozen=True)
class Shape:
    """The lengths of the two texts of a row."""

    name: int = 24
    note: int = 120

    @property
    def image(self) -> np.dtype[np.void]:
        """A row image: NULL bits, id, account, amount, changed, name and note."""
        texts = [
            ("name_size", "u1"),
            ("name", f"V{self.name}"),
            ("note_size", "<u2"),
            ("note", f"V{self.note}"),
        ]
        return np.dtype(
            [("nulls", "u1"), ("id", "<i8"), ("account", "<i4"), ("amount", "<f8"), ("changed", "V8"), *texts]
        )


WIDE = Shape()
#: Rows of about 30 bytes.
SMALL = Shape(4, 4)
_COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("account", pa.int32()),
        ("amount", pa.float64()),
        ("changed", pa.timestamp("us")),
        ("name", pa.string()),
        ("note", pa.string()),
    ]
)
_TYPES = (
    (ColumnType.LONGLONG, b""),
    (ColumnType.LONG, b""),
    (ColumnType.DOUBLE, b"\x08"),
    (ColumnType.DATETIME2, b"\x06"),
    (ColumnType.VARCHAR, (160).to_bytes(2, "little")),
    (ColumnType.VARCHAR, (800).to_bytes(2, "little")),
)


def table_names(count: int) -> list[str]:
    """The names of so many tables."""
    return [f"t{number:03d}" for number in range(count)]


def fill(target: Path, tables: int, rows: int, shape: Shape) -> None:
    """Write tables as leaves, each with so many rows."""
    for number, name in enumerate(table_names(tables)):
        full = f"{SCHEMA}.{name}"
        kept = CurrentTable(full, table_path(str(target), full))
        step = Step("filled", 0, 1)
        kept.conform(_COLUMNS.empty_table(), {}, step)
        kept.replace_files(Merged([], list(_leaves(kept, rows, shape, number))), step)


def begin_of(target: Path, tables: int) -> JobState:
    """The state of a job that has these tables."""
    state = JobState()
    for name in table_names(tables):
        full = f"{SCHEMA}.{name}"
        kept = CurrentTable(full, table_path(str(target), full))
        state.tables[full] = TableState(since=1, size=kept.size, rows=kept.row_count, key=["id"])
    return state


def _leaves(table: CurrentTable, rows: int, shape: Shape, seed: int) -> Iterator[NewFile]:
    size = rows * (shape.image.itemsize * 3 // 4)
    count = max(1, -(-size // LEAF_BYTES))
    firsts = [rows * number // count for number in range(count)]
    for first, following in zip(firsts, [*firsts[1:], rows], strict=True):
        low = LOWEST if first == 0 else first
        high = HIGHEST if following == rows else following - 1
        yield from _leaf(table, (low, high), range(first, following), shape, seed)


def _leaf(table: CurrentTable, range_: Range, keys: range, shape: Shape, seed: int) -> Iterator[NewFile]:
    rng = np.random.default_rng([seed, keys.start])
    writer = LeafWriter(folder(table.path, {}), _COLUMNS, ["id"], kind=ROWS, ranges=[range_])
    for first in range(keys.start, keys.stop, _FILLED_ROWS):
        found = np.arange(first, min(first + _FILLED_ROWS, keys.stop), dtype=np.int64)
        writer.add(_rows(found, shape, rng))
    yield from writer.finish()


def _rows(keys: npt.NDArray[np.int64], shape: Shape, rng: np.random.Generator) -> pa.Table:
    size = len(keys)
    texts = []
    for length in (shape.name, shape.note):
        data = pa.py_buffer(_LETTERS[rng.integers(0, 64, size * length, np.uint8)].tobytes())
        ends = pa.py_buffer((np.arange(size + 1, dtype=np.int32) * length).tobytes())
        texts.append(pa.Array.from_buffers(pa.string(), size, [None, ends, data]))
    columns = [
        pa.array(keys),
        pa.array((keys % 7919).astype(np.int32)),
        pa.array(keys / 100),
        pa.array(np.full(size, 1_767_225_600_000_000), pa.timestamp("us")),
        *texts,
    ]
    return pa.Table.from_arrays(columns, schema=_COLUMNS)


# Logs.


def write_log(
    path: Path, changed: Sequence[tuple[str, npt.NDArray[np.int64]]], shape: Shape, rng: np.random.Generator
) -> int:
    """A log of updates of the rows with these keys, table by table. Returns its bytes."""
    log = LogBuilder()
    width, present = len(_TYPES), [True] * len(_TYPES)
    count = max(1, _EVENT_BYTES // (2 * shape.image.itemsize))
    for number, (name, keys) in enumerate(changed):
        body = _table_map(number + 1, name)
        images = _images(keys, shape, rng)
        for first in range(0, len(keys), count * _EVENTS):
            log.add(EventType.QUERY, query("BEGIN")[19:])
            log.add(EventType.TABLE_MAP, body)
            most = min(first + count * _EVENTS, len(keys))
            for begin in range(first, most, count):
                rows = images[begin : min(begin + count, most)].tobytes()
                event = encoder.rows_event(EventType.UPDATE_ROWS, number + 1, width, [present, present], rows)
                log.add(EventType.UPDATE_ROWS, event)
            log.add(EventType.XID, first.to_bytes(8, "little"))
    path.write_bytes(log.data)
    return len(log.data)


def _images(keys: npt.NDArray[np.int64], shape: Shape, rng: np.random.Generator) -> npt.NDArray[np.void]:
    """For each key the row before and the row after."""
    pairs = np.zeros((len(keys), 2), shape.image)
    pairs["id"] = keys[:, None]
    pairs["account"] = (keys % 7919)[:, None]
    pairs["amount"][:, 0], pairs["amount"][:, 1] = keys / 100, keys / 50
    pairs["changed"] = np.void(_MOMENT)
    for name in ("name", "note"):
        length = shape.image[name].itemsize
        pairs[f"{name}_size"] = length
        letters = _LETTERS[rng.integers(0, 64, pairs.size * length, np.uint8)]
        pairs[name] = letters.view(f"V{length}").reshape(pairs.shape)
    return pairs


def _table_map(number: int, name: str) -> bytes:
    optional = {
        # All numbers have signs; texts are utf8mb4.
        1: encoder.high_bitmap([False] * 3),
        2: b"\x2d",
        4: encoder.name_list(name.encode() for name in _COLUMNS.names),
        8: encoder.lenenc_list([0]),
    }
    return encoder.table_map(
        number,
        SCHEMA.encode(),
        name.encode(),
        bytes(kind for kind, _ in _TYPES),
        b"".join(metadata for _, metadata in _TYPES),
        [False] * len(_TYPES),
        optional,
    )
