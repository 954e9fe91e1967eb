"""Logs read by several processes: the same output as of one, in the same order, with the same errors."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from protocol.binlog.events import RowsEvent
from protocol.binlog.known_tables import KnownTables
from protocol.constants import EventType
from protocol.errors import ConfigurationError, ReplicaError, WorkerError
from protocol.rows.table import Table
from replica.demo import recorded_log
from replica.files import sections
from replica.files.binlog_file import BinlogFile, open_binlog
from replica.files.counted_sections import count_section
from replica.workers.pool import TASKS_AHEAD, WorkerPool
from tests.support.log_builder import LogBuilder, numbered_log
from tests.support.places import CORPUS, corpus_index
from tests.support.raw_events import query
from tests.support.seeds import chosen_seed
from tests.support.shared_logs import columns_of, small_sections, statistics_of, text_of

LARGE = 400_000
SECTIONS = (150, 4000)


def tables_of(path: Path) -> list[str]:
    names: dict[str, None] = {}
    try:
        with open_binlog(path) as log:
            for event in log:
                if isinstance(event, RowsEvent):
                    names[str(event.table)] = None
    except ReplicaError:
        # Damage: the tables before it are compared.
        pass
    return list(names)


def check(path: Path, workers: int = 2) -> int:
    """Text, statistics and columns by several processes equal those by one; the number of rows compared."""
    assert text_of(path, workers) == text_of(path, 1)
    assert statistics_of(path, workers) == statistics_of(path, 1)
    compared = 0
    for table in tables_of(path)[:3]:
        expected = columns_of(path, table, 1)
        assert columns_of(path, table, workers) == expected, table
        compared += len(expected[0])
    return compared


def corpus() -> list[str]:
    return [record["file"] for record in corpus_index() if record["size"] < LARGE]


@pytest.mark.skipif(not corpus_index(), reason="the corpus is not there")
@pytest.mark.parametrize("size", SECTIONS)
def test_real_logs(monkeypatch: pytest.MonkeyPatch, thorough: bool, size: int) -> None:
    """Both families and all versions: compressed, encrypted, damaged and relay logs among them."""
    small_sections(monkeypatch, size, processes=False)
    files = corpus()
    takes_all = thorough and size == SECTIONS[0]
    compared = sum(check(CORPUS / file) for file in files[:: 1 if takes_all else 3])
    assert compared > (400 if takes_all else 100)


def random_log(rng: random.Random) -> LogBuilder:
    """Transactions with and without GTIDs, of several tables, statements, savepoints and compressed ones."""
    log = LogBuilder(checksum=rng.random() < 0.8)
    has_gtids = rng.random() < 0.5
    for sequence in range(1, rng.randint(5, 40)):
        given: dict[str, Any] = {"sequence": sequence} if has_gtids else {}
        kind = rng.random()
        if kind < 0.7:
            rows = [rng.randrange(1000) for _ in range(rng.randint(1, 30))]
            log.transaction(rows, name=rng.choice("abc"), **given)
        elif kind < 0.85:
            log.statement(rng.choice(["CREATE TABLE x (a INT)", "SAVEPOINT y", "DROP USER z"]))
        elif has_gtids:
            log.compressed_transaction([rng.randrange(1000)], **given)
    return log


@pytest.mark.parametrize(
    "number", [*range(4), *(pytest.param(number, marks=pytest.mark.thorough) for number in range(4, 12))]
)
def test_random_logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int) -> None:
    """Whole, cut short, and damaged somewhere; the seed is printed."""
    seed = chosen_seed(is_random=True)
    print(f"TEST_SEED={seed}")
    rng = random.Random(f"{seed} {number}")
    small_sections(monkeypatch, rng.choice([50, 200, 1000]), processes=False)
    data = bytes(random_log(rng).data)
    path = tmp_path / "bin.000001"
    path.write_bytes(data)
    check(path, rng.choice([2, 3, 5]))
    path.write_bytes(data[: rng.randrange(4, len(data))])
    check(path)
    for _ in range(6):
        damaged = bytearray(data)
        damaged[rng.randrange(4, len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        check(path)


def test_several_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small_sections(monkeypatch, 100, processes=False)
    for number in (1, 2, 3):
        (tmp_path / f"bin.{number:06}").write_bytes(bytes(numbered_log(5, first=5 * number).data))
    pattern = tmp_path / "bin.[0-9]*"
    assert check(pattern) == 15


def test_settings_that_change_in_the_middle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where a section begins with other settings than were expected of it, the text is the same."""
    small_sections(monkeypatch, 60, processes=False)
    log = LogBuilder()
    for number in range(30):
        log.add(EventType.QUERY, query("DROP TABLE x", schema=f"schema{number // 3}")[19:])
        log.transaction([number])
    path = tmp_path / "bin.000001"
    path.write_bytes(bytes(log.data))
    check(path)


def test_patterns_that_match_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    small_sections(monkeypatch, 1000, processes=False)
    with recorded_log() as path:
        texts = []
        for workers in (1, 2):
            caplog.clear()
            texts.append((text_of(path, workers, tables=["shop.order", "shop.customers"]), caplog.text))
    assert texts[0] == texts[1]
    assert "did you mean shop.orders" in texts[0][1]


# With processes


def test_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    small_sections(monkeypatch, 20_000, processes=True)
    with recorded_log() as path:
        assert check(path) > 100
        with open_binlog(path) as log:
            whole = pa.table(log.arrow("shop.customers"))
        with open_binlog(path) as log:
            assert pa.table(log.arrow("shop.customers", workers=2)) == whole


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more sections are in flight than each process has tasks, however many there are."""
    small_sections(monkeypatch, 1000, processes=True)
    with recorded_log() as path, open_binlog(path) as log:
        total = len(list(sections.sections_of(log._files, 1000)))
        shared = log.share(2, count_section, None)
        assert shared is not None
        with shared:
            seen = [shared.pool.in_flight for _ in shared.answers()]
    assert total > 20
    assert len(seen) == total
    assert max(seen) == 2 * TASKS_AHEAD


def test_a_process_that_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had done is used, then there is a typed error; no process is left."""
    small_sections(monkeypatch, 1000, processes=True)
    with recorded_log() as path, open_binlog(path) as log:
        shared = log.share(2, count_section, None)
        assert shared is not None
        pool = shared.pool
        answers = shared.answers()
        next(answers)
        processes = pool.process_ids
        os.kill(processes[0], signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"workers=2\) has ended: signal 9"):
            list(answers)
    assert not any(map(is_alive, processes))


def test_a_process_that_is_killed_beside_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns: rows that were read here come first, then there is a typed error; no process is left."""
    small_sections(monkeypatch, 1000, processes=True)
    with recorded_log() as path, open_binlog(path) as log:
        reader = log.arrow("shop.orders", workers=2)
        next(reader)
        assert log._shared is not None
        [process] = log._shared.pool.process_ids
        os.kill(process, signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"workers=2\) has ended: signal 9"):
            list(reader)
    assert not is_alive(process)


def test_memory_of_columns_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections that were read here and wait for others count, too."""
    small_sections(monkeypatch, 1000, processes=True)
    with recorded_log() as path, open_binlog(path) as log:
        total = len(list(sections.sections_of(log._files, 1000)))
        reader = log.arrow("shop.orders", workers=2)
        assert log._shared is not None
        pool, most = log._shared.pool, 0
        for _ in reader:
            most = max(most, pool.in_flight)
    assert total > 20
    assert 2 <= most <= 2 * TASKS_AHEAD


def test_sections_go_on_with_the_tables_of_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table map is parsed once a process and table, not once a section."""
    small_sections(monkeypatch, 1000, processes=False)
    parsed = []

    def parse(known: KnownTables, table_map: bytes, mariadb: bool) -> Table:
        parsed.append(table_map)
        return original(known, table_map, mariadb)

    original = KnownTables.parse
    monkeypatch.setattr(KnownTables, "parse", parse)
    with recorded_log() as path:
        with open_binlog(path) as log:
            whole = sum(batch.num_rows for batch in log.arrow("shop.orders"))
        once = len(parsed)
        with open_binlog(path) as log:
            shared = sum(batch.num_rows for batch in log.arrow("shop.orders", workers=2))
            total = len(list(sections.sections_of(log._files, 1000)))
    assert shared == whole
    assert total > 20
    assert len(parsed) - once <= 2 * once


def is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_leaving_the_loop_ends_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    small_sections(monkeypatch, 1000, processes=True)
    with recorded_log() as path, open_binlog(path) as log:
        for _ in log.arrow("shop.customers", workers=2):
            assert log._shared is not None
            processes = log._shared.pool.process_ids
            # This process is the other one.
            assert len(processes) == 1
            break
    assert not any(map(is_alive, processes))


INTERRUPTED = """
import sys
from replica.files import sections
sections.SECTION_BYTES = 1000
from replica.cli import main
sys.exit(main(["decode", "--workers", "2", sys.argv[1]]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    """The command waits for its reader, as `less` makes it; then Ctrl-C reaches all processes of the terminal."""
    with recorded_log() as path:
        process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, str(path)], stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdout is not None
        process.stdout.read(1)
        members = group_members(process.pid)
        assert len(members) == 3
        os.killpg(process.pid, signal.SIGINT)
        process.stdout.close()
        assert process.wait(60) != 0
    deadline = time.monotonic() + 60
    while group_members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert group_members(process.pid) == []


def group_members(group: int) -> list[int]:
    """The processes of a group that have not ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


# What one process reads


def shared(log: BinlogFile) -> bool:
    return log.share(2, count_section, None) is not None


def test_what_cannot_be_shared(tmp_path: Path) -> None:
    """One process reads it, without an error."""
    path = tmp_path / "bin.000001"
    path.write_bytes(bytes(numbered_log(3).data))
    options: list[dict[str, Any]] = [{"start": 4}, {"stop": "bin.000001:200"}, {"on_error": "skip"}]
    for given in options:
        with open_binlog(path, **given) as log:
            assert not shared(log)
    with path.open("rb") as file, open_binlog(file) as log:
        assert not shared(log)
    with open_binlog(path) as log:
        assert shared(log)
    for workers in (0, 10_000, "2"):
        with open_binlog(path) as log, pytest.raises(ConfigurationError, match="workers: a number"):
            log.arrow("s.t", workers=workers)  # type: ignore[arg-type]
    with open_binlog(path) as log:
        next(log)
        with pytest.raises(ConfigurationError, match="open the log again"):
            log.share(2, count_section, None)


def test_a_pipe_is_read_by_one_process(tmp_path: Path) -> None:
    """As of ``<(zcat bin.000001.gz)``: its first bytes were read by somebody else."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as executor:
        executor.submit(pipe.write_bytes, bytes(numbered_log(3).data))
        with open_binlog(pipe) as log:
            assert not shared(log)
            assert sum(isinstance(event, RowsEvent) for event in log) == 3


_SPOILT = """
import os, sys
from replica.files import sections
from replica.files.binlog_file import open_binlog
sections.SECTION_BYTES = 20_000
path, how = sys.argv[1:]
with open_binlog(path) as log:
    batches = log.arrow("s.t", workers=2)
    next(batches)
    if how == "cut":
        os.truncate(path, 30_000)
    else:
        os.replace(path + "-other", path)
    try:
        for batch in batches: pass
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("how", "message"),
    [("cut", "TruncatedError the file was cut off"), ("replaced", "another file has got this name")],
)
def test_a_file_that_is_spoilt_while_it_is_read(tmp_path: Path, how: str, message: str) -> None:
    """A Bus error ended the process, and of a replaced file the rest was missing without an error."""
    path = tmp_path / "bin.000001"
    path.write_bytes(bytes(numbered_log(20_000).data))
    (tmp_path / "bin.000001-other").write_bytes(bytes(numbered_log(3).data))
    command = [sys.executable, "-c", _SPOILT, str(path), how]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert message in result.stdout, result


def test_errors_that_cannot_be_pickled() -> None:
    with WorkerPool(1, fail, None) as pool:
        [answer] = pool.answers([1])
    assert isinstance(answer.error, RuntimeError)
    assert "Unportable: 1 of nothing" in str(answer.error)


class Unportable(Exception):
    def __init__(self, one: object, other: object) -> None:
        super().__init__(f"{one} of {other}")


def fail(setting: object, task: object, output: object) -> None:
    raise Unportable(task, "nothing")
