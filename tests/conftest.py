"""For all tests: what `--quick` and `--long` mean, the mark `server`, and that CI does not skip server tests."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from tests.support.seeds import VARIABLE, chosen_seed

#: A report's property for each server that its test ran on: with several processes all else stays in theirs.
SERVER_PROPERTY = "server"

_SERVER_TESTS = Path(__file__).parent / "server"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="leave out the tests marked `thorough`, and shorten others"
    )
    parser.addoption(
        "--long", action="store_true", help="also run the tests marked `long`, and the long forms of others"
    )
    parser.addoption(
        "--in-place-of",
        action="append",
        default=[],
        metavar="SERVER=IMAGE",
        help="run the tests of one server with another image, as in mysql:9.7=mysql:8.0 (make test-versions)",
    )


def pytest_configure(config: pytest.Config) -> None:
    # How long an example may take says something of the machine only.
    slow = [hypothesis.HealthCheck.too_slow]
    examples = 25 if config.getoption("quick") else 100
    hypothesis.settings.register_profile(
        "untimed",
        deadline=None,
        suppress_health_check=slow,
        max_examples=examples,
        derandomize=not config.getoption("long"),
    )
    hypothesis.settings.load_profile("untimed")
    # A shell lets programs in the background ignore Ctrl-C, and what they start with them: tests send it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A process beside others is told the terminal's size, which programs that tests start would take for theirs.
    if "PYTEST_XDIST_WORKER" in os.environ:
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _SERVER_TESTS in item.path.parents:
            item.add_marker("server")
    left_out = set() if config.getoption("long") else {"long"}
    if config.getoption("quick"):
        left_out.add("thorough")
    # Deselected, not skipped: what CI does not run by design is no failure there.
    deselected = [
        item for item in items if not left_out.isdisjoint(mark.name for mark in item.iter_markers())
    ]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        gone = set(deselected)
        items[:] = [item for item in items if item not in gone]


def pytest_collection_finish() -> None:
    # What was imported and collected stays: each full collection would walk it again, a tenth of the time.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def thorough(pytestconfig: pytest.Config) -> bool:
    """False in the quick form of the suite (`make check`), in which a test takes a sample of its cases."""
    return not pytestconfig.getoption("quick")


@pytest.fixture
def seed(pytestconfig: pytest.Config) -> int:
    """The seed of a randomised test: printed, and always the same without ``--long``; ``TEST_SEED`` gives another."""
    seed = chosen_seed(is_random=pytestconfig.getoption("long"))
    print(f"{VARIABLE}={seed}")
    return seed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # An expected failure is also reported as skipped.
    if not hasattr(report, "wasxfail") and item.get_closest_marker("server"):
        _fail_if_skipped_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if _SERVER_TESTS in collector.path.parents:
        _fail_if_skipped_in_ci(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        report
        for outcome in ("passed", "failed", "xfailed", "xpassed")
        for report in terminalreporter.getreports(outcome)
        if isinstance(report, pytest.TestReport) and report.when == "call"
    ]
    tests_run = Counter(
        value for report in reports for name, value in report.user_properties if name == SERVER_PROPERTY
    )
    if tests_run:
        terminalreporter.section("tests on each server")
        for name, number in sorted(tests_run.items()):
            terminalreporter.write_line(f"{name}: {number} tests")


def _fail_if_skipped_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and os.environ.get("CI", "").lower() in {"true", "1"}:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, which counts as a failure in CI: {reason}"
