"""Logs read by several processes, or by a pool that needs no processes: in both the same code reads the sections."""

from __future__ import annotations

import io
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

import pytest

from protocol.errors import ReplicaError
from replica.files import sections, text_sections
from replica.files.binlog_file import open_binlog
from replica.files.counted_sections import count_section, count_shared
from replica.mysqlbinlog.event_text import TextRenderer, render_text
from replica.statistics.collect import LogStatistics
from replica.workers.pool import TASKS_AHEAD
from replica.workers.task_messages import Answer


class PoolWithoutProcesses:
    """What ``WorkerPool`` does, in this process; everything is pickled on its way, as between processes."""

    def __init__(
        self,
        workers: int,
        work: Callable[[Any, Any, IO[bytes]], object],
        setting: object,
        *,
        takes_part: bool = False,
    ) -> None:
        self._workers = workers
        self._takes_part = takes_part
        # Unpickled once, as in a process; the setting may remember what earlier tasks have told.
        self._work, self._setting = pickle.loads(pickle.dumps((work, setting)))

    def answers(self, tasks: Iterable[object]) -> Iterator[Answer]:
        waiting: deque[Answer] = deque()
        for task in tasks:
            waiting.append(self._answer(pickle.dumps(task)))
            if len(waiting) == TASKS_AHEAD * self._workers:
                yield waiting.popleft()
        yield from waiting

    def parts(
        self,
        tasks: Iterable[Any],
        here: Callable[[Any], Iterator[object]],
        there: Callable[[Answer], Iterator[object]],
    ) -> Iterator[object]:
        """Of ``workers`` tasks one is done as in this process, up to where it waits, and the others elsewhere."""
        assert self._takes_part
        waiting: deque[tuple[list[object], Iterator[object]]] = deque()
        for number, task in enumerate(tasks):
            if number % self._workers:
                waiting.append(([], there(self._answer(pickle.dumps(task)))))
            else:
                steps = here(task)
                waiting.append((list(iter(partial(next, steps), None)), steps))
            if len(waiting) == TASKS_AHEAD * self._workers:
                yield from chain(*waiting.popleft())
        for done in waiting:
            yield from chain(*done)

    def _answer(self, task: bytes) -> Answer:
        output = io.BytesIO()
        facts: object = None
        failed: Exception | None = None
        try:
            facts = self._work(self._setting, pickle.loads(task), output)
        except Exception as error:
            failed = error
        facts, failed = pickle.loads(pickle.dumps((facts, failed)))
        return Answer(facts, failed, output.getvalue())

    def close(self) -> None:
        """There is nothing to end."""


def small_sections(monkeypatch: pytest.MonkeyPatch, size: int, *, processes: bool) -> None:
    """Cut files into sections of this size."""
    monkeypatch.setattr(sections, "SECTION_BYTES", size)
    if not processes:
        monkeypatch.setattr(sections, "WorkerPool", PoolWithoutProcesses)


def text_of(path: Path, workers: int, **options: Any) -> tuple[bytes, str]:
    """The text of a log, and the error that ended it."""
    output, failure = io.BytesIO(), ""
    renderer = TextRenderer(output, hexdump=False)
    setting = text_sections.TextSetting(hexdump=False)
    try:
        with open_binlog(path, cells=renderer.cells, **options) as log:
            shared = None if workers == 1 else log.share(workers, text_sections.render_section, setting)
            if shared is None:
                render_text(log.raw_events(), renderer)
            else:
                text_sections.SharedText(shared, setting, output).write(lambda: None)
            failure = f"{log.torn_bytes} {log.bytes_read}"
    except ReplicaError as error:
        failure = f"{type(error).__name__}: {error}"
    return output.getvalue(), failure


def statistics_of(path: Path, workers: int) -> tuple[dict[str, object], str]:
    """The statistics of a log, or the error that ended counting."""
    statistics = LogStatistics()
    try:
        with open_binlog(path, row_values=False, on_schema_mismatch="positional") as log:
            shared = None if workers == 1 else log.share(workers, count_section, None)
            if shared is None:
                statistics.add_all(log)
            else:
                count_shared(shared, statistics, lambda: None)
    except ReplicaError as error:
        return {}, _place_of(error)
    return statistics.to_dict(), ""


def columns_of(path: Path, table: str, workers: int) -> tuple[list[Any], str, tuple[int, int]]:
    """The rows of a table with their schemas, the error that ended reading, and the losses."""
    rows: list[Any] = []
    failure = ""
    with open_binlog(path) as log:
        reader = log.arrow(table, images="both", workers=workers)
        try:
            for batch in reader:
                batch.validate(full=True)
                # Not to_pylist(): it needs time zone data for times outside of Python's range.
                rows += [(str(batch.schema), *map(str, row)) for row in zip(*batch.columns, strict=True)]
        except ReplicaError as error:
            failure = _place_of(error)
    return rows, failure, (reader.losses.dates, reader.losses.texts)


def _place_of(error: ReplicaError) -> str:
    """The kind of an error and its place: what is wrong with a row has other words where rows are read one by one."""
    return f"{type(error).__name__} {str(error).rpartition('(')[2]}"
