"""The thread that copies tables of a running job anew."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from replica.spark.jobs import copies_anew
from replica.spark.jobs.copies_anew import Resyncs


def test_it_outlives_errors_of_the_store(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended with the first one, and tables that were asked for later waited for ever."""
    monkeypatch.setattr(copies_anew, "_PAUSE", 0)
    answers: list[Any] = [OSError("the store is down"), OSError("the store is down"), []]

    def answer() -> list[Any]:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    nothing: Any = None
    requests: Any = SimpleNamespace(open=answer)
    resyncs = Resyncs(nothing, nothing, {}, nothing, nothing, nothing, requests)
    with caplog.at_level(logging.ERROR):
        resyncs.run_while(lambda: bool(answers))
    assert [record.getMessage() for record in caplog.records] == [
        "tables that are to be copied anew wait: the store is down"
    ]
