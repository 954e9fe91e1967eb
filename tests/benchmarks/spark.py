"""`make bench-spark`: Spark reading with the source `mysql-binlog`, beside other ways to read, in one run.

    python -m tests.benchmarks.spark [--quick] [--rounds N] [--without-peer] [--without-large]

- the bulk log of `make bench` to Parquet on two cores: ours, prebuilt batches of the same rows, and
  python-mysql-replication through `createDataFrame` (which needs a server in Docker)
- a log of 1 GB to nowhere, in one partition and in two

A MySQL server in Docker writes the bulk log once, into `.cache/bench`; the peer reads it from such a server. With
`--without-peer`, and that log in the cache, nothing needs Docker.

Everything runs in one Spark session. Before anything is timed, each kind of query has run once. Processor time is
that of the driver, the JVM and all Python workers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

from replica.files.log_files import find_log_files
from replica.spark.envelope import RowFormat
from replica.spark.jobs.spark_session import open_session
from replica.spool.planner import plan_files
from tests.benchmarks.large_log import LARGE_BYTES, write_large_log
from tests.benchmarks.logs import CACHE, Log, cached_logs, serving_server
from tests.benchmarks.prebuilt import PrebuiltSource, prebuild
from tests.benchmarks.report import machine
from tests.benchmarks.spark_peer import peer_to_parquet
from tests.benchmarks.workloads import COMPARED, QUICK_SHARE
from tests.support.servers import ServerPool

_PARTITION = 16 << 20
_FORMATS: tuple[RowFormat, ...] = ("json", "variant")
_PEER = "python-mysql-replication, json"
_ONE, _TWO = "1 GB, one partition", "1 GB, two partitions"
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Goal:
    """A bound for the time of ``slower`` / the time of ``faster``."""

    what: str
    slower: str
    faster: str
    bound: float
    at_least: bool = True


_GOALS = (
    Goal("bulk to Parquet: times as fast as python-mysql-replication", _PEER, "ours, json", 10),
    Goal("bulk to Parquet, json: speed / prebuilt batches'", "prebuilt, json", "ours, json", 0.5),
    Goal("bulk to Parquet, variant: speed / prebuilt batches'", "prebuilt, variant", "ours, variant", 0.5),
    Goal("1 GB: time of two partitions / of one", _TWO, _ONE, 0.7, at_least=False),
)


@dataclass
class Results:
    """Wall clock and processor seconds of each run."""

    runs: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def time(self, name: str, run: Callable[[], object]) -> None:
        before, began = processes(), time.perf_counter()
        run()
        seconds, cpu = time.perf_counter() - began, cpu_seconds(before, processes())
        self.runs.setdefault(name, []).append((seconds, cpu))
        _note(f"  {name}: {seconds:.2f} s, {cpu:.2f} s of processors")

    def median(self, name: str, which: int) -> float:
        return median(run[which] for run in self.runs[name])

    def lines(self) -> Iterator[str]:
        yield "| run | seconds | of processors | runs |"
        yield "| --- | ---: | ---: | ---: |"
        for name, runs in self.runs.items():
            yield f"| {name} | {self.median(name, 0):.2f} | {self.median(name, 1):.2f} | {len(runs)} |"
        yield ""
        yield "| goal | bound | by the clock | by processors |  |"
        yield "| --- | --- | ---: | ---: | --- |"
        for goal in _GOALS:
            if {goal.slower, goal.faster} <= self.runs.keys():
                yield self._line(goal)

    def _line(self, goal: Goal) -> str:
        clock, cpu = (self.median(goal.slower, which) / self.median(goal.faster, which) for which in (0, 1))
        is_met = clock >= goal.bound if goal.at_least else clock <= goal.bound
        side = "at least" if goal.at_least else "at most"
        return f"| {goal.what} | {side} {goal.bound:g} | {clock:.2f} | {cpu:.2f} | {'met' if is_met else 'missed'} |"


def main() -> None:
    arguments = _parser().parse_args()
    share = QUICK_SHARE if arguments.quick else 1
    rounds = arguments.rounds or (1 if arguments.quick else 2)
    results = Results()
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(contextlib.closing(ServerPool()))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-spark-")))
        [log] = cached_logs(pool, [workload for workload in COMPARED if workload.name == "bulk"], share)
        spark = session(scratch)
        stack.callback(spark.stop)
        _to_parquet(results, spark, log, scratch, rounds)
        if not arguments.without_large:
            _partitions(results, spark, log, rounds, LARGE_BYTES // share)
        if not arguments.without_peer:
            _peer(results, spark, pool, log, scratch)
    report = [f"## Spark: {log.size / 1e6:.1f} MB, {log.row_changes:,} row changes", "", machine(), ""]
    report += results.lines()
    print("\n".join(report))
    CACHE.joinpath("spark.md").write_text("\n".join(report) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench-spark", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, one round")
    parser.add_argument("--rounds", type=int, help="2 unless quick")
    parser.add_argument(
        "--without-peer",
        action="store_true",
        help="leave out the peer; needs no Docker once the log is there",
    )
    parser.add_argument("--without-large", action="store_true", help="leave out the log of 1 GB")
    return parser


def session(scratch: Path) -> SparkSession:
    settings = {"spark.driver.memory": "2g", "spark.ui.showConsoleProgress": "false"}
    spark = open_session(master="local[2]", settings=settings | {"spark.local.dir": str(scratch / "local")})
    spark.dataSource.register(PrebuiltSource)
    return spark


def _ours(spark: SparkSession, path: Path, row_format: RowFormat, partition_bytes: int) -> DataFrame:
    options = {"rowFormat": row_format, "maxPartitionBytes": str(partition_bytes)}
    return spark.read.format("mysql-binlog").options(**options).load(str(path))


def _to_parquet(results: Results, spark: SparkSession, log: Log, scratch: Path, rounds: int) -> None:
    """Time ours and prebuilt batches in alternating rounds, after one round to warm up."""
    target = scratch / "rows"

    def write(frame: DataFrame) -> None:
        frame.write.mode("overwrite").parquet(str(target))

    runs: dict[str, Callable[[], None]] = {}
    for row_format in _FORMATS:
        folder = scratch / row_format
        prebuild(folder, plan_files(find_log_files(log.path), _PARTITION), row_format)
        prebuilt = spark.read.format("prebuilt").option("rowFormat", row_format).load(str(folder))
        ours = _ours(spark, log.path, row_format, _PARTITION)
        runs[f"ours, {row_format}"] = lambda frame=ours: write(frame)  # type: ignore[misc]
        runs[f"prebuilt, {row_format}"] = lambda frame=prebuilt: write(frame)  # type: ignore[misc]
    warming = Results()
    _note("warming up")
    for name, run in runs.items():
        warming.time(name, run)
        _check_rows(spark, target, log)
    _note(f"to Parquet: {log.path.name}")
    for number in range(rounds):
        for name, run in list(runs.items())[:: -1 if number % 2 else 1]:
            results.time(name, run)


def _partitions(results: Results, spark: SparkSession, log: Log, rounds: int, size: int) -> None:
    path = CACHE / f"large-{size}-{log.path.name}"
    write_large_log(log.path, path, size)
    _note(f"to nowhere: {path.name}, {path.stat().st_size / 1e6:.0f} MB")
    whole = path.stat().st_size
    for number in range(rounds):
        for name, parts in ((_ONE, 1), (_TWO, 2))[:: -1 if number % 2 else 1]:
            frame = _ours(spark, path, "variant", whole // parts)
            assert frame.rdd.getNumPartitions() == parts
            results.time(name, lambda frame=frame: frame.write.format("noop").mode("overwrite").save())  # type: ignore[misc]


def _peer(results: Results, spark: SparkSession, pool: ServerPool, log: Log, scratch: Path) -> None:
    server = serving_server(pool, [log])
    setting = {"host": server.host, "port": server.port, "binlog": log.binlog}
    setting |= {"user": server.replica_user, "password": server.replica_password}
    _note(f"{_PEER}: once")
    target = scratch / "peer"
    results.time(_PEER, lambda: peer_to_parquet(spark, setting, target))
    _check_rows(spark, target, log)
    shutil.rmtree(target)


def _check_rows(spark: SparkSession, target: Path, log: Log) -> None:
    rows = spark.read.parquet(str(target)).count()
    if rows != log.row_changes:
        raise ValueError(f"{rows:,} of {log.row_changes:,} row changes")


@dataclass(frozen=True)
class Used:
    """Clock ticks of a process, and of those of its children that have ended."""

    parent: int
    own: int
    ended: int

    @property
    def total(self) -> int:
        return self.own + self.ended


def processes() -> dict[int, Used]:
    """This process and its descendants, by process id."""
    found: dict[int, Used] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                user, system, ended_user, ended_system = map(int, fields[11:15])
                found[int(folder.name)] = Used(int(fields[1]), user + system, ended_user + ended_system)
    tree, size = {os.getpid()}, 0
    while len(tree) > size:
        size = len(tree)
        tree |= {number for number, used in found.items() if used.parent in tree}
    return {number: found[number] for number in tree}


def cpu_seconds(before: dict[int, Used], after: dict[int, Used]) -> float:
    """Processor seconds used between two calls of ``processes``.

    The time of a process that has ended is in its parent's ``ended``; what it had used before does not count.
    """
    nothing = Used(0, 0, 0)
    total = sum(used.total - before.get(number, nothing).total for number, used in after.items())
    ended = {number: used.ended - before.get(number, nothing).ended for number, used in after.items()}
    for number, used in before.items():
        if number not in after and used.parent in ended:
            known = min(used.total, ended[used.parent])
            ended[used.parent] -= known
            total -= known
    return total / _CLOCK_TICKS


def _note(text: str) -> None:
    """Show progress on standard error."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
