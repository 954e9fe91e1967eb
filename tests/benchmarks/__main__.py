"""`make bench`: ours and the peers over the same logs, side by side, in alternating rounds of one run.

    python -m tests.benchmarks [--quick] [--only NAME]... [--rounds N] [--times N] [--profile]

The report goes to standard output and to `.cache/bench/report.md`. All servers are containers on 127.0.0.1, removed
at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial

from replica.files.binlog_file import BinlogFile
from tests.benchmarks import micro, report, table_reading
from tests.benchmarks.contestants import (
    MARIADB_FOLDER,
    Contestant,
    ContestantError,
    Run,
    contestants,
    python_reader,
    reader_command,
)
from tests.benchmarks.logs import CACHE, Log, cached_logs, put_files, serving_server
from tests.benchmarks.report import Results
from tests.benchmarks.workloads import COMPARED, FIXED, MANY, MICRO, QUICK_SHARE, Share, Workload
from tests.support.servers import Server, ServerPool

_IN_COLUMNS = ("bulk", "fixed", "decimals", "json")
_BY_TWO = ("bulk", "wide", "json")
_MEASUREMENTS = ("filter", "columns", "workers", "live", "micro", "tables")


def main() -> None:
    arguments = _parser().parse_args()
    chosen = set(arguments.only or [*(workload.name for workload in COMPARED), *_MEASUREMENTS])
    share = QUICK_SHARE if arguments.quick else Fraction(1, arguments.times)
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    with contextlib.closing(ServerPool()) as pool:
        if arguments.profile:
            _profile(cached_logs(pool, [workload for workload in COMPARED if workload.name in chosen], share))
            return
        lines = list(_benchmark(pool, chosen, share, rounds))
    CACHE.joinpath("report.md").write_text("\n".join(lines) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the rows, one round: to see that it works"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[*(workload.name for workload in COMPARED), *_MEASUREMENTS],
        help="one log or measurement; may be given more than once",
    )
    parser.add_argument("--rounds", type=int, help="3 unless quick")
    parser.add_argument(
        "--times",
        type=int,
        default=1,
        help="logs with so many times the rows: the start of our process (0.1 s, live 0.2) counts less",
    )
    parser.add_argument("--profile", action="store_true", help="where ours spends its time, and nothing else")
    return parser


def _benchmark(pool: ServerPool, chosen: set[str], share: Share, rounds: int) -> Iterator[str]:
    """The lines of the report; printed as they come."""
    machine = report.machine()
    compared = [workload for workload in COMPARED if workload.name in chosen]
    logs = {log.name: log for log in cached_logs(pool, [*_needed(chosen)], share)}
    results = Results()
    contest = [logs[workload.name] for workload in compared]
    rows = "all" if share == 1 else f"all, times {1 / Fraction(share)}"
    yield from _print([f"## Benchmark: rounds: {rounds}, rows: {rows}", "", machine])
    if contest:
        server = serving_server(pool, contest)
        mariadb = pool.shared("mariadb:11.8")
        put_files(mariadb, MARIADB_FOLDER, {log.binlog: log.path.read_bytes() for log in contest})
        yield from _print([report.versions(server, mariadb), ""])
        everybody = contestants(pool, server, mariadb)
        results.names = [str(contestant) for contestant in everybody]
        for log in contest:
            _compare(results, log, everybody, rounds)
        # Mixed into no round: they answer another question.
        _measure(results, contest[0], (report.NOTHING, report.IMPORT), rounds)
    if "filter" in chosen:
        _measure(results, logs["bulk"], (report.WALK, report.FILTER), rounds)
    if "live" in chosen:
        # A stream reads the columns of all tables when it is opened: the log of many tables has a server of its own.
        for together in ([w for w in COMPARED if w is not MANY], [MANY]):
            _live(pool, results, [logs[workload.name] for workload in together], rounds)
    if "columns" in chosen:
        yield from _columns(results, logs, rounds)
    if "workers" in chosen:
        readers = (report.COLUMNS, report.COLUMNS_BY_TWO, report.TEXT, report.TEXT_BY_TWO)
        for name in _BY_TWO:
            _measure(results, logs[name], readers, rounds)
    sections: list[tuple[str, Iterable[str]]] = [
        ("Times as fast as", report.ratio_table(results, contest) if contest else ()),
        ("Rows/s, times those of", report.rate_table(results, contest) if contest else ()),
        (
            "Seconds: median (fastest-slowest) of whole processes",
            report.seconds_table(results, contest) if contest else (),
        ),
        ("Other measurements", report.details(results, logs)),
        ("Goals", report.goal_table(results)),
    ]
    if "micro" in chosen:
        _note("micro")
        sections.append(
            ("Nanoseconds per value", report.micro_table(micro.nanoseconds_per_value(logs["micro"])))
        )
    if "tables" in chosen:
        _note("tables")
        sections.append(("Whole tables by SELECT", table_reading.benchmark(pool, share, rounds)))
    for title, lines in sections:
        yield from _print(["", f"### {title}", "", *lines])


def _needed(chosen: set[str]) -> Iterator[Workload]:
    """The logs that the choice asks for."""
    names = set(chosen)
    if "filter" in chosen:
        names.add("bulk")
    if "live" in chosen:
        names.update(workload.name for workload in COMPARED)
    if "columns" in chosen:
        names.update(_IN_COLUMNS)
    if "workers" in chosen:
        names.update(_BY_TWO)
    for workload in (*COMPARED, FIXED, MICRO):
        if workload.name in names:
            yield workload


def _compare(results: Results, log: Log, everybody: Sequence[Contestant], rounds: int) -> None:
    """Let everybody read a log once per round, every other time in the opposite order."""
    _note(f"{log.name}: {log.size / 1e6:.1f} MB, {log.row_changes:,} row changes")
    for contestant in everybody:
        if contestant.name in log.workload.left_out:
            results.failures[log.name, str(contestant)] = "left out: it takes minutes"
        else:
            _attempt(results, log, str(contestant), contestant.check)
    for number in range(rounds):
        for contestant in everybody[:: -1 if number % 2 else 1]:
            if (log.name, str(contestant)) not in results.failures:
                _attempt(results, log, str(contestant), contestant.run)


def _measure(results: Results, log: Log, readers: Sequence[str], rounds: int) -> None:
    """Run readers of ours that are no contest, alternating too."""
    _note(f"{', '.join(readers)}: {log.name}")
    all_rows = {report.COLUMNS, report.COLUMNS_BY_TWO, report.TUPLES}
    for _ in range(rounds):
        for name in readers:
            _attempt(results, log, name, partial(python_reader, name, all_rows=name in all_rows))


def _live(pool: ServerPool, results: Results, logs: Sequence[Log], rounds: int) -> None:
    """Our own readers of the same log from the file and live, by processor time; the variants of live, too."""
    server = serving_server(pool, logs)
    readers = (
        *(report.FROM_FILE, report.OPENING, report.LIVE),
        *(report.IN_SYNC, report.OVER_TLS, report.WITH_ZLIB),
    )
    for log in logs:
        _note(f"live and file: {log.name}")
        for number in range(rounds):
            for name in readers[:: -1 if number % 2 else 1]:
                source = None if name == report.FROM_FILE else server
                _attempt(results, log, name, partial(_run_reader, name, source))


def _run_reader(name: str, server: Server | None, log: Log) -> Run:
    return python_reader(name, log, server, all_rows=name != report.OPENING)


def _columns(results: Results, logs: dict[str, Log], rounds: int) -> Iterator[str]:
    if not hasattr(BinlogFile, "arrow"):
        yield from _print(["", "Columns: skipped, BinlogFile has no arrow()."])
        return
    for name in _IN_COLUMNS:
        _measure(results, logs[name], (report.TUPLES, report.COLUMNS), rounds)


def _attempt(results: Results, log: Log, name: str, run: Callable[[Log], Run | None]) -> None:
    try:
        timed = run(log)
    except ContestantError as error:
        results.failures[log.name, name] = str(error)
        results.runs.pop((log.name, name), None)
        _note(f"  {name} cannot read {log.name}: {error}")
        return
    if timed is not None:
        results.add(log.name, name, timed)
        _note(f"  {name}: {timed.seconds:.2f} s")


def _profile(logs: Sequence[Log]) -> None:
    for log in logs:
        print(f"{log.name}: own time by function", flush=True)
        subprocess.run([*reader_command("ours_from_file", log), "--profile"], check=True)


def _note(text: str) -> None:
    """Progress, which is no part of the report."""
    print(text, file=sys.stderr, flush=True)


def _print(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        print(line, flush=True)
        yield line


if __name__ == "__main__":
    main()
