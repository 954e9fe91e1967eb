"""From runs to what is printed: medians, ratios, the machine, and the goals with what was measured.

"Times as fast" is another reader's median time divided by ours for the same log, each of them the time of a whole
process: 2.0 means that ours took half as long. "Rows/s" leaves the start of the process and its imports out: the time
runs from connecting, or opening the file, to the last row. Tools that are no Python have whole processes only.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.benchmarks.contestants import Run
from tests.benchmarks.logs import Log
from tests.support.servers import Server

OURS_FILE = "mysql-replica (file)"
OURS_LIVE = "mysql-replica (live)"
PYTHON_PEER = "python-mysql-replication (live)"
TOOL_FILE = "mysqlbinlog -v (file)"
TOOL_LIVE = "mysqlbinlog -v (live)"

# What is run on a log but is no contest: names of the readers.
NOTHING, IMPORT, FILTER, WALK = "nothing", "import_ours", "ours_without_tables", "header_walk"
COLUMNS, TUPLES = "ours_in_columns", "ours_in_tuples"
COLUMNS_BY_TWO, TEXT, TEXT_BY_TWO = "ours_in_columns_by_two", "ours_as_text", "ours_as_text_by_two"
FROM_FILE, OPENING, LIVE, IN_SYNC, OVER_TLS, WITH_ZLIB = (
    "ours_from_file",
    "ours_opening_live",
    "ours_live",
    "ours_live_in_sync",
    "ours_live_over_tls",
    "ours_live_with_zlib",
)

_KIB_PER_MB = 1e6 / 1024


@dataclass
class Results:
    """``names`` are the contestants'. Runs by log and reader; ``failures`` says why one has none for a log."""

    names: list[str] = field(default_factory=list)
    runs: dict[tuple[str, str], list[Run]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, log: str, contestant: str, run: Run) -> None:
        self.runs.setdefault((log, contestant), []).append(run)

    def has(self, log: str, *contestants: str) -> bool:
        return all((log, contestant) in self.runs for contestant in contestants)

    def seconds(self, log: str, contestant: str) -> float:
        """Median time of the whole process."""
        return median(run.seconds for run in self.runs[log, contestant])

    def read_seconds(self, log: str, contestant: str) -> float:
        """Median time without the process's start and imports."""
        return median(run.read_seconds for run in self.runs[log, contestant])

    def cpu_seconds(self, log: str, contestant: str) -> float:
        """The least processor time without the process's start and imports: other programs only add to it."""
        return min(run.cpu_seconds for run in self.runs[log, contestant])

    def peak_mb(self, log: str, contestant: str) -> float:
        return median(run.peak_kib for run in self.runs[log, contestant]) / _KIB_PER_MB


@dataclass(frozen=True)
class Goal:
    """``measure`` gives the figure of one log; the goal is met if the worst of ``logs`` reaches ``bound``."""

    what: str
    logs: tuple[str, ...]
    needs: tuple[str, ...]
    measure: Callable[[Results, str], float]
    bound: float
    at_least: bool = True

    def text(self, results: Results) -> str:
        """One line of the table of goals."""
        side, worst = ("at least", min) if self.at_least else ("at most", max)
        if not all(results.has(log, *self.needs) for log in self.logs):
            return f"| {self.what} | {side} {self.bound:g} | not measured | |"
        measured = worst(self.measure(results, log) for log in self.logs)
        met = measured >= self.bound if self.at_least else measured <= self.bound
        return f"| {self.what} | {side} {self.bound:g} | {measured:.2f} | {'met' if met else 'missed'} |"


def _times_as_fast(other: str, ours: str) -> Callable[[Results, str], float]:
    return lambda results, log: results.seconds(log, other) / results.seconds(log, ours)


def _versus_python(logs: tuple[str, ...], bound: float, what: str) -> Iterator[Goal]:
    needs = (PYTHON_PEER, OURS_LIVE)
    yield Goal(f"{what}, live: rows/s / python-mysql-replication's", logs, needs, _reading(*needs), bound)
    yield Goal(f"{what}, live: the same by whole processes", logs, needs, _times_as_fast(*needs), bound)


def _live_and_file(logs: tuple[str, ...], what: str) -> Goal:
    needs = (OURS_LIVE, OURS_FILE)
    return Goal(f"live time / file time, {what}", logs, needs, _reading(*needs), 1.15, False)


def _live_and_file_by_cpu(logs: tuple[str, ...], what: str, bound: float) -> Goal:
    title = f"live / file by processor time, {what}"
    return Goal(title, logs, (LIVE, FROM_FILE), _by_cpu(LIVE, FROM_FILE), bound, False)


def _by_cpu(slower: str, faster: str) -> Callable[[Results, str], float]:
    return lambda results, log: results.cpu_seconds(log, slower) / results.cpu_seconds(log, faster)


def _versus_tool(logs: tuple[str, ...], what: str, bound: float) -> Goal:
    needs = (TOOL_FILE, OURS_FILE)
    return Goal(f"{what}, file: times as fast as mysqlbinlog -v", logs, needs, _times_as_fast(*needs), bound)


def _in_columns(log: str, bound: float) -> Goal:
    needs = (TUPLES, COLUMNS)
    return Goal(f"{log}: rows/s in columns / in tuples", (log,), needs, _reading(*needs), bound)


def _by_two(what: str, log: str, one: str, two: str) -> Goal:
    return Goal(f"{log}: {what} by two processes / by one", (log,), (one, two), _times_as_fast(one, two), 1.6)


def _reading(slower: str, faster: str) -> Callable[[Results, str], float]:
    return lambda results, log: results.read_seconds(log, slower) / results.read_seconds(log, faster)


_SIX = ("bulk", "small", "wide", "json", "decimals", "strings")
GOALS = (
    *_versus_python(("bulk",), 18, "bulk"),
    *_versus_python(("small",), 14, "small"),
    *_versus_python(_SIX, 9, "the slowest of six"),
    _versus_tool(("bulk", "small", "wide"), "bulk, small and wide", 1.3),
    _versus_tool(_SIX, "the slowest of six", 1),
    Goal(
        "the slowest of six, live: times as fast as mysqlbinlog -v",
        _SIX,
        (TOOL_LIVE, OURS_LIVE),
        _times_as_fast(TOOL_LIVE, OURS_LIVE),
        0.9,
    ),
    Goal(
        "bulk, no table wanted: speed / header walk and CRC32",
        ("bulk",),
        (WALK, FILTER),
        _reading(WALK, FILTER),
        0.5,
    ),
    *(_by_two("columns", log, COLUMNS, COLUMNS_BY_TWO) for log in ("bulk", "wide", "json")),
    *(_by_two("text", log, TEXT, TEXT_BY_TWO) for log in ("bulk", "wide", "json")),
    _in_columns("bulk", 2),
    _in_columns("json", 2),
    _in_columns("fixed", 2),
    _in_columns("decimals", 2),
    _live_and_file(("bulk",), "bulk"),
    _live_and_file(_SIX, "the worst of six"),
    _live_and_file_by_cpu(("small",), "small", 1.3),
    _live_and_file_by_cpu(
        tuple(name for name in _SIX if name != "small"), "the worst of the other five", 1.15
    ),
    Goal(
        "without asyncio / with it by processor time, the worst of six",
        _SIX,
        (IN_SYNC, LIVE),
        _by_cpu(IN_SYNC, LIVE),
        1.15,
        False,
    ),
    Goal(
        "bulk, live: MB resident beyond the interpreter's own",
        ("bulk",),
        (OURS_LIVE, NOTHING),
        lambda results, log: results.peak_mb(log, OURS_LIVE) - results.peak_mb(log, NOTHING),
        40,
        False,
    ),
)


def machine() -> str:
    """Processor, cores, Python."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = cpuinfo.partition("model name")[2].partition("\n")[0].strip(" \t:") or platform.machine()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, load before the run {load};"
        f" {platform.python_implementation()} {platform.python_version()}"
    )


def versions(server: Server, mariadb: Server) -> str:
    """What was run against what."""
    packages = ("mysql-replica", "mysql-replication", "asyncmy", "PyMySQL")
    known = [f"{package} {importlib.metadata.version(package)}" for package in packages]
    tools = [
        server.exec("mysqlbinlog", "--version").decode().strip(),
        mariadb.exec("mariadb-binlog", "--version").decode().strip(),
    ]
    return "; ".join([f"server MySQL {'.'.join(map(str, server.version))}", *known, *tools])


def ratio_table(results: Results, logs: Sequence[Log]) -> Iterator[str]:
    """How many times as fast as each other reader ours is: for the README."""
    others = [name for name in results.names if name not in (OURS_FILE, OURS_LIVE)]
    yield _row(["log", *others])
    yield _row(["---", *("---:" for _ in others)])
    for log in logs:
        yield _row([log.workload.what, *(_ratio(results, log.name, other) for other in others)])


def rate_table(results: Results, logs: Sequence[Log]) -> Iterator[str]:
    """The same by rows/s, for those whose reading is timed by itself."""
    others = [
        name for name in results.names if name not in (OURS_FILE, OURS_LIVE) and _is_python(results, name)
    ]
    yield _row(["log", *others])
    yield _row(["---", *("---:" for _ in others)])
    for log in logs:
        cells = [
            f"{_reading(other, OURS_LIVE)(results, log.name):.1f}"
            if results.has(log.name, other, OURS_LIVE)
            else "cannot"
            for other in others
        ]
        yield _row([log.workload.what, *cells])


def _is_python(results: Results, name: str) -> bool:
    return any(
        run.read_seconds for (_, reader), runs in results.runs.items() if reader == name for run in runs
    )


def _ratio(results: Results, log: str, other: str) -> str:
    ours = OURS_LIVE if other.endswith("(live)") else OURS_FILE
    return f"{_times_as_fast(other, ours)(results, log):.2f}" if results.has(log, other, ours) else "cannot"


def seconds_table(results: Results, logs: Sequence[Log]) -> Iterator[str]:
    """Medians of whole processes, in seconds, with the fastest and the slowest run."""
    everybody = results.names
    yield _row(["log", "MB", "row changes", *everybody])
    yield _row(["---", "---:", "---:", *("---:" for _ in everybody)])
    for log in logs:
        cells = [_seconds(results, log.name, name) for name in everybody]
        yield _row([log.name, f"{log.size / 1e6:.1f}", f"{log.row_changes:,}", *cells])


def _seconds(results: Results, log: str, name: str) -> str:
    if not results.has(log, name):
        return "cannot"
    runs = [run.seconds for run in results.runs[log, name]]
    return f"{median(runs):.2f} ({min(runs):.2f}-{max(runs):.2f})"


def details(results: Results, logs: Mapping[str, Log]) -> Iterator[str]:
    """Measurements without a contestant, and who could not read what."""
    for (log, name), runs in results.runs.items():
        if name in results.names:
            continue
        seconds = results.read_seconds(log, name)
        size = logs[log].size / 1e6
        if name in (NOTHING, IMPORT):
            yield f"- {name}: {results.seconds(log, name):.3f} s, {results.peak_mb(log, name):.0f} MB resident"
        elif name in (FROM_FILE, OPENING, LIVE, IN_SYNC, OVER_TLS, WITH_ZLIB):
            yield f"- {name} ({log}): {_processor_time(results, log, name)}"
        elif name in (FILTER, WALK):
            yield f"- {name} ({log}): {size / seconds:.0f} MB/s, process {results.seconds(log, name):.2f} s"
        else:
            yield f"- {name} ({log}): {logs[log].row_changes / seconds:,.0f} rows/s, {len(runs)} runs"
    for (log, name), reason in results.failures.items():
        json = " (a table of it has a JSON column)" if logs[log].workload.has_json else ""
        yield f"- {name} cannot read {log}{json}: {reason}"
    for name in (OURS_FILE, OURS_LIVE, PYTHON_PEER):
        peaks = [f"{log} {results.peak_mb(log, name):.0f}" for log in logs if results.has(log, name)]
        if peaks:
            yield f"- peak MB resident, {name}: {', '.join(peaks)}"


def _processor_time(results: Results, log: str, name: str) -> str:
    """Of a live reader also without what it takes to open a stream, which is the same for a log of any length."""
    cpu, file = results.cpu_seconds(log, name), results.cpu_seconds(log, FROM_FILE)
    text = f"{cpu:.3f} s of processor time, {cpu / file:.2f} times the file's"
    if name in (LIVE, IN_SYNC) and results.has(log, OPENING):
        text += f", {(cpu - results.cpu_seconds(log, OPENING)) / file:.2f} without opening"
    return text


def goal_table(results: Results) -> Iterator[str]:
    yield _row(["goal", "bound", "measured", ""])
    yield _row(["---", "---", "---:", "---"])
    for goal in GOALS:
        yield goal.text(results)


def micro_table(values: Mapping[str, float]) -> Iterator[str]:
    yield _row(["value", "ns"])
    yield _row(["---", "---:"])
    for name, nanoseconds in values.items():
        yield _row([name, f"{nanoseconds:.0f}"])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
