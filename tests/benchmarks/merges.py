"""Batches of updates merged into the tables of `mirror`: `python -m tests.benchmarks.merges [--case NAME ...]`.

Tables and logs are synthetic (`synthetic`), and no server is needed. Each batch is a binlog file of about 16 MB,
which two executors read, stage and merge as in a micro-batch of a live job; a table is merged when about 5 % of it
waits, so the figures of a batch are those of all batches, with all merges, divided by their number: of the batches
behind the first merge up to the third one. At the end everything is merged and vacuumed. Processor time is that of
the driver, the JVM and all Python workers; the driver's memory is the most that its Python process had.

Measured on 2 cores, warm, quiet, by clock / by processor, a batch of 17 MB of log with its part of the merges:

    1M rows                  0.71 to 0.88 s / 1.1 to 1.6 s
    5M rows                  0.68 to 0.75 s / 1.1 to 1.3 s; a merge, which is due every fourth batch, 2.3 / 4.0
    5M rows, the last 1 %    0.19 s / 0.24 s; a merge 0.21 / 0.21; the rest, 0.13 / 0.2, is to read and stage the log
    500 tables               23.6 MB/s of log, 15 with the merge of all tables at the end
    100M rows of 30 bytes    0.75 s / 0.8 s; a merge of 1.2 GB, due every seventh batch, 47 to 55 s / 37 to 39, on a
                             machine that was not quiet, before ``worker_heap``

The driver had 255 to 299 MB in all of them; the disk has 1.1 to 1.5 of the live rows after a vacuum, of which the
changes of the last two minutes are most. By these figures 20 machines of 2 cores merge 2 billion such rows (24 GB,
600 leaves) in the same minute: a core rewrites 33 MB/s, and there are more leaves than cores. What limits that: a
leaf is the task of one core, so a table of few leaves gains nothing; the driver plans and commits in one process,
some 0.5 kB for each leaf; changes that are spread over all leaves become a piece for each leaf and 16 MB of
changes; and the store must read and write 1.3 GB/s. None of this was run on more than one machine.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from replica.spark.jobs import staged_source
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.keeper import Keeper, MergePolicy
from replica.spark.jobs.staging import Staged
from replica.spark.jobs.target import Target
from tests.benchmarks.report import machine
from tests.benchmarks.spark import cpu_seconds, processes, session
from tests.benchmarks.synthetic import SCHEMA, SMALL, WIDE, Shape, begin_of, fill, table_names, write_log
from tests.support.places import ROOT

_LOG_BYTES = 16 << 20
_MOST_BATCHES = 12
_ROUNDS = 2
_LAST = 0.01
_MERGE_SECONDS = 300.0


@dataclass(frozen=True)
class Case:
    """Tables of so many rows each, and where the keys of the updates are."""

    tables: int
    rows: int
    spread: str
    shape: Shape = WIDE

    @property
    def title(self) -> str:
        tables = "" if self.tables == 1 else f"{self.tables} tables of "
        return f"{tables}{self.rows:,} rows, {self.spread}"


CASES = {
    "1m": Case(1, 1_000_000, "uniform"),
    "5m": Case(1, 5_000_000, "uniform"),
    "5m-last": Case(1, 5_000_000, "last 1 %"),
    "500": Case(500, 4_000, "uniform"),
}


@dataclass
class Measured:
    """What one batch, or the merges at the end, took."""

    seconds: float = 0
    cpu: float = 0
    driver_cpu: float = 0
    log_bytes: int = 0
    added_bytes: int = 0
    added: int = 0
    removed: int = 0
    commits: int = 0

    def __add__(self, other: Measured) -> Measured:
        return Measured(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    def line(self, name: str, count: int = 1) -> str:
        return (
            f"| {name} | {self.seconds / count:.2f} | {self.cpu / count:.2f} | {self.driver_cpu / count:.2f} | "
            f"{self.log_bytes / 1e6 / self.seconds:.1f} | {self.added_bytes / 1e6 / count:.1f} | "
            f"{self.removed / count:.1f} | {self.added / count:.1f} | {self.commits / count:.1f} |"
        )


@dataclass
class Commits:
    """The commits of a target's tables since it was looked at last."""

    target: Path
    seen: set[Path] = field(default_factory=set)

    def take(self, into: Measured) -> Measured:
        for path in set(self.target.glob(f"{SCHEMA}/*/_delta_log/*.json")) - self.seen:
            self.seen.add(path)
            into.commits += 1
            for line in path.read_text().splitlines():
                action = json.loads(line)
                into.added_bytes += action.get("add", {}).get("size", 0)
                into.added += "add" in action
                into.removed += "remove" in action
        return into


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", nargs="*", choices=[*CASES], default=[*CASES], help="default: all")
    parser.add_argument("--rows", type=int, help="one table of so many small rows, in place of the cases")
    parser.add_argument("--spread", choices=("uniform", "last 1 %"), default="uniform", help="of --rows")
    parser.add_argument("--batches", type=int, default=_MOST_BATCHES, help="at most so many a case: 12")
    parser.add_argument("--folder", help="where the tables are made, and kept; default: a temporary folder")
    parser.add_argument("--fill", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    cases = [CASES[name] for name in arguments.case]
    if arguments.rows:
        cases = [Case(1, arguments.rows, arguments.spread, SMALL)]
    if arguments.fill:
        for case in cases:
            fill(Path(arguments.folder), case.tables, case.rows, case.shape)
        return
    with tempfile.TemporaryDirectory(prefix="bench-merges-") as scratch:
        spark = session(Path(scratch))
        try:
            print(machine(), flush=True)
            for case in cases:
                _run(case, spark, Path(arguments.folder or scratch), Path(scratch), arguments.batches)
        finally:
            spark.stop()


def _filled(case: Case, folder: Path) -> Path:
    """The tables of a case, made by a process of its own: the driver's memory is measured."""
    made = folder / f"{case.tables}-{case.rows}-{case.shape.note}"
    if not made.exists():
        partial_ = made.with_suffix(".partial")
        shutil.rmtree(partial_, ignore_errors=True)
        command = [sys.executable, "-m", "tests.benchmarks.merges", "--fill", "--folder", str(partial_)]
        names = [name for name, one in CASES.items() if (one.tables, one.rows) == (case.tables, case.rows)]
        command += ["--case", names[0]] if names else ["--rows", str(case.rows)]
        subprocess.run(command, cwd=ROOT, check=True)
        partial_.rename(made)
    return made


def _run(case: Case, spark: SparkSession, folder: Path, scratch: Path, batches: int) -> None:
    made, target = _filled(case, folder), scratch / "target"
    shutil.rmtree(target, ignore_errors=True)
    # Files of Delta tables are never changed.
    subprocess.run(["cp", "-al", str(made), str(target)], check=True)
    keeper = Keeper(
        Target(str(target), CurrentTable, lambda name: True),
        begin_of(target, case.tables),
        MergePolicy(_MERGE_SECONDS),
    )
    commits, measured, merged = Commits(target), list[Measured](), 0
    commits.take(Measured())
    print(f"\n## {case.title}: {_size(target) / 1e6:.1f} MB\n")
    print(
        "| batch | seconds | of processors | driver's | MB/s of log | MB written | files removed | added | commits |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for number, (path, size) in enumerate(_logs(case, scratch, batches)):
        items = partial(_stage, spark, path, target)
        one = _timed(partial(keeper.run, "query", number, items, spark), commits)
        one.log_bytes = size
        path.unlink()
        # Spark is warm behind the first merge; many tables wait for the end.
        is_warm = merged > 0 or (case.tables > 1 and number > 0)
        print(one.line(f"{number}" if is_warm else f"{number}, warming up"), flush=True)
        merged += one.commits > 0
        if is_warm:
            measured.append(one)
            if merged > _ROUNDS:
                break
    total = sum(measured, Measured())
    print(total.line("**mean**", len(measured)))
    _print_merge(measured)
    ending = _timed(partial(keeper.merge_waiting, is_end=True), commits)
    ending.log_bytes = total.log_bytes
    print(ending.line("the end"))
    _print_sizes(target, case)


def _print_merge(measured: list[Measured]) -> None:
    """What a merge takes beyond a batch without one, if there are both."""
    merging, others = (
        [one for one in measured if bool(one.commits) is is_merging] for is_merging in (True, False)
    )
    if merging and others:
        with_, without = sum(merging, Measured()), sum(others, Measured())
        seconds, cpu = (
            getattr(with_, name) / len(merging) - getattr(without, name) / len(others)
            for name in ("seconds", "cpu")
        )
        print(f"| a merge | {seconds:.2f} | {cpu:.2f} | | | | | | |")


def _print_sizes(target: Path, case: Case) -> None:
    before = _size(target)
    live = 0
    for name in table_names(case.tables):
        table = DeltaTable(str(target / SCHEMA / name))
        live += sum(table.get_add_actions(flatten=True)["size_bytes"].to_pylist())
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    after = _size(target)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"\ndriver {memory} MB; live rows {live / 1e6:.1f} MB, on disk {before / 1e6:.1f} MB, after vacuum "
        f"{after / 1e6:.1f} MB ({after / live:.2f})",
        flush=True,
    )


def _timed(run: partial[None], commits: Commits) -> Measured:
    before, began, own = processes(), time.perf_counter(), time.process_time()
    run()
    seconds, driver = time.perf_counter() - began, time.process_time() - own
    return commits.take(Measured(seconds, cpu_seconds(before, processes()), driver))


def _stage(spark: SparkSession, path: Path, target: Path) -> list[Staged]:
    staged_source.register(spark)
    options = {"schemaMode": "packed", "maxPartitionBytes": str(_LOG_BYTES * 9 // 16)}
    options |= staged_source.staging_options(str(target), is_changelog=False)
    return staged_source.staged_items(
        spark.read.format(staged_source.NAME).options(**options).load(str(path))
    )


def _logs(case: Case, scratch: Path, count: int) -> Iterator[tuple[Path, int]]:
    rng = np.random.default_rng(7)
    names = table_names(case.tables)
    for number in range(count):
        path = scratch / f"binlog.{number + 1:06d}"
        rows = _LOG_BYTES // (2 * case.shape.image.itemsize) // case.tables
        size = write_log(path, [(name, _keys(case, rows, rng)) for name in names], case.shape, rng)
        yield path, size


def _keys(case: Case, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    first = 0 if case.spread == "uniform" else int(case.rows * (1 - _LAST))
    return rng.integers(first, case.rows, count)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
