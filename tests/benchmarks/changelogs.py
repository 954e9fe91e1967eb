"""The job `changelog` on a log of 500 tables: megabytes of log a second on two cores, and files.

    python -m tests.benchmarks.changelogs [--quick] [--rounds N] [--job NAME ...]

A MySQL server in Docker writes the log once, into `.cache/bench`; the jobs read it several times over, as several
files. Each line is a batch in the session of `make bench-spark`; before anything is timed, each kind has run once.

Measured on 2 cores, a quiet machine, 289 MB in one batch, warm: Delta 29.8 MB/s (18 s of processor), 20 files;
Parquet 26.1 (21 s), 20 files; `--typed` 23.8 (22 s), 500 files, as it has a table for each. `layout=tables`, measured
before ``replica.spark.worker_heap`` was there: 8.9 MB/s, 8,000 files.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from replica.spark.jobs import changelog, typed_changelog
from tests.benchmarks.logs import cached_logs
from tests.benchmarks.report import machine
from tests.benchmarks.spark import Results, session
from tests.benchmarks.workloads import QUICK_SHARE, SCHEMA, Fill, Workload
from tests.support.servers import ServerPool

TABLES = 500
_ROWS = 400
_ROUNDS = 4
_PARTITION = 16 << 20
_JOBS = ("changelog, Delta", "changelog, Delta, layout=tables", "changelog, Parquet", "changelog --typed")
_COLUMNS = (
    "id BIGINT UNSIGNED PRIMARY KEY, account INT NOT NULL, name VARCHAR(80) NOT NULL, amount DECIMAL(12,2), "
    "created DATETIME(6), note VARCHAR(200), flag TINYINT, rate DOUBLE"
)
_VALUES = (
    "n, n MOD 7919, CONCAT('name ', LEFT(SHA2(n, 256), 20)), n / 100, "
    "'2026-01-01' + INTERVAL n SECOND, REPEAT(LEFT(SHA2(n, 256), 8), 1 + n MOD 5), n MOD 3, n / 7"
)
MANY_TABLES = Workload(
    "tables",
    "rows of 500 tables, in turns",
    tuple(f"CREATE TABLE {SCHEMA}.t{number:03d} ({_COLUMNS})" for number in range(TABLES)),
    tuple(
        Fill(
            f"INSERT INTO {SCHEMA}.t{number:03d} SELECT {_VALUES} "
            f"FROM (SELECT n + {turn * _ROWS} + {{first}} AS n FROM {SCHEMA}.numbers WHERE n < {{count}}) AS some",
            _ROWS,
        )
        for turn in range(_ROUNDS)
        for number in range(TABLES)
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, one round")
    parser.add_argument("--rounds", type=int, help="2 unless quick")
    parser.add_argument("--times", type=int, default=4, help="how many files with the log: 4")
    parser.add_argument("--job", action="append", choices=_JOBS, help="only this one; may be repeated")
    arguments = parser.parse_args()
    share = QUICK_SHARE if arguments.quick else 1
    results, counts = Results(), dict[str, int]()
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(contextlib.closing(ServerPool()))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-changelogs-")))
        [log] = cached_logs(pool, [MANY_TABLES], share)
        spark = session(scratch)
        stack.callback(spark.stop)
        logs = scratch / "logs"
        logs.mkdir()
        for number in range(arguments.times):
            (logs / f"binlog.{number + 1:06d}").symlink_to(log.path)
        size = log.size * arguments.times
        for number in range(1 + (arguments.rounds or (1 if arguments.quick else 2))):
            for name in arguments.job or _JOBS:
                run = _runs(spark, logs)[name]
                target = scratch / "target"
                (results if number else Results()).time(name, partial(run, str(target)))
                counts[name] = sum(not {*path.parts} & {"_state"} for path in target.rglob("*.parquet"))
                shutil.rmtree(target)
    print(
        f"## Changelogs: {size / 1e6:.1f} MB, {log.row_changes * arguments.times:,} row changes, {TABLES} tables\n"
    )
    print(machine(), "", "| job | MB/s | seconds | of processors | files |", sep="\n")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, count in counts.items():
        seconds, cpu = results.median(name, 0), results.median(name, 1)
        print(f"| {name} | {size / 1e6 / seconds:.1f} | {seconds:.2f} | {cpu:.2f} | {count} |")


def _runs(spark: SparkSession, logs: Path) -> dict[str, Callable[[str], None]]:
    source = {"path": str(logs), "rowFormat": "json", "maxPartitionBytes": str(_PARTITION)}
    load = partial(changelog.load, spark, source)
    runs = (
        partial(load, format="delta"),
        partial(load, format="delta", layout="tables"),
        partial(load, format="parquet"),
        partial(typed_changelog.load, spark, {"path": str(logs)}),
    )
    return dict(zip(_JOBS, runs, strict=True))


if __name__ == "__main__":
    main()
