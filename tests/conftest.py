"""For all tests: what the marks `server` and `long` mean, and that CI does not skip server tests."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

#: A report's property for each server that its test ran on: with several processes all else stays in theirs.
SERVER_PROPERTY = "server"

_SERVER_TESTS = Path(__file__).parent / "server"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="also run the tests marked `long`, and the long forms of others"
    )


def pytest_configure() -> None:
    # How long an example may take says something of the machine only.
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=slow)
    hypothesis.settings.load_profile("untimed")
    # A process beside others is told the terminal's size, which programs that tests start would take for theirs.
    if "PYTEST_XDIST_WORKER" in os.environ:
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _SERVER_TESTS in item.path.parents:
            item.add_marker("server")
    if config.getoption("--long"):
        return
    # Deselected, not skipped: what CI does not run by design is no failure there.
    long_items = [item for item in items if item.get_closest_marker("long")]
    if long_items:
        config.hook.pytest_deselected(items=long_items)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


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
