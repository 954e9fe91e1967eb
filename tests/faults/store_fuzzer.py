"""A fuzzer of the files that the library keeps on a disk, for ``limited_steps``.

Each step writes one kind of file, damages it as a disk, a backup, an editor or a power failure may, and uses it.
What comes out must be right, or an error of the tree that says what to do: never another place, other names or rows.
"""

from __future__ import annotations

import contextlib
import logging
import random
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import replica
from protocol.binlog.checksum import crc32_matches
from protocol.constants import BINLOG_MAGIC
from protocol.errors import ReplicaError
from protocol.position import BinlogPosition
from replica.config.checkpoint import FileCheckpointStore
from replica.config.file_lock import FileLock
from replica.config.schema_store import FileSchemaStore
from replica.demo.log import read_log
from replica.relay.folder import RelayFolder
from replica.schemas.catalog import Statement
from replica.schemas.schema_keeper import history_of
from replica.schemas.timeline import SchemaHistory
from replica.spool.offsets import Offset
from replica.spool.spool import Segment, Spool
from tests.support.checkpoints import UUID, checkpoint
from tests.support.damaged_events import split
from tests.support.limited_steps import Step, chosen
from tests.support.shape_text import MYSQL, catalog_of
from tests.support.small_export import IDENTITY, PLACE, TABLE, change, finished, opened

#: What every error says: how to go on; or which path is not there.
_REMEDIES = (
    "restore it",
    "remove",
    "upgrade",
    "give ",
    "write the files' names",
    "check the disk",
    "start from another",
    "names none",
    "No such file",
)
_T = TypeVar("_T")
_BOM = b"\xef\xbb\xbf"
_FILES = 3


def steps(seed: int) -> Iterator[Step]:
    """Endless; a step depends on the seed and on its number only."""
    logging.disable()
    makers: list[tuple[str, Callable[[random.Random, Path], object]]] = [
        ("checkpoint", _checkpoint),
        ("schema store", _schemas),
        ("lock", _lock),
        ("export's parts", _parts),
        ("export's database", _database),
        ("spool", _spool),
        ("relay's index", _index),
        ("relay's newest file", _newest_file),
    ]
    yield from chosen(seed, [(name, partial(_in_folder, run)) for name, run in makers])


def _in_folder(run: Callable[[random.Random, Path], object], rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder, _told():
        run(rng, Path(folder))


@contextlib.contextmanager
def _told() -> Iterator[None]:
    message = _REMEDIES[0]
    try:
        yield
    except ReplicaError as error:
        message = str(error)
    assert any(remedy in message for remedy in _REMEDIES), message


def damaged(rng: random.Random, data: bytes, other: bytes = b"") -> bytes:
    """Bytes after one thing went wrong; ``other`` is a file of the same kind, of another time or stream."""
    size = max(len(data), 1)
    begin = rng.randrange(size)
    block = slice(begin, min(begin + rng.choice((1, 8, 100, 512, 4096)), size))
    kinds: list[Callable[[], bytes]] = [
        lambda: data[:begin] + bytes([data[begin] ^ 1 << rng.randrange(8)]) + data[begin + 1 :],
        lambda: data[:begin],
        lambda: data[:begin] + bytes(size - begin),
        lambda: data + bytes(rng.choice((1, 512, 4096))),
        lambda: data[: block.stop] + data[block] + data[block.stop :],
        lambda: data[: block.start] + data[block.stop :],
        lambda: data[: block.start] + other[block] + data[block.stop :],
        lambda: data[:begin] + other[begin:],
        lambda: other[:begin] + data[begin:],
        lambda: data.replace(b"\n", b"\r\n"),
        lambda: data.replace(b"\n", b""),
        lambda: _BOM + data,
        lambda: b"",
        lambda: b"".join(rng.sample(data.splitlines(keepends=True), data.count(b"\n"))),
    ]
    return rng.choice(kinds)()


def _checkpoint(rng: random.Random, folder: Path) -> None:
    store, other = FileCheckpointStore(folder / "c"), FileCheckpointStore(folder / "other")
    saved, another = checkpoint(rng.randrange(1 << 30)), checkpoint(rng.randrange(1 << 30))
    store.save(saved)
    other.save(another)
    path = Path(store.path)
    path.write_bytes(damaged(rng, path.read_bytes(), Path(other.path).read_bytes()))
    assert store.load() in (saved, another)


def _history(rng: random.Random, count: int) -> list[list[str]]:
    """The lines of a history after each of its statements."""
    history = SchemaHistory(
        UUID, BinlogPosition("binlog.000001", 4), catalog_of("CREATE TABLE t (a INT, b INT)")
    )
    history.note_begun("binlog.000001", 1_700_000_000)
    found = [list(history.to_lines())]
    for number in range(count):
        place = BinlogPosition("binlog.000001", 100 + number * 100)
        name = rng.choice(("a", "b", "c", "d"))
        statement = Statement(f"ALTER TABLE t ADD {name}{number} INT FIRST", "shop", MYSQL)
        found.append([*found[-1], *history.change_lines(history.apply(statement, place))])
    return found


def _schemas(rng: random.Random, folder: Path) -> None:
    store, other = FileSchemaStore(folder / "s"), FileSchemaStore(folder / "other")
    states, others = _history(rng, 4), _history(rng, 4)
    store.save(states[-1])
    other.save(others[-1])
    path = Path(store.path)
    path.write_bytes(damaged(rng, path.read_bytes(), Path(other.path).read_bytes()))
    lines = store.load()
    assert lines is not None
    found = history_of(store, lines)
    known = [SchemaHistory.from_lines(one) for one in (*states, *others)]
    # A killed process leaves a part of what it added: the stream goes on at the head.
    assert any(_content(found) == _content(one) for one in known), lines


def _content(history: SchemaHistory) -> object:
    tables = {table: list(timeline) for table, timeline in history.tables.items()}
    return history.source, history.begin, history.head, history.begun, tables


def _lock(rng: random.Random, folder: Path) -> None:
    """A lock file's content says who holds it: whatever it holds, the system knows whether it is held."""
    (folder / ".c.lock").write_bytes(rng.randbytes(rng.randrange(600)))
    lock = FileLock("checkpoint file", str(folder / "c"))
    lock.take()
    lock.check()
    lock.release()


def _export(rng: random.Random, folder: Path) -> list[tuple[int, str]]:
    work = opened(folder)
    for first in (0, 100, 200):
        work.add_rows(IDENTITY, TABLE, [(number, f"v{number}") for number in range(first, first + 100)])
        work.commit(PLACE)
    for number in range(0, 300, 3):
        change(work, (number, ""), (number, "changed"))
    work.complete(IDENTITY, TABLE, is_dropped=False)
    work.commit(PLACE, is_copied=rng.random() < 0.5)
    work.close()
    return [(number, f"v{number}" if number % 3 else "changed") for number in range(300)]


def _finish(folder: Path, rows: list[tuple[int, str]]) -> None:
    work = opened(folder)
    try:
        assert work.checkpoint in (PLACE, None)
        assert sorted(finished(work, folder)) == rows
    finally:
        work.close()


def _parts(rng: random.Random, folder: Path) -> None:
    rows = _export(rng, folder)
    path = rng.choice(sorted((folder / ".copy").glob("part-*")))
    data = path.read_bytes()
    changed = damaged(rng, data)
    # Their content has no checksum, as the finished files have none: what keeps the size is not seen.
    if len(changed) != len(data):
        path.write_bytes(changed)
    _finish(folder, rows)


def _database(rng: random.Random, folder: Path) -> None:
    rows = _export(rng, folder)
    path = folder / ".copy" / "state.sqlite"
    data = path.read_bytes()
    path.write_bytes(rng.choice((data[: rng.randrange(1, len(data))], b"", bytes(len(data)), _BOM + data)))
    work = opened(folder)
    try:
        # An empty database is that of an export that has not begun.
        assert work.checkpoint is None or sorted(finished(work, folder)) == rows
    finally:
        work.close()


def _spool(rng: random.Random, folder: Path) -> None:
    spool = Spool(str(folder), 1)
    events = list(split(read_log()))
    position = len(BINLOG_MAGIC)
    for raw in events[:_FILES]:
        after = Offset("binlog.000001", position, f"{UUID}:1-{rng.randrange(1 << 20)}", UUID, 1, 0)
        spool.begin(Segment(0, "", after, "binlog.000001", position, 0, UUID, 1, 0, True), events[0])
        spool.append(raw)
        spool.mark()
        position += len(raw)
    spool.sync()
    segments = spool.segments
    spool.close()
    first, second = rng.sample(sorted(folder.glob("*.json")), 2)
    first.write_bytes(damaged(rng, first.read_bytes(), second.read_bytes()))
    again = Spool(str(folder), 1)
    again.close()
    # Those before or behind the damaged one, without a gap; the other part of the log is fetched again.
    assert again.segments in _slices(segments), again.segments


def _slices(items: list[_T]) -> list[list[_T]]:
    return [items[first:last] for first in range(len(items)) for last in range(first, len(items) + 1)]


def _relay(folder: Path) -> dict[str, bytes]:
    """The files of a relay: the demo's log, three times."""
    events = list(split(read_log()))
    with RelayFolder(folder) as relay:
        for number in range(1, _FILES + 1):
            relay.enter(f"binlog.{number:06d}", len(BINLOG_MAGIC))
            relay.begin_events(events[0])
            relay.append(events[1:])
        relay.write()
        return {name: (folder / name).read_bytes() for name in relay.names}


def _index(rng: random.Random, folder: Path) -> None:
    files = _relay(folder)
    path = folder / "binlog.index"
    data = path.read_bytes()
    path.write_bytes(damaged(rng, data, data[::-1]))
    # The newest files may be unknown: the source's next file is then refused, as one of its name is there.
    RelayFolder(folder).close()
    with replica.open_binlog(folder) as log:
        found = [file for file, _ in groupby(event.file for event in log)]
    assert found in _slices(list(files)), found
    assert {name: (folder / name).read_bytes() for name in files} == files


def _newest_file(rng: random.Random, folder: Path) -> None:
    files = _relay(folder)
    path = folder / list(files)[-1]
    data = path.read_bytes()
    path.write_bytes(damaged(rng, data, bytes(len(data))))
    with RelayFolder(folder) as relay:
        kept = path.read_bytes()
        assert relay.end == len(kept) or not kept
    # Whole events, the last of which is compared with the source's.
    assert all(map(crc32_matches, split(kept)))
