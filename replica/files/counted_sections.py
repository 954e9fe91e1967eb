"""``stats --workers``: sections of a log -> the statistics of each section -> the statistics of the log."""

from collections.abc import Callable
from typing import IO

from ..statistics.collect import LogStatistics
from .sections import OpenSection, SharedReading


def count_section(open_section: OpenSection, _: object, given: object, output: IO[bytes]) -> LogStatistics:
    """The work of a process on one section."""
    statistics = LogStatistics()
    with open_section(None) as log:
        statistics.add_all(log)
    return statistics


def count_shared(shared: SharedReading, statistics: LogStatistics, read_on: Callable[[], None]) -> None:
    """Add the statistics of all sections; calls ``read_on`` after each. Raises the errors of reading the log."""
    with shared:
        for _, answer in shared.answers():
            if answer.error is not None:
                raise answer.error
            assert isinstance(answer.facts, LogStatistics)
            statistics.include(answer.facts)
            read_on()
